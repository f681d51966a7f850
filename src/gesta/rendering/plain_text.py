"""The text part of a letter, told from its HTML: for readers without HTML, and for those who judge what looks like spam."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

#: What is inside these is not for people.
_SILENT: Final = frozenset({"head", "script", "style", "template", "title", "noscript", "object", "svg"})
_BLOCKS: Final = frozenset(
    """address article aside blockquote body center dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre
    section table tr ul""".split()
)
#: A blank line stands before and after these.
_APART: Final = frozenset({"blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "table", "ul"})
_BLANKS = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_LINES = re.compile(r"\n{3,}")


class _Walker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0
        #: Where the link that is open leads, and how many parts there were before its words.
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
            self.parts.append("\n")
        elif tag == "img" and attributes.get("alt"):
            self.parts.append(_BLANKS.sub(" ", str(attributes["alt"])))
        elif tag == "a":
            self._close_link()
            self._link = (attributes.get("href") or "", len(self.parts))
        elif tag in ("td", "th"):
            self.parts.append(" ")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in _APART else "\n")
            if tag == "li":
                self.parts.append("- ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif self._silent:
            return
        elif tag == "a":
            self._close_link()
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in _APART else "\n")

    def _close_link(self) -> None:
        """Where a link leads, unless its words say it already. A link inside a link ends the outer one, as in a browser."""
        if self._link is None:
            return
        (href, start), self._link = self._link, None
        words = "".join(self.parts[start:]).strip()
        href = _BLANKS.sub("", href)
        if href and not href.startswith("#") and href.lower() != words.lower() and href.lower() != f"mailto:{words}".lower():
            self.parts.append(f" ({href})" if words else href)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(_BLANKS.sub(" ", data))


def plain_text(html: str) -> str:
    """The words of a page with its paragraphs, lists and links; ends with a line break."""
    walker = _Walker()
    walker.feed(html)
    walker.close()
    lines = (_BLANKS.sub(" ", line).strip() for line in "".join(walker.parts).split("\n"))
    return _LINES.sub("\n\n", "\n".join(lines)).strip() + "\n"
