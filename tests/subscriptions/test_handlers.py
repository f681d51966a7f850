"""Handlers of `engine.on` get every change, in order, at least once, whatever dies or
raises.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gesta import Done, Engine, Event, Rejected, Retry, RetryPolicy, Unknown
from gesta.domain.status_events import WORDS
from gesta.domain.stream_names import checkpoint_of
from gesta.errors import BadSubscription
from gesta.subscriptions.handlers import Subscriber
from tests.world import (
    FLOW,
    URL,
    Note,
    Provider,
    append_raw,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
)

LEDGER = checkpoint_of("ledger")


class Listener:
    """A handler that remembers, and raises `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[Event] = []
        self.failures = failures

    async def __call__(self, event: Event) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the ledger of ada@example.com is closed")
        self.events.append(event)

    async def take(self, event: Event) -> None:
        await self(event)

    @property
    def words(self) -> list[str]:
        return [event.status for event in self.events]


def listening(
    provider: Provider,
    listener: Listener,
    *statuses: str,
    flow: str = FLOW,
    since: Any = "now",
    **options: Any,
) -> Engine:
    engine = engine_of(provider, **options)
    engine.on(flow, *statuses, name="ledger", since=since)(listener.take)
    return engine


async def checkpoint(engine: Engine) -> int:
    return await engine.pipeline.environment.stores.checkpoints.position(LEDGER)


async def test_a_handler_gets_the_status_events_of_a_request(gesta):
    provider, listener = Provider(Retry("busy"), Done(id="p-1")), Listener()
    async with listening(provider, listener) as engine:
        request = await engine.submit(Note("a secret text"), key="order-7", correlation_id="c-1")
        await gesta.settle()
        assert listener.words == ["created", "attempt_failed", "completed"]
        sent = listener.events[-1]
        assert (sent.flow, sent.tenant, sent.request_id, sent.key) == (
            FLOW,
            "default",
            request.id,
            "order-7",
        )
        assert (sent.version, sent.attempts, sent.provider_id, sent.correlation_id) == (
            3,
            2,
            "p-1",
            "c-1",
        )
        assert (sent.type, sent.at_ms) == (
            f"{FLOW}.Completed.v1",
            (await engine.get(request.id)).state.updated_at,
        )
        assert listener.events[1].reason == "busy"
        assert [event.position for event in listener.events] == [1, 2, 3]
        assert len({event.id for event in listener.events}) == 3
        assert "secret" not in repr(listener.events)


async def test_a_handler_gets_only_the_events_it_subscribed_to(gesta):
    provider, listener, kinds, others = Provider(Rejected("no")), Listener(), Listener(), Listener()
    engine = listening(provider, listener, "failed", "completed")
    engine.on("test.*", "failed", name="kind")(kinds.take)
    engine.on("other.note", name="other")(others.take)
    async with engine:
        # `gesta worker` prints it; the log was silent there until the engine had started.
        expected = "no flow of this process matches subscription other: other.note"
        assert [note for note in engine.notes if "subscription" in note] == [expected]
        await engine.submit(Note())
        await gesta.settle()
    assert (listener.words, kinds.words, others.words) == (["failed"], ["failed"], [])


async def test_an_unknown_outcome_is_delivered_once_however_often_reconciling_fails(gesta):
    listener, asked = Listener(), Provider(Unknown("still"), Unknown("still"), Done(id="p-1"))
    async with listening(
        Provider(TimeoutError()), listener, on_unknown="reconcile", reconcile=asked
    ) as engine:
        await engine.submit(Note())
        await gesta.settle()
    assert len(asked.calls) == 3
    assert listener.words == ["created", "unknown", "completed"]
    assert listener.events[-1].type == f"{FLOW}.OutcomeResolved.v1"


@pytest.mark.parametrize(
    ("result", "words"),
    [("executed", ["completed"]), ("rejected", ["failed"]), ("not_executed", ["completed"])],
)
async def test_a_resolution_is_delivered_as_the_status_it_led_to(gesta, result, words):
    listener = Listener()
    async with listening(Provider(TimeoutError()), listener, on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await request.resolve(result, by="ada", evidence="seen")
        await gesta.settle()
    assert listener.words == ["created", "unknown", *words]


async def test_a_late_success_is_delivered_as_sent(gesta):
    provider, listener = Provider(Rejected("no")), Listener()
    async with listening(provider, listener) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await append_raw(engine, request.id, 2, "CompletedLate.v1", b'{"attempts":1}')
        await gesta.settle()
    assert listener.words == ["created", "failed", "completed"]


async def test_expired_and_cancelled_are_delivered(gesta):
    listener = Listener()
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        late_cancellation, too_late = (
            await engine.submit(Note()),
            await engine.submit(Note(), ttl=timedelta(seconds=1)),
        )
        await late_cancellation.cancel()
    gesta.advance(2)
    async with listening(Provider(), listener, since="beginning") as engine:
        await gesta.settle()
    words = {
        request.id: [one.status for one in listener.events if one.request_id == request.id]
        for request in (late_cancellation, too_late)
    }
    assert words == {
        late_cancellation.id: ["created", "cancelled"],
        too_late.id: ["created", "expired"],
    }


async def test_a_new_subscription_starts_at_the_end_and_stores_its_checkpoint_first(gesta):
    provider, listener = Provider(), Listener()
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        await gesta.settle()
    async with listening(provider, listener) as engine:
        await let_run(gesta)
        assert await checkpoint(engine) == 2
        await die(engine)
    # What happens while no process listens is handled at the next start: the beginning was durable.
    async with engine_of(provider) as engine:
        missed = await engine.submit(Note())
        await gesta.settle()
    async with listening(provider, listener) as engine:
        await pass_time(gesta, 6)
    assert [(event.request_id, event.status) for event in listener.events] == [
        (missed.id, "created"),
        (missed.id, "completed"),
    ]


async def test_since_the_beginning_replays_everything_once(gesta):
    provider, listener = Provider(), Listener()
    async with engine_of(provider) as engine:
        for _ in range(300):
            await engine.submit(Note())
        await gesta.settle()
    for _ in range(2):
        async with listening(provider, listener, "completed", since="beginning") as engine:
            await gesta.settle()
            assert await checkpoint(engine) == 600
    assert listener.words == ["completed"] * 300
    assert [event.position for event in listener.events] == sorted(
        event.position for event in listener.events
    )


async def test_a_handler_that_raises_gets_the_same_event_again_with_growing_pauses(gesta):
    provider, listener, other = Provider(), Listener(failures=8), Listener()
    engine = listening(provider, listener)
    engine.on("*", name="other")(other.take)
    async with engine:
        at: list[int] = []
        take_before = listener.take

        async def watch(event: Event) -> None:
            at.append(gesta.runtime.now_ms())
            await take_before(event)

        subscriber = engine.pipeline.subscriptions.subscribers[0]
        assert isinstance(subscriber, Subscriber)
        object.__setattr__(subscriber.subscription, "handler", watch)
        await engine.submit(Note())
        await let_run(gesta)
        # It stops this subscription and no other.
        assert (listener.words, other.words) == ([], ["created", "completed"])
        (one,) = [
            one
            for one in await engine.pipeline.environment.stores.checkpoints.checkpoints()
            if one.name == LEDGER
        ]
        assert (one.position, one.failed_at_ms) == (0, at[0])
        assert one.error == "position 1: ConnectionError: the ledger of [email] is closed"
        sample = engine.pipeline.telemetry.registry.get_sample_value
        assert sample("gesta_subscription_failing", {"subscription": "ledger"}) == 1
        await gesta.settle()
        assert listener.words == ["created", "completed"]
        pauses = [round((late - early) / 1000) for early, late in pairwise(at)]
        assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert sample("gesta_subscription_failures_total", {"subscription": "ledger"}) == 8
        assert sample("gesta_subscription_events_total", {"subscription": "ledger"}) == 2
        assert sample("gesta_subscription_failing", {"subscription": "ledger"}) == 0
        assert [
            one.error for one in await engine.pipeline.environment.stores.checkpoints.checkpoints()
        ] == [""] * 3


async def test_a_handler_that_always_raises_does_not_keep_a_test_from_settling(gesta):
    listener = Listener(failures=1_000)
    async with listening(Provider(), listener) as engine:
        await engine.submit(Note())
        await gesta.settle()
    assert listener.events == []


async def test_a_slow_handler_delays_neither_attempts_nor_other_handlers(gesta):
    provider, other, opened = Provider(), Listener(), asyncio.Event()
    engine = engine_of(provider)

    async def slow(_: Event) -> None:
        await opened.wait()

    engine.on(FLOW, name="slow")(slow)
    engine.on(FLOW, "completed", name="other")(other.take)
    async with engine:
        for _ in range(20):
            await engine.submit(Note())
        await let_run(gesta)
        assert len(provider.calls) == 20
        assert other.words == ["completed"] * 20
        opened.set()


async def test_events_delivered_before_a_failure_are_not_repeated_by_the_next_process(gesta):
    provider, listener, after = Provider(), Listener(), Listener()
    async with listening(provider, listener) as engine:
        await engine.submit(Note())
        await gesta.settle()
        listener.failures = 1_000
        last = await engine.submit(Note())
        await let_run(gesta)
        await die(engine)
    async with listening(provider, after) as engine:
        await pass_time(gesta, 6)
    assert listener.words == ["created", "completed"]
    assert [event.request_id for event in after.events] == [last.id] * 2


async def test_one_process_at_a_time_delivers_and_another_takes_over_within_5_seconds(
    gesta,
):
    provider, first, second = Provider(), Listener(), Listener()
    async with listening(provider, first) as dying:
        await let_run(gesta)
        survivors = set(asyncio.all_tasks())
        async with listening(provider, second) as engine:
            await engine.submit(Note())
            await gesta.settle()
            assert (first.words, second.words) == (["created", "completed"], [])
            others = {task for task in asyncio.all_tasks() if task not in survivors}
            await die(dying, others)
            await engine.submit(Note())
            await pass_time(gesta, 5)
            assert second.words == ["created", "completed"]


async def test_a_slow_handler_keeps_its_role(gesta):
    provider, second, opened = Provider(), Listener(), asyncio.Event()
    engine = engine_of(provider)
    begun = []

    async def slow(event: Event) -> None:
        begun.append(event)
        await opened.wait()

    engine.on(FLOW, "created", name="ledger")(slow)
    async with engine:
        await engine.submit(Note())
        await let_run(gesta)
        async with listening(provider, second, "created"):
            await pass_time(gesta, 30)
            assert (len(begun), second.words) == (1, [])
            opened.set()


async def test_a_clean_stop_stores_the_checkpoint_and_gives_up_the_role(gesta):
    provider, listener = Provider(), Listener()
    engine = engine_of(provider)
    stuck = asyncio.Event()

    async def handler(event: Event) -> None:
        listener.events.append(event)
        if len(listener.events) == 3:
            await stuck.wait()

    engine.on(FLOW, name="ledger")(handler)
    async with engine:
        await let_run(gesta)
        for _ in range(4):
            await engine.submit(Note())
        await let_run(gesta)
        assert len(listener.events) == 3
    again = Listener()
    async with listening(provider, again) as engine:
        # No wait for a lease: the role was given up.
        await let_run(gesta)
    assert [event.position for event in again.events] == [3, 4, 5, 6, 7, 8]


async def test_no_event_is_missed_when_any_store_call_fails(gesta, ports):
    provider, listener = Provider(), Listener()
    async with listening(provider, listener, "completed") as engine:
        await let_run(gesta)
        for number, (port, verb) in enumerate(
            (
                (ports.events, "follow"),
                (ports.read_model, "save"),
                (ports.read_model, "claim"),
                (ports.events, "read"),
            ),
            start=1,
        ):
            port.fail(verb)
            await engine.submit(Note())
            await pass_time(gesta, 6)
            assert len({event.id for event in listener.events}) == number, verb


async def test_a_rebuild_does_not_move_checkpoints_of_subscriptions(gesta):
    provider, listener = Provider(), Listener()
    async with listening(provider, listener) as engine:
        await engine.submit(Note())
        await gesta.settle()
        await engine.admin.rebuild()
        await gesta.settle()
        assert await checkpoint(engine) == 2
    assert listener.words == ["created", "completed"]


async def sync_or_not(_event: Event) -> None: ...


async def none() -> None: ...


async def two(_event: Event, _other: object) -> None: ...


def plain(_event: Event) -> None: ...


@pytest.mark.parametrize(
    ("flow", "statuses", "name", "handler", "says"),
    [
        ("", (), "ledger", sync_or_not, "is not a flow"),
        ("payment", (), "ledger", sync_or_not, "'payment.*' means all flows of a kind"),
        ("Payment.card", (), "ledger", sync_or_not, "is not a flow"),
        ("*.card", (), "ledger", sync_or_not, "is not a flow"),
        (
            "payment.card",
            ("sold",),
            "ledger",
            sync_or_not,
            f"'sold' is not a status; known: {', '.join(WORDS)}",
        ),
        ("payment.card", (), "", sync_or_not, "name= must have"),
        ("payment.card", (), "ledger", plain, "`async def`"),
        ("payment.card", (), "ledger", none, "one parameter"),
        ("payment.card", (), "ledger", two, "one parameter"),
    ],
)
def test_a_wrong_subscription_is_refused_with_the_reason(flow, statuses, name, handler, says):
    with pytest.raises(BadSubscription) as raised:
        Engine(URL).on(flow, *statuses, name=name)(handler)
    assert says in str(raised.value)


@pytest.mark.parametrize("flow", ["*", "payment.*", "payment.card.*", "payment.card"])
def test_a_subscription_covers_a_flow_a_kind_or_all(flow):
    engine = Engine(URL)
    engine.on(flow, *WORDS, name="ledger")(sync_or_not)
    assert engine.subscriptions["ledger"].covers(
        "payment.card.x" if flow == "payment.card.*" else "payment.card"
    )


async def test_a_name_is_declared_once_and_before_the_start(gesta):
    engine = listening(Provider(), Listener(), retry=RetryPolicy())
    with pytest.raises(BadSubscription, match="already declared"):
        engine.on("*", name="ledger")(sync_or_not)
    async with engine:
        with pytest.raises(BadSubscription, match="before the engine starts"):
            engine.on("*", name="late")(sync_or_not)
