"""Where a PostgreSQL store is: the server's own URL, and what we add to it as query parameters."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from gesta.errors import BadSettings

EXAMPLE = "postgresql://user@host/database?schema=gesta"
POOL = 8
POOL_MOST = 1_000
#: Room is left for what is put behind it in the names of channels; PostgreSQL cuts names at 63.
SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")


@dataclass(frozen=True)
class Address:
    #: For the client library: nothing of ours in it.
    server: str
    #: For people: without a password.
    name: str
    schema: str = "gesta"
    #: Connections that this process holds at most, beside the one that listens.
    pool: int = POOL
    listen: bool = True


def address_of(url: str) -> Address:
    """What a URL says. Raises BadSettings that names what is wrong, and never the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSettings(f"url: {error}; write {EXAMPLE}") from None
    if parts.scheme != "postgresql" or not parts.netloc + parts.path.strip("/"):
        raise BadSettings(f"url: it names no PostgreSQL database; write {EXAMPLE}")
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
    # Two are needed for certain: one may be held by a statement that waits for another's.
    if not text.isascii() or not text.isdigit() or not 2 <= int(text) <= POOL_MOST:
        raise BadSettings(f"url: pool={text!r} is no number of connections; write 2 to {POOL_MOST}")
    return int(text)


def _listen(text: str) -> bool:
    if text not in ("on", "off"):
        raise BadSettings(f"url: listen={text!r}; write on, or off where a pooler stands between")
    return text == "on"
