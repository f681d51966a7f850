"""Twilio's Messages over HTTP: send one, and find one again.

A message carries no mark of ours; number, text, sender and time identify it. Two equal texts to one
number within that time cannot be distinguished, so the outcome stays unknown.
"""

import base64
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec

from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.flows.attempt import Attempt
from gesta.flows.sms.message import Account
from gesta.outbound.http import Http, HttpResponse, ProviderRefusal, status_reason

#: throttled: the account is closed for a while, not sent. unknown: may have been sent. final:
#: refused permanently. credential: the account is refused.
Meaning = Literal["throttled", "unknown", "final", "credential"]

#: Twilio's code → its meaning and our reason.
MEANINGS: Final[dict[int, tuple[Meaning, str]]] = {
    20003: ("credential", "not_authenticated"),
    20005: ("credential", "account_not_active"),
    20429: ("throttled", "too_many_requests"),
    70005: ("throttled", "too_many_failures"),
    20500: ("unknown", "internal_error"),
    20503: ("unknown", "service_unavailable"),
    20404: ("final", "not_found"),
    21211: ("final", "invalid_recipient"),
    21602: ("final", "no_text"),
    21604: ("final", "invalid_recipient"),
    21606: ("final", "sender_not_sms_capable"),
    21608: ("final", "recipient_not_verified"),
    21610: ("final", "unsubscribed"),
    21612: ("final", "unroutable"),
    21614: ("final", "recipient_not_sms_capable"),
    21617: ("final", "body_too_long"),
}
#: The reason for a code that is not in the table.
OTHER: Final = "twilio_other"
#: The pause after a rate limit without Retry-After.
THROTTLED_SECONDS: Final = 30.0


class _Answer(msgspec.Struct):
    code: int | None = None


def code_of(response: HttpResponse) -> int | None:
    try:
        return msgspec.json.decode(response.body, type=_Answer).code
    except msgspec.DecodeError:
        return None


def meaning_of(response: HttpResponse) -> tuple[Meaning, str] | None:
    """The meaning of an answer that is no success; None when only its status counts."""
    known = MEANINGS.get(code_of(response) or 0)
    if known is not None:
        return known
    if response.status == 429:
        return "throttled", "too_many_requests"
    return ("credential", status_reason(response.status)) if response.status in (401, 403) else None


def outcome_of(response: HttpResponse, retry_after: float | None) -> Outcome:
    """The outcome, unless it was throttled or its account refused."""
    status, code, known = response.status, code_of(response), meaning_of(response)
    detail = f"answered {status}{'' if code is None else f': {code}'}"
    if known is not None:
        meaning, reason = known
        if meaning == "throttled":
            return Retry(reason, detail, retry_after or 0.0)
        return (
            Unknown(reason, detail, retry_after or 0.0)
            if meaning == "unknown"
            else Rejected(reason, detail)
        )
    if status >= 500:
        # Retry-After does not say whether Twilio has the message.
        return Unknown(status_reason(status), detail, retry_after or 0.0)
    if 200 <= status < 300:
        return Unknown("bad_answer", f"answered {status}, but not as Twilio does")
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    return Rejected(OTHER if code is not None else status_reason(status), detail)


#: The prefix of every text from a trial account.
_TRIAL: Final = "Sent from your Twilio trial account - "
_FORM: Final = "application/x-www-form-urlencoded"
#: How much Twilio's clock and ours may differ.
SKEW_MS: Final = 60_000
PAGE: Final = 100
PAGES_MAX: Final = 10


class Text(msgspec.Struct):
    """A message in the list of Twilio."""

    sid: str
    to: str = ""
    sender: str | None = msgspec.field(default=None, name="from")
    messaging_service_sid: str | None = None
    body: str = ""
    direction: str = ""
    date_created: str | None = None


class _Page(msgspec.Struct):
    messages: list[Text]
    next_page_uri: str | None = None


