"""Reads the text of a Slack message: mentions, links, escapes, and the keyword that it begins with.

The text that follows the keyword is kept as it was typed. Only the comparison is normalised.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final, Literal

Match = Literal["prefix", "contains"]

#: `<@U1>`, `<@U1|name>`, `<!here>`, `<!subteam^S1|@team>` at the beginning, and blanks around them.
_LEADING: Final = re.compile(r"(?:[\s\u200b\u2060\ufeff]|<[@!][^<>\n]{1,200}>)+")
_TOKEN: Final = re.compile(r"<([^<>\n]{1,4000})>")
_ENTITIES: Final = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
_ENTITY: Final = re.compile("&(?:lt|gt|amp);")
#: Longer than this in Slack's text, a keyword is not one: NFKC shortens at most 18 to 1.
_STRETCH: Final = 18


def after_keyword(text: str, keyword: str, match: Match = "prefix") -> str | None:
    """What follows the keyword; None: the text does not have it.

    Leading mentions do not count. Full-width and composed characters equal their plain forms.
    """
    found = _LEADING.match(text)
    rest = text if found is None else text[found.end() :]
    wanted = _wanted(keyword)
    if match == "prefix":
        return _behind(rest, wanted)
    if wanted not in _normal(rest):
        return None
    for start in range(len(rest)):
        behind = _behind(rest[start:], wanted)
        if behind is not None:
            return behind
    # The keyword appears only after neighbouring characters are composed, so all of the text
    # counts.
    return rest


def _behind(text: str, wanted: str) -> str | None:
    if text.startswith(wanted) and not unicodedata.combining(text[len(wanted) :][:1] or " "):
        # The form in which most people type it.
        return text[len(wanted) :]
    if not text or not _normal(text[: len(wanted) * _STRETCH]).startswith(wanted):
        return None
    for end in range(1, min(len(text), len(wanted) * _STRETCH) + 1):
        if end < len(text) and unicodedata.combining(text[end]):
            # It belongs to the character before.
            continue
        if _normal(text[:end]) == wanted:
            return text[end:]
    return None


@lru_cache(maxsize=256)
def _wanted(keyword: str) -> str:
    return _normal(keyword)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def plain(text: str) -> str:
    """The text as people read it, without Slack's markup."""
    return _ENTITY.sub(lambda entity: _ENTITIES[entity[0]], _TOKEN.sub(_readable, text))


def _readable(token: re.Match[str]) -> str:
    inner, _, label = token[1].partition("|")
    if inner[0] in "@#":
        # A label is a name; a channel's has no sign of its own.
        return f"{inner[0]}{label.lstrip('@#') or inner[1:]}"
    if inner[0] == "!":
        return f"@{label.lstrip('@') or inner[1:].partition('^')[0]}"
    return f"{label} ({inner})" if label and label != inner else inner
