"""Redaction of credentials and personal data in log lines, dead letters and event texts.

Texts of exceptions and providers pass through `scrub`. When unsure it hides, but it keeps what
people need to find a request: ids, times, reasons.
"""

import html
import json
import re
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from urllib.parse import quote, quote_plus, unquote_plus

#: Longer texts are cut: they go into events and table cells.
TEXT_LENGTH_MAX = 500
#: Longer inputs are cut to this before they are examined.
_INPUT_LENGTH_MAX = 4 * TEXT_LENGTH_MAX
_CUT = "…"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LONG_SEGMENT = re.compile(r"[^/\s?#]{20,}")

_URL = (
    # After a user part the host may be missing, as for a server at a socket. Without either it is
    # the path of a file.
    r"(?i)\b(?P<scheme>[a-z][a-z0-9+.-]{1,15})://"
    r"(?:[^\s/?#]*@(?P<host>[^\s/?#@\"'<>]*)|(?P<alone>[^\s/?#@\"'<>]+))"
    r"(?P<path>/[^\s?#\"'<>]*)?(?P<rest>[?#][^\s\"'<>]*)?"
)
_USER_PART = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,15}://)[^\s/?#]*@")
_AFTER_PATH = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,15}://[^\s?#]*)[?#]\S*")
#: Names of credentials in a query, a header or a JSON object.
_NAMED = (
    r"(?:(?:x-)?api[-_]?key|access[-_]?key|private[-_]?key"
    r"|(?:(?:access|refresh|id|auth|bot|session)[-_]?)?token"
    r"|(?:client[-_]?)?secret|passw(?:or)?d|pwd|senha|signature|sig)"
)
#: A whole value, so that nothing can hide behind it.
_VARIABLE = r"env:(?-i:[A-Z_][A-Z0-9_]*)(?=[\s)]|\Z)"


def _url(match: re.Match[str]) -> str:
    """Scheme, host and path; without user, query, fragment and parts of the path that could be
    tokens.
    """
    path = _LONG_SEGMENT.sub(
        lambda part: part[0] if _UUID.fullmatch(part[0]) else "[token]", match["path"] or ""
    )
    host, rest = match["host"] or match["alone"] or "", "?…" if match["rest"] else ""
    return f"{match['scheme']}://{host}{path}{rest}"


def _tax_id(match: re.Match[str]) -> str:
    digits = [int(digit) for digit in match[0]]
    return "[tax id]" if _has_check_digits(digits) else match[0]


def _has_check_digits(digits: list[int]) -> bool:
    """Whether the last two of 11 (CPF) or 14 (CNPJ) digits are check digits of the others.

    1 % of other numbers of that length pass by chance.
    """
    for length in (len(digits) - 2, len(digits) - 1):
        cycle = 12 if len(digits) == 11 else 8
        weighted = sum(
            digit * (2 + (length - 1 - place) % cycle)
            for place, digit in enumerate(digits[:length])
        )
        if digits[length] != (0 if weighted % 11 < 2 else 11 - weighted % 11):
            return False
    return True


Replacement = str | Callable[[re.Match[str]], str]

#: In this order: whole URLs, so that a user part is not mistaken for an e-mail address; then values
#: by their names; then values by their form.
_RULES: tuple[tuple[re.Pattern[str], Replacement], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (_URL, _url),
        # Headers that carry a credential whatever follows.
        (
            (
                r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*+[\"']?+)"
                r"(?!\[)[^\r\n\"',}]+"
            ),
            r"\1\2[token]",
        ),
        # A scheme word before a value that does not look like a word of a sentence.
        (
            (
                r"(?i)\b(bearer|basic)\s+(?=\S*[0-9=_~+/]|\S{20}|\S*(?-i:[a-z][A-Z]))"
                r"[a-z0-9._~+/=-]{6,}"
            ),
            r"\1 [token]",
        ),
        # name=value, "name": "value", and name: value where the value has a digit. env:NAME is the
        # name of a variable.
        (rf"(?i)\b({_NAMED})=(?!\[|{_VARIABLE})[^\s&;,\"']+", r"\1=[token]"),
        (
            rf"(?i)([\"'])({_NAMED})\1(\s*[:=]\s*)([\"'])(?!\[token\])(?:(?!\4).)+",
            r"\1\2\1\3\4[token]",
        ),
        (rf"(?i)\b({_NAMED})(:\s*+)(?=\S*\d)(?!\[)[^\s,;\"']{{6,}}", r"\1\2[token]"),
        (
            r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            "[token]",
        ),
        # Slack; webhook secrets; our own keys; Stripe and its kin; AWS, GitHub, JSON web tokens.
        (r"(?i)\b(?:xox[a-z]|xapp)[-.][a-z0-9.-]{6,}", "[token]"),
        (r"\bwhs(?:ec|k)_[A-Za-z0-9+/=_-]+", "[token]"),
        (r"gesta_(?:live|test)_[0-9a-z]+_[0-9A-Za-z]+", "[token]"),
        (r"\b[sr]k[_-][A-Za-z0-9_-]{8,}", "[token]"),
        (
            (
                r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}"
                r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+"
            ),
            "[token]",
        ),
        (r"[^\s@\"'<>()\[\],;:]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", "[email]"),
        # CPF and CNPJ, with their dots, and bare where the check digits are right.
        (r"(?<![\w.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\w-])", "[tax id]"),
        (
            r"(?<![\w.-])[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}/[0-9A-Z]{4}-\d{2}(?![\w-])",
            "[tax id]",
        ),
        (r"(?<![\w.:+-])(?:\d{14}|\d{11})(?![\w.:-])", _tax_id),
        # Numbers with a country code, and area codes in brackets.
        (r"(?<![\w.:])(?:\+|00)[1-9](?:[ ().-]{0,2}\d){7,16}(?![\w:])", "[phone]"),
        (r"(?<!\w)\(\d{2,3}\) ?\d{3,5}[- ]\d{4}(?!\w)", "[phone]"),
    )
)


