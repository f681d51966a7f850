"""The port: who fills templates in. `child_renderer.py` is the real one; the one below is for tests on a clock of their own."""

from __future__ import annotations

from typing import Protocol

from gesta.rendering.press import Fault, Press, Sheet
from gesta.rendering.template import Template, sources

#: Templates that are kept compiled.
KEPT = 500


class Renderer(Protocol):
    async def render(self, template: Template, data: bytes) -> Sheet | Fault:
        """Fill in a template with a JSON object. Raises RendererDown when that could not be tried."""

    async def variables(self, template: Template) -> list[str] | Fault:
        """Names that the template takes from its data."""

    async def close(self) -> None: ...


class Shelf:
    """Which templates a press has, by number: the oldest makes room."""

    def __init__(self) -> None:
        self._numbers: dict[Template, int] = {}
        self._last = 0

    def place(self, template: Template) -> tuple[int, bool, int | None]:
        """Its number, whether it is new, and which one had to go for it."""
        number = self._numbers.pop(template, None)
        is_new, gone = number is None, None
        if number is None:
            number = self._last = self._last + 1
            if len(self._numbers) >= KEPT:
                gone = self._numbers.pop(next(iter(self._numbers)))
        self._numbers[template] = number
        return number, is_new, gone


class InlineRenderer:
    """In this process and at once: only for templates that can be trusted."""

    def __init__(self) -> None:
        self._press: Press | None = None
        self._shelf = Shelf()

    async def render(self, template: Template, data: bytes) -> Sheet | Fault:
        press, number = self._placed(template)
        return press.render(number, data)

    async def variables(self, template: Template) -> list[str] | Fault:
        press, number = self._placed(template)
        return press.variables(number)

    async def close(self) -> None:
        self._press, self._shelf = None, Shelf()

    def _placed(self, template: Template) -> tuple[Press, int]:
        press = self._press = self._press or Press()
        number, is_new, gone = self._shelf.place(template)
        if is_new:
            press.learn(number, sources(template))
        if gone is not None:
            press.forget(gone)
        return press, number
