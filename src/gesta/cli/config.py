"""config: what a tenant stores by kind and code. Secrets go to the vault and are never shown."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gesta.api_types.config_commands import put_command
from gesta.cli.arguments import assignments, field_value, referred
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, facts, print_json, print_list, say, show, table, tell
from gesta.errors import BadConfig, BadInput, InvalidRequest

if TYPE_CHECKING:
    from gesta.cli.backend import Backend
    from gesta.engine.engine import Engine
    from gesta.flows.flow import ConfigBody

ConfigKind = Annotated[str, typer.Argument(metavar="KIND", help="The kind, e.g. webhook.endpoint.")]
Code = Annotated[str, typer.Argument(metavar="CODE", help="Your own name for it.")]
Fields = dict[str, Any]


async def list_entities(call: Invocation, as_json: Json = False) -> None:
    """List a tenant's config."""
    async with call.backend() as backend:
        entities = [one async for one in backend.client.config()]
        if as_json:
            print_list(entities)
        elif entities:
            rows = [
                (one.kind, one.code, _summary(one.fields), ", ".join(one.secrets))
                for one in entities
            ]
            show(table(("kind", "code", "fields", "encrypted"), rows, folded=("code", "fields")))
        else:
            tell("no config yet; this process knows these kinds:")
            for kind, known in (await _known_kinds(backend)).items():
                tell(f"  {kind}: {', '.join(known.names)}")


async def get_entity(call: Invocation, kind: ConfigKind, code: Code, as_json: Json = False) -> None:
    """Show an entity of a tenant's config, without its secrets."""
    async with call.backend() as backend:
        found = await backend.client.get_config(kind, code)
        if as_json:
            print_json(found)
            return
        fields = {name: str(value) for name, value in found.fields.items()}
        encrypted = {
            name: f"(encrypted, version {version})" for name, version in found.secrets.items()
        }
        show(facts({"kind": kind, "code": code, **fields, **encrypted}))


async def put_entity(
    call: Invocation,
    kind: ConfigKind,
    code: Code,
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE...",
            help=(
                "Fields. NAME=@FILE, NAME=- (stdin) and NAME=env:VARIABLE keep a secret out of the"
                " shell's history."
            ),
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Remove the fields that you leave out, instead of keeping them."
        ),
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Store an entity of a tenant's config.

    Fields that are left out keep their value. A new secret overlaps with the old one for a day.
    """
    async with call.backend(create=True) as backend:
        known = _known(await _known_kinds(backend), kind, call)
        if not fields:
            raise BadInput(
                f"{kind}/{code}: give its fields as NAME=VALUE, for instance:"
                f" {call.place.command(put_command(kind, code))}; it knows:"
                f" {', '.join(known.names)}"
            )
        written = assignments(fields)
        texts = {name: field_value(name, text) for name, text in written.items()}
        _warn_of_history(known, {name for name, text in texts.items() if text == written[name]})
        values = {name: _value(name, text, known) for name, text in texts.items()}
        try:
            stored = await backend.client.put_config(
                kind, code, values, keep=not replace, by=call.actor(by).user_id
            )
        except InvalidRequest as error:
            raise BadConfig(kind, code, error.fields) from None
        if as_json:
            print_json(stored)
        else:
            say(f"{kind}/{code}")
            kept = [name for name in stored.fields if name not in values]
            beside = f" (kept: {', '.join(kept)})" if kept else ""
            tell(f"stored; the next attempt uses it{beside}")
            for warning in stored.warnings:
                tell(warning, "yellow")


def _value(name: str, text: str, known: Known) -> Any:
    """The text if the field can be a string; otherwise the parsed JSON. Invalid JSON stays text,
    for validation to refuse.
    """
    if name in known.texts or name not in known.names:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


async def delete_entity(call: Invocation, kind: ConfigKind, code: Code, by: By = None) -> None:
    """Remove an entity from a tenant's config."""
    async with call.backend() as backend:
        await backend.client.delete_config(kind, code, by=call.actor(by).user_id)
        tell(f"removed {kind}/{code}")


