"""The program that executes card payments and is killed at its point; without one it only works.

It answers webhooks of the gateway on a port of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import stripe  # noqa: F401 -- once, in the process from which the others are forked
from msgspec.structs import replace as changed

import gesta.http_api.app  # noqa: F401 -- likewise
from gesta import Done, Engine, Flow, RetryPolicy
from gesta.domain.commands import Command, RecordOutcome, Start
from gesta.domain.transaction.commands import NoteWebhook
from gesta.flows import card
from gesta.flows.payment import webhooks
from gesta.flows.payment.stripe import StripeGateway
from gesta.http_api.server import address_of, bind, serving
from gesta.ports.job_queue import Ack
from gesta.ports.transactions import Entry
from gesta.requests.recorder import Applied, Recorder
from gesta.stores.separate_queue import SeparateTransactions
from gesta.testing.moto_server import CREDENTIALS
from tests.crash.program import Plan, hurry

NOT_JOURNALLED = "not journalled"
NOT_CALLED = "journalled, not called"
#: The test kills the process: only the gateway knows that it was called.
NOT_ANSWERED = "called, not answered"
NOT_RECORDED = "answered, not recorded"
NOT_ACKED = "recorded, not acked"
WEBHOOK = "webhook received, not recorded"
POINTS = (NOT_JOURNALLED, NOT_CALLED, NOT_ANSWERED, NOT_RECORDED, NOT_ACKED, WEBHOOK)

#: Waits that a test can wait for.
SOON = RetryPolicy(attempts=400, base_seconds=0.05, cap_seconds=0.2)
CALL_SECONDS = 5.0


def flows() -> list[Flow]:
    """As they are, with shorter waits between look-ups and resends."""
    cards = card.flow(timeout_seconds=CALL_SECONDS)
    rules = changed(cards.rules, ask_after_seconds=0.1, asking=SOON, retry=SOON)
    return [replace(cards, rules=rules), webhooks.flow()]


def open_engine(plan: Plan, *, work: bool) -> Engine:
    return Engine(flows=flows(), settings=plan.settings(), work=work)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def apply(
    recorder: Recorder, view: Any, command: Command, *args: Any, **options: Any
) -> Applied:
    """Recorder.apply of this process."""
    if (_point, type(command)) in ((NOT_JOURNALLED, Start), (WEBHOOK, NoteWebhook)):
        die()
    applied = await _apply(recorder, view, command, *args, **options)
    is_done = isinstance(command, RecordOutcome) and isinstance(command.outcome, Done)
    if _point == NOT_ACKED and is_done:
        # One database: the job was acknowledged in the same commit, and its worker never hears.
        die()
    return applied


async def execute(gateway: StripeGateway, *args: Any) -> Any:
    """StripeGateway.execute of this process."""
    if _point == NOT_CALLED:
        die()
    answer = await _execute(gateway, *args)
    if _point == NOT_RECORDED:
        die()
    return answer


async def settle(
    transactions: SeparateTransactions, entries: Sequence[Entry], verdicts: Any
) -> Any:
    """SeparateTransactions._settle of this process."""
    recorded = [one for one in entries if one.append and isinstance(one.settlement, Ack)]
    if _point == NOT_ACKED and recorded:
        die()
    return await _settle(transactions, entries, verdicts)


_point = ""
_apply, _execute, _settle = Recorder.apply, StripeGateway.execute, SeparateTransactions._settle


async def work(plan: Plan, point: str) -> None:
    global _point  # noqa: PLW0603 -- of this process
    _point = point
    # The process from which this one was forked may have started before the test set them.
    os.environ.update(CREDENTIALS)
    hurry(plan)
    for kind, name, act in (
        (Recorder, "apply", apply),
        (StripeGateway, "execute", execute),
        (SeparateTransactions, "_settle", settle),
    ):
        setattr(kind, name, act)
    engine = open_engine(plan, work=True)
    app = engine.web()
    listener = bind("127.0.0.1", 0)
    async with engine, serving(app, listener):
        draft = Path(plan.folder) / "address.draft"
        draft.write_text(address_of(listener), encoding="ascii")
        draft.rename(Path(plan.folder) / "address")
        await asyncio.Event().wait()


def main(plan: Plan, point: str) -> None:
    asyncio.run(work(plan, point))
