"""`sqs://region/queue-prefix`: which queues of which account."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from gesta.errors import BadSettings

EXAMPLE = "sqs://eu-west-1/gesta"
#: R3-8. Extended at half of it while a worker has the message.
VISIBILITY_SECONDS = 60
#: The longest that SQS hides a message.
VISIBILITY_SECONDS_MAX = 43_200
REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d")
PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True)
class Address:
    region: str
    prefix: str
    #: None: Amazon's own.
    endpoint: str | None
    visibility_seconds: int
    #: The URL as it may be shown: it never has credentials.
    name: str


def address_of(url: str) -> Address:
    """Raises BadSettings that names what is wrong."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadSettings(f"url: {error}; write {EXAMPLE}") from None
    prefix = parts.path.strip("/")
    if "@" in parts.netloc:
        raise BadSettings(
            "url: an SQS URL has no credentials; Amazon's client takes them from the environment,"
            " the profile or the role of the machine"
        )
    if parts.scheme != "sqs" or not REGION.fullmatch(parts.netloc):
        raise BadSettings(f"url: it names no region; write {EXAMPLE}")
    if not PREFIX.fullmatch(prefix):
        raise BadSettings(
            f"url: {prefix!r} is no prefix for queue names: 1 to 40 of A-Z a-z 0-9 _ -; write"
            f" {EXAMPLE}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - {"endpoint", "visibility"}:
        raise BadSettings(
            f"url: unknown parameter {min(unknown)!r}; known are endpoint, visibility"
        )
    shown = f"?{parts.query}" if parts.query else ""
    return Address(
        region=parts.netloc,
        prefix=prefix,
        endpoint=_endpoint(options.get("endpoint")),
        visibility_seconds=_visibility(options.get("visibility", str(VISIBILITY_SECONDS))),
        name=f"sqs://{parts.netloc}/{prefix}{shown}",
    )


def _visibility(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= VISIBILITY_SECONDS_MAX:
        raise BadSettings(
            f"url: visibility={text!r}; write seconds from 1 to {VISIBILITY_SECONDS_MAX}"
        )
    return int(text)


def _endpoint(text: str | None) -> str | None:
    """R2-29: nothing crosses a network in clear text."""
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSettings(f"url: endpoint={text!r} is not an http:// or https:// URL")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise BadSettings(
            f"url: {parts.hostname} is on another machine, and http:// sends everything in clear"
            " text; write endpoint=https://…"
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