@dataclass(frozen=True)
class Twilio:
    """One account, for one attempt."""

    http: Http
    account: Account
    token: str
    timeout_seconds: float

    async def send(self, to: str, body: str, report_to: str | None = None) -> str:
        """Returns the sid. Raises ProviderRefusal; a missing answer ends the attempt."""
        account = self.account
        origin = (
            {"From": account.sender}
            if account.sender is not None
            else {"MessagingServiceSid": account.messaging_service_sid}
        )
        # Unchanged: a text that Twilio shortens could not be found again.
        form = {"To": to, **origin, "Body": body, "SmartEncoded": "false"}
        if report_to is not None:
            form["StatusCallback"] = report_to
        response = await self._exchange("POST", self._path(), urlencode(form).encode())
        try:
            return msgspec.json.decode(response.body, type=Text).sid
        except msgspec.DecodeError:
            raise ProviderRefusal(response) from None

    async def find(self, to: str, body: str, attempt: Attempt, *, is_rendered: bool) -> Outcome:
        """Done: found. Retry: certainly not sent. Unknown: it cannot be decided. Raises
        ProviderRefusal.

        A template may have changed since the text was sent: then any other text of that period may
        be it.
        """
        since_ms, found, others = attempt.first_ms - SKEW_MS, [], 0
        # Not by DateSent, which a text in Twilio's queue does not have yet.
        path: str | None = f"{self._path()}?{urlencode({'To': to, 'PageSize': PAGE})}"
        for _ in range(PAGES_MAX):
            assert path is not None
            page = await self._page(path)
            recent = [text for text in page.messages if _created_ms(text) >= since_ms]
            ours = [text for text in recent if self._is_ours(text, to)]
            found += [text for text in ours if text.body in (body, _TRIAL + body)]
            others += len(ours)
            path = page.next_page_uri
            if path is None or len(recent) < len(page.messages):
                return _verdict(found, others - len(found) if is_rendered else 0)
        return Unknown("history_too_long", f"more than {PAGES_MAX * PAGE} messages to this number")

    async def _page(self, path: str) -> _Page:
        response = await self._exchange("GET", path, None)
        try:
            return msgspec.json.decode(response.body, type=_Page)
        except msgspec.DecodeError:
            raise ProviderRefusal(response) from None

    def _is_ours(self, text: Text, to: str) -> bool:
        if self.account.sender is not None:
            is_from_us = text.sender == self.account.sender
        else:
            is_from_us = text.messaging_service_sid == self.account.messaging_service_sid
        return is_from_us and text.to == to and text.direction != "inbound"

    def _path(self) -> str:
        return f"/2010-04-01/Accounts/{self.account.account_sid}/Messages.json"

    async def _exchange(self, method: str, path: str, body: bytes | None) -> HttpResponse:
        user = self.account.api_key_sid or self.account.account_sid
        headers = {
            "authorization": f"Basic {base64.b64encode(f'{user}:{self.token}'.encode()).decode()}"
        }
        if body is not None:
            headers["content-type"] = _FORM
        url = self.account.api_url.rstrip("/") + path
        response = await self.http.exchange(
            method, url, body=body, headers=headers, timeout_seconds=self.timeout_seconds
        )
        if not 200 <= response.status < 300:
            raise ProviderRefusal(response)
        return response


def _verdict(found: list[Text], others: int) -> Outcome:
    if len(found) == 1:
        return Done(found[0].sid, detail="found among the messages to this number")
    if found or others:
        return Unknown(
            "ambiguous",
            f"{len(found) + others} texts to this number at that time; gesta cannot tell which one"
            " belongs to this request",
        )
    return Retry("not_sent", "Twilio does not have it")


def _created_ms(text: Text) -> float:
    """When Twilio created it; without a date it counts as new, so that it is compared."""
    try:
        return parsedate_to_datetime(text.date_created or "").timestamp() * 1000
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("inf")
