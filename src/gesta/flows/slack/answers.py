"""What Slack's errors mean, in one table, and how an attempt ends by them.

Slack says no with HTTP 200 and `"ok": false`; the word beside it decides. A word that is not in the
table is final and an alarm:
somebody has to look at it and put it here.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.outbound.http import HttpResponse, status_reason

#: throttled: the key is closed, nothing was posted. again, later: surely not posted. unknown: may
#: have been posted.
#: final: no, and no again. credential: no to everything under this token.
Meaning = Literal["throttled", "again", "later", "unknown", "final", "credential"]

_WORDS: Final[dict[Meaning, str]] = {
    "throttled": "ratelimited rate_limited",
    "again": "service_unavailable request_timeout",
    "later": "team_added_to_org org_login_required message_limit_exceeded",
    "unknown": "internal_error fatal_error",
    "final": (
        """
        channel_not_found not_in_channel is_archived msg_too_long msg_blocks_too_long no_text invalid_blocks invalid_blocks_format
        invalid_arguments invalid_arg_name invalid_array_arg invalid_charset invalid_form_data invalid_post_type missing_post_type
        too_many_attachments too_many_contact_cards metadata_too_large invalid_metadata_format invalid_metadata_schema
        restricted_action restricted_action_read_only_channel restricted_action_thread_only_channel
        restricted_action_non_threadable_channel restricted_action_thread_locked cannot_reply_to_message messages_tab_disabled
        ekm_access_denied slack_connect_file_link_sharing_blocked"""
    ),
    "credential": (
        """
        not_authed invalid_auth account_inactive token_revoked token_expired no_permission missing_scope not_allowed_token_type
        access_denied accesslimited team_access_not_granted enterprise_is_restricted two_factor_setup_required method_deprecated
        deprecated_endpoint"""
    ),
}
#: Slack's word for an error → what it means.
MEANINGS: Final[dict[str, Meaning]] = {
    word: meaning for meaning, words in _WORDS.items() for word in words.split()
}

_WORD: Final = re.compile(r"[a-z][a-z_]{2,63}")
#: The reason of an error that is not in the table.
OTHER: Final = "slack_other"
#: A workspace that is being moved, locked or over its quota is not asked again for this long.
LATER_SECONDS: Final = 900.0
#: The pause after "too fast" when Slack does not say how long.
THROTTLED_SECONDS: Final = 30.0


def word_of(response: HttpResponse) -> str:
    """Slack's word for the error; empty when there is none.

    Never a sentence: it could quote what was sent.
    """
    word = _read(response).get("error")
    return word if isinstance(word, str) and _WORD.fullmatch(word) else ""


def meaning_of(response: HttpResponse) -> Meaning | None:
    """What an answer means that is no success; None when only its status says something."""
    if response.status == 429:
        return "throttled"
    known = MEANINGS.get(word_of(response))
    if known is None and response.status in (401, 403):
        return "credential"
    return known


def outcome_of(response: HttpResponse, retry_after: float | None) -> Outcome:
    """How the attempt ends, unless it is throttled or its token refused."""
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
        # A gateway that says when to come back has not passed it on; any other may have.
        refused = status == 503 and retry_after is not None
        return (
            Retry(status_reason(status), detail, retry_after or 0.0)
            if refused
            else Unknown(status_reason(status), detail)
        )
    if 200 <= status < 300 and _read(response).get("ok") is not False:
        # Neither yes nor no.
        return Unknown("bad_answer", f"answered {status}, but not as Slack does")
    if 300 <= status < 400:
        return Rejected("redirect_refused", detail)
    return Rejected(OTHER if word or status < 300 else status_reason(status), detail)


def _read(response: HttpResponse) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
