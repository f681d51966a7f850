"""Port: one HTTP exchange, without retries; every error has a name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

#: Why an exchange brought no answer. A closed set: it is the label of a metric and the reason in an
#: event.
TransportErrorReason = Literal[
    "unsendable",  # not a URL that can be called, or a header that may not be sent
    "plain_http",  # http:// to an address that the guard does not name
    "private_address",  # the guard refused the address
    "dns",
    "refused",
    "unreachable",
    "tls",
    "connect_timeout",
    "timeout",
    "reset",
    "bad_answer",  # something came back that is not an HTTP answer, or only a part of one
]


class Headers(Mapping[str, str]):
    """Headers looked up without regard to case. Repeated ones stand as one, separated by commas."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            known = self._values.get(name.lower())
            self._values[name.lower()] = value if known is None else f"{known}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be credentials.
        return f"Headers({', '.join(self._values)})"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. URL, headers and body may carry credentials, so `repr` shows none of them."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    #: From the first step (looking up the name) to the last byte of the answer.
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back, whatever its status."""

    status: int
    headers: Headers = field(default_factory=Headers, repr=False)
    body: bytes = field(default=b"", repr=False)
    #: False when the body was longer than the transport reads; the status counts all the same.
    is_whole: bool = True


#: What a person can do about it.
REMEDIES: dict[str, str] = {
    "private_address": (
        ": the host is in a private network; to allow it, set GESTA_ALLOW_PRIVATE, e.g. to"
        " 127.0.0.0/8, for the process that executes the request (the worker) and restart it"
    ),
    "unsendable": ": the URL or a header is not valid; a URL begins with https:// and names a host",
    "plain_http": (
        ": without https, gesta calls only hosts that GESTA_ALLOW_PRIVATE of the worker names"
    ),
    "dns": ": the host name has no address; check the URL and the name server",
    "refused": ": no server accepts connections at this host and port",
    "unreachable": ": there is no network route to the host",
    "connect_timeout": ": the host did not accept a connection in time",
    "tls": ": the TLS handshake failed; check the certificate of the host",
}


class TransportError(Exception):
    """There is no answer. `sent`: the receiver may have got the request."""

    def __init__(self, reason: TransportErrorReason, *, sent: bool) -> None:
        # The text names no URL: it goes into events and logs.
        remedy = REMEDIES.get(reason, "")
        #: What an event says beside the reason.
        self.detail = f"{'the request may have arrived' if sent else 'nothing was sent'}{remedy}"
        super().__init__(f"{reason}, {self.detail}")
        self.reason: TransportErrorReason = reason
        self.sent = sent


class Transport(Protocol):
    """Makes one exchange for each call: the engine decides about retries."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """The answer, whatever its status; redirects are not followed.

        Raises TransportError when there is none.
        """

    async def close(self) -> None: ...
