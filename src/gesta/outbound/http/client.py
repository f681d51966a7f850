"""`attempt.http`: HTTP that ends the attempt by itself when the answer is not a success.

- 2xx: the flow goes on.
- 429, and 503 that says when to come back (Retry-After): Retry, not before that time.
- Name not found, connection refused, TLS failure, no connection in time: Retry. Nothing was sent.
- 3xx, any other 4xx, a URL that may not be called (guard, plain http): Rejected.
- Any other 5xx; reset, time-out or half an answer after sending: Unknown.
- 2xx whose JSON the flow needs and cannot read: Unknown. A 2xx alone does not tell who spoke: a
  proxy's login page answers 200 as well, and a flow that must hand on the provider's id has none.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypedDict, Unpack

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.flows.deferrals import Postponed
from gesta.outbound.http.transport import (
    Headers,
    HttpRequest,
    HttpResponse,
    Transport,
    TransportError,
    TransportErrorReason,
)
from gesta.runtime.clock import Runtime

#: The longest Retry-After that is respected.
RETRY_AFTER_SECONDS_MAX = 86_400.0

#: Fractions are not in the RFC, but providers send them. More digits than this are far beyond the
#: limit anyway.
_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


def retry_after_seconds(value: str | None, now_ms: int) -> float | None:
    """Seconds from now, between 0 and a day.

    None when there is no such header or its value cannot be read.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else _seconds_until(text, now_ms)
    return None if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


def _seconds_until(http_date: str, now_ms: int) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
        if moment.tzinfo is None:
            # asctime dates name no zone; HTTP means GMT.
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() - now_ms / 1000
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


#: Asking again cannot help: the address itself is refused.
_HOPELESS: Final[frozenset[TransportErrorReason]] = frozenset(
    {"unsendable", "plain_http", "private_address"}
)
#: Where providers put the code of a failure, the most specific first, and what a code looks like.
_CODE_FIELDS: Final = ("code", "error_code", "errorCode", "error", "type", "reason")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z_.-]{2,63}")
#: Statuses with a reason of their own. Reasons are labels of a metric, so a provider must not be
#: able to invent them.
_NAMED: Final = frozenset(
    {
        400,
        401,
        402,
        403,
        404,
        405,
        406,
        408,
        409,
        410,
        411,
        412,
        413,
        414,
        415,
        421,
        422,
        423,
        424,
        425,
        426,
        428,
        429,
        431,
        451,
    }
    | {500, 501, 502, 503, 504, 507, 508}
)


class AttemptEnded(Exception):
    """The attempt is over with this outcome; the worker records it.

    A flow may catch it to decide otherwise.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(repr(outcome))
        self.outcome = outcome


class ProviderRefusal(Exception):
    """The answer of a provider was not a success; its channel decides what that means."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered {response.status}")
        self.response = response


class Answer:
    """A 2xx answer. `answer["id"]` reads a field of its JSON object."""

    __slots__ = ("_parsed", "_response")

    def __init__(self, response: HttpResponse) -> None:
        self._response = response
        self._parsed: Any = msgspec.UNSET

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Headers:
        return self._response.headers

    @property
    def body(self) -> bytes:
        return self._response.body

    @property
    def text(self) -> str:
        """The body as UTF-8; bytes that are not become replacement characters."""
        return self._response.body.decode(errors="replace")

    def json(self) -> Any:
        """The parsed body.

        Ends the attempt as Unknown when it is not JSON or longer than the transport reads.
        """
        if self._parsed is msgspec.UNSET:
            if not self._response.is_whole:
                raise AttemptEnded(
                    Unknown("too_large", f"answered {self.status} with more data than gesta reads")
                )
            try:
                self._parsed = msgspec.json.decode(self._response.body)
            except msgspec.DecodeError:
                raise AttemptEnded(
                    Unknown("bad_answer", f"answered {self.status}, but not in JSON")
                ) from None
        return self._parsed

    def __getitem__(self, name: str) -> Any:
        """A field of the JSON object. Ends the attempt as Unknown when there is none of that
        name.
        """
        found = self.json()
        if not isinstance(found, dict) or name not in found:
            raise AttemptEnded(
                Unknown("bad_answer", f"answered {self.status} without a field {name!r}")
            )
        return found[name]


class Options(TypedDict, total=False):
    """What a call may carry beside its URL.

    `json` is encoded and sets the content type; `body` goes out as it is.
    """

    json: Any
    body: bytes | None
    headers: Mapping[str, str] | None
    timeout_seconds: float | None


