"""Renders templates, in the child process or, in tests with a manual clock, in the test itself.

The limits of the template engine are set here: steps, length of source and of result. The child
process limits memory and time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from minijinja import Environment, TemplateError

#: Steps of the template engine for one part; a loop of three takes 30.
FUEL = 100_000
SOURCE_LENGTH_MAX = 200_000
RESULT_LENGTH_MAX = 1_000_000
#: A template must be self-contained: an included one could change or vanish by itself.
_OTHER_TEMPLATES = re.compile(r"\{%[-+]?\s*(include|import|from|extends)\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAME = re.compile(r"`([A-Za-z_][\w.]*)` is undefined")
#: They create large texts from small ones, or reveal internals.
_REMOVED_FILTERS = ("format", "indent", "pprint")
_REMOVED_GLOBALS = ("debug", "namespace")
#: Errors whose text is about the source alone and contains no data.
_ABOUT_SOURCE = frozenset(
    {"UnknownFilter", "UnknownFunction", "UnknownTest", "UnknownMethod", "OutOfFuel"}
)


#: Not the name of any variable.
ANY = "*"
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_blocks = msgspec.json.Decoder(list[dict[str, Any]]).decode


class RenderError(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Why a template cannot be rendered. Contains no data."""

    part: str
    text: str
    #: The missing variable, if one is missing: `user.name`; ANY: it is not known which.
    variable: str = ""


