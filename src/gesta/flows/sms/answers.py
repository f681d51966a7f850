"""What Twilio's error codes mean, in one table, and how an attempt ends by them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.outbound.http import HttpResponse, status_reason

#: throttled: the account is closed for a while, nothing was sent. unknown: may have been sent.
#: final: no, and no again.
#: credential: no to everything under this account.
Meaning = Literal["throttled", "unknown", "final", "credential"]

#: Twilio's code → what it means, and our word for it.
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
#: The reason of an error that is not in the table.
OTHER: Final = "twilio_other"
#: The pause after "too fast" when Twilio does not say how long.
THROTTLED_SECONDS: Final = 30.0


class _Answer(msgspec.Struct):
    code: int | None = None


def code_of(response: HttpResponse) -> int | None:
    try:
        return msgspec.json.decode(response.body, type=_Answer).code
    except msgspec.DecodeError:
        return None


def meaning_of(response: HttpResponse) -> tuple[Meaning, str] | None:
    """What an answer means that is no success; None when only its status says something."""
    known = MEANINGS.get(code_of(response) or 0)
    if known is not None:
        return known
    if response.status == 429:
        return "throttled", "too_many_requests"
    return ("credential", status_reason(response.status)) if response.status in (401, 403) else None


def outcome_of(response: HttpResponse, retry_after: float | None) -> Outcome:
    """How the attempt ends, unless it is throttled or its account refused."""
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
        # Not even Twilio's own "come back later" says whether it has the message.
        return Unknown(status_reason(status), detail, retry_after or 0.0)
    if 200 <= status < 300:
        return Unknown("bad_answer", f"answered {status}, but not as Twilio does")
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    return Rejected(OTHER if code is not None else status_reason(status), detail)