class Http:
    """`attempt.http`: the client of one attempt. The transport owns the connections."""

    __slots__ = ("_has_acted", "_runtime", "_timeout_seconds", "_transport", "has_sent", "last")

    def __init__(
        self, transport: Transport, runtime: Runtime, timeout_seconds: float = 30.0
    ) -> None:
        self._transport, self._runtime, self._timeout_seconds = transport, runtime, timeout_seconds
        #: A call of this attempt that changes something was answered with success.
        self._has_acted = False
        #: The provider may have got a request of this attempt.
        self.has_sent = False
        #: The last answer.
        self.last: HttpResponse | None = None

    async def get(self, url: str, **options: Unpack[Options]) -> Answer:
        return await self._ask("GET", url, options)

    async def post(self, url: str, **options: Unpack[Options]) -> Answer:
        return await self._ask("POST", url, options)

    async def put(self, url: str, **options: Unpack[Options]) -> Answer:
        return await self._ask("PUT", url, options)

    async def patch(self, url: str, **options: Unpack[Options]) -> Answer:
        return await self._ask("PATCH", url, options)

    async def delete(self, url: str, **options: Unpack[Options]) -> Answer:
        return await self._ask("DELETE", url, options)

    async def _ask(self, method: str, url: str, options: Options) -> Answer:
        response = await self.exchange(method, url, **options)
        if not 200 <= response.status < 300:
            outcome = after_status(
                response.status, self.retry_after(response), error_code(response)
            )
            raise AttemptEnded(self._in_all(outcome))
        return Answer(response)

    def _in_all(self, outcome: Outcome) -> Outcome:
        """The outcome of the whole attempt. If an earlier call had its effect, a later failure must
        not say that nothing happened.
        """
        if self._has_acted and isinstance(outcome, Retry | Rejected):
            after_seconds = outcome.after_seconds if isinstance(outcome, Retry) else 0.0
            return Unknown(
                outcome.reason,
                f"{outcome.detail}, after an earlier call of the same attempt had succeeded",
                after_seconds,
            )
        return outcome

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> HttpResponse:
        """The answer whatever its status, for a provider with rules of its own.

        Only a missing answer ends the attempt.
        """
        sent = dict(headers or {})
        if json is not None:
            if body is not None:
                raise TypeError("json or body, not both")
            body = msgspec.json.encode(json)
            if not any(name.lower() == "content-type" for name in sent):
                sent["content-type"] = "application/json"
        had_sent, self.has_sent = self.has_sent, True
        try:
            response = await self._transport.send(
                HttpRequest(method, url, sent, body, timeout_seconds or self._timeout_seconds)
            )
        except TransportError as error:
            self.has_sent = had_sent or error.sent
            raise AttemptEnded(self._in_all(after_transport_error(error))) from None
        except Postponed:
            self.has_sent = had_sent
            # The look-up is postponed. The attempt must end if an earlier call had its effect.
            if self._has_acted:
                raise AttemptEnded(self._in_all(Retry("dns", "nothing was sent"))) from None
            raise
        self.last = response
        self._has_acted = self._has_acted or (200 <= response.status < 300 and method != "GET")
        return response

    def retry_after(self, response: HttpResponse) -> float | None:
        """Seconds until the provider accepts the next call, if its answer says so."""
        return retry_after_seconds(response.headers.get("retry-after"), self._runtime.now_ms())


def after_transport_error(error: TransportError) -> Outcome:
    """The outcome of an attempt that got no answer."""
    if error.reason in _HOPELESS:
        return Rejected(error.reason, error.detail)
    return Unknown(error.reason, error.detail) if error.sent else Retry(error.reason, error.detail)


def error_code(response: HttpResponse) -> str:
    """The provider's own code for a failure, e.g. `resource_missing`.

    Codes only: a sentence may quote personal data that was sent.
    """
    try:
        body = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return ""
    inner = body.get("error") if isinstance(body, dict) else None
    found = [
        part.get(name) for part in (inner, body) if isinstance(part, dict) for name in _CODE_FIELDS
    ]
    return next((code for code in found if isinstance(code, str) and _CODE.fullmatch(code)), "")


def after_status(status: int, retry_after: float | None, code: str = "") -> Outcome:
    """The outcome of an attempt whose answer is not a 2xx."""
    reason, detail = status_reason(status), f"answered {status}{code and ': '}{code}"
    if status == 429 or (status == 503 and retry_after is not None):
        return Retry(reason, detail, retry_after or 0.0)
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    if 400 <= status < 500:
        return Rejected(reason, detail)
    return Unknown(reason, detail, retry_after or 0.0)


def status_reason(status: int) -> str:
    """`http_404`, or `http_4xx` for a status without a reason of its own."""
    return f"http_{status}" if status in _NAMED else f"http_{status // 100}xx"
