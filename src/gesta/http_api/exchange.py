"""What our own server offers beyond ASGI: a body that is there already, and an answer that goes out
in one piece.

Most calls are small. Through ASGI, head and body of an answer are two calls of the system and two
packets, and a body that has come already is
waited for. Where another server runs the application, nothing of this is there, and ASGI is all
there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

#: Where it stands among a scope's extensions.
NAME = "gesta.exchange"


class Exchange(Protocol):
    """One call and its answer."""

    def body(self) -> bytes | None:
        """All of the body, which nobody will receive again; None: it is not all there, receive
        it.
        """
        ...

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer; False: nothing was sent, send it.

        The headers tell the length and nothing of the connection, in names and values that HTTP
        allows.
        """
        ...


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(NAME)
