"""Outcomes of an attempt: Done, Rejected, Retry or Unknown. An executor returns one of them."""

from typing import Literal

import msgspec

#: What happens after an Unknown: resend with the same key, ask the provider (reconcile), or leave
#: it to a person (manual).
UnknownPolicy = Literal["resend", "reconcile", "manual"]


class Movement(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Money that was moved, as a gateway reports it."""

    #: In the smallest unit of the currency; None: the requested amount.
    amount: int | None = None
    #: The gateway's id of this one movement, as its ledger names it.
    movement_id: str = ""
    #: An authorization expires at this time. Epoch milliseconds.
    capture_before: int | None = None


class Done(msgspec.Struct, frozen=True, gc=False, tag="done", repr_omit_defaults=True):
    """The effect happened.

    `id` is the provider's id of it, `target` the provider's name of the recipient.
    """

    id: str = ""
    target: str = ""
    detail: str = ""
    #: The movement, if the flow moves money.
    movement: Movement | None = None


class Rejected(msgspec.Struct, frozen=True, gc=False, tag="rejected", repr_omit_defaults=True):
    """The effect did not happen, and repeating the same call would not change that."""

    reason: str
    detail: str = ""


class Retry(msgspec.Struct, frozen=True, gc=False, tag="retry", repr_omit_defaults=True):
    """The effect definitely did not happen; safe to retry after `after_seconds`."""

    reason: str
    detail: str = ""
    after_seconds: float = 0.0


class Unknown(msgspec.Struct, frozen=True, gc=False, tag="unknown", repr_omit_defaults=True):
    """The effect may have happened: the call was made and its answer is missing."""

    reason: str
    detail: str = ""
    #: The earliest resend: a provider may say when to come back although its answer was lost (504
    #: with Retry-After).
    after_seconds: float = 0.0
    #: Nothing automatic can resolve it: a person has to decide.
    manual: bool = False


Outcome = Done | Rejected | Retry | Unknown

#: A stored free text that is encrypted begins so; `SubjectKeys.open_texts` reads it.
ENCRYPTED_TEXT = "gesta-enc1:"


def clear_text(text: str) -> str:
    """The text for logs, webhooks and handlers; empty where it is stored encrypted."""
    return "" if ENCRYPTED_TEXT in text else text
