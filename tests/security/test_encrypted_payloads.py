"""People in payloads: encrypted under their own key on the way in, opened for the attempt, shown
nowhere.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gesta import (
    Actor,
    Conflict,
    Done,
    Engine,
    Erased,
    InvalidRequest,
    Options,
    Payload,
    Personal,
    Request,
    Retry,
)
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import GestaError, StoreError, UnknownFlow
from gesta.ports.vault import Encrypted
from gesta.security.field_encryption import MARK
from tests.security.people import ANA, URL, Bill, Letter, engine_of, flow_of, stored, vaults
from tests.world import Note, Provider, all_events, die, let_run, note_flow, pass_time


async def test_the_store_holds_nothing_of_a_person_and_the_executor_sees_all(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        request = await engine.submit(ANA, key="k")
        assert isinstance(await request.outcome(), Done)
        kept = await stored(engine)
        view = await engine.get(request.id)
        assert await request.payload() == ANA
    assert provider.payloads == [ANA]
    for text in (b"ana@x", b"Ana Lima", b"Bo"):
        assert text not in kept  # R1-43
    shown = msgspec.json.decode(view.payload)
    assert (shown["order"], shown["readers"][0]["role"]) == ("A-7", "reader")
    assert [set(shown["to"]), set(shown["readers"][1]["name"])] == [{"$encrypted"}, {"$encrypted"}]


async def test_personal_data_in_an_outcome_is_hidden_also_in_its_target(gesta):
    provider = Provider(Done("m-1", target="inbox of Ana Lima", detail="for Ana Lima"))
    async with engine_of(provider) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        assert (await request.view()).state.detail == "for [hidden]"
        assert b"Ana Lima" not in await stored(engine)


async def test_the_subject_that_a_payload_names_is_the_subject_of_all_its_fields(gesta):
    async with engine_of(Provider(), flow_of(Provider(), Bill, "test.bill")) as engine:
        first = await engine.submit(Bill("customer-42", "ana@x.example"))
        other = await engine.submit(Bill("customer-43", "ana@x.example"))
        assert await engine.erase("ana@x.example") == 0
        assert await engine.erase("customer-42") == 1
        assert await other.payload() == Bill("customer-43", "ana@x.example")
        with pytest.raises(Erased):
            await first.payload()


@pytest.mark.parametrize("about", [7, "x" * 600, "\ud800"])
async def test_the_subject_of_a_payload_has_to_be_a_text(gesta, about):
    class Odd(Payload, frozen=True):
        email: Personal[str] = "ana@x.example"

        @property
        def subject(self) -> Any:
            return about

    class Broken(Odd, frozen=True):
        @property
        def subject(self) -> Any:
            raise KeyError("nobody")

    odd, broken = flow_of(Provider(), Odd, "test.odd"), flow_of(Provider(), Broken, "test.broken")
    async with Engine(URL, flows=[odd, broken]) as engine:
        for payload, error in (
            (Odd(), "a string of at most"),
            (Broken(), "the property raised KeyError"),
        ):
            with pytest.raises(InvalidRequest) as refusal:
                await engine.submit(payload)
            assert error in refusal.value.fields["subject"]
        assert await all_events(engine) == []


async def test_a_payload_that_imitates_an_encrypted_field_is_refused(gesta):
    class Free(Payload, frozen=True):
        data: dict[str, Any]
        email: Personal[dict[str, str] | None] = None

    async with Engine(URL, flows=[flow_of(Provider(), Free, "test.free")]) as engine:
        for payload in (Free({"a": {"$encrypted": "x"}}), Free({}, {"$encrypted": "x"})):
            with pytest.raises(InvalidRequest, match=r"\$encrypted"):
                await engine.submit(payload)
        assert isinstance(await (await engine.submit(Free({"a": "$encrypted"}))).outcome(), Done)


async def test_a_batch_is_encrypted_with_two_vault_calls_and_decrypted_with_one(gesta, ports):
    provider = Provider()
    plain = note_flow(Provider())
    async with engine_of(provider, plain) as engine:
        await engine.submit(Letter("first@x.example"))
        await gesta.settle()
        ports.vault.calls.clear()
        letters: list[Payload] = [Letter(f"{n}@x.example") for n in range(10)]
        sent = await engine.submit_many(
            [*letters, Note("plain"), (Letter("0@x.example"), Options(key="k"))]
        )
        assert (
            ports.vault.calls["newest"],
            ports.vault.calls["put"],
            ports.vault.calls["get"],
        ) == (1, 1, 0)
        await gesta.settle()
        assert ports.vault.calls["get"] == 1
        ports.vault.calls.clear()
        await asyncio.gather(*(engine.submit(letter) for letter in letters))
        assert (ports.vault.calls["newest"], ports.vault.calls["put"]) == (1, 0)
        await gesta.settle()
        ports.vault.calls.clear()
        await engine.submit(Note("plain"))
        await gesta.settle()
        assert not ports.vault.calls
        assert [isinstance(one, Request) and await one.status() for one in sent] == [
            "completed"
        ] * 12
    assert len(provider.payloads) == 22


async def test_two_processes_that_encrypt_for_one_person_use_one_key(gesta, ports):
    async with engine_of(Provider()) as first:
        pipeline, vault = first.pipeline, ports.vault
        async with engine_of(Provider()) as second:
            raced = False

            async def lose(original: Any, encrypted: list[Encrypted]) -> Any:
                nonlocal raced
                if not raced:
                    raced = True
                    await second.submit(Letter("ana@x.example"))
                return await original(encrypted)

            vault.replace("put", lose)
            request = await first.submit(Letter("ana@x.example"))
            assert raced
            assert await request.payload() == Letter("ana@x.example")
            assert await first.erase("ana@x.example") == 1
            [digest] = {
                name for tenant, name, _ in vaults(gesta)[0]._boxes if name.startswith("subject/")
            }
            assert (await pipeline.environment.stores.vault.newest([("default", digest)]))[
                "default", digest
            ].version == 1


async def test_a_vault_outage_fails_no_request_and_delays_no_other_flow(gesta, ports):
    provider, plain = Provider(), Provider()
    retry = RetryPolicy(attempts=1)
    async with engine_of(provider, note_flow(plain), retry=retry) as engine:
        ports.vault.fail("get", times=500)
        request = await engine.submit(ANA)
        note = await engine.submit(Note())
        await pass_time(gesta, 60)
        assert (await request.status(), (await request.view()).state.attempts) == ("queued", 0)
        assert (await note.status(), provider.calls) == ("completed", [])
        ports.vault.heal()
        assert isinstance(await request.outcome(), Done)
        assert (await request.view()).state.attempts == 1


async def test_a_key_that_the_vault_has_lost_is_no_erasure(gesta):
    provider = Provider(Retry("busy", after_seconds=60))
    async with engine_of(provider, retry=RetryPolicy(attempts=3)) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        vault = vaults(gesta)[0]
        lost = {ref: box for ref, box in vault._boxes.items() if ref[1].startswith("subject/")}
        versions = dict(vault._versions)
        for ref in lost:
            del vault._boxes[ref], vault._versions[ref[:2]]
        await pass_time(gesta, 61)
        state = (await request.view()).state
        assert (state.status, state.reason) == ("queued", "key_missing")
        with pytest.raises(StoreError, match="the vault does not have the key"):
            await request.payload()
        # The right copy is put back.
        vault._boxes |= lost
        vault._versions |= versions
        assert isinstance(await request.outcome(600), Done)


async def test_a_key_that_was_changed_in_the_vault_is_replaced_for_new_requests_and_both_are_erased(
    gesta,
):
    async with engine_of(Provider()) as engine:
        first = await engine.submit(Letter("ana@x.example"))
        await gesta.settle()
        vault = vaults(gesta)[0]
        [ref] = [ref for ref in vault._boxes if ref[1].startswith("subject/")]
        whole = vault._boxes[ref]
        vault._boxes[ref] = Encrypted(*ref, whole.box[:-1] + b"?")
        with pytest.raises(StoreError, match="the vault does not have the key"):
            await first.payload()
        second = await engine.submit(Letter("ana@x.example"))
        assert await second.payload() == Letter("ana@x.example")
        assert await engine.erase("ana@x.example") == 2
        assert not any(
            box.box for ref, box in vault._boxes.items() if ref[1].startswith("subject/")
        )


async def test_a_field_moved_from_another_request_is_refused_and_the_others_continue(gesta, ports):
    provider = Provider(*[Retry("busy", after_seconds=60)] * 2)
    async with engine_of(provider) as engine:
        first, second = (
            await engine.submit(Letter("ana@x.example")),
            await engine.submit(Letter("bo@x.example")),
        )
        await let_run(gesta)
        stolen = (await second.view()).payload

        async def exchange(original: Any, keys: Any) -> Any:
            found = await original(keys)
            return {
                key: structs.replace(view, payload=stolen) if key[2] == first.id else view
                for key, view in found.items()
            }

        ports.read_model.replace("get", exchange)
        await pass_time(gesta, 61)
        state = (await first.view()).state
        assert (state.status, state.reason) == ("failed", "bad_payload")
        assert await second.status() == "completed"
    assert [letter.to for letter in provider.payloads[2:]] == ["bo@x.example"]


async def test_a_field_that_gained_or_lost_its_mark_between_two_deployments_is_read_all_the_same(
    gesta,
):
    class Before(Payload, frozen=True):
        to: Personal[str]
        cc: str

    class After(Payload, frozen=True):
        to: str
        cc: Personal[str]

    provider = Provider(Retry("busy", after_seconds=60))
    async with Engine(URL, flows=[flow_of(provider, Before)]) as engine:
        request = await engine.submit(Before("ana@x.example", "bo@x.example"), key="k")
        await let_run(gesta)
    async with Engine(URL, flows=[flow_of(provider, After)]) as engine:
        assert (
            await engine.submit(After("ana@x.example", "bo@x.example"), key="k")
        ).verdict == "duplicate"
        again = await engine.request(request.id)
        assert isinstance(await again.outcome(600), Done)
    assert provider.payloads[1:] == [After("ana@x.example", "bo@x.example")]


async def test_a_crash_between_key_and_event_leaves_an_unused_key(gesta, ports):
    async with engine_of(Provider()) as engine:
        before = len(await all_events(engine))

        async def die_before(original: Any, appends: Any) -> Any:
            await die(engine, {asyncio.current_task()})  # type: ignore[arg-type]
            raise asyncio.CancelledError

        ports.events.replace("append", die_before)
        with pytest.raises(asyncio.CancelledError):
            await engine.submit_many([(ANA, Options(key="k"))])
    ports.events.heal()
    async with engine_of(Provider()) as engine:
        assert len(await all_events(engine)) == before
        request = await engine.submit(ANA, key="k")
        assert request.verdict == "created"
        # The dead one's lease on the projector's role ends first.
        await pass_time(gesta, 5)
        assert isinstance(await request.outcome(), Done)
        assert await engine.erase("ana@x.example") == 1


@pytest.mark.parametrize(
    ("port", "verb"), [("vault", "newest"), ("vault", "put"), ("events", "append")]
)
@pytest.mark.parametrize("answer_lost", [False, True])
async def test_a_submit_whose_store_failed_can_be_repeated_under_its_key(
    gesta, ports, port, verb, answer_lost
):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.submit(Letter("first@x.example"))
        getattr(ports, port).fail(verb, answer_lost=answer_lost)
        with pytest.raises(StoreError):
            await engine.submit(ANA, key="k")
        request = await engine.submit(ANA, key="k")
        assert request.verdict == ("duplicate" if answer_lost and verb == "append" else "created")
        assert isinstance(await request.outcome(), Done)
        assert await request.payload() == ANA


async def test_a_rebuild_keeps_encrypted_fields_encrypted(gesta):
    async with engine_of(Provider()) as engine:
        request = await engine.submit(ANA)
        await request.outcome()
        before = (await engine.get(request.id)).payload
    async with Engine(URL, flows=[flow_of(Provider())], work=False) as engine:
        await pass_time(gesta, 6)
        await engine.admin.rebuild()
        [view] = await engine.find()
    assert view.payload == before
    assert MARK in before


async def test_a_callers_names_are_stored_without_addresses_and_numbers(gesta):
    async with engine_of(Provider()) as engine:
        key = "welcome ana@x.example +49 30 901820"
        first = await engine.submit(
            ANA, key=key, correlation_id="mail to ana@x.example", actor=Actor("ops@x.example")
        )
        assert (await engine.submit(ANA, key=key)).verdict == "duplicate"
        with pytest.raises(
            Conflict, match=r"key 'welcome \[email\] \[phone\]' was used before"
        ) as conflict:
            await engine.submit(Letter("bo@x.example"), key=key)
        assert conflict.value.key == key
        state = (await first.view()).state
        assert (state.key, state.correlation_id) == ("welcome [email] [phone]", "mail to [email]")
        kept = await stored(engine)
        # Who decided stays: that is what the record is for.
        assert b"ana@x" not in kept
        assert b"ops@x.example" in kept


async def test_a_payload_that_no_longer_fits_its_type_is_reported(gesta):
    class Longer(Payload, frozen=True):
        to: Personal[str]
        street: str

    async with engine_of(Provider()) as engine:
        request = await engine.submit(ANA)
        await request.outcome()
    async with Engine(URL, flows=[flow_of(Provider(), Longer)]) as engine:
        with pytest.raises(GestaError, match="no longer fits the type of flow"):
            await (await engine.request(request.id)).payload()
    async with Engine(URL, flows=[flow_of(Provider(), Longer, "test.other")]) as engine:
        with pytest.raises(UnknownFlow):
            await (await engine.request(request.id, flow="test.letter")).payload()


async def test_a_key_newer_than_the_restored_copy_of_the_vault_is_missing_and_not_erased(gesta):
    provider = Provider(Done(), Retry("busy", after_seconds=60))
    async with engine_of(provider, retry=RetryPolicy(base_seconds=10)) as engine:
        await engine.submit(Letter("Ana"))
        await let_run(gesta)
        await engine.erase("Ana")
        vault = vaults(gesta)[0]
        copy = dict(vault._boxes), dict(vault._versions)
        request = await engine.submit(Letter("Ana"))
        await let_run(gesta)
        vault._boxes, vault._versions = copy
        await pass_time(gesta, 61)
        state = (await request.view()).state
        assert (state.status, state.reason) == ("queued", "key_missing")
        with pytest.raises(StoreError, match="the vault does not have the key"):
            await request.payload()
