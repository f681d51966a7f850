"""tx: show, authorize, capture, post, void, refund and reverse transactions; list unknown ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from gesta.cli.arguments import Id, money
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, facts, print_answer, print_json, print_list, show, table, tell
from gesta.domain.money import Money

if TYPE_CHECKING:
    from gesta.api_types.decisions import UnknownOutcome
    from gesta.api_types.requests import Decided
    from gesta.api_types.transactions import TransactionRepresentation
    from gesta.client import Client

#: How many unknown transactions one command lists.
MANY = 1_000


class Named(TypedDict):
    """The transaction, and the person who decides about it."""

    request_id: str
    flow: str
    by: str


Amount = Annotated[
    Money | None,
    typer.Option(
        "--amount",
        metavar="'49.90 EUR'",
        help="Default: the whole remaining amount.",
        parser=money,
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key", metavar="KEY", help="Your own name for it: the same key is executed once."
    ),
]


@dataclass(frozen=True)
class Payment:
    """The amount and its source."""

    amount: Annotated[
        Money, typer.Argument(metavar="'49.90 EUR'", help="The amount.", parser=money)
    ]
    source: Annotated[
        str,
        typer.Option("--source", metavar="ID", help="The gateway's token for the card, e.g. pm_1."),
    ]
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="CODE", help="Code of the payment.gateway config.")
    ] = "default"
    sale: Annotated[bool, typer.Option("--sale", help="Authorize and capture in one step.")] = False
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Yours: submitted once.")
    ] = None


async def authorize(call: Invocation, payment: Payment, as_json: Json = False) -> None:
    """Reserve an amount on a card; with --sale, capture it in the same step."""
    fields = {
        "amount": {"amount": payment.amount.amount, "currency": payment.amount.currency},
        "source": payment.source,
        "gateway": payment.gateway,
        "operation": "sale" if payment.sale else "authorize",
    }
    async with call.backend(create=True) as backend:
        submitted = await backend.client.submit("payment.card", fields, key=payment.key)
        document = {"id": submitted.id, "verdict": submitted.verdict}
        print_answer(document, submitted.id, submitted.verdict, as_json=as_json)
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
        tell(f"check the gateway's records, then: {how}")


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

    def act(client: Client, named: Named) -> Awaitable[Decided]:
        return client.capture(amount=amount, key=key, final=not keep_rest, **named)

    await _open(call, request_id, act, by=by, as_json=as_json)


async def post(
    call: Invocation,
    request_id: Id,
    key: Key,
    amount: Amount = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Transfer part or all of what was reserved."""

    def act(client: Client, named: Named) -> Awaitable[Decided]:
        return client.post_reservation(amount=amount, key=key, **named)

    await _open(call, request_id, act, by=by, as_json=as_json)


async def refund(
    call: Invocation,
    request_id: Id,
    key: Key,
    amount: Amount = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Give part or all of what was captured back."""

    def act(client: Client, named: Named) -> Awaitable[Decided]:
        return client.refund(amount=amount, key=key, **named)

    await _open(call, request_id, act, by=by, as_json=as_json)


async def void(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Release what was authorized and not captured."""
    await _open(
        call, request_id, lambda client, named: client.void(**named), by=by, as_json=as_json
    )


async def reverse(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Take a transaction back: void it, or refund it where it was captured."""
    await _open(
        call, request_id, lambda client, named: client.reverse(**named), by=by, as_json=as_json
    )


async def _open(
    call: Invocation,
    request_id: str,
    act: Callable[[Client, Named], Awaitable[Decided]],
    *,
    by: str | None,
    as_json: bool,
) -> None:
    person = call.actor(by).user_id
    async with call.backend() as backend:
        one = await backend.decidable(request_id)
        decided = await act(backend.client, Named(request_id=one.id, flow=one.flow, by=person))
        document = {"id": decided.id, "status": decided.status}
        print_answer(document, decided.status, as_json=as_json)
        if decided.status == "queued":
            await backend.warn_if_idle()
