"""Fills templates in.

The child process runs this code; so does a test on its own clock, where nobody may wait for a
child.

Bounded by what the template engine can be told (fuel, length of source and result). Memory and time
are bounded by the process around it.
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

#: Steps that the template engine may take for one part: a loop of three takes 30.
FUEL = 100_000
SOURCE_LENGTH_MAX = 200_000
RESULT_LENGTH_MAX = 1_000_000
#: A template stands alone: what it would include could change or vanish by itself, and would be out
#: of its tenant's sight.
_OTHER_TEMPLATES = re.compile(r"\{%[-+]?\s*(include|import|from|extends)\b")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAME = re.compile(r"`([A-Za-z_][\w.]*)` is undefined")
#: They make much out of little, or show what is not theirs.
_REMOVED_FILTERS = ("format", "indent", "pprint")
_REMOVED_GLOBALS = ("debug", "namespace")
#: Errors whose words are about the source alone, whatever the data was.
_ABOUT_SOURCE = frozenset(
    {"UnknownFilter", "UnknownFunction", "UnknownTest", "UnknownMethod", "OutOfFuel"}
)


#: No variable can be called this.
ANY = "*"
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_blocks = msgspec.json.Decoder(list[dict[str, Any]]).decode


class RenderError(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Why a template cannot be filled in. Nothing of the data is in it."""

    part: str
    text: str
    #: The variable that the data lacks, if that is what is wrong: `user.name`; ANY where it cannot
    #: be told which.
    variable: str = ""


class Sheet(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A template filled in, part by part."""

    parts: dict[str, str]


class Names(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What a template takes from its data."""

    names: list[str]


class Press:
    """Renders templates that it was given by number and keeps them compiled."""

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
        #: Of those that were compiled, each part with its environment and its name there.
        self._compiled: dict[int, list[tuple[str, Environment, str]]] = {}

    def learn(self, number: int, sources: Mapping[str, str]) -> None:
        self._sources[number] = sources

    def forget(self, number: int) -> None:
        for part in self._sources.pop(number):
            self._environments[part].remove_template(f"{number}.{part}")
        self._compiled.pop(number, None)

    def render(self, number: int, data: bytes) -> Sheet | RenderError:
        """Fill in every part with a JSON object."""
        if (fault := self.check(number)) is not None:
            return fault
        try:
            variables = _decode_object(data)
        except (ValueError, RecursionError):
            return RenderError("data", "not a JSON object, or too deep")
        parts: dict[str, str] = {}
        for part, environment, name in self._compiled[number]:
            try:
                # By hand and not by `_attempt`: this is done for every message.
                result = parts[part] = environment.render_template(name, **variables)
            except Exception as error:  # noqa: BLE001 -- see `_fault`
                return _fault(part, error)
            if (objection := _objection(part, result)) is not None:
                return RenderError(part, objection)
        if sum(map(len, parts.values())) > RESULT_LENGTH_MAX:
            return RenderError("template", f"renders to more than {RESULT_LENGTH_MAX} characters")
        return Sheet(parts)

    def check(self, number: int) -> RenderError | None:
        """What is wrong with the sources themselves, None: they are sound."""
        if number in self._compiled:
            return None
        if sum(map(len, self._sources[number].values())) > SOURCE_LENGTH_MAX:
            return RenderError("template", f"longer than {SOURCE_LENGTH_MAX} characters")
        compiled = []
        for part, source in self._sources[number].items():
            if (other := _OTHER_TEMPLATES.search(source)) is not None:
                line = source.count("\n", 0, other.start()) + 1
                return RenderError(
                    part, f"line {line}: {other[1]} is not allowed, a template stands alone"
                )
            environment, name = self._environments[part], f"{number}.{part}"
            if isinstance(
                fault := _attempt(part, partial(environment.add_template, name, source)),
                RenderError,
            ):
                return fault
            compiled.append((part, environment, name))
        self._compiled[number] = compiled
        return None

    def variables(self, number: int) -> Names | RenderError:
        """Names that the template uses and does not set itself, nested ones with dots."""
        if (fault := self.check(number)) is not None:
            return fault
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
    """A filter was given a value that is missing, or null: the engine does not tell it which.

    Its own filters would make an empty text of it.
    """


def _given(value: object) -> object:
    if value is None:
        raise _Nothing
    return value


def _for_slack(value: object) -> str:
    """What Slack's mrkdwn wants: data must not mention a channel or hide a link."""
    return str(_given(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_environment() -> Environment:
    """Nothing is escaped by itself.

    `e` is for Slack: what HTML escapes beside that, quotes and slashes, no reader of plain text
    takes back.
    """
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
    """Values stand inside JSON strings that the template writes, so they are escaped for that:
    `"text": "Hello {{ name }}"`.

    What a macro or a `set` block has put together is marked as safe by the escaping of HTML being
    on; it is never applied, because every other
    value is made safe here before. A value of its own is written `{{ items|tojson }}`.
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
    # `tojson` is the way to a value without quotes around it; `safe` would let data end its string.
    # So would these three, which escape HTML and
    # call the result safe: a backslash is nothing to HTML.
    environment.remove_filter("safe")
    environment.add_filter("e", for_slack)
    environment.add_filter("escape", for_slack)
    environment.add_filter("replace", replace)
    return environment


def _attempt(part: str, act: Callable[[], Any]) -> Any:
    """What `act` returns, which has a source and no data in its hands, or the RenderError that it ends
    in.
    """
    try:
        return act()
    except Exception as error:  # noqa: BLE001 -- see `_fault`
        return _fault(part, error, is_source=True)


def _fault(part: str, error: Exception, *, is_source: bool = False) -> RenderError:
    """Whatever a template does to the values it was given is the template's fault.

    `is_source`: there were none, so its words may be repeated.
    """
    from minijinja import TemplateError

    if isinstance(error, TemplateError):
        return _told(part, error, is_source=is_source)
    if isinstance(error, _Nothing):
        return RenderError(
            part,
            "a value that a filter is given is missing, or null; `|default('')` before it gives"
            " it one",
            ANY,
        )
    if isinstance(error, MemoryError):
        # Perhaps others have taken it: a fresh process will tell.
        raise error
    return RenderError(part, f"cannot be rendered ({type(error).__name__})")


def _told(part: str, error: TemplateError, *, is_source: bool) -> RenderError:
    line = f"line {error.line}: " if error.line else ""
    detail = error.detail or ""
    if error.kind == "UndefinedError" and (missing := _NAME.fullmatch(detail)) is not None:
        return RenderError(part, f"{line}{missing[1]} is missing", missing[1])
    if is_source or error.kind in _ABOUT_SOURCE:
        return RenderError(part, line + (detail or error.kind))
    return RenderError(part, f"{line}cannot be rendered ({error.kind})")


def _objection(part: str, result: str) -> str | None:
    """What is wrong with a part that was rendered."""
    if part == "subject" and _CONTROL.search(result):
        return "renders to a text with control characters or line breaks"
    if part == "blocks":
        try:
            _decode_blocks(result)
        except (ValueError, RecursionError):
            return "does not render to a JSON array of objects"
    return None
