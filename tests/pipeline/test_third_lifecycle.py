"""A lifecycle that only this test knows, with two operations in sequence, through the pipeline."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Request,
    Retry,
    RetryPolicy,
    Unknown,
)
from gesta.domain import events as e
from gesta.domain.codec import encode, event_types
from gesta.domain.commands import Command, CommandRefused, Expire, RecordOutcome, Rules
from gesta.domain.lifecycle import lifecycle
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.operation import Operation
from gesta.domain.operation.decide import DECISIONS
from gesta.domain.state import State
from gesta.errors import BadFlow, PoisonEvent
from gesta.ports.event_store import Recorded
from gesta.requests.loader import apply_event
from gesta.requests.recorder import no_job
from gesta.runtime.settings import load
from tests.stores.postgresql.places import fresh_url

FLOW = "ledger.card"
HOLD_MS = 2_000
MASTER = b64encode(b"k" * 32).decode()


class Authorized(e.Succeeded, frozen=True, gc=False):
    provider_id: str = ""


class AuthorizedLate(Authorized, frozen=True, gc=False):
    pass


class Captured(Authorized, frozen=True, gc=False):
    pass


class CapturedLate(Authorized, frozen=True, gc=False):
    pass


class CaptureRequested(e.Event, frozen=True, gc=False):
    amount: int


class Capture(Command, frozen=True, gc=False):
    amount: int


def request_capture(state: State, command: Capture, *_: object) -> list[e.Event]:
    if state.status != "authorized":
        raise CommandRefused("not_authorized", f"the request is {state.status}")
    return [CaptureRequested(command.amount)]


def expire(state: State, command: Expire, rules: Rules, operation: Operation) -> list[e.Event]:
    """What was authorized and not captured in time expires: the sweeper asks."""
    late = command.at is not None and command.at >= (state.expires_at or command.at + 1)
    if state.phase == "idle":
        return [e.Expired(state.attempts)] if late else []
    return DECISIONS[Expire](state, command, rules, operation)


def capture_requested(state: State, event: CaptureRequested, version: int, at: int) -> State:
    return replace(
        state,
        version=version,
        updated_at=at,
        status="queued",
        phase="open",
        operation="capture",
        intent=1,
        dispatch_version=version,
        attempts_before=state.attempts,
        first_attempt_at=None,
        due_at=at,
        expires_at=None,
        facts={**state.facts, "amount": event.amount},
    )


PAYMENT = lifecycle(
    "payment",
    Operation("authorize", Authorized, AuthorizedLate, "authorized", is_last=False),
    Operation("capture", Captured, CapturedLate, "captured"),
    decisions={Capture: request_capture, Expire: expire},
    folds={CaptureRequested: capture_requested},
    event_names={e.Created: "PaymentCreated", CaptureRequested: "CaptureRequested"},
)


class Charge(Payload, frozen=True):
    card: str = "4242"


class Gateway:
    """Keeps what it was asked to do by key; answers as the test says, then with success."""

    def __init__(self, **answers: list[Outcome]) -> None:
        self.answers, self.calls = answers, list[tuple[str, str]]()
        self.effects: dict[str, str] = {}

    async def execute(self, _: Charge, attempt: Attempt) -> Outcome:
        self.calls.append((attempt.operation, attempt.key))
        planned = self.answers.get(attempt.operation)
        outcome = planned.pop(0) if planned else Done(f"{attempt.operation}-1")
        if not isinstance(outcome, Retry):
            self.effects[attempt.key] = attempt.operation
        return outcome

    async def reconcile(self, _: Charge, attempt: Attempt) -> Outcome:
        done = self.effects.get(attempt.key)
        return Retry("no_trace") if done is None else Done(f"{done}-1")


def flow_of(gateway: Gateway, **options: Any) -> Flow:
    return Flow(
        FLOW,
        Charge,
        gateway.execute,
        Rules(RetryPolicy(base_seconds=0.01, cap_seconds=0.05), "reconcile", ask_after_seconds=0.1),
        reconcile=gateway.reconcile,
        lifecycle=PAYMENT,
        **options,
    )


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gesta.db"
    return await fresh_url()


def engine_at(url: str, gateway: Gateway, *, work: bool = True, **options: Any) -> Engine:
    return Engine(
        flows=[flow_of(gateway, **options)],
        settings=load({"url": url, "master_key": MASTER}),
        work=work,
    )


async def capture(engine: Engine, request: Request, amount: int = 700) -> None:
    view = await request.view()
    rules = engine.flows[FLOW].rules
    await engine.pipeline.recorder.apply(view, Capture(amount), rules, no_job, causation_id="test")


async def state_at(request: Request, status: str) -> State:
    for _ in range(1_000):
        state = (await request.view()).state
        if state.status == status:
            return state
        await asyncio.sleep(0.02)
    pytest.fail(f"the request does not become {status}")


async def captured_in(engine: Engine, request_id: str) -> None:
    while (await engine.get(request_id)).state.status != "captured":
        await asyncio.sleep(0.02)


def keys(request: Request) -> Mapping[str, str]:
    return {name: f"default:{request.id}:{name}:1" for name in PAYMENT.operations}


async def test_authorize_then_capture_runs_through_the_whole_pipeline(url):
    """A retry of the first operation, an unknown outcome of the second, and views rebuilt by a
    process that starts after the first one stopped.
    """
    gateway = Gateway(authorize=[Retry("busy")], capture=[Unknown("timeout")])
    async with engine_at(url, gateway) as engine:
        request = await engine.submit(Charge())
        assert isinstance(await request.outcome(timeout=60), Done)
        authorized = await state_at(request, "authorized")
        assert (authorized.phase, authorized.attempts, authorized.wants) == ("idle", 2, None)
        await capture(engine, request)
        captured = await state_at(request, "captured")
        assert (captured.phase, captured.provider_id) == ("ended", "capture-1")
        assert (captured.operation, captured.facts) == ("capture", {"amount": 700})
    key = keys(request)
    assert gateway.calls == [
        ("authorize", key["authorize"]),
        ("authorize", key["authorize"]),
        ("capture", key["capture"]),
    ]
    async with engine_at(url, gateway, work=False) as engine:
        assert await engine.admin.rebuild() == captured.version
        view = await engine.get(request.id)
        assert view.state == captured
        names = [name.split(".")[-2] for name, _, _ in await engine.history(request.id)]
    assert names == [
        "PaymentCreated",
        "AttemptFailed",
        "Authorized",
        "CaptureRequested",
        "OutcomeUnknown",
        "OutcomeResolved",
    ]


async def test_the_job_of_the_second_operation_is_of_another_kind(url):
    """Put by one process, executed by the next: nothing of it is in memory."""
    async with engine_at(url, Gateway()) as engine:
        request = await engine.submit(Charge())
        await state_at(request, "authorized")
    async with engine_at(url, gateway := Gateway(), work=False) as engine:
        view = await engine.get(request.id)
        rules = engine.flows[FLOW].rules
        applied = await engine.pipeline.recorder.apply(
            view, Capture(1), rules, no_job, causation_id="test"
        )
        assert applied.view.state.job_kind == "execute-capture"
    async with engine_at(url, gateway) as engine:
        await captured_in(engine, request.id)
    assert gateway.calls == [("capture", keys(request)["capture"])]


async def test_the_sweeper_expires_what_was_never_captured(url):
    async with engine_at(url, Gateway(), ttl_seconds=HOLD_MS / 1000) as engine:
        request = await engine.submit(Charge())
        await state_at(request, "authorized")
        await state_at(request, "expired")


def state_of(*history: e.Event) -> State:
    meta = e.Meta("default", FLOW, "r-1", 1, "c", "c")
    created = e.Created("r-1", FLOW, b"{}", operation="authorize")  # type: ignore[arg-type]
    state = PAYMENT.fold([(one, meta) for one in (created, *history)])
    assert state is not None
    return state


def test_late_evidence_of_the_first_operation_is_not_taken_for_the_second():
    capturing = state_of(Authorized(1), CaptureRequested(5))
    late = RecordOutcome(Done("a"), 1, 2, operation="authorize")
    assert PAYMENT.decide(capturing, late, Rules()) == []
    (captured,) = PAYMENT.decide(capturing, RecordOutcome(Done("c"), 2, 2), Rules())
    assert isinstance(captured, Captured)


def test_a_process_that_does_not_declare_the_flow_quarantines_its_events():
    """It derives the lifecycle from the name of the flow, and does not know the first event."""
    recorded = Recorded(1, "s", 1, b"i" * 16, "other.card.PaymentCreated.v1", b"{}", _meta())
    assert lifecycle_of("other.card").name == "task"
    assert event_types("other.card").decode("other.card.PaymentCreated.v1", b"{}") is None
    with pytest.raises(PoisonEvent):
        apply_event(None, recorded, "other.card")


def _meta() -> bytes:
    return encode(e.Meta("default", "other.card", "r-1", 1, "c", "c"))


def test_a_lifecycle_that_could_be_misread_is_refused():
    twin = lifecycle("twin", Operation("send", e.Completed, e.CompletedLate, "completed"))
    with pytest.raises(BadFlow, match="name its first event differently"):
        Flow("ledger.twin", Charge, Gateway().execute, lifecycle=twin)


def test_external_workers_execute_one_operation_only():
    with pytest.raises(BadFlow, match="one operation only"):
        Flow("ledger.out", Charge, Gateway().execute, lifecycle=PAYMENT, lease_seconds=30.0)
