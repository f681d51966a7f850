from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from gesta import (
    Actor,
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    InvalidRequest,
    Options,
    Outcome,
    Payload,
    flow,
)
from gesta.errors import StoreFull, UnknownFlow
from gesta.flows.validation import NESTING_MAX, is_too_deep
from tests.world import (
    FLOW,
    URL,
    Note,
    Provider,
    all_events,
    engine_of,
    events_of,
    fields,
    types_of,
)


class Order(Payload, frozen=True):
    number: int
    lines: list[str] = msgspec.field(default_factory=list)
    total: float = 0.0
    placed: datetime | None = None
    code: Annotated[str, msgspec.Meta(max_length=3)] = ""


@flow("shop.order", on_unknown="manual")
async def order_flow(payload: Order, attempt: Attempt) -> Outcome:
    return Done()


@pytest.fixture
async def engine(gesta):
    async with Engine(URL, flows=[order_flow], work=False) as engine:
        yield engine


async def field_errors(engine: Engine, payload: Payload, **options: Any) -> dict[str, str]:
    """The field errors of a submit, after a look that nothing was written."""
    with pytest.raises(InvalidRequest) as refusal:
        await engine.submit(payload, **options)
    assert await all_events(engine) == []
    return refusal.value.fields


class Tree(Payload, frozen=True):
    data: dict[str, Any]


@flow("shop.tree", on_unknown="manual")
async def tree_flow(payload: Tree, attempt: Attempt) -> Outcome:
    return Done()


