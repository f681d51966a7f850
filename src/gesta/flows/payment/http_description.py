"""How a gateway with a JSON API is described by config: `options` of an account of type `http`.

Texts may contain placeholders: {units} (the amount as the gateway counts), {amount} (as a decimal),
{currency}, {reference}, {key}, {source}, {destination}, {target}, {description}. Field names are
paths with dots, e.g. `data.id`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec

from gesta.flows.payment.descriptor import KEY_MARGIN_SECONDS, GatewayDescriptor
from gesta.flows.payment.gateway import GatewayAccount, RowKind, Verb

Path = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Meaning = Literal["succeeded", "pending", "declined"]
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
PLACEHOLDERS: Final = frozenset(
    """units amount currency reference key source destination target description""".split()
)
LISTING_PLACEHOLDERS: Final = frozenset({"from", "to", "cursor"})


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one verb is called. In `body`, a text that is only {units} becomes a number."""

    path: Annotated[str, msgspec.Meta(pattern="^/")]
    method: Literal["POST", "PUT", "DELETE"] = "POST"
    body: dict[str, Any] = msgspec.field(default_factory=dict)


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paths of the fields in an answer, a movement and a row of the ledger."""

    #: The id of the payment, which later calls name as their target.
    id: Path = "id"
    #: The id of this one movement.
    movement_id: Path = "id"
    amount: Path = "amount"
    currency: Path = "currency"
    status: Path = "status"
    reference: Path = "reference"
    #: The code of an error.
    error: Path = "error.code"
    #: Epoch seconds at which an authorization ends.
    capture_before: Path = "capture_before"


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How movements are found by our reference."""

    path: Annotated[str, msgspec.Meta(pattern="^/")]
    #: Where the answer has its list.
    items: Path = "data"
    #: The status that means: there is none. Not 404 by default: a wrong path answers 404 as well.
    missing_status: int | None = None


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the ledger is read. {from}, {to}: epoch seconds. {cursor}: empty for the first page."""

    path: Annotated[str, msgspec.Meta(pattern="^/")]
    items: Path = "data"
    #: The cursor of the next page; missing, null or empty: there is none.
    next: Path = "next"
    id: Path = "id"
    kind: Path = "type"
    fee: Path = "fee"
    status: Path = "status"
    #: Epoch seconds.
    at: Path = "created"
    payment_id: Path = "payment"
    movement_id: Path = "movement"
    #: The gateway's words for kinds of rows, and for rows that are final.
    kinds: dict[str, RowKind] = msgspec.field(
        default_factory=lambda: {"charge": "charge", "refund": "refund", "payout": "payout"}
    )
    final: tuple[str, ...] = ("available",)


class Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a webhook, which is signed as Standard Webhooks prescribes."""

    kind: Path = "type"
    #: Epoch seconds, or a time in ISO 8601.
    at: Path = "timestamp"
    payment_id: Path = "data.payment"
    movement_id: Path = "data.id"
    reference: Path = "data.reference"


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One gateway."""

    operations: dict[Verb, Request]
    #: The gateway's words of a status → what they mean. Any other word is unknown.
    statuses: dict[str, Meaning]
    look_up: Question
    ledger: Listing | None = None
    webhook: Hook | None = None
    answer: Fields = Fields()
    key_header: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]+$")] = "Idempotency-Key"
    #: How long the gateway remembers a key. 0: it has no keys, and nothing is ever sent twice.
    key_lifetime_seconds: Annotated[float, msgspec.Meta(ge=0)]
    key_margin_seconds: Annotated[float, msgspec.Meta(ge=0)] = KEY_MARGIN_SECONDS
    replays: Literal["all", "success", "none"] = "success"
    body_mismatch: Literal["error", "ignored"] = "error"
    visible_after_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    auth_header: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]+$")] = "Authorization"
    #: {api_key} is replaced.
    auth: str = "Bearer {api_key}"
    #: minor: whole numbers of the smallest unit. decimal: texts such as "49.90".
    amounts: Literal["minor", "decimal"] = "minor"
    exponents: dict[str, int] = {}
    steps: dict[str, int] = {}
    #: Codes of errors: the bank said no; the same, and another day may help; it is done already.
    declines: tuple[str, ...] = ()
    soft_declines: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    @property
    def descriptor(self) -> GatewayDescriptor:
        return GatewayDescriptor(
            type="http",
            key_lifetime_seconds=self.key_lifetime_seconds,
            key_margin_seconds=self.key_margin_seconds,
            replays=self.replays,
            body_mismatch=self.body_mismatch,
            look_up_by=("reference",),
            visible_after_seconds=self.visible_after_seconds,
            verbs=frozenset(self.operations),
            multiple_captures=True,
            exponents=self.exponents,
            steps=self.steps,
        )

    def errors(self) -> dict[str, str]:
        """Field → what is wrong beyond its type."""
        texts = {f"operations.{verb}": one.path for verb, one in self.operations.items()}
        texts |= {"look_up": self.look_up.path}
        for field, text in texts.items():
            if unknown := set(_PLACEHOLDER.findall(text)) - PLACEHOLDERS:
                return {field: f"unknown placeholder {{{min(unknown)}}}"}
        listed = "" if self.ledger is None else self.ledger.path
        if self.ledger is not None and set(_PLACEHOLDER.findall(listed)) != LISTING_PLACEHOLDERS:
            return {"ledger": "the path must contain {from}, {to} and {cursor}"}
        if "{reference}" not in self.look_up.path:
            return {"look_up": "the path must contain {reference}"}
        if "{api_key}" not in self.auth:
            return {"auth": "must contain {api_key}"}
        for verb, one in self.operations.items():
            if "{reference}" not in msgspec.json.encode(one.body).decode() + one.path:
                return {
                    f"operations.{verb}": "must send {reference}, otherwise gesta cannot find a"
                    " call whose answer was lost"
                }
        return {}


#: The descriptions of accounts that were used lately: an account is one object for as long as its
#: config does not change. It is kept here, so no other one gets its id.
_DESCRIBED: dict[int, tuple[GatewayAccount, Description]] = {}
_DESCRIBED_MAX: Final = 1_000


def description_of(account: GatewayAccount) -> Description:
    """Raises msgspec.ValidationError, whose text names the field."""
    known = _DESCRIBED.get(id(account))
    if known is None:
        if len(_DESCRIBED) >= _DESCRIBED_MAX:
            _DESCRIBED.clear()
        known = _DESCRIBED[id(account)] = account, msgspec.convert(account.options, Description)
    return known[1]


def filled_path(text: str, values: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda found: quote(str(values[found[1]]), safe=""), text)


def filled_body(body: Any, values: Mapping[str, Any]) -> Any:
    """The body with its placeholders replaced. Fields that come out empty are left out."""
    if isinstance(body, dict):
        filled = {name: filled_body(one, values) for name, one in body.items()}
        return {name: one for name, one in filled.items() if one not in ("", None)}
    if isinstance(body, list):
        return [filled_body(one, values) for one in body]
    if not isinstance(body, str):
        return body
    if (only := _PLACEHOLDER.fullmatch(body)) is not None:
        return values.get(only[1])
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], "")), body)


def at_path(found: Any, path: str) -> Any:
    """The value at a dotted path; None: there is none."""
    for part in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found
