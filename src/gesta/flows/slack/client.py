"""Slack's client over the attempt's HTTP, with its guard, time limit and record of what was sent.

The client's retries are off, because it would repeat a message whose answer was lost. Only the
engine retries.
"""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast
from urllib.parse import urlencode

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.errors import MissingExtra
from gesta.flows.slack.message import NAME
from gesta.outbound.http import Http, HttpResponse, ProviderRefusal, status_reason

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

#: throttled: rate limited, not posted. again, later: not posted. unknown: may have been posted.
#: final: refused permanently. credential: the token is refused.
Meaning = Literal["throttled", "again", "later", "unknown", "final", "credential"]

_WORDS: Final[dict[Meaning, str]] = {
    "throttled": "ratelimited rate_limited",
    "again": "service_unavailable request_timeout",
    "later": "team_added_to_org org_login_required message_limit_exceeded",
    "unknown": "internal_error fatal_error",
    "final": (
        """
        channel_not_found not_in_channel is_archived msg_too_long msg_blocks_too_long no_text
        invalid_blocks invalid_blocks_format invalid_arguments invalid_arg_name
        invalid_array_arg invalid_charset invalid_form_data invalid_post_type missing_post_type
        too_many_attachments too_many_contact_cards metadata_too_large invalid_metadata_format
        invalid_metadata_schema restricted_action restricted_action_read_only_channel
        restricted_action_thread_only_channel restricted_action_non_threadable_channel
        restricted_action_thread_locked cannot_reply_to_message messages_tab_disabled
        ekm_access_denied slack_connect_file_link_sharing_blocked"""
    ),
    "credential": (
        """
        not_authed invalid_auth account_inactive token_revoked token_expired no_permission
        missing_scope not_allowed_token_type access_denied accesslimited team_access_not_granted
        enterprise_is_restricted two_factor_setup_required method_deprecated deprecated_endpoint"""
    ),
}
#: Slack's error code → its meaning.
MEANINGS: Final[dict[str, Meaning]] = {
    word: meaning for meaning, words in _WORDS.items() for word in words.split()
}

_WORD: Final = re.compile(r"[a-z][a-z_]{2,63}")
#: The reason for a code that is not in the table.
OTHER: Final = "slack_other"
#: How long a workspace is closed that is being moved, locked or over its quota.
LATER_SECONDS: Final = 900.0
#: The pause after a rate limit without Retry-After.
THROTTLED_SECONDS: Final = 30.0


def word_of(response: HttpResponse) -> str:
    """Slack's error code; empty if there is none. Never a sentence, which could quote it."""
    word = _read(response).get("error")
    return word if isinstance(word, str) and _WORD.fullmatch(word) else ""


def meaning_of(response: HttpResponse) -> Meaning | None:
    """The meaning of an answer that is no success; None when only its status counts."""
    if response.status == 429:
        return "throttled"
    known = MEANINGS.get(word_of(response))
    if known is None and response.status in (401, 403):
        return "credential"
    return known


def outcome_of(response: HttpResponse, retry_after: float | None) -> Outcome:
    """The outcome, unless it was throttled or its token refused."""
    word, meaning = word_of(response), meaning_of(response)
    detail = f"answered {response.status}{word and ': '}{word}"
    match meaning:
        case "throttled" | "again":
            return Retry(word or status_reason(response.status), detail, retry_after or 0.0)
        case "later":
            return Retry(word, detail, max(LATER_SECONDS, retry_after or 0.0))
        case "unknown":
            return Unknown(word, detail, retry_after or 0.0)
        case "final" | "credential":
            return Rejected(word or status_reason(response.status), detail)
        case None:
            return _by_status(response, word, detail, retry_after)


def _by_status(
    response: HttpResponse, word: str, detail: str, retry_after: float | None
) -> Outcome:
    status = response.status
    if status >= 500:
        # A gateway that sends Retry-After has not passed the call on; any other may have.
        refused = status == 503 and retry_after is not None
        return (
            Retry(status_reason(status), detail, retry_after or 0.0)
            if refused
            else Unknown(status_reason(status), detail)
        )
    if 200 <= status < 300 and _read(response).get("ok") is not False:
        # Neither accepted nor refused.
        return Unknown("bad_answer", f"answered {status}, but not as Slack does")
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    return Rejected(OTHER if word or status < 300 else status_reason(status), detail)


