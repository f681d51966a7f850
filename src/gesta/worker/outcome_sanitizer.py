"""What an executor says, made fit to be stored: a record that nobody can read back would be worse
than none.

Constructors are not checked, so an outcome can carry anything: a number for an id, a text for a
delay, the provider's whole answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass

import msgspec
from msgspec.structs import replace

from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.flows.personal_fields import personal_fields
from gesta.runtime.redaction import scrub

#: An id or target is a name, a reason a label.
NAME_LENGTH_MAX = 500
REASON_LENGTH_MAX = 100
#: Shorter texts are part of too many words, and shorter numbers of too many others.
HIDDEN_LENGTH_MIN, NUMBER_LENGTH_MIN = 3, 5
#: A reason that is a name for a kind of end, and no sentence.
LABEL = re.compile(r"[a-z0-9_.-]{1,40}")


def sound(answer: object) -> Outcome:
    """The outcome with texts that are texts; Unknown when it is none, because then nobody knows
    what happened.
    """
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
            return Done(
                _text(answer.id)[:NAME_LENGTH_MAX],
                _text(answer.target)[:NAME_LENGTH_MAX],
                scrub(_text(answer.detail)),
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
        texts = [outcome.target, outcome.detail]
    else:
        texts = [outcome.reason, outcome.detail]
    hidden: Iterable[str] = secrets
    if isinstance(payload, msgspec.Struct) and (personal := personal_fields(type(payload))):
        hidden = [*secrets, *(text for name in personal for text in _texts(getattr(payload, name)))]
    if not any(text in one for text in hidden for one in texts):
        return outcome
    for text in sorted(hidden, key=len, reverse=True):
        if len(text) >= (NUMBER_LENGTH_MIN if text.isdecimal() else HIDDEN_LENGTH_MIN):
            texts = [one.replace(text, "[hidden]") for one in texts]
    first, detail = texts
    if isinstance(outcome, Done):
        return Done(outcome.id, first, detail)
    return replace(outcome, reason=first[:REASON_LENGTH_MAX], detail=detail)


def without_texts(outcome: Outcome) -> Outcome:
    """What can be kept where nobody can say whether a text tells something about a person: ids, and
    reasons that are a label.
    """
    if isinstance(outcome, Done):
        return Done(outcome.id)
    return replace(
        outcome, reason=outcome.reason if LABEL.fullmatch(outcome.reason) else "reported", detail=""
    )


def _texts(value: object) -> Iterator[str]:
    """Every text and number in it as a JSON of it shows them. The names of fields are nobody's."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _texts(getattr(value, name))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        # A date, a number, an id. Whatever it is, an outcome is not lost for it.
        with suppress(TypeError, ValueError):
            yield str(msgspec.to_builtins(value))


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
