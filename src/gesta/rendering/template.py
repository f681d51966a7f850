"""What a tenant stores to be filled in: config of kind `template`, by code and locale (`welcome`, `welcome@pt-BR`)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gesta.flows.flow import ConfigBody

#: The kind. A flow that uses templates says `config={TEMPLATE: Template, …}`.
TEMPLATE = "template"


class Template(ConfigBody, frozen=True):
    """Sources in Jinja's syntax, one for each part of a message; a part left out is not rendered."""

    subject: str = ""
    text: str = ""
    html: str = ""
    mjml: str = ""
    #: JSON text of an array of objects, e.g. Slack's Block Kit.
    blocks: str = ""


PARTS = tuple(field.name for field in msgspec.structs.fields(Template))


def sources(template: Template) -> dict[str, str]:
    """Part → its source, for the parts that there are."""
    return {part: source for part in PARTS if (source := getattr(template, part))}


def weight(template: Template) -> int:
    """Characters of all its sources."""
    return sum(len(getattr(template, part)) for part in PARTS)


def codes(code: str, locale: str | None) -> Iterator[str]:
    """Where a template is looked for, the nearest locale first: welcome@pt-BR, welcome@pt, welcome."""
    while locale:
        yield f"{code}@{locale}"
        locale = locale.rpartition("-")[0]
    yield code