class Sheet(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A rendered template: part → text."""

    parts: dict[str, str]


class Names(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The variables of a template."""

    names: list[str]


class Press:
    """Knows templates by number, keeps them compiled and renders them."""

    def __init__(self) -> None:
        plain, markup, blocks = _plain_environment(), _html_environment(), _blocks_environment()
        self._environments = {
            "subject": plain,
            "text": plain,
            "html": markup,
            "mjml": markup,
            "blocks": blocks,
        }
        self._sources: dict[int, Mapping[str, str]] = {}
        #: Number → part, environment and name there, of compiled templates.
        self._compiled: dict[int, list[tuple[str, Environment, str]]] = {}

    def learn(self, number: int, sources: Mapping[str, str]) -> None:
        self._sources[number] = sources

    def forget(self, number: int) -> None:
        for part in self._sources.pop(number):
            self._environments[part].remove_template(f"{number}.{part}")
        self._compiled.pop(number, None)

    def render(self, number: int, data: bytes) -> Sheet | RenderError:
        """Render every part with a JSON object."""
        if (found := self.check(number)) is not None:
            return found
        try:
            variables = _decode_object(data)
        except (ValueError, RecursionError):
            return RenderError("data", "not a JSON object, or too deep")
        parts: dict[str, str] = {}
        for part, environment, name in self._compiled[number]:
            try:
                # Without `_attempt`, because this is done for every message.
                result = parts[part] = environment.render_template(name, **variables)
            except Exception as error:  # noqa: BLE001 -- see `_render_error`
                return _render_error(part, error)
            if (objection := _objection(part, result)) is not None:
                return RenderError(part, objection)
        if sum(map(len, parts.values())) > RESULT_LENGTH_MAX:
            return RenderError("template", f"renders to more than {RESULT_LENGTH_MAX} characters")
        return Sheet(parts)

    def check(self, number: int) -> RenderError | None:
        """The error of the sources; None: they are correct."""
        if number in self._compiled:
            return None
        if sum(map(len, self._sources[number].values())) > SOURCE_LENGTH_MAX:
            return RenderError("template", f"longer than {SOURCE_LENGTH_MAX} characters")
        compiled = []
        for part, source in self._sources[number].items():
            if (other := _OTHER_TEMPLATES.search(source)) is not None:
                line = source.count("\n", 0, other.start()) + 1
                return RenderError(
                    part,
                    f"line {line}: {other[1]} is not allowed: a template must be self-contained",
                )
            environment, name = self._environments[part], f"{number}.{part}"
            if isinstance(
                error := _attempt(part, partial(environment.add_template, name, source)),
                RenderError,
            ):
                return error
            compiled.append((part, environment, name))
        self._compiled[number] = compiled
        return None

    def variables(self, number: int) -> Names | RenderError:
        """Names that the template uses and does not set; nested ones with dots."""
        if (error := self.check(number)) is not None:
            return error
        found: set[str] = set()
        for part, source in self._sources[number].items():
            environment = self._environments[part]
            names = _attempt(
                part, partial(environment.undeclared_variables_in_str, source, nested=True)
            )
            if isinstance(names, RenderError):
                return names
            found |= names - environment.globals.keys()
        return Names(sorted(found))


def _environment(escape: str | None) -> Environment:
    from minijinja import Environment

    environment = Environment(
        fuel=FUEL,
        undefined_behavior="strict",
        auto_escape_callback=lambda _: escape,
        pycompat=False,
    )
    for name in _REMOVED_FILTERS:
        environment.remove_filter(name)
    for name in _REMOVED_GLOBALS:
        environment.remove_global(name)
    original = Environment()
    environment.add_filter(
        "urlencode", lambda value: original.eval_expr("value|urlencode", value=_given(value))
    )
    return environment


class _Nothing(Exception):
    """A filter was given a missing value or null; the engine does not say which.

    Its built-in filters would render an empty text.
    """


def _given(value: object) -> object:
    if value is None:
        raise _Nothing
    return value


def _for_slack(value: object) -> str:
    """Escapes for Slack's mrkdwn: data must not mention a channel or hide a link."""
    return str(_given(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_environment() -> Environment:
    """Escapes nothing by default. `e` escapes for Slack, not quotes and slashes as HTML does."""
    environment = _environment(None)
    environment.add_filter("e", _for_slack)
    environment.add_filter("escape", _for_slack)
    return environment


def _html_environment() -> Environment:
    from minijinja import safe

    mark = type(safe(""))

    def escaped(value: object) -> object:
        return value if isinstance(value, mark) else safe(html.escape(str(_given(value))))

    environment = _environment("html")
    environment.add_filter("e", escaped)
    environment.add_filter("escape", escaped)
    return environment


def _blocks_environment() -> Environment:
    """Escapes values for the JSON strings around them: `"text": "Hello {{ name }}"`.

    Escaping for HTML is on so that the engine marks results of macros and `set` blocks as safe. It
    is never applied, because the finalizer marks every other value as safe. A value without quotes
    is written `{{ items|tojson }}`.
    """
    from minijinja import safe

    mark = type(safe(""))

    def escaped(value: object) -> object:
        if isinstance(value, mark):
            return value
        if isinstance(value, str):
            return safe(msgspec.json.encode(value)[1:-1].decode())
        written = msgspec.json.encode(value)
        return safe(
            (
                msgspec.json.encode(written.decode())[1:-1]
                if isinstance(value, list | dict)
                else written
            ).decode()
        )

    def for_slack(value: object) -> object:
        return value if isinstance(value, mark) else _for_slack(value)

    def replace(value: object, old: object, new: object) -> str:
        return str(_given(value)).replace(str(old), str(new))

    environment = _environment("html")
    environment.finalizer = escaped
    # `safe` would let data end its string. So would the built-in forms of these three: they escape
    # for HTML, which leaves backslashes.
    environment.remove_filter("safe")
    environment.add_filter("e", for_slack)
    environment.add_filter("escape", for_slack)
    environment.add_filter("replace", replace)
    return environment


def _attempt(part: str, act: Callable[[], Any]) -> Any:
    """What `act` returns, or its RenderError. It uses a source and no data."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 -- see `_render_error`
        return _render_error(part, error, is_source=True)


def _render_error(part: str, error: Exception, *, is_source: bool = False) -> RenderError:
    """The RenderError of any exception. `is_source`: there was no data that its text could show."""
    from minijinja import TemplateError

    if isinstance(error, TemplateError):
        return _template_error(part, error, is_source=is_source)
    if isinstance(error, _Nothing):
        return RenderError(
            part,
            "the value of a filter is missing or null; write `|default('')` before the filter",
            ANY,
        )
    if isinstance(error, MemoryError):
        # Earlier orders may have used up the memory: a fresh process decides.
        raise error
    return RenderError(part, f"cannot be rendered ({type(error).__name__})")


def _template_error(part: str, error: TemplateError, *, is_source: bool) -> RenderError:
    line = f"line {error.line}: " if error.line else ""
    detail = error.detail or ""
    if error.kind == "UndefinedError" and (missing := _NAME.fullmatch(detail)) is not None:
        return RenderError(part, f"{line}{missing[1]} is missing", missing[1])
    if is_source or error.kind in _ABOUT_SOURCE:
        return RenderError(part, line + (detail or error.kind))
    return RenderError(part, f"{line}cannot be rendered ({error.kind})")


def _objection(part: str, result: str) -> str | None:
    """Why a rendered part is refused."""
    if part == "subject" and _CONTROL.search(result):
        return "renders to a text with control characters or line breaks"
    if part == "blocks":
        try:
            _decode_blocks(result)
        except (ValueError, RecursionError):
            return "does not render to a JSON array of objects"
    return None
