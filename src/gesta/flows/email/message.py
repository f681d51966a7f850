"""What a request of notification.email carries. Field names in stored JSON are those of seed
002.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gesta.flows.email.addresses import normal
from gesta.flows.flow import Payload, Personal, PersonalApart

#: The sender that is used when a message names none.
DEFAULT = "default"


class Recipient(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """Who the letter is for, as the caller knows them: by at least one of `recipient_id`,
    `external_id` and `cpf_cnpj_hash`.
    """

    email: Personal[str]
    recipient_id: str | None = None
    external_id: Personal[str | None] = None
    #: 64 hexadecimal digits; see `document_hash`. The number itself is never taken.
    cpf_cnpj_hash: Personal[str | None] = None
    razao_social: Personal[str | None] = None
    nome: Personal[str | None] = None

    def __post_init__(self) -> None:
        _tidy(self, "email", normal)
        _tidy(self, "recipient_id", str.lower)


class Message(Payload, frozen=True, rename="camel", omit_defaults=True):
    """One letter.

    Its HTML is named by `html_ref` or made from `template` with `data`; it never travels in the
    request.

    Everything personal in it is sealed under the address in `to`, copies under their own: erasing
    an address reaches what was sent to it.
    """

    to: Personal[str]
    #: May be left to the template.
    subject: Personal[str] = ""
    html_ref: str | None = None
    template: str | None = None
    locale: str | None = None
    data: Personal[dict[str, Any]] = msgspec.field(default_factory=dict)
    cc: list[PersonalApart[str]] = msgspec.field(default_factory=list)
    bcc: list[PersonalApart[str]] = msgspec.field(default_factory=list)
    reply_to: Personal[str | None] = None
    headers: Personal[dict[str, str]] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    recipient: Recipient | None = None
    #: Where a reader can say no more: an https or mailto URL; it becomes List-Unsubscribe.
    unsubscribe: Personal[str | None] = None
    #: Code of the tenant's config `email.sender`.
    sender: str = DEFAULT
    #: The caller's own id (a UUID), which becomes the id of the request.
    outbox_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("to", "reply_to"):
            _tidy(self, name, normal)
        _tidy(self, "outbox_id", str.lower)
        leased = {self.to}
        for name in ("cc", "bcc"):
            _tidy_copies(self, name, leased)

    @property
    def about(self) -> str:
        return self.to


def _tidy(struct: msgspec.Struct, name: str, tidy: Any) -> None:
    """Constructors are not checked, so it may be anything; what is wrong with it is told by the
    rules.
    """
    given = getattr(struct, name)
    if isinstance(given, str):
        msgspec.structs.force_setattr(struct, name, tidy(given))


def _tidy_copies(message: Message, name: str, leased: set[str]) -> None:
    """Nobody gets a letter twice: an address that was named before is left out."""
    given = getattr(message, name)
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        return
    kept: list[str] = []
    for address in map(normal, given):
        if address not in leased:
            leased.add(address)
            kept.append(address)
    msgspec.structs.force_setattr(message, name, kept)
