"""`attempt.templates`: a tenant's templates, filled in at execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.config import Entity, TenantConfig
from gesta.domain.outcome import Rejected, Retry
from gesta.errors import RendererDown
from gesta.outbound_http import AttemptEnded
from gesta.rendering.press import Fault
from gesta.rendering.renderer import Renderer
from gesta.rendering.template import TEMPLATE, Template, codes


class Rendered(msgspec.Struct, frozen=True):
    """A template filled in: part → text, for the parts that it has; and the version of the tenant's config that it was put with."""

    parts: dict[str, str]
    version: int


class Templates:
    """One tenant's templates as an attempt sees them."""

    __slots__ = ("_config", "_renderer")

    def __init__(self, config: TenantConfig, renderer: Renderer) -> None:
        self._config, self._renderer = config, renderer

    def find(self, code: str, locale: str | None = None) -> Entity | None:
        """The template of the nearest locale. Raises BadConfig when what is stored no longer fits its type."""
        return next((found for name in codes(code, locale) if (found := self._config.get(TEMPLATE, name)) is not None), None)

    async def render(self, code: str, data: Mapping[str, Any], locale: str | None = None) -> Rendered:
        """Fill in a template. Ends the attempt when there is none, or a variable is missing: then nothing is sent."""
        entity = self.find(code, locale)
        if entity is None:
            raise AttemptEnded(Rejected("template_missing", f"the tenant has no template {code}"))
        assert isinstance(entity.body, Template)
        try:
            written = msgspec.json.encode(data)
        except (TypeError, ValueError, RecursionError):
            raise _failed(entity, "the data cannot be written as JSON") from None
        try:
            answer = await self._renderer.render(entity.body, written)
        except RendererDown as error:
            raise AttemptEnded(Retry("renderer_unavailable", str(error))) from None
        if isinstance(answer, Fault):
            raise _failed(entity, f"{answer.part}: {answer.text}")
        return Rendered(answer.parts, entity.version)


def _failed(entity: Entity, text: str) -> AttemptEnded:
    return AttemptEnded(Rejected("template_render_failed", f"template {entity.code}, {text}"))