def _read(response: HttpResponse) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


#: Silent and detached from the root logger: the client's own logger would write every message with
#: its text.
_SILENT: Final = logging.Logger("slack_sdk", logging.CRITICAL)  # noqa: LOG001


def require_library() -> None:
    """Raises MissingExtra with the install command."""
    if find_spec("slack_sdk") is None:
        raise MissingExtra(NAME, "slack-sdk", "slack")


@lru_cache(maxsize=64)
def client_of(address: str) -> tuple[AsyncWebClient, type[Exception]]:
    """The shared client for this URL, and the error that it raises."""
    # Imported with the first message, because it takes a third of a second.
    from slack_sdk.errors import SlackApiError
    from slack_sdk.web.async_client import AsyncWebClient

    class Client(AsyncWebClient):
        """Slack's client with the attempt's HTTP instead of its own."""

        async def _request(
            self, *, http_verb: str, api_url: str, req_args: dict[str, Any]
        ) -> dict[str, Any]:
            return await _CALLER.get().send(http_verb, api_url, req_args)

    # The base URL is the whole URL: joining base and method takes the client a third of its time.
    # The proxy is a dummy: without one the client would read the environment.
    client = Client(retry_handlers=[], logger=_SILENT, proxy="none")
    client.base_url = address
    return client, SlackApiError


class SlackApi:
    __slots__ = ("_address", "_answered", "_http", "_timeout_seconds", "_token")

    #: Creates clients; a benchmark replaces it.
    client_of: ClassVar[staticmethod[[str], tuple[AsyncWebClient, type[Exception]]]] = staticmethod(
        client_of
    )

    def __init__(self, http: Http, token: str, *, api_url: str, timeout_seconds: float) -> None:
        """`api_url` ends with the slash before the method."""
        self._http, self._token, self._address, self._timeout_seconds = (
            http,
            token,
            api_url,
            timeout_seconds,
        )
        self._answered: HttpResponse | None = None

    async def post(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method that changes something. Raises ProviderRefusal; a missing answer ends the
        attempt. The arguments belong to this call.
        """
        client, error = self.client_of(self._address + method)
        _CALLER.set(self)
        arguments["token"] = self._token
        try:
            answer = await client.api_call("", json=arguments)
        except error:
            raise self._refused() from None
        data: dict[str, Any] = answer.data  # type: ignore[assignment]
        return data

    async def get(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method that reads. Raises ProviderRefusal; a missing answer ends the attempt."""
        client, error = self.client_of(self._address + method)
        _CALLER.set(self)
        try:
            answer = await client.api_call(
                "", http_verb="GET", params={**arguments, "token": self._token}
            )
            return cast("dict[str, Any]", answer.data)
        except error:
            raise self._refused() from None

    def _refused(self) -> ProviderRefusal:
        # The client's error quotes the answer; the answer itself is enough.
        assert self._answered is not None
        return ProviderRefusal(self._answered)

    async def send(self, method: str, url: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Sends a request that the client composed and returns the answer in its format."""
        json, params = arguments["json"], arguments["params"]
        answer = self._answered = await self._http.exchange(
            method,
            f"{url}?{urlencode(params)}" if params else url,
            headers=arguments["headers"],
            body=None if json is None else msgspec.json.encode(json),
            timeout_seconds=self._timeout_seconds,
        )
        try:
            data = _decode_answer(answer.body)
        except msgspec.DecodeError:
            # The client treats an answer without content as an error, so its meaning is decided
            # elsewhere.
            data = {}
        return {"data": data, "headers": answer.headers, "status_code": answer.status}


#: The call that a client is about to make: clients are shared, token and record belong to the
#: attempt.
_CALLER: Final[ContextVar[SlackApi]] = ContextVar("gesta_slack_caller")
_decode_answer: Final = msgspec.json.Decoder(dict[str, Any]).decode