@pytest.mark.parametrize("depth", [100, 400, 900, 100_000])
async def test_a_payload_that_is_nested_too_deeply_or_holds_itself_is_refused(gesta, depth):
    deep: Any = {}
    for _ in range(depth):
        deep = {"x": deep}
    itself: dict[str, Any] = {}
    itself["x"] = itself
    async with Engine(URL, flows=[tree_flow], work=False) as engine:
        for data in (deep, itself):
            assert "nested too deeply" in (await field_errors(engine, Tree(data)))["payload"]
    while deep:
        # Level by level: to let go of all of them at once takes as deep a stack.
        deep = deep["x"]


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"x":', b"}")])
def test_lists_and_objects_count_alike_as_nested(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> bytes:
        return opening * depth + b"1" + closing * depth

    assert not any(is_too_deep(nested(depth)) for depth in (0, 1, 2, NESTING_MAX))
    assert is_too_deep(nested(NESTING_MAX + 1))
    assert not is_too_deep(b'{"x":"' + opening[:1] * (NESTING_MAX + 1) + b'"}')


async def test_created_carries_what_was_asked_and_who_asked(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(
            Note("hi"),
            key="k-1",
            correlation_id="c-1",
            actor=Actor("u-1", ("ops",)),
            priority=3,
            ttl=timedelta(seconds=60),
        )
        (stored,) = (await events_of(engine, request.id))[:1]
    now = gesta.runtime.now_ms()
    # R1-49: the right event, and no other.
    assert stored.type == "test.note.RequestCreated.v1"
    assert fields(stored.data) == {
        "id": request.id,
        "flow": FLOW,
        "payload": {"text": "hi"},
        "key": "k-1",
        "expiresAt": now + 60_000,
        "priority": 3,
    }
    # R1-44, R1-7, R1-49: its metadata.
    assert fields(stored.meta) == {
        "tenant": "default",
        "flow": FLOW,
        "requestId": request.id,
        "occurredAt": now,
        "correlationId": "c-1",
        "causationId": request.id,
        "source": "gesta",
        "actor": {"userId": "u-1", "roles": ["ops"]},
        "schemaVersion": 1,
    }


async def test_every_event_of_a_life_carries_the_same_metadata_fields(gesta):
    provider = Provider(*[TimeoutError("no answer")] * 2)
    async with engine_of(provider) as engine:
        request = await engine.submit(Note(), correlation_id="c-1")
        await gesta.settle()
        stored = await events_of(engine, request.id)
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "OutcomeUnknown",
            "OutcomeUnknown",
            "Completed",
        ]
    metas = [fields(event.meta) for event in stored]
    expected = {
        "tenant",
        "flow",
        "requestId",
        "occurredAt",
        "correlationId",
        "causationId",
        "source",
        "actor",
        "schemaVersion",
    }
    assert all(set(meta) == expected for meta in metas)  # R1-44
    assert {(meta["tenant"], meta["correlationId"]) for meta in metas} == {("default", "c-1")}


async def test_accepted_means_appended(gesta):
    async with Engine(URL, flows=[order_flow], work=False) as engine:
        request = await engine.submit(Order(7))
        assert [event.stream for event in await all_events(engine)] == [
            f"shop.order.request-default-{request.id}"
        ]


async def test_a_store_without_room_refuses_requests_and_appends_nothing(gesta, ports):
    async with engine_of(Provider()) as engine:
        ports.events.fail("append", StoreFull("gesta.db", "database or disk is full"))
        with pytest.raises(StoreFull, match="no room left"):
            await engine.submit(Note(), key="k-1")
        assert await all_events(engine) == []
        assert (await engine.submit(Note(), key="k-1")).verdict == "created"


async def test_the_same_key_and_content_answer_duplicate_with_the_first_request(engine):
    first = await engine.submit(Order(7), key="order-7")
    second = await engine.submit(Order(7), key="order-7")
    assert (first.verdict, second.verdict) == ("created", "duplicate")  # S1-30
    assert second.id == first.id
    assert len(await all_events(engine)) == 1


async def test_the_same_key_with_other_content_is_a_conflict(engine):
    first = await engine.submit(Order(7), key="order-7")
    with pytest.raises(Conflict, match="key 'order-7' was used before") as conflict:  # S1-30
        await engine.submit(Order(8), key="order-7")
    assert conflict.value.request_id == first.id
    assert len(await all_events(engine)) == 1


async def test_a_key_belongs_to_its_tenant_and_flow(gesta):
    @flow("shop.other", on_unknown="manual")
    async def other(payload: Note, attempt: Attempt) -> Outcome:
        return Done()

    async with Engine(URL, flows=[order_flow, other], work=False) as engine:
        verdicts = [
            (await engine.submit(Order(7), key="k", tenant="acme")).verdict,
            (await engine.submit(Order(8), key="k", tenant="other")).verdict,
            (await engine.submit(Note(), key="k", tenant="acme")).verdict,
        ]
    assert verdicts == ["created", "created", "created"]  # S1-30


async def test_two_at_once_with_one_key_become_one_request(engine):
    requests = await asyncio.gather(*(engine.submit(Order(7), key="order-7") for _ in range(20)))
    assert len({request.id for request in requests}) == 1
    assert sorted(request.verdict for request in requests) == ["created"] + ["duplicate"] * 19


async def test_many_at_once_get_a_verdict_each(engine):
    await engine.submit(Order(7), key="a")
    first, second, third = await engine.submit_many(
        [(Order(7), Options(key="a")), (Order(8), Options(key="a")), Order(9)]
    )
    assert not isinstance(first, Conflict)
    assert not isinstance(third, Conflict)
    assert (first.verdict, third.verdict) == ("duplicate", "created")
    assert isinstance(second, Conflict)


async def test_an_invalid_one_among_many_refuses_all_of_them(engine):
    with pytest.raises(InvalidRequest, match="tenant"):
        await engine.submit_many([Order(7), (Order(8), Options(tenant="no blanks"))])
    assert await all_events(engine) == []


async def test_many_at_once_are_written_together_or_not_at_all(gesta, ports):
    async with engine_of(Provider()) as engine:
        # The second thousand would not fit any more.
        ports.events.replace("append", _room_for_one_call())
        with pytest.raises(StoreFull):
            await engine.submit_many([Note(str(n)) for n in range(1_500)])
        ports.events.heal()
        # A caller that learns that nothing was written sends all of them again.
        assert len(await all_events(engine)) in {0, 1_500}


def _room_for_one_call() -> Any:
    calls = 0

    async def append(original: Any, appends: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1 or len(appends) > 1_000:
            raise StoreFull("gesta.db", "database or disk is full")
        return await original(appends)

    return append


async def test_all_errors_of_payload_and_options_are_reported_together(engine):
    wrong: Any = {"lines": [1], "total": "much", "code": "four"}
    payload = Order("seven", **wrong)  # type: ignore[arg-type]
    found = await field_errors(
        engine,
        payload,
        tenant="a b",
        key="",
        deliver_at=datetime(2027, 1, 1),
        ttl=timedelta(0),
        priority=11,
    )
    assert set(found) == {
        "number",
        "lines",
        "total",
        "code",
        "tenant",
        "key",
        "deliver_at",
        "ttl",
        "priority",
    }
    assert found["number"] == "expected 'int', got 'str'"


async def test_unknown_and_missing_fields_of_a_json_object_are_named(engine):
    with pytest.raises(InvalidRequest) as refusal:
        engine.payload("shop.order", {"lines": ["a"], "nmber": 7, "totl": 1.0})
    assert refusal.value.fields == {
        "nmber": "unknown field; known: number, lines, total, placed, code",
        "totl": "unknown field; known: number, lines, total, placed, code",
        "number": "missing",
    }


async def test_a_payload_above_256_kb_is_refused_and_one_of_256_kb_is_taken(engine):
    room = 256 * 1024 - len(msgspec.json.encode(Order(7, ["x"]))) + 1
    await engine.submit(Order(7, ["x" * room]))
    with pytest.raises(InvalidRequest, match="262145 bytes, and 262144 is the maximum"):
        await engine.submit(Order(7, ["x" * (room + 1)]))
    assert len(await all_events(engine)) == 1


@pytest.mark.parametrize("tenant", ["", "a b", "ä", "-a", "a" * 64, "{a}", "a:b", "a\n", None, 7])
async def test_a_bad_tenant_is_refused(engine, tenant):
    assert set(await field_errors(engine, Order(7), tenant=tenant)) == {"tenant"}


@pytest.mark.parametrize("tenant", ["a", "acme-corp", "0.a_b-C", "a" * 63])
async def test_a_good_tenant_is_taken(engine, tenant):
    assert (await engine.submit(Order(7), tenant=tenant)).tenant == tenant


@pytest.mark.parametrize("key", ["", "k" * 513, 7, b"k", "\ud800"])
async def test_a_bad_key_is_refused(engine, key):
    assert set(await field_errors(engine, Order(7), key=key)) == {"key"}


@pytest.mark.parametrize("key", ["k", "k" * 512, "schlüssel ⚿", "a\0b"])
async def test_any_other_string_may_be_a_key(engine, key):
    assert (await engine.submit(Order(7), key=key)).verdict == "created"
    assert (await engine.submit(Order(7), key=key)).verdict == "duplicate"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 5.0}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"deliver_at": "tomorrow"}, "deliver_at"),
        ({"deliver_at": datetime(2027, 1, 1)}, "deliver_at"),
        ({"ttl": 60}, "ttl"),
        ({"ttl": timedelta(seconds=-1)}, "ttl"),
        ({"correlation_id": 7}, "correlation_id"),
        ({"correlation_id": "c" * 513}, "correlation_id"),
        ({"actor": "root"}, "actor"),
        ({"actor": Actor(7)}, "actor"),  # type: ignore[arg-type]
        ({"actor": Actor("u", ["ops", 7])}, "actor"),  # type: ignore[arg-type]
        ({"actor": Actor("u", ("ops", 7))}, "actor"),  # type: ignore[arg-type]
        ({"actor": Actor("u", None)}, "actor"),  # type: ignore[arg-type]
        ({"actor": Actor("u", "ops")}, "actor"),  # type: ignore[arg-type]
    ],
)
async def test_a_bad_option_is_refused_by_name(engine, options, name):
    assert set(await field_errors(engine, Order(7), **options)) == {name}


