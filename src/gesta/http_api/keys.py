"""/v1/keys and /v1/audit: the tenant's API keys and its audit log."""

from datetime import datetime
from typing import Annotated

import msgspec

from gesta.admin.representations import key_representation
from gesta.api_types.keys import ChangeRepresentation, KeyRepresentation, MadeKey, Scope
from gesta.api_types.structs import PAGE_MAX, PRINTABLE, Asked, ListOf
from gesta.domain.durations import iso
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.api_keys import NAME_LENGTH_MAX


class NewKey(Asked, frozen=True):
    """A new key of the tenant.

    Requests of a test key reach only the sandbox; its scopes are at most read and submit.
    """

    name: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=NAME_LENGTH_MAX, extra_json_schema={"pattern": PRINTABLE}
        ),
    ]
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1, max_length=5)] = (
        "read",
        "submit",
    )
    #: Without it the key does not expire.
    expires_at: datetime | None = None
    test: bool = False


class TrailQuery(Asked, frozen=True):
    cursor: Annotated[int, msgspec.Meta(ge=1, le=2_147_483_647)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


async def create_key(call: Call) -> Answer:
    """Create a key. Its text is only in this answer."""
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
    return Answer(ListOf(items=[key_representation(key) for key in keys]))


async def revoke_key(call: Call) -> Answer:
    """Revoke a key; every process refuses it within a second. Safe to repeat."""
    key = await call.engine.admin.revoke_key(
        call.params["id"], tenant=call.tenant, actor=call.actor
    )
    return Answer(key_representation(key))


async def audit(call: Call) -> Answer:
    """The audit log of the tenant: config, keys, pauses, erasures, suppression lists, bulk runs and
    removed handlers.
    """
    asked: TrailQuery = call.query
    found = await call.engine.admin.audit(call.tenant, asked.cursor, asked.limit)
    is_more = len(found) == asked.limit and found[-1].version > 1
    following = str(found[-1].version) if is_more else None
    changes = [
        ChangeRepresentation(
            one.version, iso(one.at_ms), one.what, one.about, one.by or None, one.roles, one.details
        )
        for one in found
    ]
    return Answer(ListOf(items=changes, next=following))


ROUTES = [
    Route(
        "POST",
        "/v1/keys",
        create_key,
        "admin",
        "Create a key",
        "keys",
        body=NewKey,
        answer=MadeKey,
        status=201,
        example={"name": "the shop", "scopes": ["read", "submit"]},
    ),
    Route(
        "GET", "/v1/keys", list_keys, "admin", "List keys", "keys", answer=ListOf[KeyRepresentation]
    ),
    Route(
        "DELETE",
        "/v1/keys/{id}",
        revoke_key,
        "admin",
        "Revoke a key",
        "keys",
        answer=KeyRepresentation,
        problems=(404,),
    ),
    Route(
        "GET",
        "/v1/audit",
        audit,
        "admin",
        "List the audit log",
        "keys",
        query=TrailQuery,
        answer=ListOf[ChangeRepresentation],
    ),
]
