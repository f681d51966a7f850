"""What comes out of a template, part by part."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.tenants.templates.press import Names, Press, RenderError, Sheet
from tests.tenants.templates.corpus import DEEP


def render(data: dict[str, Any], **sources: str) -> Sheet | RenderError:
    press = Press()
    press.learn(1, sources)
    return press.render(1, msgspec.json.encode(data))


def parts(data: dict[str, Any], **sources: str) -> dict[str, str]:
    sheet = render(data, **sources)
    assert isinstance(sheet, Sheet), sheet
    return sheet.parts


def render_error(data: dict[str, Any], **sources: str) -> RenderError:
    answer = render(data, **sources)
    assert isinstance(answer, RenderError), answer
    return answer


def test_every_part_is_filled_in_and_only_html_is_escaped() -> None:
    source = "Hello {{ name }}"
    assert parts({"name": "<A & 'B'>"}, subject=source, text=source, html=source, mjml=source) == {
        "subject": "Hello <A & 'B'>",
        "text": "Hello <A & 'B'>",
        "html": "Hello &lt;A &amp; &#x27;B&#x27;&gt;",
        "mjml": "Hello &lt;A &amp; &#x27;B&#x27;&gt;",
    }  # R1-23


@given(st.text(), st.integers(-(2**60), 2**60) | st.booleans() | st.none())
def test_a_value_cannot_leave_its_string_in_blocks(name: str, number: int | None) -> None:
    source = """{% macro bold(x) %}*{{ x }}*{% endmacro -%}
    {% set twice %}{{ name }}{{ name }}{% endset -%}
    [{"a": "Hi {{ name }}", "b": "{{ bold(name) }}", "c": "{{ twice }}", "d": {{ name|tojson }},
      "e": {{ number }}, "f": "{{ [name] }}"}]"""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    (block,) = json.loads(parts({"name": name, "number": number}, blocks=source)["blocks"])
    assert json.loads(block.pop("f")) == [name]
    assert block == {"a": f"Hi {name}", "b": f"*{name}*", "c": name * 2, "d": name, "e": number}


EXPRESSIONS = """name|e · name|escape · d.x|e · [name]|map('e')|join · name|replace('x', 1|tojson)
    (1|tojson)|replace('1', name) · (1|tojson) ~ name · name ~ (1|tojson)
    [name, name]|join(1|tojson) · (1|tojson) + name · name|upper · name|urlencode · name|striptags
    name|string · name[:3] · d · [d] · name|int(default=name) · name|truncate(length=3) · name * 2
    name|title|trim · name|default('x') · name|lines|join('-')"""


@pytest.mark.parametrize(
    "name", ["\\", '"', '", "evil": "', "\n", '\\"', "x\\", "Ann", "&<>'", "\\u0022"]
)
def test_no_filter_lets_a_value_leave_its_string_in_blocks(name: str) -> None:
    expressions = [one.strip() for line in EXPRESSIONS.splitlines() for one in line.split("·")]
    wrapped = [f"{{{{ {one} }}}}" for one in expressions]
    wrapped += [
        "{% filter e %}{{ name }}{% endfilter %}",
        "{% autoescape 'json' %}{{ name }}{% endautoescape %}",
    ]
    wrapped += [
        (
            "{% autoescape false %}{{ name }}{% set z %}{{ name }}{% endset %}{% endautoescape %}{{"
            " z }}"
        )
    ]
    for one in wrapped:
        (block,) = json.loads(
            parts({"name": name, "d": {"x": name}}, blocks=f'[{{"a": "{one}", "b": "{one}"}}]')[
                "blocks"
            ]
        )
        assert block.keys() == {"a", "b"}, one


@pytest.mark.parametrize("part", ["text", "html", "blocks"])
@pytest.mark.parametrize(
    "source",
    [
        "{{ name|e }}",
        "{{ name|escape }}",
        "{{ a.b|e }}",
        "https://x.example/?n={{ name|urlencode }}",
        "{{ [name]|map('e')|join }}",
    ],
)
def test_a_missing_variable_does_not_get_through_a_filter_as_an_empty_text(
    part: str, source: str
) -> None:
    template = f'[{{"a": "{source}"}}]' if part == "blocks" else source
    answer = render_error({"a": {}}, **{part: template})
    assert (answer.part, answer.variable) == (part, "*")
    assert "is missing or null" in answer.text


def test_plain_text_is_escaped_for_slack_and_not_for_html() -> None:
    assert (
        parts({"name": "<!channel> & O'Brien a/b"}, text="{{ name|e }}")["text"]
        == "&lt;!channel&gt; &amp; O'Brien a/b"
    )


def test_escaped_data_cannot_mention_a_user_in_slack() -> None:
    (block,) = json.loads(
        parts({"name": "<!channel> & \\ 'x'"}, blocks='[{"a": "{{ name|e }}"}]')["blocks"]
    )
    assert block == {"a": "&lt;!channel&gt; &amp; \\ 'x'"}


@pytest.mark.parametrize(
    "source",
    [
        "",
        "{}",
        "[1]",
        '"{{ name }}"',
        '[{"a": {{ name }}}]',
        '[{"a": "{{ name|safe }}"}]',
        "[" * 5_000,
    ],
)
def test_blocks_that_are_no_array_of_objects_are_refused(source: str) -> None:
    assert render_error({"name": '"}, {"a": "'}, blocks=source or " ").part == "blocks"  # S0-16


@pytest.mark.parametrize("name", ["a\nBcc: x@y.z", "a\rb", "a\x00b", "a\x85b", "a\u2028b"])
def test_a_line_break_does_not_get_into_a_subject(name: str) -> None:
    answer = render_error({"name": name}, subject="Hello {{ name }}")
    assert answer == RenderError(
        "subject", "renders to a text with control characters or line breaks"
    )


@pytest.mark.parametrize(
    ("source", "data", "variable"),
    [
        ("{{ name }}", {}, "name"),
        ("{{ user.city }}", {"user": {}}, "user.city"),
        ("{{ user.city }}", {}, "user"),
        ("{% for x in things %}{% endfor %}", {}, "things"),
        ("{% for x in things %}{{ x.price }}{% endfor %}", {"things": [{}]}, "x.price"),
        ("{% if name %}{% endif %}", {}, "name"),
        ("{{ name|upper }}", {}, "name"),
    ],
)
def test_a_missing_variable_is_named(source: str, data: dict[str, Any], variable: str) -> None:
    answer = render_error(data, text=f"one\n{source}")
    assert answer == RenderError("text", f"line 2: {variable} is missing", variable)  # S0-16


@pytest.mark.parametrize(
    "source",
    [
        "{{ a|int }}",
        "{{ b[a] }}",
        "{{ b|sum }}",
        "{{ a() }}",
        "{{ a.x() }}",
        "{{ a|map('no')|list }}",
        "{{ d.pop(a) }}",
    ],
)
def test_no_error_contains_the_data(source: str) -> None:
    answer = render_error({"a": "Topsecret", "b": ["Topsecret"], "d": {}}, text=source)
    assert "Topsecret" not in answer.text + answer.variable  # R1-43


def test_an_optional_variable_may_be_missing() -> None:
    source = "{{ a|default('-') }}{% if b is defined %}{{ b }}{% endif %}"
    assert parts({}, text=source) == {"text": "-"}


def test_the_variables_of_a_template_are_those_it_does_not_set() -> None:
    press = Press()
    press.learn(
        1,
        {
            "text": "{% for x in things %}{{ x.price }}{{ loop.index }}{% endfor %}{{ range(2) }}",
            "html": "{{ user.name }}",
        },
    )
    assert press.variables(1) == Names(["things", "user.name"])


def test_a_template_cannot_include_another() -> None:
    press = Press()
    press.learn(1, {"text": "theirs"})
    press.learn(2, {"text": "{% include '1.text' %}"})
    assert isinstance(press.render(1, b"{}"), Sheet)
    assert press.render(2, b"{}") == RenderError(
        "text", "line 1: include is not allowed: a template must be self-contained"
    )


def test_a_template_that_was_forgotten_may_come_back_under_another_number() -> None:
    press = Press()
    press.learn(1, {"text": "a"})
    assert press.render(1, b"{}") == Sheet({"text": "a"})
    press.forget(1)
    press.learn(2, {"text": "a"})
    assert press.render(2, b"{}") == Sheet({"text": "a"})
    press.learn(3, {"text": "never compiled"})
    press.forget(3)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"a": "\xff"}', b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)
def test_data_that_is_not_a_json_object_is_an_error(data: bytes) -> None:
    press = Press()
    press.learn(1, {"text": "x"})
    assert press.render(1, data) == RenderError("data", "not a JSON object, or too deep")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "line 1: OutOfFuel",
        ),
        ("{{ '%9d'|format(7) }}", "line 1: filter format is unknown"),
        ("{{ 'a'|indent(9) }}", "line 1: filter indent is unknown"),
        ("{{ 'a'|pprint }}", "line 1: filter pprint is unknown"),
        ("{{ debug() }}", "line 1: debug is unknown"),
        ("{{ namespace() }}", "line 1: namespace is unknown"),
    ],
)
def test_the_template_engine_itself_refuses_dangerous_sources(source: str, message: str) -> None:
    # Each by itself, because the bounds of the process would catch what one of these lets through.
    assert render_error({}, text=source) == RenderError("text", message)


def test_deep_data_is_rendered_or_refused() -> None:
    assert parts({"a": DEEP}, text="{{ a }}")["text"].count("[") == 301
