"""HTML made ready for mail programs: MJML laid out, styles put on the elements, and a text part for
those who show no HTML.

The page is somebody else's, and the libraries below answer some pages by never coming back or by
ending the process (deep nesting, endless
selectors). So this runs in the child process, like templates.
"""

from __future__ import annotations

from typing import Literal

from gesta.tenants.templates.plain_text import plain_text
from gesta.tenants.templates.press import Fault, Sheet

Markup = Literal["html", "mjml"]


def dress(markup: Markup, source: str) -> Sheet | Fault:
    """The parts `html` and `text` of a page. Nothing is fetched, from the network or from the
    disk.
    """
    html = source
    if markup == "mjml":
        from mrml import to_html

        try:
            html = str(to_html(source).content)
        except (OSError, ValueError):
            # Its words quote the source, and the source may have a person's data in it.
            return Fault("mjml", "is not well-formed MJML")
    if "<style" in html.lower():
        html = _inlined(html)
    return Sheet({"html": html, "text": plain_text(html)})


def _inlined(html: str) -> str:
    from css_inline import CSSInliner, InlineError

    # Rules for screens of a certain size cannot stand on an element: they stay where they are.
    inliner = CSSInliner(load_remote_stylesheets=False, keep_at_rules=True)
    try:
        return inliner.inline(html)
    except InlineError:
        # Styles that cannot be read are left to whoever shows the page.
        return html