def scrub(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """The text without credentials and personal data, at most `length_max` characters long."""
    if not text:
        return text
    is_cut = len(text) > _INPUT_LENGTH_MAX
    if is_cut:
        # Cut at the last blank: a rule would not recognise half a secret.
        text = text[:_INPUT_LENGTH_MAX].rpartition(" ")[0]
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text if len(text) <= length_max and not is_cut else text[: length_max - 1] + _CUT


#: Every match of a rule contains a match of this, which is much cheaper to search for.
_SUSPECT = re.compile(
    r"[@+(\s]|://|/[0-9A-Z]{4}-\d\d|(?:\d[.-]{0,2}){9}|whs|gesta_|[sr]k[_-]|A[KS]IA|gh[a-z]_|eyJ"
    r"|(?i:xox|xapp|key|token|secret|passw|pwd|senha|sig|authorization|cookie)"
)
#: Most keys are lower case, hyphens and digits, or hexadecimal like a UUID: recognised at low cost.
#: No rule matches digits beside a letter or a hyphen, except a country code after zeros.
_HEXADECIMAL = re.compile(r"(?!00)(?!.*-00)(?=[0-9-]*[a-f])[0-9a-f-]+")
_LOWER_CASE = re.compile(r"(?!00)(?!.*-00)(?=[0-9-]*[a-z])[0-9a-z-]+")
#: The names of a Slack message and of an event about it, whose many digits no rule matches.
_SLACK_NAME = re.compile(
    r"slack(?::[A-Z0-9]{1,32}/[A-Z0-9]{1,32}/[0-9]{1,12}\.[0-9]{1,8}"
    r"|-[TE][A-Z0-9]{1,30}-Ev[A-Z0-9]{1,30})"
)
#: Of the words that _SUSPECT looks for, those that can be made of lower-case letters and hyphens.
_SUSPECT_WORD = re.compile(
    "key|token|secret|passw|pwd|senha|sig|authorization|cookie|xox|xapp|whs|k-"
)


def scrubbed_name(name: str) -> str:
    """A caller's key or id with addresses, numbers and tokens masked, to be stored and shown."""
    return (
        name
        if _is_ordinary(name) or _SUSPECT.search(name) is None
        else scrub(name, len(name) + TEXT_LENGTH_MAX)
    )


def _is_ordinary(name: str) -> bool:
    if name.startswith("slack") and _SLACK_NAME.fullmatch(name) is not None:
        return True
    return _HEXADECIMAL.fullmatch(name) is not None or (
        _LOWER_CASE.fullmatch(name) is not None and _SUSPECT_WORD.search(name) is None
    )


#: What stands for the user part and the query of a URL.
HIDDEN_MARKS = ("[hidden]@", "?…")


def without_credentials(text: str) -> str:
    """The text without the user part and the query of its URLs, which may be credentials."""
    user_part, query = HIDDEN_MARKS
    return _AFTER_PATH.sub(rf"\1{query}", _USER_PART.sub(rf"\1{user_part}", text))


def masked_host(url: str) -> str:
    """The last two labels of a URL's host, for logs.

    The labels before them can be a customer's name or a token.
    """
    match = re.match(r"[a-z][a-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]]*\]|[^:/?#]*)", url, re.IGNORECASE)
    host = match[1] if match else ""
    labels = host.split(".")
    if host.startswith("[") or host.replace(".", "").isdigit() or len(labels) <= 2:
        return host
    return ".".join(("*", *labels[-2:]))


#: Shorter texts are part of too many words, and shorter numbers of too many other numbers.
HIDDEN_LENGTH_MIN, NUMBER_LENGTH_MIN = 3, 5
HIDDEN = "[hidden]"
#: A longer value is a text and not a name: its words are ordinary ones.
_NAME_LENGTH_MAX = 80
_ESCAPE = re.compile(r"\\(?:u\{?([0-9a-fA-F]{4,6})\}?|x([0-9a-fA-F]{2})|([\"'/\\]))")
_ENCODED = re.compile(r"[\\%&+]")
#: What has none of these does not become shorter when it is normalised.
_SHORTENED = re.compile(r"[\\%&+]|[^\x00-\x7f]|\s\s|^\s|\s$")
_WORD = re.compile(r"[^\W_]+")


def hide(text: str, values: Collection[str]) -> str:
    """The text without these values, in whichever spelling it has them.

    Known spellings are cut out: JSON and Python escapes, URL encoding, HTML entities, any letter
    case, and the words of a name. Where a value remains in a spelling that only its normalised form
    shows, the whole text is hidden.
    """
    if not text:
        return text
    # No spelling is shorter than the value, but its normalised form may be.
    shortened = [
        value
        for value in values
        if len(text) < len(value) <= _NAME_LENGTH_MAX and _SHORTENED.search(value)
    ]
    wanted = [
        value
        for value in values
        if (NUMBER_LENGTH_MIN if value.isdecimal() else HIDDEN_LENGTH_MIN)
        <= len(value)
        <= len(text)
    ]
    # The longest first: a name before its words.
    for spelling in sorted({one for value in wanted for one in _spellings(value)}, key=len)[::-1]:
        if spelling.casefold() in text.casefold():
            text = re.sub(re.escape(spelling), HIDDEN, text, flags=re.IGNORECASE)
    if words := _shared_words(text, values):
        text = _WORD.sub(lambda word: HIDDEN if word[0].casefold() in words else word[0], text)
    if not wanted and not shortened:
        # The usual case: a provider's short name of a recipient, beside longer secrets.
        return text
    plain = normalised(text.replace(HIDDEN, " "))
    if any(normalised(value) in plain for value in wanted):
        return HIDDEN
    short = [normalised(value) for value in shortened]
    return HIDDEN if any(len(one) >= HIDDEN_LENGTH_MIN and one in plain for one in short) else text


def _shared_words(text: str, values: Collection[str]) -> set[str]:
    """The words of the names among these values, of those that the text may have, too.

    Most values share nothing with the text, and taking a value apart costs much more than that
    comparison.
    """
    found = [
        folded
        for word in _WORD.findall(text)
        if len(folded := word.casefold()) >= HIDDEN_LENGTH_MIN
    ]
    words = set[str]()
    for value in values:
        folded = value.casefold()
        for word in found:
            if word in folded:
                words |= name_words(value)
                break
    return words


def normalised(text: str) -> str:
    """The text without escapes, encodings, accents, letter case and repeated blanks."""
    if text.isascii() and _ENCODED.search(text) is None:
        return " ".join(text.casefold().split())
    for _ in range(3):
        decoded = html.unescape(unquote_plus(_ESCAPE.sub(_unescaped, text)))
        # Bytes of UTF-8 that were written one by one, as in the repr of bytes.
        with suppress(UnicodeError):
            decoded = decoded.encode("latin-1").decode()
        if decoded == text:
            break
        text = decoded
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(one for one in letters if not unicodedata.combining(one)).split())


def name_words(value: str) -> set[str]:
    """The words of a name, and of the part of an e-mail address before the @, in lower case."""
    if len(value) > _NAME_LENGTH_MAX:
        return set()
    name, at, _ = value.partition("@")
    words = _WORD.findall(name)
    if not at:
        words = [word for word in words if word[0].isupper()]
    return {
        word.casefold() for word in words if len(word) >= HIDDEN_LENGTH_MIN and not word.isdecimal()
    }


def _spellings(value: str) -> set[str]:
    found = {value, html.escape(value), quote(value), quote(value, safe=""), quote_plus(value)}
    found |= {json.dumps(value)[1:-1], ascii(value)[1:-1], repr(value.encode())[2:-1]}
    return found | {json.dumps(json.dumps(value)[1:-1])[1:-1]}


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    if code is None:
        return match[3]
    number = int(code, 16)
    return chr(number) if number < 0x110000 else match[0]
