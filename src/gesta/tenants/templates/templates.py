"""`attempt.templates`: renders a tenant's templates and checks the data at submit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.domain.outcome import Rejected, Retry
from gesta.errors import BadConfig, RendererDown
from gesta.flows.flow import ConfigBody
from gesta.outbound.http import AttemptEnded
from gesta.tenants.config import DERIVED_MAX, Entity, TenantConfig, not_stored
from gesta.tenants.templates.email_html import Markup
from gesta.tenants.templates.press import ANY, Names, RenderError

if TYPE_CHECKING:
    from gesta.tenants.templates.renderer import Renderer

#: The config kind. A flow that uses templates declares `config={TEMPLATE: Template, …}`.
TEMPLATE = "template"
#: Language, script, region, as they are usually written: `pt`, `pt-BR`, `zh-Hant-TW`, `es-419`.
_LOCALE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|\d{3}))?")


class Template(ConfigBody, frozen=True):
    """Sources in Jinja's syntax, one for each part of a message; each part is optional."""

    subject: str = ""
    text: str = ""
    html: str = ""
    mjml: str = ""
    #: JSON text of an array of objects, e.g. Slack's Block Kit.
    blocks: str = ""

    async def errors(self, code: str, renderer: Renderer) -> Mapping[str, str]:
        _, at, locale = code.partition("@")
        if at and not _LOCALE.fullmatch(locale):
            return {"code": "after @ write a locale such as pt, pt-BR or zh-Hant-TW"}
        if not sources(self):
            return {"template": f"give at least one of {', '.join(PARTS)}"}
        if half := [
            part
            for part, source in sources(self).items()
            if any("\ud800" <= one <= "\udfff" for one in source)
        ]:
            return dict.fromkeys(half, "contains a lone surrogate; write UTF-8")
        answer = await renderer.variables(self)
        return {answer.part: answer.text} if isinstance(answer, RenderError) else {}


PARTS = tuple(field.name for field in msgspec.structs.fields(Template))


def sources(template: Template) -> dict[str, str]:
    """Part → source, for the parts that are not empty."""
    return {part: source for part in PARTS if (source := getattr(template, part))}


def weight(template: Template) -> int:
    return (
        len(template.subject)
        + len(template.text)
        + len(template.html)
        + len(template.mjml)
        + len(template.blocks)
    )


@lru_cache(maxsize=1_000)
def codes(code: str, locale: str | None) -> tuple[str, ...]:
    """The codes to try, the nearest locale first: welcome@pt-BR, welcome@pt, welcome."""
    found = []
    nearest = _usual(locale or "")
    while nearest:
        found.append(f"{code}@{nearest}")
        nearest = nearest.rpartition("-")[0]
    return (*found, code)


def _usual(locale: str) -> str:
    """`PT_br` as `pt-BR`; empty: not a locale."""
    language, *rest = locale.replace("_", "-").split("-", 3)
    usual = "-".join(
        [language.lower(), *(one.title() if len(one) == 4 else one.upper() for one in rest)]
    )
    return usual if _LOCALE.fullmatch(usual) else ""


#: Renderings to find the required variables; each shows one, and other orders wait meanwhile.
TRIALS_MAX = 100


class Rendered(msgspec.Struct, frozen=True):
    """A rendered template: part → text, and the version of the template."""

    parts: dict[str, str]
    version: int


