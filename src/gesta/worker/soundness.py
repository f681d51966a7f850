"""What an executor says, made fit to be stored: a record that nobody can read back would be worse than none.

Constructors are not checked, so an outcome can carry anything: a number for an id, a text for a delay, the provider's whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.personal import personal_fields
from gesta.scrub import scrub

#: An id or target is a name, a reason a label.
NAME_LENGTH_MAX = 500
REASON_LENGTH_MAX = 100
#: Shorter texts are part of too many words.
HIDDEN_LENGTH_MIN = 3


def sound(answer: object) -> Outcome:
    """The outcome with texts that are texts; Unknown when it is none, because then nobody knows what happened."""
    # By far the most frequent answer, tested without the cost of a pattern.
    if (
        type(answer) is Done
        and answer.detail == ""
        and _is_short(answer.id)
        and (answer.target == "" or _is_short(answer.target))
    ):
        return answer
    match answer:
        case Done():
            # It says that the effect happened: no form of saying so is refused.
            return Done(_text(answer.id)[:NAME_LENGTH_MAX], _text(answer.target)[:NAME_LENGTH_MAX], scrub(_text(answer.detail)))
        case Rejected():
            return replace(answer, reason=_reason(answer.reason), detail=scrub(_text(answer.detail)))
        case Retry() | Unknown():
            return replace(
                answer,
                reason=_reason(answer.reason),
                detail=scrub(_text(answer.detail)),
                after_seconds=_seconds(answer.after_seconds),
            )
        case _:
            return Unknown("unexpected_error", f"the executor returned {type(answer).__name__}, not an Outcome")


def discreet(outcome: Outcome, payload: object, secrets: Sequence[str]) -> Outcome:
    """The outcome without the secrets that the attempt was given and without the payload's personal data: it will be stored and logged."""
    target = outcome.target if isinstance(outcome, Done) else ""
    if not outcome.detail and not target:
        return outcome
    hidden, detail = secrets, outcome.detail
    if isinstance(payload, msgspec.Struct) and (personal := personal_fields(type(payload))):
        hidden = [*secrets, *(text for name in personal for text in _strings(getattr(payload, name)))]
    for text in hidden:
        if text in detail or text in target:
            break
    else:
        return outcome
    for text in sorted(hidden, key=len, reverse=True):
        if len(text) >= HIDDEN_LENGTH_MIN:
            detail, target = detail.replace(text, "[hidden]"), target.replace(text, "[hidden]")
    if isinstance(outcome, Done) and target != outcome.target:
        return Done(outcome.id, target, detail)
    return outcome if detail == outcome.detail else replace(outcome, detail=detail)


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, msgspec.Struct):
        return [text for field in msgspec.structs.fields(value) for text in _strings(getattr(value, field.name))]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _strings(item)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list | tuple | set | frozenset) else []


def _is_short(value: object) -> bool:
    return type(value) is str and value.isascii() and len(value) <= NAME_LENGTH_MAX


def _text(value: object) -> str:
    if value is None:
        return ""
    # Half a surrogate pair is a str, but no text that could be stored.
    return str(value).encode(errors="replace").decode()


def _reason(value: object) -> str:
    return scrub(_text(value))[:REASON_LENGTH_MAX]


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
