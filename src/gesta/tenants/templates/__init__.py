"""Templates: stored by tenants by code and locale (`template.py`), filled in at execution
(`templates.py`).

A template is a program that somebody else wrote, so it runs in a process with bounds: `press.py` in
`child.py`, asked by `child_renderer.py`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gesta.tenants.templates.child_renderer import ChildRenderer
    from gesta.tenants.templates.renderer import InlineRenderer, Renderer
    from gesta.tenants.templates.template import TEMPLATE, Template
    from gesta.tenants.templates.templates import Rendered, Templates, find_template

__all__ = [
    "TEMPLATE",
    "ChildRenderer",
    "InlineRenderer",
    "Rendered",
    "Renderer",
    "Template",
    "Templates",
    "find_template",
]

#: Name → its module.
_HOMES = {
    "ChildRenderer": "child_renderer",
    "InlineRenderer": "renderer",
    "Renderer": "renderer",
    "TEMPLATE": "template",
    "Template": "template",
    "Rendered": "templates",
    "Templates": "templates",
    "find_template": "templates",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imported when it is first asked for: the child process has no use for an engine."""
        if name in _HOMES:
            return globals().setdefault(
                name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