async def test_a_time_without_a_zone_is_refused_in_a_payload_too(engine):
    assert set(await field_errors(engine, Order(7, placed=datetime(2027, 1, 1)))) == {"placed"}
    await engine.submit(Order(7, placed=datetime(2027, 1, 1, tzinfo=UTC)))


async def test_a_number_that_json_cannot_hold_is_refused(engine):
    assert set(await field_errors(engine, Order(7, total=float("nan")))) == {"total"}


class Moody(Payload, frozen=True):
    refuses: ClassVar[bool] = False
    text: str = ""

    def __post_init__(self) -> None:
        if self.refuses:
            raise ValueError("not today")


async def test_a_payload_that_cannot_be_read_back_is_refused_whatever_the_cause(gesta, monkeypatch):
    async with Engine(
        URL, flows=[Flow("test.moody", Moody, order_flow.execute)], work=False
    ) as engine:
        payload = Moody("hi")
        monkeypatch.setattr(Moody, "refuses", True)
        assert await field_errors(engine, payload) == {"payload": "cannot be stored: not today"}


async def test_a_text_that_is_not_valid_unicode_is_refused(engine):
    assert set(await field_errors(engine, Order(7, ["\ud800"]))) == {"lines"}


async def test_a_payload_of_no_declared_flow_is_refused_and_the_known_ones_are_named(engine):
    with pytest.raises(UnknownFlow, match=r"it has: shop\.order"):
        await engine.submit(Note())
    with pytest.raises(UnknownFlow, match=r"no flow 'shop\.ordr'"):
        engine.payload("shop.ordr", {})
    assert await all_events(engine) == []


