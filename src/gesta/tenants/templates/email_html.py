"""Prepares HTML for mail programs: renders MJML, inlines styles and derives a text part.

The page comes from a tenant, and the libraries hang or end the process on some pages (deep
nesting, endless selectors). So this runs in the child process, like templates.
"""

import re
from html.parser import HTMLParser
from typing import Final, Literal

from gesta.tenants.templates.press import RenderError, Sheet

#: The text inside these is not shown.
_SILENT: Final = frozenset(
    {"head", "script", "style", "template", "title", "noscript", "object", "svg"}
)
_BLOCKS: Final = frozenset(
    """address article aside blockquote body center dd div dl dt fieldset figure footer form h1 h2
    h3 h4 h5 h6 header hr li main nav ol p pre section table tr ul""".split()
)
#: These have a blank line before and after them.
_APART: Final = frozenset(
    {"blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "table", "ul"}
)
_BLANKS = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_LINES = re.compile(r"\n{3,}")


class _Walker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0
        #: Line breaks that the text ends with so far.
        self._breaks = 2
        #: The target of the open link, and how many parts there were before its text.
        self._link: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif not self._silent:
            self._open(tag, dict(attrs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SILENT and not self._silent:
            self._open(tag, dict(attrs))

    def _open(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag == "br":
            self._break(self._breaks + 1)
        elif tag == "img" and attributes.get("alt"):
            self._say(_BLANKS.sub(" ", str(attributes["alt"])))
        elif tag == "a":
            self._close_link()
            self._link = (attributes.get("href") or "", len(self.parts))
        elif tag in ("td", "th"):
            self._say(" ")
        elif tag in _BLOCKS:
            self._break(2 if tag in _APART else 1)
            if tag == "li":
                self._say("- ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif self._silent:
            return
        elif tag == "a":
            self._close_link()
        elif tag in _BLOCKS:
            self._break(2 if tag in _APART else 1)

    def _break(self, count: int) -> None:
        """Let the text end with at least so many line breaks."""
        self.parts.append("\n" * max(0, count - self._breaks))
        self._breaks = max(self._breaks, count)

    def _say(self, text: str) -> None:
        if text.strip() or not self._breaks:
            self.parts.append(text)
        if text.strip():
            self._breaks = 0

    def _close_link(self) -> None:
        """Add the target of a link unless its text is the target.

        A link inside a link ends the outer one, as in a browser.
        """
        if self._link is None:
            return
        (href, start), self._link = self._link, None
        words = "".join(self.parts[start:]).strip()
        href = _BLANKS.sub("", href)
        if (
            href
            and not href.startswith("#")
            and href.lower() != words.lower()
            and href.lower() != f"mailto:{words}".lower()
        ):
            self._say(f" ({href})" if words else href)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._say(_BLANKS.sub(" ", data))


def plain_text(html: str) -> str:
    """The text of a page with its paragraphs, lists and links; ends with a line break."""
    walker = _Walker()
    walker.feed(html)
    walker.close()
    lines = (_BLANKS.sub(" ", line).strip() for line in "".join(walker.parts).split("\n"))
    return _LINES.sub("\n\n", "\n".join(lines)).strip() + "\n"


Markup = Literal["html", "mjml"]


def dress(markup: Markup, source: str) -> Sheet | RenderError:
    """The parts `html` and `text` of a page. Fetches nothing from network or disk."""
    html = source
    if markup == "mjml":
        from mrml import to_html

        try:
            html = str(to_html(source).content)
        except (OSError, ValueError):
            # The error quotes the source, which may contain personal data.
            return RenderError("mjml", "is not well-formed MJML")
    if "<style" in html.lower():
        html = _inlined(html)
    return Sheet({"html": html, "text": plain_text(html)})


def _inlined(html: str) -> str:
    from css_inline import CSSInliner, InlineError

    # Media queries cannot be inlined and stay where they are.
    inliner = CSSInliner(load_remote_stylesheets=False, keep_at_rules=True)
    try:
        return inliner.inline(html)
    except InlineError:
        # Unreadable styles are left to the mail program.
        return html
