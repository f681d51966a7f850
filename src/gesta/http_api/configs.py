"""/v1/config: the tenant's stored config.

Answers never contain secrets. An ETag prevents one operator from overwriting another's change.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from gesta.admin.representations import entity_representation
from gesta.api_types.config import ConfigKindRepresentation, EntityRepresentation
from gesta.api_types.structs import Asked, ListOf
from gesta.engine.engine import Engine
from gesta.errors import BadConfig, BadCursor
from gesta.flows.schemas import config_schema
from gesta.flows.validation import UNKNOWN_MAX
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Paging, Route
from gesta.tenants.config import Entity

#: One or several entity tags: RFC 9110, 8.8.3.
_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_TAGS = re.compile(rf"{_TAG}(\s*,\s*{_TAG})*")
_IF_MATCH = {
    "If-Match": ("The ETag that was read; 412 if the entity has changed since. * means any version")
}
_IF_NONE_MATCH = {"If-None-Match": "* means that the entity must not exist"}


class Put(Asked, frozen=True):
    """All fields of the entity. A field that is left out gets its default; a secret that is left
    out keeps its value.
    """

    fields: dict[str, Any]


class Putting(Asked, frozen=True):
    """`keep`: fields that are left out stay unchanged."""

    keep: bool = False


class Choice(Paging, frozen=True):
    kind: str | None = None


async def list_config(call: Call) -> Answer:
    """The tenant's config, without its secrets."""
    asked: Choice = call.query
    after = ("", "") if asked.cursor is None else _position(asked.cursor)
    entities = [
        one
        for one in await call.engine.admin.list_config(call.tenant)
        if asked.kind in (None, one.kind) and (one.kind, one.code) > after
    ]
    page = entities[: asked.limit]
    return Answer(
        ListOf(
            items=[entity_representation(one) for one in page],
            next=_cursor(page[-1]) if len(entities) > len(page) else None,
        )
    )


async def get_config(call: Call) -> Answer:
    """One entity, without its secrets. Its ETag can be sent as If-Match."""
    try:
        entity = await call.engine.admin.get_config(*_named(call), tenant=call.tenant)
    except BadConfig as error:
        raise Problem(409, "unreadable", str(error)) from None
    return _shown(entity)


async def put_config(call: Call) -> Answer:
    """Store an entity; the next attempt uses it.

    After a new secret is stored, the previous one stays valid for a day.
    """
    kind, code = _named(call)
    expected = await _expected(call, may_be_new=True)
    fields: dict[str, Any] = call.body.fields
    if call.query.keep:
        fields = (
            await call.engine.admin.stored_beside(kind, code, fields, tenant=call.tenant) | fields
        )
    entity = await call.engine.admin.put_config(
        kind,
        code,
        fields,
        tenant=call.tenant,
        actor=call.actor,
        expected=expected,
        # A tenant must not read the variables of the server.
        references=False,
    )
    return _shown(entity)


async def delete_config(call: Call) -> Answer:
    kind, code = _named(call)
    expected = await _expected(call, may_be_new=False)
    await call.engine.admin.delete_config(
        kind, code, tenant=call.tenant, actor=call.actor, expected=expected
    )
    return Answer(status=204)


async def list_config_kinds(call: Call) -> Answer:
    """The kinds of config that the flows of this process use, with the schema of their fields."""
    found = []
    for kind, body in sorted(call.pipeline.config.kinds.items()):
        schema = config_schema(body)
        own = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
        secrets = [name for name, field in own.items() if field.get("writeOnly")]
        found.append(
            ConfigKindRepresentation(
                kind,
                schema,
                secrets,
                sorted(flow.name for flow in call.engine.flows.values() if kind in flow.config),
            )
        )
    return Answer(ListOf(items=found))


async def inside_fields(
    engine: Engine, _tenant: str, path: Mapping[str, str], given: dict[str, Any]
) -> dict[str, str]:
    """Errors for a body that has the entity's fields beside `fields`, or in its place.

    An unknown kind is reported first.
    """
    engine.pipeline.config.kind(path["kind"])
    beside = list(islice((name for name in given if name != "fields"), UNKNOWN_MAX))
    errors = dict.fromkeys(beside, 'put it inside "fields"')
    if beside and "fields" not in given:
        errors["fields"] = 'missing; put the other values inside "fields": {"fields": {"name": …}}'
    return errors


def _named(call: Call) -> tuple[str, str]:
    return call.params["kind"], call.params["code"]


def _shown(entity: Entity) -> Answer:
    return Answer(entity_representation(entity), headers={"ETag": f'"{entity.version}"'})


async def _expected(call: Call, *, may_be_new: bool) -> int | None:
    """The version that the entity must have, by the caller's headers; None: any.

    Raises 412 where the entity has none of these versions.
    """
    match, none_match = call.header("if-match"), call.header("if-none-match")
    if none_match is not None:
        if none_match != "*" or match is not None or not may_be_new:
            raise Problem(
                400, "bad_header", "If-None-Match must be *, on PUT, and without If-Match"
            )
        return 0
    if match is None:
        return None
    if match != "*" and not _TAGS.fullmatch(match):
        raise Problem(400, "bad_header", 'If-Match must be an ETag such as "7", or *')
    kind, code = _named(call)
    # The append checks the version again.
    version = await call.engine.admin.config_version(kind, code, tenant=call.tenant)
    if not version or (match != "*" and f'"{version}"' not in re.split(r"\s*,\s*", match)):
        found = f"has version {version}" if version else "does not exist"
        detail = f"config {kind}/{code} {found}; read it again"
        raise Problem(
            412, "version_conflict", detail, headers={"ETag": f'"{version}"'} if version else None
        )
    return version


def _cursor(entity: Entity) -> str:
    return urlsafe_b64encode(msgspec.json.encode((entity.kind, entity.code))).rstrip(b"=").decode()


def _position(cursor: str) -> tuple[str, str]:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        return msgspec.json.decode(raw, type=tuple[str, str])
    except (ValueError, msgspec.DecodeError):
        raise BadCursor from None


_HERE = "/v1/config/{kind}/{code}"
_EXAMPLE = {
    "fields": {
        "url": "https://shop.example/hooks",
        "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    }
}
ROUTES = [
    Route(
        "GET",
        "/v1/config",
        list_config,
        "read",
        "List config",
        "config",
        query=Choice,
        answer=ListOf[EntityRepresentation],
    ),
    Route(
        "GET",
        "/v1/config-kinds",
        list_config_kinds,
        "read",
        "List kinds of config",
        "config",
        answer=ListOf[ConfigKindRepresentation],
    ),
    Route(
        "GET",
        _HERE,
        get_config,
        "read",
        "Get config",
        "config",
        answer=EntityRepresentation,
        problems=(404, 409),
    ),
    Route(
        "PUT",
        _HERE,
        put_config,
        "admin",
        "Store config",
        "config",
        query=Putting,
        body=Put,
        also=inside_fields,
        answer=EntityRepresentation,
        problems=(404, 412),
        headers=_IF_MATCH | _IF_NONE_MATCH,
        example=_EXAMPLE,
    ),
    Route(
        "DELETE",
        _HERE,
        delete_config,
        "admin",
        "Delete config",
        "config",
        status=204,
        problems=(404, 412),
        headers=_IF_MATCH,
    ),
]
