"""What a tenant stores to be filled in: config of kind `template`, by code and locale (`welcome`,
`welcome@pt-BR`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from gesta.flows.flow import ConfigBody
from gesta.tenants.templates.press import Fault

if TYPE_CHECKING:
    from gesta.tenants.templates.renderer import Renderer

#: The kind. A flow that uses templates says `config={TEMPLATE: Template, …}`.
TEMPLATE = "template"
#: Language, script, region, as they are usually written: `pt`, `pt-BR`, `zh-Hant-TW`, `es-419`.
_LOCALE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|\d{3}))?")


class Template(ConfigBody, frozen=True):
    """Sources in Jinja's syntax, one for each part of a message; a part left out is not
    rendered.
    """

    subject: str = ""
    text: str = ""
    html: str = ""
    mjml: str = ""
    #: JSON text of an array of objects, e.g. Slack's Block Kit.
    blocks: str = ""

    async def faults(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        """What would make every use of it fail."""
        _, at, locale = code.partition("@")
        if at and not _LOCALE.fullmatch(locale):
            return {"code": "what follows @ is a locale, written like pt, pt-BR or zh-Hant-TW"}
        if not sources(self):
            return {"template": f"give at least one of {', '.join(PARTS)}"}
        if half := [
            part
            for part, source in sources(self).items()
            if any("\ud800" <= one <= "\udfff" for one in source)
        ]:
            return dict.fromkeys(half, "has half a character (a lone surrogate); write UTF-8")
        answer = await renderer.variables(self)
        return {answer.part: answer.text} if isinstance(answer, Fault) else {}


PARTS = tuple(field.name for field in msgspec.structs.fields(Template))


def sources(template: Template) -> dict[str, str]:
    """Part → its source, for the parts that there are."""
    return {part: source for part in PARTS if (source := getattr(template, part))}


def weight(template: Template) -> int:
    """Characters of all its sources."""
    return (
        len(template.subject)
        + len(template.text)
        + len(template.html)
        + len(template.mjml)
        + len(template.blocks)
    )


@lru_cache(maxsize=1_000)
def codes(code: str, locale: str | None) -> tuple[str, ...]:
    """Where a template is looked for, the nearest locale first: welcome@pt-BR, welcome@pt,
    welcome.
    """
    found = []
    nearest = _usual(locale or "")
    while nearest:
        found.append(f"{code}@{nearest}")
        nearest = nearest.rpartition("-")[0]
    return (*found, code)


def _usual(locale: str) -> str:
    """`PT_br` as `pt-BR`; nothing for what is no locale."""
    language, *rest = locale.replace("_", "-").split("-", 3)
    usual = "-".join(
        [language.lower(), *(one.title() if len(one) == 4 else one.upper() for one in rest)]
    )
    return usual if _LOCALE.fullmatch(usual) else ""
