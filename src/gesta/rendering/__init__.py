"""Templates: stored by tenants by code and locale (`template.py`), filled in at execution (`templates.py`).

A template is a program that somebody else wrote, so it runs in a child process with bounds (`press.py` in `child.py`).
"""

from gesta.rendering.renderer import InlineRenderer, Renderer
from gesta.rendering.template import TEMPLATE, Template
from gesta.rendering.templates import Rendered, Templates

__all__ = ["TEMPLATE", "InlineRenderer", "Rendered", "Renderer", "Template", "Templates"]