class Templates(msgspec.Struct, eq=False):
    """The templates of one tenant. Each attempt gets a value of its own."""

    renderer: Renderer
    config: TenantConfig

    def find(self, code: str, locale: str | None = None) -> Entity | None:
        """The template of the nearest locale. Raises BadConfig if it is unreadable."""
        return find_template(self.config, code, locale)

    async def render(
        self, code: str, data: Mapping[str, Any], locale: str | None = None
    ) -> Rendered:
        """Render a template. Ends the attempt if it or a variable is missing."""
        entity = self.find(code, locale)
        if entity is None:
            raise AttemptEnded(Rejected("template_missing", not_stored(TEMPLATE, code)))
        return Rendered(await self.fill(entity, data), entity.version)

    async def fill(self, template: Entity, data: Mapping[str, Any]) -> dict[str, str]:
        """Render a template that `find` returned. Ends the attempt if a variable is missing."""
        written = _written(data)
        try:
            answer = (
                written
                if isinstance(written, RenderError)
                else await self.renderer.render(_body(template), written, self.config.tenant)
            )
        except RendererDown as error:
            raise AttemptEnded(Retry("renderer_unavailable", str(error))) from None
        if isinstance(answer, RenderError):
            raise AttemptEnded(
                Rejected(
                    "template_render_failed",
                    f"template {template.code}, {answer.part}: {answer.text}",
                )
            )
        return answer.parts

    def has_all(self, code: str, data: Mapping[str, Any], locale: str | None = None) -> bool:
        """Whether the cache shows that `missing` would find nothing."""
        needs = self.config.needs.get((code, locale))
        return needs is not None and needs <= data.keys()

    async def missing(
        self, code: str, data: Mapping[str, Any], locale: str | None = None, *, field: str = "data"
    ) -> dict[str, str]:
        """For a flow's `check`: `data.name` → error, for every required variable that is missing.

        Empty if there is no readable template yet; then the attempt decides.
        """
        if self.has_all(code, data, locale):
            return {}
        try:
            entity = self.find(code, locale)
            if entity is None:
                return {}
            names = await self.renderer.variables(_body(entity), self.config.tenant)
            if isinstance(names, RenderError):
                return {}
            self._note(code, locale, entity, names)
            lacking = [name for name in names.names if not _has(data, name)]
            needed = await self._needed(entity, data, lacking) if lacking else []
        except (BadConfig, RendererDown):
            return {}
        return {f"{field}.{name}": f"the template {entity.code} needs it" for name in needed}

    def _note(self, code: str, locale: str | None, entity: Entity, names: Names) -> None:
        """Cache the names if they are plain and the template is the tenant's, not a test's."""
        needs = self.config.needs
        if (
            all(map(str.isidentifier, names.names))
            and self.config.find(TEMPLATE, entity.code) is entity
        ):
            if len(needs) >= DERIVED_MAX:
                needs.clear()
            needs[code, locale] = frozenset(names.names)

    async def _needed(
        self, entity: Entity, data: Mapping[str, Any], lacking: list[str]
    ) -> list[str]:
        """The required ones of these variables.

        Only rendering shows that: `x|default('')` and `if x is defined` make a variable optional.
        """
        needed: list[str] = []
        sample = msgspec.to_builtins(data)
        for _ in range(TRIALS_MAX):
            answer = await fill(self.renderer, _body(entity), sample, self.config.tenant)
            variable = answer.variable if isinstance(answer, RenderError) else ""
            found = (
                [name for name in lacking if name == variable or name.startswith(f"{variable}.")]
                if variable
                else []
            )
            if variable == ANY:
                found = await self._behind_filters(
                    entity, sample, [name for name in lacking if name not in needed]
                )
            if not set(found) - set(needed):
                return needed
            needed += found
            for name in found:
                _put(sample, name)
        return needed

    async def _behind_filters(
        self, entity: Entity, sample: dict[str, Any], lacking: list[str]
    ) -> list[str]:
        """The variables whose absence breaks a filter; that error does not name its variable.

        Each is tried with all the others present.
        """
        found = []
        for name in lacking[:TRIALS_MAX]:
            others = msgspec.to_builtins(sample)
            for other in lacking:
                if other != name:
                    _put(others, other)
            answer = await fill(self.renderer, _body(entity), others, self.config.tenant)
            if isinstance(answer, RenderError) and answer.variable == ANY:
                found.append(name)
        return found

    async def dress(self, markup: Markup, source: str) -> Mapping[str, str]:
        """A page prepared for mail programs: the parts `html` and `text`.

        Ends the attempt if that fails.
        """
        try:
            answer = await self.renderer.dress(markup, source, self.config.tenant)
        except RendererDown as error:
            raise AttemptEnded(Retry("renderer_unavailable", str(error))) from None
        if isinstance(answer, RenderError):
            raise AttemptEnded(Rejected("html_unreadable", f"{answer.part}: {answer.text}"))
        return answer.parts


def find_template(config: TenantConfig, code: str, locale: str | None) -> Entity | None:
    for name in codes(code, locale):
        if (found := config.get(TEMPLATE, name)) is not None:
            return found
    return None


async def fill(
    renderer: Renderer, template: Template, data: Mapping[str, Any], tenant: str
) -> dict[str, str] | RenderError:
    """Part → text. Raises RendererDown when it could not try."""
    written = _written(data)
    answer = (
        written
        if isinstance(written, RenderError)
        else await renderer.render(template, written, tenant)
    )
    return answer if isinstance(answer, RenderError) else answer.parts


def _written(data: Mapping[str, Any]) -> bytes | RenderError:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError):
        return RenderError("data", "cannot be written as JSON")


def _body(entity: Entity) -> Template:
    assert isinstance(entity.body, Template)
    return entity.body


def _has(data: object, name: str) -> bool:
    if isinstance(data, dict) and name.isidentifier():
        return name in data
    for part in name.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def _put(data: dict[str, Any], name: str) -> None:
    """Set an empty text, so that the next missing variable shows."""
    *path, last = name.split(".")
    for part in path:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    data[last] = ""
