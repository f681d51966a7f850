"""A person is erased: what was encrypted for them is gone for good, in every process,
whatever fails on the way.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from gesta import (
    Actor,
    Conflict,
    Done,
    Engine,
    Erased,
    Rejected,
    Retry,
    Unknown,
)
from gesta.domain.codec import decode_meta
from gesta.errors import BadInput, Refused, StoreError
from gesta.tenants.config import ERASED
from tests.security.people import ANA, URL, Letter, engine_of, flow_of, stored, vaults
from tests.world import Gate, Note, Provider, all_events, die, let_run, note_flow, pass_time, result


async def test_same_content_is_a_duplicate_and_other_content_a_conflict_before_and_after_an_erasure(
    gesta,
):
    async with engine_of(Provider()) as engine:
        first = await engine.submit(ANA, key="k")
        for _ in range(2):
            again = await engine.submit(ANA, key="k")
            assert (again.verdict, again.id) == ("duplicate", first.id)
            with pytest.raises(Conflict):
                await engine.submit(Letter("bo@x.example"), key="k")
            await engine.erase("ana@x.example")


async def test_a_waiting_request_of_an_erased_person_ends_without_a_call(gesta):
    provider = Provider(Retry("busy", after_seconds=60))
    async with engine_of(provider) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        assert await engine.erase("Ana Lima", actor=Actor("dpo")) == 1
        with pytest.raises(
            Erased, match=f"request {request.id}: a person its payload is about was erased"
        ):
            await request.payload()
        outcome = await request.outcome(timeout=600)
        assert (await request.status(), len(provider.calls)) == ("failed", 1)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "subject_erased"


async def test_a_dead_letter_about_an_erased_person_is_not_redriven(gesta, ports):
    provider, plain = Provider(Rejected("no"), Rejected("no")), Provider(Rejected("no"))
    async with engine_of(provider, note_flow(plain)) as engine:
        about_ana, about_bo = await engine.submit(ANA), await engine.submit(Letter("bo@x.example"))
        without_a_person = await engine.submit(Note())
        await let_run(gesta)
        await engine.erase("ana@x.example")
        before = len(await all_events(engine))
        for again in (False, True):
            with pytest.raises(Refused, match="was erased") as refused:
                await about_ana.redrive(again=again)
            assert refused.value.code == "subject_erased"
        assert len(await all_events(engine)) == before
        ports.vault.calls.clear()
        assert await without_a_person.redrive() == "queued"
        assert not ports.vault.calls["get"], (
            "what holds nothing personal needs no question to the vault"
        )
        assert await about_bo.redrive() == "queued"
        await let_run(gesta)
        assert (len(provider.calls), len(plain.calls)) == (3, 2)


async def test_a_vault_outage_does_not_prevent_a_redrive(gesta, ports):
    async with engine_of(Provider(Rejected("no"))) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        ports.vault.fail("get")
        assert await request.redrive() == "queued"
        await let_run(gesta)
        assert await request.status() == "completed"


async def test_an_erasure_records_the_actor_and_not_the_person(gesta):
    async with engine_of(Provider()) as engine:
        await engine.submit(ANA)
        await engine.erase("ana@x.example", actor=Actor("dpo"))
        [event] = [event for event in await all_events(engine) if event.type == ERASED]
    assert decode_meta(event.meta).actor == Actor("dpo")
    assert set(msgspec.json.decode(event.data)) == {"subject"}
    assert b"ana@" not in event.data + event.meta


async def test_others_stay_readable_and_a_new_request_about_the_same_person_gets_a_new_key(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.submit(Letter("ana@x.example"))
        other = await engine.submit(Letter("bo@x.example"))
        await gesta.settle()
        assert await engine.erase("ana@x.example") == 1
        new = await engine.submit(Letter("ana@x.example"))
        assert isinstance(await new.outcome(), Done)
        assert await other.payload() == Letter("bo@x.example")
        assert await new.payload() == Letter("ana@x.example")
        assert await engine.erase("ana@x.example") == 1
        with pytest.raises(Erased):
            await new.payload()


async def test_an_erasure_counts_for_one_tenant(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(ANA, tenant="acme")
        assert await engine.erase("ana@x.example") == 0
        assert await request.payload() == ANA
        assert await engine.erase("ana@x.example", tenant="acme") == 1


@pytest.mark.parametrize("subject", ["", 7, None, "\ud800"])
async def test_an_empty_name_erases_no_person(gesta, subject):
    async with engine_of(Provider()) as engine:
        with pytest.raises(BadInput, match="subject: "):
            await engine.erase(subject)
        with pytest.raises(BadInput, match=r"tenant: .*; actor: "):
            await engine.erase("ana", tenant="_", actor=3)  # type: ignore[arg-type]
        assert await all_events(engine) == []


async def test_an_engine_can_stop_while_the_vault_is_out_of_reach_and_the_next_one_goes_on(
    gesta, ports
):
    provider = Provider()
    async with engine_of(provider) as engine:
        request = await engine.submit(ANA)
        ports.vault.fail("get", times=10_000)
        await pass_time(gesta, 3)
        stopping = asyncio.ensure_future(engine.stop())
        await pass_time(gesta, 12)
        await stopping
    async with engine_of(provider) as engine:
        await pass_time(gesta, 6)
        again = await engine.request(request.id)
        assert isinstance(await again.outcome(), Done)
    assert len(provider.calls) == 1


@pytest.mark.parametrize("obstacle", ["erased", "lost"])
async def test_an_unknown_outcome_about_an_erased_person_is_left_to_a_person(gesta, obstacle):
    """Without the payload no provider can be asked; neither `rejected` nor `not executed` would be
    true.
    """
    provider, asked = Provider(Unknown("no_answer")), Provider()
    flow = flow_of(provider, on_unknown="reconcile", reconcile=asked.execute)
    async with Engine(URL, flows=[flow]) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        if obstacle == "erased":
            await engine.erase("ana@x.example")
        else:
            vault = vaults(gesta)[0]
            for ref in [ref for ref in vault._boxes if ref[1].startswith("subject/")]:
                del vault._boxes[ref], vault._versions[ref[:2]]
        await gesta.settle()
        state = (await request.view()).state
    assert (state.status, state.due_at, asked.calls, len(provider.calls)) == (
        "unknown",
        None,
        [],
        1,
    )
    assert state.reason == {"erased": "subject_erased", "lost": "key_missing"}[obstacle]


async def test_an_erasure_does_not_resolve_an_outcome_that_would_be_resent(gesta):
    """It was recorded as a refusal, although the first call may have had its effect."""
    provider = Provider(Unknown("no_answer"))
    async with Engine(URL, flows=[flow_of(provider, on_unknown="resend")]) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        await engine.erase("ana@x.example")
        await gesta.settle()
        state = (await request.view()).state
        assert (state.status, state.reason, state.due_at, state.in_doubt) == (
            "unknown",
            "subject_erased",
            None,
            True,
        )
    assert len(provider.calls) == 1


async def test_an_attempt_that_runs_keeps_what_it_has_and_the_next_one_has_nothing(gesta):
    gate = Gate(Retry("busy"))
    provider = Provider(gate)
    async with engine_of(provider) as engine:
        request = await engine.submit(ANA)
        await gate.reached.wait()
        await engine.erase("ana@x.example")
        gate.opened.set()
        await gesta.settle()
        assert (await request.view()).state.reason == "subject_erased"
    assert len(provider.calls) == 1


async def test_no_key_outlives_its_batch_in_any_process(gesta):
    """Erased by one engine, the other must not open the next batch with a key it has seen
    before.
    """
    provider = Provider(Retry("busy", after_seconds=60))
    async with engine_of(provider) as worker:
        request = await worker.submit(ANA)
        await let_run(gesta)
        assert len(provider.calls) == 1
        async with Engine(URL, flows=[flow_of(Provider())], work=False) as office:
            assert await office.erase("ana@x.example") == 1
        await gesta.settle()
        assert (await request.view()).state.reason == "subject_erased"
    assert len(provider.calls) == 1


@pytest.mark.parametrize(
    ("port", "verb"),
    [
        ("vault", "newest"),
        ("vault", "get"),
        ("vault", "delete"),
        ("events", "read"),
        ("events", "append"),
    ],
)
@pytest.mark.parametrize("answer_lost", [False, True])
async def test_an_erasure_that_failed_anywhere_is_whole_after_it_was_repeated(
    gesta, ports, port, verb, answer_lost
):
    async with engine_of(Provider(Retry("busy", after_seconds=60))) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        getattr(ports, port).fail(verb, answer_lost=answer_lost)
        with pytest.raises(StoreError):
            await engine.erase("ana@x.example")
        await engine.erase("ana@x.example")
        assert [event.type for event in await all_events(engine)].count(ERASED) >= 1
        await gesta.settle()
        assert (await request.view()).state.reason == "subject_erased"


async def test_an_erasure_is_recorded_after_the_key_was_destroyed(gesta, ports):
    """The key goes first.

    The other way round a worker could read the record, and fetch the key once more before it goes.
    """
    order: list[str] = []

    async def note(name: str, original: Any, *given: Any) -> Any:
        order.append(name)
        return await original(*given)

    async with engine_of(Provider()) as engine:
        await engine.submit(ANA)
        await gesta.settle()
        ports.vault.replace("delete", lambda original, *given: note("key", original, *given))
        ports.events.replace("append", lambda original, *given: note("record", original, *given))
        await engine.erase("ana@x.example")
    assert order == ["key", "record"]


async def test_an_erasure_does_not_block_config(gesta):
    from gesta.flows import webhook

    async with engine_of(Provider(), webhook.flow()) as engine:
        fields = {
            "url": "https://example.com/hooks",
            "secret": "whsec_" + base64.b64encode(bytes(24)).decode(),
        }
        await engine.admin.put_config("webhook.endpoint", "main", fields)
        entity = await engine.admin.get_config("webhook.endpoint", "main")
        await engine.submit(ANA)
        await engine.erase("ana@x.example")
        # An attempt that began before the erasure switches its endpoint off.
        await engine.pipeline.config.of("default").disable("webhook.endpoint", "main", "gone")
        assert entity.body.disabled is False  # type: ignore[attr-defined]
        endpoint: Any = (await engine.admin.get_config("webhook.endpoint", "main")).body
        assert endpoint.disabled is True


async def test_a_success_is_a_success_whatever_is_erased_afterwards(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(ANA)
        assert isinstance(await request.outcome(), Done)
        await engine.erase("ana@x.example")
        await gesta.settle()
        assert isinstance(await result(request), Done)


async def submit_and_erase(engine: Engine) -> None:
    await engine.submit(ANA, key="k")
    await engine.erase("ana@x.example")


@pytest.mark.slow
async def test_a_process_may_die_at_any_moment_of_a_submit_and_an_erasure(gesta, calls):
    is_over, turns = False, 0
    while not is_over:
        assert turns < 300
        flow, url = flow_of(Provider()), f"memory:{turns}"
        dying = Engine(url, flows=[flow])
        await dying.start()
        working = asyncio.ensure_future(submit_and_erase(dying))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = working.done()
        working.cancel()
        await die(dying)
        async with Engine(url, flows=[flow]) as engine:
            request = await engine.submit(ANA, key="k")
            await engine.erase("ana@x.example")
            await pass_time(gesta, 6)
            await gesta.settle()
            state = (await request.view()).state
            # Taken and lost it may have been sent: then it is for a person, and no refusal.
            assert state.status in ("completed", "failed") or (
                state.waits_for_a_person and state.reason == "subject_erased"
            ), turns
            assert len(await engine.find()) == 1
            assert await engine.admin.quarantined() == []
            assert ERASED in [event.type for event in await all_events(engine)]
            assert b"ana@x" not in await stored(engine)
            with pytest.raises(Erased):
                await request.payload()
        turns += 1
    assert turns > 20
