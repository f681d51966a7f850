"""template preview: render a stored template, or files, without sending anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gesta.cli.arguments import json_document, referred
from gesta.cli.invocation import Invocation
from gesta.cli.output import Json, print_json, say, tell
from gesta.errors import BadInput

if TYPE_CHECKING:
    from gesta.tenants.templates.templates import Template

#: Extension of a file → the part that it contains.
_PARTS = {".txt": "text", ".html": "html", ".mjml": "mjml", ".json": "blocks"}


async def preview(
    call: Invocation,
    code: Annotated[
        str | None,
        typer.Argument(metavar="[CODE]", help="The stored template. Leave it out with --source."),
    ] = None,
    locale: Annotated[
        str | None,
        typer.Option(
            "--locale", metavar="LOCALE", help="For this locale, or the nearest one that is stored."
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            "--data", metavar="JSON", help="Data for the template: JSON, @FILE or - for stdin."
        ),
    ] = "{}",
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="PART", help="Only subject, text, html, mjml or blocks."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="FILE",
            help=(
                "A file instead of a stored template. Its extension (.txt, .html, .mjml, .json)"
                " names the part, or write PART=FILE."
            ),
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the HTML, also that of MJML, to this file."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a template with data. Nothing is sent or stored."""
    if (code is None) == (source is None):
        raise BadInput("name either a stored template, or files with --source")
    fields = json_document(data, "data")
    if not isinstance(fields, dict):
        raise BadInput("data: must be a JSON object")
    about: dict[str, Any] = {}
    if code is None:
        parts = await _filled(_of_files(source or []), fields)
    else:
        async with call.backend() as backend:
            previewed = await backend.client.preview_template(code, fields, locale=locale)
        parts, about = previewed.parts, {"code": previewed.code, "version": previewed.version}
    if part is not None:
        if part not in parts:
            raise BadInput(f"part: this template has {', '.join(parts)}")
        parts = {part: parts[part]}
    if html is not None:
        html.write_text(await _page(parts), encoding="utf-8")
        say(str(html))
        return
    if as_json:
        print_json({**about, "parts": parts})
        return
    for name, text in parts.items():
        if part is None:
            tell(f"── {name}", "dim")
        for line in text.split("\n"):
            say(line)


async def _page(parts: dict[str, str]) -> str:
    """Prepare the page as the e-mail channel does."""
    from gesta.runtime.clock import SystemRuntime
    from gesta.tenants.templates.child_renderer import ChildRenderer
    from gesta.tenants.templates.press import RenderError

    markup: Literal["html", "mjml"] = "mjml" if "mjml" in parts else "html"
    if markup not in parts:
        raise BadInput(f"--html: this template has {', '.join(parts)}, but no html or mjml")
    renderer = ChildRenderer(SystemRuntime())
    try:
        page = await renderer.dress(markup, parts[markup])
    finally:
        await renderer.close()
    if isinstance(page, RenderError):
        raise BadInput(f"{page.part}: {page.text}")
    return page.parts["html"]


async def _filled(template: Template, fields: dict[str, Any]) -> dict[str, str]:
    """The rendered parts of the template; raises the error that an attempt would end with."""
    from gesta.runtime.clock import SystemRuntime
    from gesta.tenants.templates.child_renderer import ChildRenderer
    from gesta.tenants.templates.press import RenderError
    from gesta.tenants.templates.templates import fill

    renderer = ChildRenderer(SystemRuntime())
    try:
        answer = await fill(renderer, template, fields, "")
    finally:
        await renderer.close()
    if isinstance(answer, RenderError):
        raise BadInput(
            f"{answer.part}: {answer.text}. An attempt would end as template_render_failed"
        )
    return answer


def _of_files(written: list[str]) -> Template:
    from gesta.tenants.templates.templates import PARTS, Template

    sources: dict[str, str] = {}
    for text in written:
        named, sign, path = text.partition("=")
        if not sign or named not in PARTS:
            named, path = _PARTS.get(Path(text).suffix, ""), text
        if not named:
            raise BadInput(
                f"source: which part is {text}? Write PART={text}, with one of {', '.join(PARTS)}"
            )
        if named in sources:
            raise BadInput(f"source: {named} is given twice")
        sources[named] = referred("source", f"@{path}")
    return Template(**sources)
