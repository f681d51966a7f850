"""A caller's own id may be the id of another caller's request, which it must not touch; through a
whole engine on memory stores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gesta import Conflict, Done, Engine, Flow, Options, Payload, Personal, Retry
from gesta.admin.doctor.checks import suspicious_fields
from gesta.admin.doctor.collect import examine_request
from gesta.admin.representations import event_representation
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.commands import Rules
from gesta.domain.retry_policy import RetryPolicy
from gesta.intake.submit import Accepted
from gesta.ports.read_model import Key, View
from gesta.projector.batch_fold import Folding
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.worker.external import RecordSent
from tests.worker.external import leased
from tests.worker.external.leased import LEASE_SECONDS, pick_flow, take_one
from tests.world import URL, Provider, all_events, let_run, pass_time

FLOW = "test.letter"
BUSY = Retry("busy", after_seconds=300)
OWN = "4be0643f-1d98-4b5c-9a2e-7d3e0b1f2a11"


class Letter(Payload, frozen=True):
    text: str
    own: str | None = None


class Secret(Payload, frozen=True):
    text: Personal[str]
    own: str | None = None


class Errand(Payload, frozen=True):
    text: str = ""
    own: str | None = None


def letters(provider: Provider, payload: type[Payload] = Letter) -> Engine:
    rules = Rules(RetryPolicy(), "manual")
    return Engine(
        URL,
        flows=[Flow(FLOW, payload, provider.execute, rules, request_id=lambda letter: letter.own)],
    )


async def standing(engine: Engine) -> list[tuple[str, str]]:
    """The jobs as (tenant, id)."""
    return [
        (one.job.tenant, one.job.id)
        for one in await engine.pipeline.environment.stores.job_inspection.jobs("", 100)
    ]


async def of_two_tenants(engine: Engine) -> tuple[Any, Any]:
    """A request with an id of ours, and one of another tenant who brings that very id."""
    ours = await engine.submit(Letter("ours"), tenant="acme")
    own = await engine.submit(Letter("own", ours.id), tenant="globex")
    assert (own.id, own.verdict) == (ours.id, "created")
    return ours, own


async def test_a_cancel_under_an_id_that_another_tenant_uses_leaves_its_job_alone(gesta):
    provider = Provider(BUSY, BUSY)
    async with letters(provider) as engine:
        ours, own = await of_two_tenants(engine)
        await pass_time(gesta, 2)
        (job,) = [name for tenant, name in await standing(engine) if tenant == "acme"]
        assert await own.cancel() == "cancelled"
        assert await standing(engine) == [("acme", job)]
        await pass_time(gesta, 300)
        assert (await ours.status(), await own.status()) == ("completed", "cancelled")


async def test_neither_job_keeps_the_other_from_being_put_and_each_sends_its_own(gesta):
    provider = Provider()
    async with letters(provider) as engine:
        ours, own = await of_two_tenants(engine)
        await pass_time(gesta, 2)
        assert sorted(
            (attempt.tenant, letter.text)
            for attempt, letter in zip(provider.calls, provider.payloads, strict=True)
        ) == [
            ("acme", "ours"),
            ("globex", "own"),
        ]
        assert (await ours.status(), await own.status()) == ("completed", "completed")


async def test_a_request_with_an_id_of_ours_has_the_job_id_it_always_had(gesta):
    async with letters(Provider(BUSY)) as engine:
        request = await engine.submit(Letter("ours"))
        await pass_time(gesta, 1)
        assert await standing(engine) == [("default", f"{request.id}-1")]
        assert "own" not in msgspec.json.decode((await all_events(engine))[0].data)


async def test_a_waiter_does_not_get_the_outcome_of_another_tenants_request_with_that_id(gesta):
    async with letters(Provider(BUSY, Done("own"), Done("ours"))) as engine:
        ours = await engine.submit(Letter("ours"), tenant="acme")
        await pass_time(gesta, 1)
        waiting = engine.pipeline.waiters.wait((FLOW, "acme", ours.id))
        own = await engine.submit(Letter("own", ours.id), tenant="globex")
        await pass_time(gesta, 1)
        assert (await own.status(), waiting.done()) == ("completed", False)
        await pass_time(gesta, 300)
        assert waiting.result().provider_id == "ours"


async def test_views_built_anew_from_events_that_lie_together_are_the_same(gesta):
    async with letters(Provider(BUSY, BUSY)) as engine:
        ours, own = await of_two_tenants(engine)
        await pass_time(gesta, 2)
        before = [await ours.view(), await own.view()]
        assert [view.payload for view in before] == [
            msgspec.json.encode(Letter("ours")),
            msgspec.json.encode(Letter("own", ours.id)),
        ]
        await engine.admin.rebuild()
        assert [await ours.view(), await own.view()] == before
        keys = [(FLOW, tenant, ours.id) for tenant in ("acme", "globex")]
        assert await engine.pipeline.environment.stores.read_model.get(keys) == dict(
            zip(keys, before, strict=True)
        )


async def test_events_of_both_in_one_batch_are_folded_onto_their_own_views(gesta):
    """The second event of one, read behind the first of the other, must not find that one's
    payload.
    """
    async with letters(Provider(BUSY, BUSY)) as engine:
        ours, own = await of_two_tenants(engine)
        await pass_time(gesta, 2)
        batch = sorted(await all_events(engine), key=lambda one: (one.version, one.position))
        folding = Folding(
            engine.pipeline.environment.stores.events, nothing_known, engine.pipeline.process
        )
        views, jobs, quarantined, _ = await folding.fold(batch, quiet_until=0)
        assert views == [await ours.view(), await own.view()]
        assert (sorted(job.tenant for job in jobs), quarantined) == (["acme", "globex"], [])


async def nothing_known(_: object) -> dict[Key, View]:
    return {}


async def test_jobs_that_were_lost_are_restored_for_both(gesta):
    async with letters(Provider(BUSY, BUSY)) as engine:
        await of_two_tenants(engine)
        await pass_time(gesta, 2)
        before, queue = await standing(engine), engine.pipeline.environment.stores.queue
        assert len(before) == 2
        assert isinstance(queue, MemoryJobQueue)
        queue._rows.clear()
        await pass_time(gesta, 430)
        assert {tenant for tenant, _ in before} == {"acme", "globex"}
        assert (await engine.admin.counts())[FLOW, "unknown"] == 2, (
            "each was restored, and may have been leased"
        )


async def test_one_id_twice_in_a_batch_is_encrypted_with_its_own_content(gesta):
    provider = Provider()
    async with letters(provider, Secret) as engine:
        first, second = (
            (Secret("first", OWN), Options(tenant="acme")),
            (Secret("second", OWN), Options(tenant="globex")),
        )
        accepted, conflict = await engine.pipeline.intake.submit_many([first, second])
        assert isinstance(conflict, Conflict)
        assert accepted == Accepted(FLOW, "acme", OWN, "created")
        await pass_time(gesta, 1)
        assert [letter.text for letter in provider.payloads] == ["first"]


async def test_a_test_request_under_a_callers_id_gets_an_id_made_by_gesta(gesta):
    provider = Provider(BUSY)
    rules = Rules(RetryPolicy(), "manual")
    flow = Flow(
        FLOW,
        Letter,
        provider.execute,
        rules,
        request_id=lambda letter: letter.own,
        effects="attempt",
    )
    async with Engine(URL, flows=[flow]) as engine:
        request = await engine.submit(Letter("try", OWN), test=True)
        await pass_time(gesta, 1)
        assert request.id != OWN
        assert await standing(engine) == [("default", f"{request.id}-1")]


async def test_the_doctor_finds_the_job_and_nothing_suspicious_in_it(gesta):
    async with letters(Provider(BUSY)) as engine:
        request = await engine.submit(Letter("own", OWN))
        await pass_time(gesta, 1)
        facts = await examine_request(engine.pipeline, await request.view())
        assert facts.job is not None
        assert facts.job.job.request_id == OWN
        assert suspicious_fields(facts.job) == []
        foreign = msgspec.structs.replace(facts.job.job, tenant="globex")
        assert suspicious_fields(msgspec.structs.replace(facts.job, job=foreign)) == ["id"]


async def test_no_caller_learns_which_tenant_has_an_id(gesta):
    async with letters(Provider()) as engine:
        await engine.submit(Letter("own", OWN))
        (first, *_) = await all_events(engine)
        assert msgspec.json.decode(first.data)["own"] is True
        shown = event_representation(
            (first.type, event_types(FLOW).decode(first.type, first.data), decode_meta(first.meta)),
            1,
        )
        assert "own" not in shown.data


async def test_work_under_the_callers_id_is_leased_released_extended_and_reported(gesta):
    flow = replace(pick_flow(payload=Errand), request_id=lambda errand: errand.own)
    async with Engine(leased.URL, flows=[flow]) as engine:
        ours = await engine.submit(Errand("ours"), tenant="acme")
        own = await engine.submit(Errand("own", ours.id), tenant="globex")
        item = await take_one(engine, gesta, tenant="globex")
        await engine.external.give_back([item], tenant="globex")
        item = await take_one(engine, gesta, tenant="globex")
        assert (item.id, item.attempt) == (own.id, 1)
        lease = await engine.external.extend(
            flow.name, item.id, item.token, LEASE_SECONDS * 2, tenant="globex"
        )
        assert lease.lease_until > item.lease_until
        again = await engine.external.fetch(flow.name, item.id, item.token, tenant="globex")
        assert msgspec.json.decode(again.payload)["text"] == "own"
        await engine.external.report(
            flow.name, item.id, item.token, RecordSent(attempts=1), tenant="globex"
        )
        await let_run(gesta)
        assert (await own.status(), await ours.status()) == ("completed", "queued")
        assert (await take_one(engine, gesta, tenant="acme")).id == ours.id


@pytest.mark.parametrize("tenant", ["acme", "globex"])
async def test_each_is_looked_up_by_its_own_tenant(gesta, tenant):
    async with letters(Provider(BUSY, BUSY)) as engine:
        ours, _ = await of_two_tenants(engine)
        await pass_time(gesta, 1)
        view = await engine.admin.look_up(ours.id, tenant)
        assert view.state.tenant == tenant
