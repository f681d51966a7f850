"""Port: renders templates.

`child_renderer.py` is the real one; `InlineRenderer` is for tests with a manual clock.
"""

from collections.abc import Awaitable
from importlib.util import find_spec
from typing import Protocol

from gesta.errors import RendererDown
from gesta.tenants.templates.email_html import Markup, dress
from gesta.tenants.templates.press import Names, Press, RenderError, Sheet
from gesta.tenants.templates.templates import Template, sources, weight

#: Templates that are kept compiled, and the characters of their sources.
KEPT = 500
KEPT_LENGTH = 4_000_000


class Renderer(Protocol):
    """Every method raises RendererDown when it could not try. Its CPU time counts for `tenant`."""

    def render(
        self, template: Template, data: bytes, tenant: str = ""
    ) -> Awaitable[Sheet | RenderError]:
        """Fill in a template with a JSON object."""

    async def variables(self, template: Template, tenant: str = "") -> Names | RenderError:
        """Names that the template takes from its data."""

    async def dress(self, markup: Markup, source: str, tenant: str = "") -> Sheet | RenderError:
        """A page prepared for mail programs: the parts `html` and `text`."""

    async def close(self) -> None: ...


def refuse_missing_engine() -> None:
    """Raise RendererDown with the command that installs the template engine: it is an extra."""
    if find_spec("minijinja") is None:
        raise RendererDown(
            "minijinja is not installed; install a channel with templates, e.g. pip install"
            " 'gesta[slack]'"
        )


class Shelf:
    """The templates that a press has, by number; the one unused for longest makes room."""

    def __init__(self) -> None:
        self._numbers: dict[Template, int] = {}
        self._last = self._length = 0

    def place(self, template: Template) -> tuple[int, bool, list[int]]:
        """The template's number, whether it is new, and the numbers that it replaces."""
        number = self._numbers.pop(template, None)
        if number is not None:
            self._numbers[template] = number
            return number, False, []
        self._last += 1
        self._length += weight(template)
        gone = []
        while self._numbers and (len(self._numbers) >= KEPT or self._length > KEPT_LENGTH):
            oldest = next(iter(self._numbers))
            self._length -= weight(oldest)
            gone.append(self._numbers.pop(oldest))
        self._numbers[template] = self._last
        return self._last, True, gone


class InlineRenderer:
    """Renders in this process, without limits: only for trusted templates."""

    def __init__(self) -> None:
        self._press: Press | None = None
        self._shelf = Shelf()

    async def render(
        self, template: Template, data: bytes, tenant: str = ""
    ) -> Sheet | RenderError:
        del tenant
        press, number = self._placed(template)
        return press.render(number, data)

    async def variables(self, template: Template, tenant: str = "") -> Names | RenderError:
        del tenant
        press, number = self._placed(template)
        return press.variables(number)

    async def dress(self, markup: Markup, source: str, tenant: str = "") -> Sheet | RenderError:
        del tenant
        return dress(markup, source)

    async def close(self) -> None:
        self._press, self._shelf = None, Shelf()

    def _placed(self, template: Template) -> tuple[Press, int]:
        if self._press is None:
            refuse_missing_engine()
            self._press = Press()
        press = self._press
        number, is_new, gone = self._shelf.place(template)
        if is_new:
            press.learn(number, sources(template))
        for one in gone:
            press.forget(one)
        return press, number
