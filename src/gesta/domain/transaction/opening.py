"""Commands that open a further operation of a transaction, and the amount that each one may
move.
"""

from collections.abc import Callable, Mapping

from gesta.domain import events as e
from gesta.domain.commands import CommandRefused, Resolve
from gesta.domain.state import State
from gesta.domain.transaction import commands as c
from gesta.domain.transaction import events as t
from gesta.domain.transaction.funds import CAPTURING, Asked, Funds, funds_of

#: The most captures, refunds and so on of one transaction.
OPERATIONS_MAX = 100


def refuse_if_busy(state: State) -> None:
    """A further operation may open only if no other is open and no outcome is unknown."""
    if state.phase == "unknown" or state.in_doubt:
        raise CommandRefused(
            "in_doubt",
            f"the outcome of the {state.operation} is unknown, so no further operation can start;"
            " gesta is looking it up, or a person has to resolve it",
        )
    if state.phase == "open":
        raise CommandRefused(
            "operation_open", f"the {state.operation} is still being executed; wait for its outcome"
        )


def amount_of(
    command: c.OperationCommand | Resolve, funds: Funds, left: int, code: str, of: str
) -> int:
    """The amount of a command. Refused if it is above `left`; `code` and `of` say why."""
    if command.currency and command.currency != funds.currency:
        raise CommandRefused(
            "wrong_currency", f"the transaction is in {funds.currency}, not {command.currency}"
        )
    if command.amount is None and left == 0:
        raise CommandRefused("nothing_left", f"nothing of it {of}")
    amount = left if command.amount is None else command.amount
    if amount <= 0:
        raise CommandRefused("invalid_amount", "the amount must be above zero")
    if amount > left:
        raise CommandRefused(
            code, f"{funds.money(amount)} is more than the {funds.money(left)} that {of}"
        )
    return amount


def _repeats(command: c.OperationCommand, funds: Funds, operation: str) -> bool:
    """Whether the caller's key was used before with the same content; refused if the content
    differs.
    """
    known = funds.keys.get(command.key_digest) if command.key_digest else None
    if known is None:
        return False
    if known != Asked(operation, command.amount, getattr(command, "is_final", True)):
        raise CommandRefused(
            "key_conflict", f"the key was already used for another {known.operation}"
        )
    return True


def _intent(funds: Funds, operation: str) -> int:
    if len(funds.moved) >= OPERATIONS_MAX or funds.intents.get(operation, 0) >= OPERATIONS_MAX:
        raise CommandRefused(
            "too_many_operations", f"a transaction has at most {OPERATIONS_MAX} operations"
        )
    return funds.intents.get(operation, 0) + 1


def _capturing(operation: str, event: type[t.OperationRequested]) -> Callable[..., list[e.Event]]:
    def decide(state: State, command: c.Capture, *_: object) -> list[e.Event]:
        funds = funds_of(state)
        if _repeats(command, funds, operation):
            return []
        refuse_if_busy(state)
        if CAPTURING.get(funds.first) != operation:
            raise CommandRefused(
                "not_supported", f"a {funds.first} cannot be followed by a {operation}"
            )
        if funds.capture_before is not None and command.at >= funds.capture_before:
            raise CommandRefused("authorization_expired", "the authorization has expired")
        amount = amount_of(
            command, funds, funds.capturable, "beyond_authorization", "is still authorized"
        )
        if not command.is_final and not funds.multiple_captures:
            raise CommandRefused(
                "single_capture", "the gateway accepts only one capture for each authorization"
            )
        return [
            event(
                amount,
                _intent(funds, operation),
                command.key,
                command.key_digest,
                command.is_final,
                command.amount,
            )
        ]

    return decide


def _void(state: State, command: c.Void, *_: object) -> list[e.Event]:
    funds = funds_of(state)
    if _repeats(command, funds, "void") or state.status == "cancelled":
        return []
    refuse_if_busy(state)
    amount = amount_of(command, funds, funds.capturable, "partial_void", "is still authorized")
    if amount != funds.capturable:
        raise CommandRefused("partial_void", "a void releases all that is not captured")
    intent = _intent(funds, "void")
    return [t.VoidRequested(amount, intent, command.key, command.key_digest, asked=command.amount)]


def _refund(state: State, command: c.Refund, *_: object) -> list[e.Event]:
    funds = funds_of(state)
    if _repeats(command, funds, "refund"):
        return []
    refuse_if_busy(state)
    if funds.first == "settlement":
        raise CommandRefused("not_supported", "a settlement cannot be refunded")
    amount = amount_of(command, funds, funds.refundable, "beyond_capture", "can be refunded")
    intent = _intent(funds, "refund")
    return [
        t.RefundRequested(amount, intent, command.key, command.key_digest, asked=command.amount)
    ]


def _reverse(state: State, command: c.Reverse, *_: object) -> list[e.Event]:
    """Refund captured money; void an authorization. Nothing else can be reversed."""
    funds = funds_of(state)
    if _repeats(command, funds, "reversal") or state.status == "reversed":
        return []
    refuse_if_busy(state)
    if funds.first == "settlement":
        raise CommandRefused("not_supported", "a settlement cannot be reversed")
    left = funds.refundable or funds.capturable
    if left == 0:
        raise CommandRefused(
            "nothing_to_reverse", f"the transaction is {state.status}: no money has moved"
        )
    return [
        t.ReversalRequested(
            left,
            _intent(funds, "reversal"),
            command.key,
            command.key_digest,
            undoes="refund" if funds.refundable else "void",
        )
    ]


OPENINGS: Mapping[type, Callable[..., list[e.Event]]] = {
    c.Capture: _capturing("capture", t.CaptureRequested),
    c.Post: _capturing("posting", t.PostingRequested),
    c.Void: _void,
    c.Refund: _refund,
    c.Reverse: _reverse,
}