async def apply_file(
    call: Invocation,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.toml", help="Tables \\[KIND.CODE], e.g. \\[webhook.endpoint.shop]."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check it.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Store many entities from a file. All of them are checked before the first is written.

    A text of the form env:VARIABLE or @FILE stands for the variable or file, so that the file
    itself need not contain secrets.
    """
    call.refuse_server()
    engine, tenant = call.engine(), call.tenant_name
    entities = _entities(source, engine, call)
    async with call.opened(engine, create=True):
        await _check_all(engine, tenant, entities)
        for (kind, code), fields in entities.items():
            if not dry_run:
                await engine.admin.put_config(
                    kind, code, fields, tenant=tenant, actor=call.actor(by)
                )
            if not as_json:
                say(f"{kind}/{code}")
        if as_json:
            result = "checked" if dry_run else "stored"
            print_list({"kind": kind, "code": code, "result": result} for kind, code in entities)
        tell(
            f"{len(entities)} entities"
            f" {'are sound' if dry_run else 'stored; the next attempts use them'}"
        )


async def _check_all(
    engine: Engine, tenant: str, entities: Mapping[tuple[str, str], Fields]
) -> None:

    errors = []
    for (kind, code), fields in entities.items():
        try:
            await engine.admin.check_config(kind, code, fields, tenant=tenant)
        except BadConfig as error:
            errors.append(str(error))
    if errors:
        raise BadInput("; ".join(errors) + ". Nothing was written")


def _entities(source: Path, engine: Engine, call: Invocation) -> dict[tuple[str, str], Fields]:
    """(kind, code) → fields, for every table of the file."""
    try:
        document = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{source}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{source}: not valid TOML: {error}") from None
    kinds = _kinds(engine)
    found: dict[tuple[str, str], Fields] = {}
    for kind, code, fields in _tables(document, "", list(kinds)):
        if not isinstance(fields, dict) or kind not in kinds:
            path = ".".join(part for part in (kind, code) if part)
            remedy = _how_to_get(path, call) if isinstance(fields, dict) else ""
            raise BadInput(
                f"{source}: {path} is not a table [KIND.CODE]; kinds:"
                f" {', '.join(kinds) or 'none'}{remedy}"
            )
        where = f"{source}: {kind}/{code}: "
        found[kind, code] = {
            name: referred(where + name, value) if isinstance(value, str) else value
            for name, value in fields.items()
        }
    return found


def _tables(document: Fields, path: str, kinds: list[str]) -> Iterator[tuple[str, str, Any]]:
    """[webhook.endpoint.shop] and ["webhook.endpoint".shop] are the same: kinds have dots, and so
    has TOML.
    """
    for name, value in document.items():
        deeper = f"{path}.{name}" if path else name
        if path in kinds:
            yield path, name, value
        elif isinstance(value, dict) and any(
            kind == deeper or kind.startswith(f"{deeper}.") for kind in kinds
        ):
            yield from _tables(value, deeper, kinds)
        else:
            yield path, name, value


@dataclass(frozen=True)
class Known:
    """A kind of config: its fields, by JSON name; which are secrets, and which can be strings."""

    names: list[str]
    secrets: frozenset[str]
    texts: frozenset[str]


async def _known_kinds(backend: Backend) -> Mapping[str, Known]:
    """Without a store, where the flows are those of this process."""
    from gesta.flows.schemas import config_schema

    if backend.engine is not None:
        kinds = _kinds(backend.engine)
        return {kind: _known_of(config_schema(body)) for kind, body in kinds.items()}
    return {one.kind: _known_of(one.schema) for one in await backend.client.config_kinds()}


def _known_of(schema: Mapping[str, Any]) -> Known:
    """The kind that a JSON schema of its fields describes."""
    inside = schema.get("$defs", {})
    whole = inside[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    fields: Mapping[str, Any] = whole.get("properties", {})
    return Known(
        list(fields),
        frozenset(name for name, field in fields.items() if field.get("writeOnly")),
        frozenset(name for name, field in fields.items() if _takes_text(field)),
    )


def _takes_text(field: Mapping[str, Any]) -> bool:
    if "enum" in field:
        return any(isinstance(one, str) for one in field["enum"])
    return field.get("type") == "string" or any(map(_takes_text, field.get("anyOf", ())))


def _kinds(engine: Engine) -> dict[str, type[ConfigBody]]:
    return {kind: body for flow in engine.flows.values() for kind, body in flow.config.items()}


def _known(kinds: Mapping[str, Known], kind: str, call: Invocation) -> Known:

    if kind not in kinds:
        known = ", ".join(kinds) or "none"
        raise BadInput(
            f"kind: no flow of this process has config of kind {kind!r}; known:"
            f" {known}{_how_to_get(kind, call)}"
        )
    return kinds[kind]


def _how_to_get(kind: str, call: Invocation) -> str:
    """How to add the missing flow to this process; the flows of a server cannot be changed from
    here.
    """
    from gesta.cli.flows import how_to_get

    return "" if call.server_address is not None else f"; {how_to_get(kind, call.settings)}"


def _warn_of_history(known: Known, written_out: set[str]) -> None:
    for name in written_out.intersection(known.secrets):
        tell(
            f"{name} may now be in your shell's history; use instead: {name}=@FILE, {name}=- or"
            f" {name}=env:VARIABLE",
            "yellow",
        )


def _summary(fields: Fields) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())
