"""/v1/keys and /v1/audit: who may call the API in the tenant's name, and who changed what."""

from datetime import datetime
from typing import Annotated

import msgspec

from gesta.admin.representations import key_representation
from gesta.api_types.keys import (
    ChangeRepresentation,
    KeyList,
    KeyRepresentation,
    MadeKey,
    Scope,
    Trail,
)
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.http_api.route import Answer, Call, Route
from gesta.requests.dead_letters import iso
from gesta.tenants.api_keys import NAME_LENGTH_MAX
from gesta.tenants.audit_log import Change


class NewKey(Asked, frozen=True):
    """A key of the tenant's.

    What a test key submits reaches the sandbox and nobody else; it may have read and submit at
    most.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1, max_length=5)] = (
        "read",
        "submit",
    )
    #: Without it the key does not end by itself.
    expires_at: datetime | None = None
    test: bool = False


class TrailQuery(Asked, frozen=True):
    cursor: Annotated[int, msgspec.Meta(ge=1, le=2_147_483_647)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


async def create_key(call: Call) -> Answer:
    """Make a key of the tenant. Its text is in this answer and nowhere else."""
    asked: NewKey = call.body
    key, text = await call.engine.admin.create_key(
        name=asked.name,
        scopes=asked.scopes,
        expires_at=asked.expires_at,
        test=asked.test,
        tenant=call.tenant,
        actor=call.actor,
    )
    made = MadeKey(**msgspec.structs.asdict(key_representation(key)), key=text)
    return Answer(made, 201, {"Location": f"{call.root}/v1/keys/{key.id}"})


async def list_keys(call: Call) -> Answer:
    """The tenant's keys, without their texts."""
    keys = await call.engine.admin.list_keys(call.tenant)
    return Answer(KeyList(items=[key_representation(key) for key in keys]))


async def revoke_key(call: Call) -> Answer:
    """End a key for good, everywhere within a second. Safe to repeat."""
    key = await call.engine.admin.revoke_key(
        call.params["id"], tenant=call.tenant, actor=call.actor
    )
    return Answer(key_representation(key))


async def audit(call: Call) -> Answer:
    """Who changed what of the tenant: config, keys, pauses, erased people, suppression lists,
    handlers that were forgotten.
    """
    asked: TrailQuery = call.query
    found = await call.engine.admin.audit(call.tenant, asked.cursor, asked.limit)
    is_more = len(found) == asked.limit and found[-1].version > 1
    following = str(found[-1].version) if is_more else None
    return Answer(Trail(items=[_represent(one) for one in found], next=following))


def _represent(one: Change) -> ChangeRepresentation:
    return ChangeRepresentation(
        one.version, iso(one.at_ms), one.what, one.about, one.by or None, one.roles, one.details
    )


ROUTES = [
    Route(
        "POST",
        "/v1/keys",
        create_key,
        "admin",
        "Make a key",
        "keys",
        body=NewKey,
        answer=MadeKey,
        status=201,
        example={"name": "the shop", "scopes": ["read", "submit"]},
    ),
    Route("GET", "/v1/keys", list_keys, "admin", "The tenant's keys", "keys", answer=KeyList),
    Route(
        "DELETE",
        "/v1/keys/{id}",
        revoke_key,
        "admin",
        "End a key for good",
        "keys",
        answer=KeyRepresentation,
        problems=(404,),
    ),
    Route(
        "GET",
        "/v1/audit",
        audit,
        "admin",
        "Who changed what",
        "keys",
        query=TrailQuery,
        answer=Trail,
    ),
]
