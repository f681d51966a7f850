"""Packs the calls of our scripts for redis-py's connections.

A script gets the keys of hundreds of requests. redis-py copies what it has packed so far for each
of them; here all short texts of a call are joined once.
"""

from collections.abc import Iterator
from typing import Any

from redis.asyncio import Connection, SSLConnection


class _Packing:
    def pack_command(self, *args: Any) -> list[bytes]:
        if args[0] != "EVALSHA":
            packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
            return packed
        first = 3 + args[2]
        # The name of the command, the script, the number of keys and the keys are all texts.
        texts = [args[0], args[1], str(args[2]), *args[3:first]]
        return [b"".join([b"*%d\r\n" % len(args), _joined(texts), *_packed(args[first:])])]


class PackingConnection(_Packing, Connection):
    """A connection in clear text."""


class PackingSSLConnection(_Packing, SSLConnection):
    """A connection with TLS."""


def _packed(args: tuple[Any, ...]) -> Iterator[bytes]:
    texts: list[str] = []
    for one in args:
        if isinstance(one, bytes):
            yield _joined(texts)
            texts = []
            yield b"$%d\r\n" % len(one)
            yield one
            yield b"\r\n"
        else:
            texts.append(one if isinstance(one, str) else str(one))
    yield _joined(texts)


def _joined(texts: list[str]) -> bytes:
    joined = "".join([f"${len(one)}\r\n{one}\r\n" for one in texts])
    if joined.isascii():
        return joined.encode()
    # As the connection decodes what another program wrote.
    encoded = [one.encode("utf-8", "surrogateescape") for one in texts]
    return b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in encoded])
