"""Makes an executor's outcome fit to be stored and read back.

Constructors are not checked, so an outcome can carry anything: a number for an id, a text for a
delay, the provider's whole answer.
"""

import re
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.flows.flow import Flow
from gesta.flows.personal_fields import personal_fields, personal_texts
from gesta.ports.read_model import View
from gesta.runtime.redaction import hide, scrub
from gesta.security.subject_keys import SubjectKeys

#: An id or target is a name, a reason a label.
NAME_LENGTH_MAX = 500
REASON_LENGTH_MAX = 100
#: A reason is a code, not a sentence.
LABEL = re.compile(r"[a-z0-9_.-]{1,40}")


def sound(answer: object) -> Outcome:
    """The outcome with valid texts. A return value that is not an outcome becomes Unknown."""
    # By far the most frequent outcome, tested without the cost of a regular expression.
    if (
        type(answer) is Done
        and answer.detail == ""
        and _is_short(answer.id)
        and (answer.target == "" or _is_short(answer.target))
    ):
        return answer
    match answer:
        case Done():
            # It reports that the effect happened, so it is accepted in any form.
            return Done(
                _text(answer.id)[:NAME_LENGTH_MAX],
                _text(answer.target)[:NAME_LENGTH_MAX],
                scrub(_text(answer.detail)),
                answer.movement,
            )
        case Rejected():
            return replace(
                answer, reason=_reason(answer.reason), detail=scrub(_text(answer.detail))
            )
        case Retry() | Unknown():
            return replace(
                answer,
                reason=_reason(answer.reason),
                detail=scrub(_text(answer.detail)),
                after_seconds=_seconds(answer.after_seconds),
            )
        case _:
            return Unknown(
                "unexpected_error", f"the executor returned {type(answer).__name__}, not an Outcome"
            )


def discreet(outcome: Outcome, payload: object, secrets: Sequence[str]) -> Outcome:
    """The outcome without the secrets that the attempt was given and without the payload's personal
    data: it will be stored and logged.
    """
    if isinstance(outcome, Done):
        if not outcome.detail and not outcome.target:
            return outcome
        hidden = [*secrets, *personal_texts(payload)]
        target, detail = hide(outcome.target, hidden), hide(outcome.detail, hidden)
        if target == outcome.target and detail == outcome.detail:
            return outcome
        return replace(outcome, target=target, detail=detail)
    hidden = [*secrets, *personal_texts(payload)]
    reason = hide(outcome.reason, hidden)[:REASON_LENGTH_MAX]
    return replace(outcome, reason=reason, detail=hide(outcome.detail, hidden))


def coded(outcome: Outcome, codes: Collection[str]) -> Outcome:
    """The outcome with a stable code as its reason: a free text becomes part of the detail.

    `codes`: the reasons of the flow. In `discreet`, known personal data is already hidden.
    """
    if isinstance(outcome, Done) or (code := code_of(outcome, codes)) == outcome.reason:
        return outcome
    detail = f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason
    return replace(outcome, reason=code, detail=detail)


def code_of(outcome: Rejected | Retry | Unknown, codes: Collection[str]) -> str:
    """Its reason if that is a code, else the name of its type."""
    is_code = outcome.reason in codes or LABEL.fullmatch(outcome.reason)
    return outcome.reason if is_code else type(outcome).__name__.lower()


def has_private_texts(flow: Flow) -> bool:
    """Whether free texts of its outcomes are encrypted.

    Channels that compose their texts themselves say so (`Flow.clear_texts`).
    """
    return not flow.clear_texts and bool(personal_fields(flow.payload))


async def protected(outcome: Outcome, flow: Flow, view: View, subject_keys: SubjectKeys) -> Outcome:
    """The outcome as it may be stored: free text encrypted under the keys of the data subjects."""
    if not has_private_texts(flow):
        return outcome
    outcome = coded(outcome, flow.reasons)
    if isinstance(outcome, Done):
        if not outcome.detail and not outcome.target:
            return outcome
        target, detail = await subject_keys.encrypt_texts(view, (outcome.target, outcome.detail))
        return replace(outcome, target=target, detail=detail)
    (detail,) = await subject_keys.encrypt_texts(view, (outcome.detail,))
    return replace(outcome, detail=detail)


def without_texts(outcome: Outcome) -> Outcome:
    """The outcome without free texts, which may be personal: ids, and reasons that are labels."""
    if isinstance(outcome, Done):
        return Done(outcome.id, movement=outcome.movement)
    return replace(
        outcome, reason=outcome.reason if LABEL.fullmatch(outcome.reason) else "reported", detail=""
    )


def _is_short(value: object) -> bool:
    return type(value) is str and value.isascii() and len(value) <= NAME_LENGTH_MAX


def _text(value: object) -> str:
    if value is None:
        return ""
    # A lone surrogate is a valid str but cannot be stored.
    return str(value).encode(errors="replace").decode()


def _reason(value: object) -> str:
    return scrub(_text(value))[:REASON_LENGTH_MAX]


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
