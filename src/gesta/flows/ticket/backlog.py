"""Backlog's API: create an issue, find the one with a marker, and what a refusal means."""

import re
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Unknown
from gesta.flows.ticket.issue import has_marker
from gesta.outbound.http import Http, HttpResponse, ProviderRefusal, after_status

#: How long to wait where Backlog does not say.
THROTTLED_SECONDS: Final = 60.0
THROTTLED_SECONDS_MAX: Final = 3600.0
#: Backlog's largest page.
PAGE: Final = 100
OTHER: Final = "backlog_other"

Meaning = Literal["credential", "throttled", "permanent", "unknown"]
#: Backlog's codes: what each means, and its reason.
MEANINGS: Final[dict[int, tuple[Meaning, str]]] = {
    1: ("unknown", "internal_error"),
    2: ("permanent", "licence_error"),
    3: ("permanent", "licence_expired"),
    4: ("permanent", "access_denied"),
    5: ("permanent", "unauthorized_operation"),
    6: ("permanent", "no_resource"),
    7: ("permanent", "invalid_request"),
    8: ("permanent", "space_over_capacity"),
    9: ("permanent", "resource_overflow"),
    10: ("permanent", "too_large"),
    11: ("credential", "authentication_error"),
    12: ("credential", "mfa_required"),
    13: ("throttled", "rate_limited"),
}
_NUMBER: Final = re.compile(r"[0-9]{1,12}")
_KEY: Final = re.compile(r"[A-Z][A-Z0-9_]{0,40}-[0-9]{1,10}")


class Backlog:
    """One attempt's view of a space. The API key is in every URL, so no URL may be shown."""

    def __init__(self, http: Http, url: str, api_key: str, *, timeout_seconds: float) -> None:
        self._http, self._url, self._api_key = http, url, api_key
        self._timeout_seconds = timeout_seconds

    async def create(self, fields: list[tuple[str, str]]) -> tuple[str, HttpResponse]:
        """The key of the new issue; empty where the answer does not have one."""
        response = await self._http.exchange(
            "POST",
            f"{self._url}/api/v2/issues?{urlencode({'apiKey': self._api_key})}",
            body=urlencode(fields).encode(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            timeout_seconds=self._timeout_seconds,
        )
        if not 200 <= response.status < 300:
            raise ProviderRefusal(response)
        return _key_of(_json(response)), response

    async def find(self, marker: str, project_id: int) -> str | None:
        """The key of the issue that has the marker; None: there is none."""
        query = {
            "apiKey": self._api_key,
            "projectId[]": str(project_id),
            "keyword": marker,
            "count": str(PAGE),
        }
        response = await self._http.exchange(
            "GET",
            f"{self._url}/api/v2/issues?{urlencode(query)}",
            timeout_seconds=self._timeout_seconds,
        )
        if not 200 <= response.status < 300:
            raise ProviderRefusal(response)
        found = _json(response)
        if not isinstance(found, list):
            # Not an answer of Backlog: nothing is known.
            raise ProviderRefusal(response)
        return next(
            (
                _key_of(one)
                for one in found
                if isinstance(one, dict) and has_marker(one.get("description"), marker)
            ),
            None,
        )


def meaning_of(response: HttpResponse) -> tuple[Meaning, str] | None:
    """The meaning of a refusal and its reason; None: only the status counts."""
    body = _json(response)
    errors = body.get("errors") if isinstance(body, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    code = first.get("code") if isinstance(first, dict) else None
    if response.status == 429:
        return "throttled", "rate_limited"
    if isinstance(code, int) and code in MEANINGS:
        return MEANINGS[code]
    if response.status == 401:
        return "credential", "authentication_error"
    return ("permanent", OTHER) if code is not None and response.status < 500 else None


def outcome_of(response: HttpResponse) -> Outcome:
    """The outcome of an attempt that Backlog refused for the request's own reasons."""
    meaning, reason = meaning_of(response) or (None, "")
    if meaning == "permanent":
        return Rejected(reason, f"Backlog answered {response.status}")
    if meaning == "unknown":
        return Unknown(reason, f"Backlog answered {response.status}")
    if 200 <= response.status < 300:
        return Unknown("bad_answer", "Backlog's answer cannot be read")
    return after_status(response.status, None)


def wait_seconds(response: HttpResponse, retry_after: float | None, now_ms: int) -> float:
    """How long to make no calls of this kind, as Backlog asks."""
    reset = response.headers.get("x-ratelimit-reset") or ""
    if _NUMBER.fullmatch(reset):
        return min(max(int(reset) - now_ms / 1000, 1.0), THROTTLED_SECONDS_MAX)
    return THROTTLED_SECONDS if retry_after is None else retry_after


def is_used_up(response: HttpResponse) -> bool:
    """Whether the answer says that the next call of this kind would be refused."""
    return response.headers.get("x-ratelimit-remaining") == "0"


def _key_of(issue: Any) -> str:
    key = issue.get("issueKey") if isinstance(issue, dict) else None
    return key if isinstance(key, str) and _KEY.fullmatch(key) else ""


def _json(response: HttpResponse) -> Any:
    try:
        return msgspec.json.decode(response.body) if response.is_whole else None
    except (msgspec.DecodeError, RecursionError):
        return None
