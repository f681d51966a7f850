"""config: what a tenant stores by code. Secrets go into the vault and are never shown again."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gesta.cli.arguments import assignments, field_value, referred, typed
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, JsonLines, facts, print_json, print_json_line, say, show, table, tell

if TYPE_CHECKING:
    from gesta.engine import Engine
    from gesta.flows.flow import ConfigBody

Kind = Annotated[str, typer.Argument(help="The kind, e.g. webhook.endpoint.")]
Code = Annotated[str, typer.Argument(help="Your own name for it.")]
Fields = dict[str, Any]


async def list_entities(call: Invocation, as_json: JsonLines = False) -> None:
    """List a tenant's config."""
    from gesta.cli.records import entity_record

    async with call.opened() as engine:
        entities = [entity_record(one) for one in await engine.operating.list_config(call.tenant_name)]
        if as_json:
            for record in entities:
                print_json_line(record)
        elif entities:
            rows = [(one["kind"], one["code"], _summary(one["fields"]), ", ".join(one["secrets"])) for one in entities]
            show(table(("kind", "code", "fields", "sealed"), rows, folded=("code", "fields")))
        else:
            tell("no config yet; this process knows:")
            for kind, body in _kinds(engine).items():
                tell(f"  {kind}: {', '.join(field.name for field in msgspec.structs.fields(body))}")


async def get_entity(call: Invocation, kind: Kind, code: Code, as_json: Json = False) -> None:
    """Show an entity of a tenant's config, without its secrets."""
    from gesta.cli.records import entity_record

    async with call.opened() as engine:
        record = entity_record(await engine.operating.get_config(kind, code, tenant=call.tenant_name))
        if as_json:
            print_json(record)
            return
        fields = {name: str(value) for name, value in record["fields"].items()}
        sealed = {name: f"(sealed, version {version})" for name, version in record["secrets"].items()}
        show(facts({"kind": kind, "code": code, **fields, **sealed}))


async def put_entity(
    call: Invocation,
    kind: Kind,
    code: Code,
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="Fields. NAME=@FILE, NAME=- (stdin) and NAME=env:VARIABLE keep a secret out of the shell's history.",
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Forget the fields that are left out, instead of keeping them.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Store an entity of a tenant's config. What is left out of one that is there keeps its value; a new secret overlaps with the old one for a day."""
    from gesta.cli.records import entity_record

    engine, tenant = call.engine(), call.tenant_name
    body = _body(engine, kind)
    written = assignments(fields)
    texts = {name: field_value(name, text) for name, text in written.items()}
    _warn_of_history(body, {name for name, text in texts.items() if text == written[name]})
    types = {field.encode_name: field.type for field in msgspec.structs.fields(body)}
    values = {name: typed(text, types.get(name, str)) for name, text in texts.items()}
    async with call.opened(engine, create=True):
        kept = {} if replace else await _kept(engine, kind, code, tenant, set(values))
        stored = await engine.operating.put_config(kind, code, kept | values, tenant=tenant, actor=call.actor(by))
        if as_json:
            print_json(entity_record(stored))
        else:
            say(f"{kind}/{code}")
            beside = f" (kept: {', '.join(kept)})" if kept else ""
            tell(f"stored; the next attempt uses it{beside}")


async def _kept(engine: Engine, kind: str, code: str, tenant: str, given: set[str]) -> Fields:
    """What is stored beside the fields that are given and the secrets, which keep themselves. Whoever puts an entity again wants it at work."""
    from gesta.config import secret_fields
    from gesta.errors import BadConfig, NotFound

    try:
        body = (await engine.operating.get_config(kind, code, tenant=tenant)).body
    except (NotFound, BadConfig):
        return {}
    left_out = given | set(secret_fields(type(body))) | {"disabled", "disabled_reason"}
    return {name: value for name, value in msgspec.to_builtins(body).items() if name not in left_out}


async def delete_entity(call: Invocation, kind: Kind, code: Code, by: By = None) -> None:
    """Remove an entity from a tenant's config."""
    async with call.opened() as engine:
        await engine.operating.delete_config(kind, code, tenant=call.tenant_name, actor=call.actor(by))
        tell(f"removed {kind}/{code}")


async def apply_file(
    call: Invocation,
    source: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Tables \\[KIND.CODE], e.g. \\[webhook.endpoint.shop].")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check it.")] = False,
    by: By = None,
    as_json: JsonLines = False,
) -> None:
    """Store many entities from a file. All of them are checked before the first is written.

    A text of the form env:VARIABLE or @FILE stands for what is behind it, so that the file itself need not hold secrets.
    """
    engine, tenant = call.engine(), call.tenant_name
    entities = _entities(source, engine)
    async with call.opened(engine, create=True):
        await _check_all(engine, tenant, entities)
        for (kind, code), fields in entities.items():
            if not dry_run:
                await engine.operating.put_config(kind, code, fields, tenant=tenant, actor=call.actor(by))
            if as_json:
                print_json_line({"kind": kind, "code": code, "result": "checked" if dry_run else "stored"})
            else:
                say(f"{kind}/{code}")
        tell(f"{len(entities)} entities {'are sound' if dry_run else 'stored; the next attempts use them'}")


async def _check_all(engine: Engine, tenant: str, entities: Mapping[tuple[str, str], Fields]) -> None:
    from gesta.errors import BadConfig, BadInput

    faults = []
    for (kind, code), fields in entities.items():
        try:
            await engine.operating.check_config(kind, code, fields, tenant=tenant)
        except BadConfig as error:
            faults.append(str(error))
    if faults:
        raise BadInput("; ".join(faults) + ". Nothing was written")


def _entities(source: Path, engine: Engine) -> dict[tuple[str, str], Fields]:
    """(kind, code) → fields, for every table of the file."""
    from gesta.errors import BadInput

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
            raise BadInput(f"{source}: {path} is no table [KIND.CODE]; kinds: {', '.join(kinds) or 'none'}")
        where = f"{source}: {kind}/{code}: "
        found[kind, code] = {
            name: referred(where + name, value) if isinstance(value, str) else value for name, value in fields.items()
        }
    return found


def _tables(document: Fields, path: str, kinds: list[str]) -> Iterator[tuple[str, str, Any]]:
    """[webhook.endpoint.shop] and ["webhook.endpoint".shop] are the same: kinds have dots, and so has TOML."""
    for name, value in document.items():
        deeper = f"{path}.{name}" if path else name
        if path in kinds:
            yield path, name, value
        elif isinstance(value, dict) and any(kind == deeper or kind.startswith(f"{deeper}.") for kind in kinds):
            yield from _tables(value, deeper, kinds)
        else:
            yield path, name, value


def _kinds(engine: Engine) -> dict[str, type[ConfigBody]]:
    return {kind: body for flow in engine.flows.values() for kind, body in flow.config.items()}


def _body(engine: Engine, kind: str) -> type[ConfigBody]:
    from gesta.errors import BadInput

    kinds = _kinds(engine)
    if kind not in kinds:
        raise BadInput(f"kind: no flow of this process has config of kind {kind!r}; known: {', '.join(kinds) or 'none'}")
    return kinds[kind]


def _warn_of_history(body: type[ConfigBody], written_out: set[str]) -> None:
    from gesta.config import secret_fields

    for name in written_out.intersection(secret_fields(body)):
        tell(f"{name} may stand in your shell's history now; better: {name}=@FILE, {name}=- or {name}=env:VARIABLE", "yellow")


def _summary(fields: Fields) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())
