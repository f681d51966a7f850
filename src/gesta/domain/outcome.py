"""What an attempt came to. A flow returns one of these four; nothing else ends an attempt."""

from typing import Literal

import msgspec

#: What happens after an Unknown: resend under the same key, ask the provider, or leave it to a
#: person.
UnknownPolicy = Literal["resend", "reconcile", "manual"]


class Done(msgspec.Struct, frozen=True, gc=False, tag="done", repr_omit_defaults=True):
    """The effect happened.

    `id` is the provider's own name for it, `target` its name for where it went.
    """

    id: str = ""
    target: str = ""
    detail: str = ""


class Rejected(msgspec.Struct, frozen=True, gc=False, tag="rejected", repr_omit_defaults=True):
    """The effect did not happen and never will as it was asked for."""

    reason: str
    detail: str = ""


class Retry(msgspec.Struct, frozen=True, gc=False, tag="retry", repr_omit_defaults=True):
    """The effect surely did not happen this time; another attempt may succeed, not before
    `after_seconds`.
    """

    reason: str
    detail: str = ""
    after_seconds: float = 0.0


class Unknown(msgspec.Struct, frozen=True, gc=False, tag="unknown", repr_omit_defaults=True):
    """The effect may have happened: the question was asked and the answer is missing."""

    reason: str
    detail: str = ""
    #: Not before this: a provider may say when to come back even though it lost the answer (504
    #: with Retry-After).
    after_seconds: float = 0.0


Outcome = Done | Rejected | Retry | Unknown

#: A stored free text that is encrypted begins so; `SubjectKeys.open_texts` reads it.
ENCRYPTED_TEXT = "gesta-enc1:"


def clear_text(text: str) -> str:
    """The text for logs, webhooks and handlers; empty where it is stored encrypted."""
    return "" if ENCRYPTED_TEXT in text else text
