"""Old requests go, and nothing else changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import apsw
import pytest

from gesta import Conflict, Engine, Event, NotFound, Rejected, Retry
from gesta.domain.commands import Rules
from gesta.errors import BadSettings
from gesta.flows.flow import Flow
from gesta.projector.rebuild import ROLE as REBUILD
from gesta.runtime.settings import load
from gesta.stores.sqlite.database import open_connection
from tests.world import FLOW, URL, Note, Provider, all_events, let_run, note_flow, pass_time

DAY_SECONDS = 86_400


def keeping(provider: Provider, days: int | None, **options: Any) -> Engine:
    return Engine(
        flows=[note_flow(provider, **options)],
        settings=load({"url": URL, "retention": None if days is None else f"{days}d"}),
    )


async def days_pass(gesta, days: float) -> None:
    gesta.advance(days * DAY_SECONDS)
    await let_run(gesta)
    # Leases have run out meanwhile; then come two walks through the old requests.
    await pass_time(gesta, 2 * 3700, step_seconds=60)


async def test_an_ended_request_goes_after_its_days_and_its_key_still_answers(gesta):
    provider = Provider()
    async with keeping(provider, 30) as engine:
        old = await engine.submit(Note("one"), key="order-1")
        await gesta.settle()
        await days_pass(gesta, 20)
        young = await engine.submit(Note("two"), key="order-2")
        await gesta.settle()
        await days_pass(gesta, 11)
        assert [view.state.id for view in await engine.find()] == [young.id]
        assert {recorded.stream for recorded in await all_events(engine)} == {
            f"{FLOW}.request-default-{young.id}"
        }
        again = await engine.submit(Note("one"), key="order-1")
        assert (again.verdict, again.id) == ("duplicate", old.id)
        with pytest.raises(Conflict):
            await engine.submit(Note("other"), key="order-1")
        for ask in (again.view, lambda: engine.get(old.id), lambda: engine.request(old.id)):
            with pytest.raises(NotFound, match="retention = 30d removes ended requests"):
                await ask()
        assert (
            engine.pipeline.telemetry.registry.get_sample_value("gesta_requests_removed_total") == 1
        )
    async with keeping(provider, None) as elsewhere:
        # A process that does not remove anything itself.
        again = await elsewhere.submit(Note("one"), key="order-1")
        with pytest.raises(
            NotFound,
            match="it has ended and was removed by retention",
        ):
            await again.outcome()
    assert len(provider.calls) == 2


async def test_without_the_setting_everything_is_kept(gesta):
    async with keeping(Provider(), None) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        await days_pass(gesta, 4_000)
        assert await request.status() == "completed"
        with pytest.raises(NotFound) as raised:
            await engine.get("01000000-0000-7000-8000-000000000000")
        assert "retention" not in str(raised.value)


async def test_open_and_unknown_requests_stay_however_old(gesta):
    provider = Provider(TimeoutError(), Retry("busy", after_seconds=100 * DAY_SECONDS))
    async with keeping(provider, 10, on_unknown="manual") as engine:
        in_doubt, waiting = await engine.submit(Note()), await engine.submit(Note())
        await let_run(gesta)
        await days_pass(gesta, 60)
        assert {view.state.id for view in await engine.find()} == {in_doubt.id, waiting.id}


async def test_a_dead_letter_that_is_still_shown_stays(gesta):
    provider = Provider(Rejected("no"))
    flow = Flow(FLOW, Note, provider.execute, Rules(), dead_letter_seconds=40 * DAY_SECONDS)
    async with Engine(flows=[flow], settings=load({"url": URL, "retention": "10d"})) as engine:
        failed = await engine.submit(Note())
        await gesta.settle()
        await days_pass(gesta, 20)
        assert [letter.id for letter in await engine.admin.dead_letters()] == [failed.id]
        await days_pass(gesta, 21)
        assert await engine.find() == []


async def test_events_a_subscription_has_not_handled_stay(gesta):
    provider = Provider()
    engine = keeping(provider, 10)
    reported: list[Event] = []
    broken = True

    async def book(event: Event) -> None:
        if broken:
            raise ConnectionError
        reported.append(event)

    engine.on(FLOW, "completed", name="ledger")(book)
    async with engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await days_pass(gesta, 20)
        assert await request.status() == "completed"
        broken = False
        await days_pass(gesta, 1)
        assert [event.request_id for event in reported] == [request.id]
        assert await engine.find() == []


async def test_a_rebuild_after_retention_gives_the_same_views(gesta):
    async with keeping(Provider(Rejected("no")), 10) as engine:
        for _ in range(3):
            await engine.submit(Note())
        await gesta.settle()
        await days_pass(gesta, 12)
        await engine.submit(Note())
        await gesta.settle()
        before, counts = await engine.find(), await engine.admin.counts()
        assert len(before) == 2
        await engine.admin.rebuild()
        assert (await engine.find(), await engine.admin.counts()) == (before, counts)


async def test_long_walks_are_made_in_small_commits_that_go_on_where_the_last_ended(
    gesta, ports, monkeypatch
):
    monkeypatch.setattr("gesta.maintenance.retention.BATCH", 10)
    provider = Provider(*[TimeoutError()] * 25)
    async with keeping(provider, 10, on_unknown="manual") as engine:
        for _ in range(60):
            await engine.submit(Note(), ttl=timedelta(days=100))
            await let_run(gesta)
        gesta.advance(20 * DAY_SECONDS)
        await let_run(gesta)
        sizes: list[int] = []
        looked: list[tuple[str, str, str]] = []

        async def remove(original, ended, secrets):
            sizes.append(len(ended))
            return await original(ended, secrets)

        async def old(original, before_ms, after, *rest):
            looked.append(after)
            return await original(before_ms, after, *rest)

        ports.transactions.replace("remove", remove)
        ports.read_model.replace("old", old)
        await pass_time(gesta, 60, step_seconds=0.5)
        assert (max(sizes), sum(sizes)) == (10, 35)
        # One walk in an hour, and no place is looked at twice: what stays open costs one look.
        assert len(looked) == len(set(looked)) <= 8
        assert len(await engine.find(limit=100)) == 25


def test_retention_is_a_duration_with_a_unit(monkeypatch):
    monkeypatch.setenv("GESTA_RETENTION", "90d")
    assert load().retention == timedelta(days=90)
    for wrong in ("0d", "-1d", "90", 90, "ten", True, "1000000d", "1s"):
        with pytest.raises(BadSettings, match="retention in argument"):
            load({"retention": wrong})
    with pytest.raises(BadSettings, match=r"'90' is not a duration; .* 2h, 1d or 1h30m"):
        load({"retention": "90"})


def test_sqlite_lets_no_event_go_but_those_that_retention_names(tmp_path):
    db = open_connection(str(tmp_path / "gesta.db"))
    try:
        row = (
            "insert into events (stream, version, id, type, data, meta) values (?, 1, x'00', 't',"
            " x'00', x'00')"
        )
        db.execute(row, ("one",))
        db.execute(row, ("two",))
        with pytest.raises(apsw.ConstraintError, match="never deleted"):
            db.execute("delete from events")
        db.execute("insert into leaving (stream, tenant, flow, id) values ('one', 't', 'f', 'i')")
        with pytest.raises(apsw.ConstraintError, match="never deleted"):
            db.execute("delete from events")
        db.execute("delete from events where stream = 'one'")
        with pytest.raises(apsw.ConstraintError, match="never change"):
            db.execute("update events set data = x'01'")
        assert db.execute("select count(*) from events").get == 1
    finally:
        db.close()


async def test_a_callers_own_id_that_looks_old_is_kept_as_long_as_any_other(gesta):
    own = "00000000-0000-4000-8000-000000000001"
    async with keeping(Provider(), 30, request_id=lambda _: own) as engine:
        await engine.submit(Note())
        await gesta.settle()
        await days_pass(gesta, 20)
        assert [view.state.id for view in await engine.find()] == [own]
        await days_pass(gesta, 11)
        assert await engine.find() == []


async def test_nothing_goes_while_a_rebuild_runs(gesta):
    async with keeping(Provider(), 30) as engine:
        old = await engine.submit(Note("one"))
        await gesta.settle()
        leases = engine.pipeline.environment.stores.leases
        gesta.advance(31 * DAY_SECONDS)
        for _ in range(120):
            assert await leases.claim(REBUILD, "another process", 120.0)
            await pass_time(gesta, 60, step_seconds=60)
        assert [view.state.id for view in await engine.find()] == [old.id]
        await pass_time(gesta, 2 * 3700, step_seconds=60)
        assert await engine.find() == []
