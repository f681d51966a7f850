"""rebuild, erase, settings, openapi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gesta.cli.arguments import field_value
from gesta.cli.invocation import By, Invocation, tell_of_odd_variables
from gesta.cli.output import Json, print_answer, print_json, print_list, progress_bar, show, table
from gesta.errors import BadSettings

if TYPE_CHECKING:
    from gesta.runtime.settings import Settings

MASK = "(secret)"
#: What a secret is called in the settings of a flow.
_SECRET = re.compile(r"secret|token|password|key", re.IGNORECASE)


async def rebuild(call: Invocation, as_json: Json = False) -> None:
    """Rebuild all views from the events, also while `gesta serve` runs. Nothing is sent again."""
    async with call.opened() as engine:
        with progress_bar("events") as report:
            folded = await engine.admin.rebuild(report)
    print_answer({"events": folded}, str(folded), "events read into new views", as_json=as_json)


async def erase(
    call: Invocation,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="The data subject: the text of a personal field, or the `subject` of payloads; -"
            " reads it from stdin.",
        ),
    ],
    by: By = None,
    as_json: Json = False,
) -> None:
    """Erase a person: destroy the key that encrypts their personal data.

    Their requests stay on record and are not executed any more.
    """
    name = field_value("subject", subject) if subject == "-" else subject
    async with call.backend() as backend:
        destroyed = await backend.client.erase(name, by=call.actor(by).user_id)
    note = (
        "destroyed; data encrypted with it can no longer be read. Copies of the store contain the"
        " key for as long as you keep them"
        if destroyed
        else "this subject has no key, or no longer has one; write it exactly as it was submitted"
    )
    print_answer({"keys": destroyed}, str(destroyed), note, as_json=as_json)


def list_settings(call: Invocation, as_json: Json = False) -> None:
    """Show every setting, its value and where it comes from."""
    rows = list(_rows(call.settings))
    if as_json:
        names = ("name", "value", "source")
        print_list(dict(zip(names, row, strict=True)) for row in rows)
        return
    show(
        table(
            ("setting", "value", "from"),
            [(name, _text(value), source) for name, value, source in rows],
            folded=("value", "from"),
        )
    )
    tell_of_odd_variables()


def openapi(call: Invocation) -> None:
    """Print the OpenAPI 3.1 description of the HTTP API, with the payloads of this process's
    flows.
    """
    from gesta.cli.flows import flows_of
    from gesta.http_api.app import ROUTES
    from gesta.http_api.openapi import describe

    print_json(describe(ROUTES, {flow.name: flow for flow in flows_of(call.settings)}))


def _rows(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Name, value and source of each; a flow's settings one by one; secrets masked."""
    from gesta.domain.durations import format_duration
    from gesta.runtime.redaction import scrub
    from gesta.runtime.settings import NAMES, SECRET

    for name in NAMES:
        value, source = getattr(settings, name), settings.sources[name]
        if name == "flows":
            for flow, given in value.items():
                for key, each in given.items():
                    yield f"flows.{flow}.{key}", _masked(key, each), source
            if not value:
                yield name, None, source
        elif name == "master_key" and value is None and (path := _key_file(settings)) is not None:
            yield name, MASK, path
        elif name in SECRET:
            yield name, None if value is None else MASK, source
        elif isinstance(value, timedelta):
            yield name, format_duration(value), source
        else:
            yield name, scrub(value) if isinstance(value, str) else value, source


def _key_file(settings: Settings) -> str | None:
    """The key file beside the store, if the settings have no master key.

    The store itself is not opened for that.
    """
    from gesta.stores.sqlite import file_of

    try:
        path = (
            file_of(settings.url).with_suffix(".key")
            if settings.url.startswith("sqlite:")
            else None
        )
    except BadSettings:
        return None
    return str(path) if path is not None and path.exists() else None


def _masked(key: str, value: Any) -> Any:
    # A reference names the place of the secret and does not reveal it.
    is_hidden = _SECRET.search(key) and not (isinstance(value, str) and value.startswith("env:"))
    return MASK if is_hidden else value


def _text(value: Any) -> str:
    if value is None or value == ():
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
