"""What comes out of a template, part by part."""

from __future__ import annotations

import json

import msgspec
import pytest

from gesta.rendering.press import Fault, Press, Sheet


def render(data: dict[str, object], **sources: str) -> Sheet | Fault:
    press = Press()
    press.learn(1, sources)
    return press.render(1, msgspec.json.encode(data))


def parts(data: dict[str, object], **sources: str) -> dict[str, str]:
    sheet = render(data, **sources)
    assert isinstance(sheet, Sheet), sheet
    return sheet.parts


def fault(data: dict[str, object], **sources: str) -> Fault:
    answer = render(data, **sources)
    assert isinstance(answer, Fault), answer
    return answer


def test_every_part_is_filled_in_and_only_html_is_escaped() -> None:
    source = "Hello {{ name }}"
    assert parts({"name": "<A & B>"}, subject=source, text=source, html=source, mjml=source) == {
        "subject": "Hello <A & B>",
        "text": "Hello <A & B>",
        "html": "Hello &lt;A &amp; B&gt;",
        "mjml": "Hello &lt;A &amp; B&gt;",
    }


@pytest.mark.parametrize("name", ['"}]', "a\nb", "\\", "\x00\x1f", "é\u2028😀"])
def test_a_value_cannot_leave_its_string_in_blocks(name: str) -> None:
    source = """{% macro bold(x) %}*{{ x }}*{% endmacro %}{% set twice %}{{ name }}{{ name }}{% endset -%}
    [{"a": "Hi {{ name }}", "b": "{{ bold(name) }}", "c": "{{ twice }}", "d": {{ name|tojson }}, "e": {{ number }}}]"""
    (block,) = json.loads(parts({"name": name, "number": 7}, blocks=source)["blocks"])
    assert block == {"a": f"Hi {name}", "b": f"*{name}*", "c": name * 2, "d": name, "e": 7}


def test_a_missing_variable_is_named_and_no_data_is_told() -> None:
    answer = fault({"name": "Ann"}, text="{{ name }}\n{{ user.city }}")
    assert (answer.part, answer.variable, answer.text) == ("text", "user", "line 2: user is missing")
    answer = fault({"v": "secret"}, text="{{ v|int }}")
    assert "secret" not in answer.text
