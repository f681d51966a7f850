"""Dead letters: requests that failed permanently, with what an operator needs (X-9)."""

import re

from gesta.api_types.decisions import Failure
from gesta.domain.durations import iso
from gesta.domain.state import State
from gesta.flows.flow import Flow

_STATUS_CLASS = re.compile(r"http_[1-5]xx")


def has_reason(reason: str, asked: str | None) -> bool:
    """Whether a reason is the one that a caller asks for; None: any.

    `http_4xx`, as alerts and metrics group them, stands for every status from 400 to 499.
    """
    if asked is None or reason == asked:
        return True
    return bool(_STATUS_CLASS.fullmatch(asked)) and bool(
        re.fullmatch(rf"{asked[:-2]}[0-9]{{2}}", reason)
    )


def failure_of(state: State, flow: Flow | None, now_ms: int) -> Failure | None:
    """Why a request is a dead letter; None when it has not failed, was purged or is too old."""
    keep_ms = round(
        (flow.dead_letter_seconds if flow is not None else Flow.dead_letter_seconds) * 1000
    )
    if state.status != "failed" or state.purged or now_ms >= state.updated_at + keep_ms:
        return None
    return Failure(
        state.reason,
        state.detail or None,
        iso(state.updated_at),
        state.attempts,
        iso(state.updated_at + keep_ms),
    )
