"""Templates that want too much. Each must come to an error, and the next render must work."""

from __future__ import annotations

from typing import Any

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]

#: Name → source and data of a template that must not render.
HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "a huge range": ("{% for i in range(10 ** 12) %}x{% endfor %}", {}),
    "nested loops": (
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}",
        {},
    ),
    "a repeated text": ("{{ 'x' * 10 ** 10 }}", {}),
    "a text that a constant makes": ("{{ ('x' * 99999) * 99999 }}", {}),
    "doubling": ("{% set x = 'xxxxxxxx' %}" + "{% set x = x ~ x %}" * 40 + "{{ x|length }}", {}),
    "doubling lists": (
        "{% set x = [1, 2, 3] %}" + "{% set x = x + x %}" * 40 + "{{ x|length }}",
        {},
    ),
    "a width": ("{{ '%999999999d'|format(7) }}", {}),
    "an indent": ("{{ 'a\\nb'|indent(10 ** 9) }}", {}),
    "replaced": ("{{ a|replace('x', a)|replace('x', a)|replace('x', a) }}", {"a": "x" * 5_000}),
    "joined": ("{{ range(99999)|join(a) }}", {"a": "x" * 100_000}),
    "recursion of a macro": ("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", {}),
    "a recursive loop": ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", {}),
    "an include": ("{% include 'other' %}", {}),
    "an import": ("{%- import 'other' as other %}", {}),
    "a from": ("{% from 'other' import a %}", {}),
    "an extends": ("{%+ extends 'other' %}", {}),
    "a class": ("{{ ''.__class__.__mro__ }}", {}),
    "a class of data": ("{{ a.__class__ }}", {"a": {}}),
    "globals": ("{{ a.append.__globals__ }}", {"a": []}),
    "debug": ("{{ debug() }}", {}),
    "a namespace": ("{% set n = namespace(x=1) %}{{ n.x }}", {}),
    "parentheses": ("{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}", {}),
    "blocks in blocks": ("{% if 1 %}" * 3_000 + "x" + "{% endif %}" * 3_000, {}),
    "no end": ("{% for x in [1] %}", {}),
    "a long source": ("x" * 200_001, {}),
    "a long result": ("{{ a }}{{ a }}{{ a }}", {"a": "x" * 400_000}),
    "a list that grows by itself": (
        "{% for x in range(60) %}{{ a.extend(a) }}{% endfor %}",
        {"a": [1, 2, 3]},
    ),
    "a division by zero": ("{{ 1 // 0 }}", {}),
    "a power": ("{{ 9 ** 9 ** 9 }}", {}),
    "sorted by what is not there": ("{{ a|sort(attribute='x.y.z')|tojson }}{{ b }}", {"a": [1, 2]}),
}