async def test_a_caller_who_gives_up_waiting_still_has_an_accepted_request_under_the_key(
    gesta, ports
):
    async with engine_of(Provider()) as engine:
        at_the_store, go_on = asyncio.Event(), asyncio.Event()

        async def slow(original: Any, appends: Any) -> Any:
            at_the_store.set()
            await go_on.wait()
            return await original(appends)

        ports.events.replace("append", slow)
        asking = asyncio.ensure_future(engine.submit(Note(), key="k-1"))
        await at_the_store.wait()
        asking.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await engine.submit(Note(), key="k-1")).verdict == "duplicate"


class Letter(Payload, frozen=True):
    text: str
    number: str | None = None


async def post(payload: Letter, attempt: Attempt) -> Outcome:
    return Done()


OWN = "4be0643f-1d98-4b5c-9a2e-7d3e0b1f2a11"


@pytest.fixture
async def post_office(gesta):
    letters = Flow("shop.letter", Letter, post, request_id=lambda letter: letter.number)
    async with Engine(URL, flows=[letters]) as engine:
        yield engine


async def test_a_callers_own_id_is_the_requests_id_and_asks_once(post_office):
    first = await post_office.submit(Letter("hello", OWN))
    assert (first.id, first.verdict) == (OWN, "created")
    again = await post_office.submit(Letter("hello", OWN), key=OWN)
    assert (again.id, again.verdict) == (OWN, "duplicate")
    with pytest.raises(Conflict) as conflict:
        await post_office.submit(Letter("something else", OWN))
    assert conflict.value.request_id == OWN
    with pytest.raises(InvalidRequest, match="leave this field out"):
        await post_office.submit(Letter("hello", OWN), key="another")
    assert await first.outcome() == Done()


async def test_a_callers_own_id_is_one_request_of_one_tenant(gesta, post_office):
    """As when the ids of requests alone identified jobs: what was claimed then is found."""
    first = await post_office.submit(Letter("hello", OWN), tenant="acme")
    with pytest.raises(Conflict):
        await post_office.submit(Letter("hello", OWN), tenant="globex")
    assert (await post_office.submit(Letter("hello", OWN), tenant="acme")).verdict == "duplicate"
    assert await first.outcome() == Done()


@pytest.mark.parametrize("own", ["", "7", OWN.upper(), f"{OWN} ", OWN.replace("-", "")])
async def test_a_callers_own_id_is_a_uuid_in_its_usual_form(post_office, own):
    with pytest.raises(InvalidRequest, match="must be a UUID"):
        await post_office.submit(Letter("hello", own))


async def test_an_id_of_ours_cannot_be_brought_again_as_ones_own(post_office):
    ours = await post_office.submit(Letter("hello"))
    with pytest.raises(Conflict):
        await post_office.submit(Letter("hello", ours.id))


async def test_times_are_kept_to_the_millisecond_and_a_time_to_live_up_to_its_limit(gesta):
    async with engine_of(Provider()) as engine:
        soon = datetime(2030, 1, 31, 9, 0, 0, 250_000, UTC)
        request = await engine.submit(Note(), deliver_at=soon, ttl=timedelta(days=36_500))
        state = (await request.view()).state
        assert state.due_at == 1_896_080_400_250
        assert state.expires_at is not None
        with pytest.raises(InvalidRequest):
            await engine.submit(Note(), ttl=timedelta(days=36_500, milliseconds=1))
