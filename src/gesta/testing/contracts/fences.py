"""The promises of a fence: from its commit on no process writes, and all data can be read."""

from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from gesta.domain.ids import external_queue_of, external_queues_of
from gesta.errors import Fenced
from gesta.ports.checkpoints import Move
from gesta.ports.event_store import Append
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Ack
from gesta.ports.transactions import Entry
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.job_queue import HOUR_SECONDS, held_jobs, take
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_encrypted,
    fresh_job,
    fresh_name,
    fresh_quarantined,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract

LEFT = Fence("left", "another store")
FILLING = Fence("filling", "another store")


class FencedContract(Contract):
    """Puts up fences. The store may be one that other tests use afterwards."""

    @pytest.fixture(autouse=True)
    async def no_fence_is_left(self, harness: Harness) -> AsyncIterator[None]:
        yield
        for fence in await harness.fences.standing():
            await harness.fences.take_down(fence)


class FencesContract(FencedContract):
    needs = frozenset(
        {
            "events",
            "key_claims",
            "read_model",
            "checkpoints",
            "leases",
            "queue",
            "unique_jobs",
            "undispatched_jobs",
            "vault",
            "transactions",
            "fences",
        }
    )

    async def test_a_store_that_was_left_refuses_every_write(self, harness: Harness) -> None:
        flow, token, view, encrypted = (
            fresh_name(),
            fresh_name("token"),
            fresh_view(),
            fresh_encrypted(),
        )
        job = fresh_job(flow)
        await harness.queue.put([job, fresh_job(flow)])
        await take(harness, flow, token, free=1)
        await harness.vault.put([encrypted])
        await harness.read_model.save([view], [])
        await harness.fences.put_up(LEFT)
        writes = {
            "append": harness.events.append([fresh_append()]),
            "put_claims": harness.key_claims.put_claims([fresh_claim()]),
            "put": harness.queue.put([fresh_job(flow)]),
            "take": harness.queue.take(token, {flow: 1}, 10.0, durable=True),
            "extend": harness.queue.extend(token, 10.0),
            "settle": harness.queue.settle([Ack(job.id, token)]),
            "project": harness.transactions.project(
                [], [fresh_job(flow)], [], [Move(fresh_name(), 0, 1)]
            ),
            "record": harness.transactions.record([Entry(fresh_append(), None)]),
            "record a settlement": harness.transactions.record([Entry(None, Ack(job.id, token))]),
            "save": harness.read_model.save([fresh_view()], []),
            "park": harness.read_model.save([], [fresh_quarantined("acme")]),
            "begin": harness.checkpoints.begin(fresh_name(), 1),
            "role": harness.leases.claim(fresh_name(), "owner", 3.0),
            "secret": harness.vault.put([fresh_encrypted()]),
            "erase": harness.vault.delete([(encrypted.tenant, encrypted.name, encrypted.version)]),
        }
        assert [name for name, write in writes.items() if not await _is_refused(write)] == []

    async def test_a_store_that_was_left_can_be_read(self, harness: Harness) -> None:
        append, view, encrypted, job = (
            fresh_append(claim=fresh_claim()),
            fresh_view(),
            fresh_encrypted(),
            fresh_job(fresh_name()),
        )
        await harness.events.append([append])
        await harness.read_model.save([view], [])
        await harness.vault.put([encrypted])
        await harness.queue.put([job])
        await harness.fences.put_up(LEFT)
        assert len(await harness.events.read([(append.stream, 0)])) == 1
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.unique_jobs.find([job.id]) == {job.id}
        # A process that opens a store asks for its first secret by putting one.
        assert await harness.vault.put([replace(encrypted, box=b"other")]) == [False]

    async def test_the_error_says_where_to_go(self, harness: Harness) -> None:
        await harness.fences.put_up(Fence("left", "the.new.home"))
        text = ""
        try:
            await harness.events.append([fresh_append()])
        except Fenced as error:
            text = str(error)
        assert "the.new.home" in text
        assert "--unfence" in text

    async def test_a_fence_that_was_taken_down_stops_nothing(self, harness: Harness) -> None:
        flow = fresh_name()
        for fence in (LEFT, FILLING):
            await harness.fences.put_up(fence)
            await harness.fences.take_down(fence)
        assert not await _is_refused(harness.events.append([fresh_append()]))
        assert not await _is_refused(harness.queue.put([fresh_job(flow)]))
        assert not await _is_refused(take(harness, flow))
        assert await harness.fences.standing() == []

    async def test_a_store_that_is_being_filled_takes_everything_but_jobs(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        await harness.queue.put([fresh_job(flow)])
        await harness.fences.put_up(FILLING)
        refused = {
            "put": harness.queue.put([fresh_job(flow)]),
            "take": harness.queue.take(fresh_name("token"), {flow: 1}, 10.0, durable=True),
            "project": harness.transactions.project(
                [], [fresh_job(flow)], [], [Move(fresh_name(), 0, 1)]
            ),
            "pending": harness.undispatched_jobs.save_with_jobs([], [fresh_job(flow)], [], []),
        }
        assert [name for name, write in refused.items() if not await _is_refused(write)] == []
        assert not await _is_refused(harness.events.append([fresh_append(claim=fresh_claim())]))
        assert not await _is_refused(
            harness.transactions.project([fresh_view()], [], [], [Move(fresh_name(), 0, 1)])
        )
        assert not await _is_refused(harness.vault.put([fresh_encrypted()]))

    async def test_jobs_are_put_as_the_fence_goes_down(self, harness: Harness) -> None:
        flow = fresh_name()
        live, other = fresh_job(flow), fresh_job(flow, possibly_executed=True)
        await harness.queue.put([live])
        await harness.fences.put_up(FILLING)
        await harness.fences.take_down(FILLING, [replace(live, possibly_executed=True), other])
        leased = {one.job.id: one.is_possibly_executed for one in await take(harness, flow)}
        assert leased == {live.id: False, other.id: True}

    async def test_a_tenant_that_left_is_refused_and_the_others_are_not(
        self, harness: Harness
    ) -> None:
        gone, stays = fresh_name("tenant"), fresh_name("tenant")
        encrypted = fresh_encrypted(tenant=gone)
        await harness.vault.put([encrypted])
        await harness.fences.put_up(replace(LEFT, tenant=gone))
        writes = {
            "append": harness.events.append([_of(gone)]),
            "record": harness.transactions.record([Entry(_of(gone), None)]),
            "secret": harness.vault.put([fresh_encrypted(tenant=gone)]),
            "erase": harness.vault.delete([(encrypted.tenant, encrypted.name, encrypted.version)]),
        }
        assert [name for name, write in writes.items() if not await _is_refused(write)] == []
        assert not await _is_refused(harness.events.append([_of(stays)]))
        assert not await _is_refused(harness.vault.put([fresh_encrypted(tenant=stays)]))
        await harness.fences.take_down(replace(LEFT, tenant=gone))
        assert not await _is_refused(harness.events.append([_of(gone)]))

    async def test_nothing_of_a_refused_call_is_written(self, harness: Harness) -> None:
        gone, stays = fresh_name("tenant"), fresh_name("tenant")
        await harness.fences.put_up(replace(LEFT, tenant=gone))
        other = _of(stays)
        assert await _is_refused(harness.events.append([other, _of(gone)]))
        assert await _is_refused(
            harness.transactions.record([Entry(other, None), Entry(_of(gone), None)])
        )
        assert await harness.events.read([(other.stream, 0)]) == []

    async def test_one_tenant_comes_back_and_another_stays_away(self, harness: Harness) -> None:
        first, second = (replace(LEFT, tenant=fresh_name("tenant")) for _ in range(2))
        await harness.fences.put_up(first)
        await harness.fences.put_up(second)
        await harness.fences.take_down(first)
        assert first.tenant is not None
        assert second.tenant is not None
        assert not await _is_refused(harness.events.append([_of(first.tenant)]))
        assert await _is_refused(harness.events.append([_of(second.tenant)]))

    async def test_the_last_of_two_fences_of_a_kind_counts(self, harness: Harness) -> None:
        await harness.fences.put_up(LEFT)
        await harness.fences.put_up(Fence("left", "a third store"))
        assert await harness.fences.standing() == [Fence("left", "a third store")]


class FencesAfterRestartContract(FencedContract):
    needs = frozenset({"events", "fences", "durable"})

    async def test_a_fence_is_kept_over_a_restart(self, harness: Harness) -> None:
        await harness.fences.put_up(LEFT)
        await reopen(harness)
        assert await harness.fences.standing() == [LEFT]
        assert await _is_refused(harness.events.append([fresh_append()]))


class QueueFencesContract(FencedContract):
    """For a queue in a database of its own. Fences of one tenant are the event store's."""

    needs = frozenset({"queue", "fences"})

    async def test_a_queue_that_was_left_refuses_every_write(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        job = fresh_job(flow)
        await harness.queue.put([job, fresh_job(flow)])
        await take(harness, flow, token, free=1)
        await harness.fences.put_up(LEFT)
        writes = {
            "put": harness.queue.put([fresh_job(flow)]),
            "take": harness.queue.take(token, {flow: 1}, 10.0, durable=True),
            "extend": harness.queue.extend(token, 10.0),
            "settle": harness.queue.settle([Ack(job.id, token)]),
        }
        assert [name for name, write in writes.items() if not await _is_refused(write)] == []

    async def test_a_queue_that_is_being_filled_neither_takes_nor_gives_jobs(
        self, harness: Harness
    ) -> None:
        flow = fresh_name()
        await harness.queue.put([fresh_job(flow)])
        await harness.fences.put_up(FILLING)
        assert await _is_refused(harness.queue.put([fresh_job(flow)]))
        assert await _is_refused(take(harness, flow))

    async def test_jobs_are_put_as_the_fence_of_a_queue_goes_down(self, harness: Harness) -> None:
        flow = fresh_name()
        live, other = fresh_job(flow), fresh_job(flow, possibly_executed=True)
        await harness.queue.put([live])
        await harness.fences.put_up(FILLING)
        await harness.fences.take_down(FILLING, [replace(live, possibly_executed=True), other])
        assert await harness.fences.standing() == []
        leased = {one.job.id: one.is_possibly_executed for one in await take(harness, flow)}
        assert leased == {live.id: False, other.id: True}

    async def test_every_fence_of_a_queue_is_listed_once(self, harness: Harness) -> None:
        for fence in (FILLING, LEFT, Fence("left", "a third store")):
            await harness.fences.put_up(fence)
        assert await harness.fences.standing() == [FILLING, Fence("left", "a third store")]

    async def test_the_error_of_a_queue_says_where_to_go(self, harness: Harness) -> None:
        await harness.fences.put_up(Fence("left", "the.new.home"))
        text = ""
        try:
            await harness.queue.put([fresh_job(fresh_name())])
        except Fenced as error:
            text = str(error)
        assert "the.new.home" in text

    async def test_a_queue_whose_fences_were_taken_down_works_again(self, harness: Harness) -> None:
        flow = fresh_name()
        for fence in (LEFT, FILLING):
            await harness.fences.put_up(fence)
            await harness.fences.take_down(fence)
        assert not await _is_refused(harness.queue.put([fresh_job(flow)]))
        assert len(await take(harness, flow)) == 1

    async def test_one_of_two_fences_of_a_queue_stays(self, harness: Harness) -> None:
        for fence in (LEFT, FILLING):
            await harness.fences.put_up(fence)
        await harness.fences.take_down(LEFT)
        assert await harness.fences.standing() == [FILLING]
        assert await _is_refused(harness.queue.put([fresh_job(fresh_name())]))

    async def test_a_fence_of_one_tenant_stops_no_queue(self, harness: Harness) -> None:
        flow, tenant = fresh_name(), fresh_name("tenant")
        await harness.fences.put_up(replace(LEFT, tenant=tenant))
        assert not await _is_refused(harness.queue.put([fresh_job(flow, tenant)]))
        assert len(await take(harness, flow)) == 1


class ExternalFencesContract(FencedContract):
    """What a fence stops of external workers and of jobs that are held."""

    needs = frozenset({"queue", "unique_jobs", "job_holds", "external_leases", "fences"})

    async def test_external_workers_of_a_queue_that_was_left_are_refused(
        self, harness: Harness
    ) -> None:
        flow, token = fresh_name(), fresh_name("token")
        name = external_queue_of(flow, "acme")
        await harness.queue.put([fresh_job(name), fresh_job(name)])
        (leased,) = await harness.external_leases.lease_external(token, name, 1, 10.0)
        await harness.fences.put_up(LEFT)
        leases = harness.external_leases
        writes = {
            "lease": leases.lease_external(token, name, 1, 10.0),
            "prolong": leases.prolong(leased.job.id, token, 10.0),
            "settle": harness.queue.settle([Ack(leased.job.id, token)]),
        }
        assert [what for what, write in writes.items() if not await _is_refused(write)] == []
        harness.runtime.advance(HOUR_SECONDS)
        assert await _is_refused(leases.expired_leases(token, external_queues_of(flow), 1, 10.0))

    async def test_held_jobs_of_a_queue_that_was_left_stay_held(self, harness: Harness) -> None:
        flow, scope = fresh_name(), fresh_name("scope")
        await held_jobs(harness, flow, scope)
        await harness.fences.put_up(LEFT)
        assert await _is_refused(harness.job_holds.unhold(scope, 10))
        await harness.fences.take_down(LEFT)
        assert await harness.job_holds.unhold(scope, 10) == 1


class EventFencesContract(FencedContract):
    """For events in a database of their own."""

    needs = frozenset({"events", "key_claims", "fences"})

    async def test_events_that_were_left_can_only_be_read(self, harness: Harness) -> None:
        append = fresh_append(claim=fresh_claim())
        await harness.events.append([append])
        await harness.fences.put_up(LEFT)
        assert await _is_refused(harness.events.append([fresh_append()]))
        assert await _is_refused(harness.key_claims.put_claims([fresh_claim()]))
        assert len(await harness.events.read([(append.stream, 0)])) == 1

    async def test_a_fence_for_jobs_or_one_that_is_down_stops_no_events(
        self, harness: Harness
    ) -> None:
        await harness.fences.put_up(LEFT)
        await harness.fences.take_down(LEFT)
        await harness.fences.put_up(FILLING)
        assert not await _is_refused(harness.events.append([fresh_append(claim=fresh_claim())]))

    async def test_no_event_of_a_call_is_appended_if_one_tenant_has_left(
        self, harness: Harness
    ) -> None:
        gone, stays = fresh_name("tenant"), fresh_name("tenant")
        await harness.fences.put_up(replace(LEFT, tenant=gone))
        other = _of(stays)
        assert await _is_refused(harness.events.append([other, _of(gone)]))
        assert await harness.events.read([(other.stream, 0)]) == []
        assert not await _is_refused(harness.events.append([other]))


class QueueFencesAfterRestartContract(FencedContract):
    needs = frozenset({"queue", "fences", "durable"})

    async def test_a_fence_of_a_queue_is_kept_over_a_restart(self, harness: Harness) -> None:
        await harness.fences.put_up(LEFT)
        await reopen(harness)
        assert await harness.fences.standing() == [LEFT]
        assert await _is_refused(harness.queue.put([fresh_job(fresh_name())]))


async def _is_refused(write: Coroutine[Any, Any, object]) -> bool:
    try:
        await write
    except Fenced:
        return True
    return False


def _of(tenant: str) -> Append:
    append = fresh_append()
    return replace(
        append,
        events=tuple(
            replace(event, meta=b'{"tenant":"%s"}' % tenant.encode()) for event in append.events
        ),
    )
