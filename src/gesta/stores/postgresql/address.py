"""The address of a PostgreSQL store: the URL of the server, with our query parameters."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from gesta.errors import BadSettings

EXAMPLE = "postgresql://user@host/database?schema=gesta"
POOL = 8
POOL_MOST = 1_000
#: PostgreSQL cuts names at 63 characters, and channels have longer names than the schema.
SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")


@dataclass(frozen=True)
class Address:
    #: For the client library: without our options.
    server: str
    #: For messages: without a password.
    name: str
    schema: str = "gesta"
    #: The maximum number of connections, beside the one that listens.
    pool: int = POOL
    listen: bool = True


def address_of(url: str) -> Address:
    """Parse a URL. Raises BadSettings with the error, never with the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSettings(f"url: {error}; write {EXAMPLE}") from None
    if parts.scheme != "postgresql" or not parts.netloc + parts.path.strip("/"):
        raise BadSettings(f"url: names no PostgreSQL database; write {EXAMPLE}")
    options, others = {}, []
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in ("schema", "pool", "listen"):
            options[key] = value
        else:
            others.append((key, value))
    schema = options.get("schema", "gesta")
    if (
        not SCHEMA.fullmatch(schema)
        or schema.lower().startswith("pg_")
        or schema == "information_schema"
    ):
        raise BadSettings(
            f"url: schema={schema!r} cannot be used; write 1 to 48 of A-Z a-z 0-9 _, no digit"
            " first, not pg_…"
        )
    user = "" if parts.username is None else f"{quote(unquote(parts.username))}@"
    where = f"{user}{parts.hostname or ''}{'' if port is None else f':{port}'}{parts.path}"
    return Address(
        urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(others), "")),
        f"postgresql://{where}?schema={schema}",
        schema,
        _pool(options.get("pool", str(POOL))),
        _listen(options.get("listen", "on")),
    )


def _pool(text: str) -> int:
    # At least two: a statement on one connection may wait for a statement on another.
    if not text.isascii() or not text.isdigit() or not 2 <= int(text) <= POOL_MOST:
        raise BadSettings(
            f"url: pool={text!r} is not a number of connections; write 2 to {POOL_MOST}"
        )
    return int(text)


def _listen(text: str) -> bool:
    if text not in ("on", "off"):
        raise BadSettings(f"url: listen={text!r}; write on, or off for a pooler in between")
    return text == "on"
