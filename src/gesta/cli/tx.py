"""tx: show, authorize, capture, post, void, refund and reverse transactions; list unknown ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import Id
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, facts, print_json, print_list, say, show, table, tell
from gesta.domain.money import InvalidMoney, Money

if TYPE_CHECKING:
    from gesta.api_types.decisions import UnknownOutcome
    from gesta.api_types.requests import Decided, Whole
    from gesta.api_types.transactions import TransactionRepresentation
    from gesta.cli.backend import Backend

#: Unknown transactions that one command lists.
MANY = 1_000


def _money(text: str) -> Money:
    amount, _, currency = text.strip().partition(" ")
    try:
        return Money(amount, currency.strip() or amount)
    except InvalidMoney as error:
        raise typer.BadParameter(f"{error}; write it like '49.90 EUR'") from None


Amount = Annotated[
    Money | None,
    typer.Option(
        "--amount", metavar="'49.90 EUR'", help="Default: all that is left.", parser=_money
    ),
]
Key = Annotated[
    str,
    typer.Option("--key", metavar="KEY", help="Yours: the same key is executed once."),
]


@dataclass(frozen=True)
class Payment:
    """What to authorize."""

    amount: Annotated[
        Money, typer.Argument(metavar="'49.90 EUR'", help="The amount.", parser=_money)
    ]
    source: Annotated[
        str, typer.Option("--source", metavar="ID", help="The gateway's name of the card: pm_1.")
    ]
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="CODE", help="Code of the payment.gateway config.")
    ] = "default"
    sale: Annotated[bool, typer.Option("--sale", help="Take the amount at once.")] = False
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Yours: submitted once.")
    ] = None


async def authorize(call: Invocation, payment: Payment, as_json: Json = False) -> None:
    """Reserve an amount on a card, or take it at once with --sale."""
    fields = {
        "amount": {"amount": payment.amount.amount, "currency": payment.amount.currency},
        "source": payment.source,
        "gateway": payment.gateway,
        "operation": "sale" if payment.sale else "authorize",
    }
    async with call.backend(create=True) as backend:
        submitted = await backend.client.submit("payment.card", fields, key=payment.key)
        if as_json:
            print_json({"id": submitted.id, "verdict": submitted.verdict})
        else:
            say(submitted.id)
            tell(submitted.verdict)
        await backend.warn_if_idle()


async def show_transaction(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show the amounts of a transaction."""
    async with call.backend() as backend:
        found = await backend.request(request_id)
        one = await backend.client.transaction(found.id, flow=found.flow)
        if as_json:
            print_json(one)
            return
        lines = {
            "transaction": one.id,
            "status": one.status,
            "gateway": one.gateway or "",
            "requested": str(one.requested),
            "authorized": str(one.authorized),
            "captured": str(one.captured),
            "refunded": str(one.refunded),
            "released": str(one.released),
        }
        if one.unknown is not None:
            lines["unknown"] = f"{one.operation} of {one.unknown} since {one.unknown_since}"
        show(facts(lines | ({"reason": one.reason} if one.reason else {})))


async def list_unknown(call: Invocation, as_json: Json = False) -> None:
    """List transactions whose outcome a person has to resolve, with amount and age."""
    async with call.backend() as backend:
        found: list[tuple[UnknownOutcome, TransactionRepresentation]] = []
        async for one in backend.client.unknown():
            if one.flow.startswith("payment.") and len(found) < MANY:
                found.append((one, await backend.client.transaction(one.id, flow=one.flow)))
        if as_json:
            print_list([tx for _, tx in found], None)
            return
        if not found:
            tell("no transaction waits for a person")
            return
        rows = [
            (tx.id, tx.operation, str(tx.unknown), f"{one.age_seconds} s", tx.reason or "")
            for one, tx in found
        ]
        show(table(("id", "operation", "amount", "age", "reason"), rows, folded=("reason",)))
        how = call.place.command("resolve ID --succeeded --evidence TEXT")
        tell(f"look at the gateway, then: {how}")


async def capture(
    call: Invocation,
    request_id: Id,
    key: Key,
    amount: Amount = None,
    keep_rest: Annotated[
        bool, typer.Option("--keep-rest", help="Keep the rest for further captures.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Take part or all of what was authorized."""
    person = call.actor(by).user_id

    async def act(backend: Backend, one: Whole) -> Decided:
        return await backend.client.capture(
            one.id, amount, key=key, final=not keep_rest, flow=one.flow, by=person
        )

    await _open(call, request_id, act, as_json=as_json)


async def post(
    call: Invocation,
    request_id: Id,
    key: Key,
    amount: Amount = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Transfer part or all of what was reserved."""
    person = call.actor(by).user_id

    async def act(backend: Backend, one: Whole) -> Decided:
        return await backend.client.post_reservation(
            one.id, amount, key=key, flow=one.flow, by=person
        )

    await _open(call, request_id, act, as_json=as_json)


async def refund(
    call: Invocation,
    request_id: Id,
    key: Key,
    amount: Amount = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Give part or all of what was captured back."""
    person = call.actor(by).user_id

    async def act(backend: Backend, one: Whole) -> Decided:
        return await backend.client.refund(one.id, amount, key=key, flow=one.flow, by=person)

    await _open(call, request_id, act, as_json=as_json)


async def void(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Release what was authorized and not captured."""
    person = call.actor(by).user_id

    async def act(backend: Backend, one: Whole) -> Decided:
        return await backend.client.void(one.id, flow=one.flow, by=person)

    await _open(call, request_id, act, as_json=as_json)


async def reverse(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Take a transaction back: void it, or refund it where it was captured."""
    person = call.actor(by).user_id

    async def act(backend: Backend, one: Whole) -> Decided:
        return await backend.client.reverse(one.id, flow=one.flow, by=person)

    await _open(call, request_id, act, as_json=as_json)


async def _open(
    call: Invocation,
    request_id: str,
    act: Callable[[Backend, Whole], Awaitable[Decided]],
    *,
    as_json: bool,
) -> None:
    async with call.backend() as backend:
        decided = await act(backend, await backend.decidable(request_id))
        if as_json:
            print_json({"id": decided.id, "status": decided.status})
        else:
            say(decided.status)
        if decided.status == "queued":
            await backend.warn_if_idle()
