"""Recipients and the suppression list: identification, concurrent writes, erasure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gesta import Done, Engine, Rejected
from gesta.errors import BadInput
from gesta.flows import email
from gesta.flows.email import keeping
from gesta.flows.email.message import ADDRESSES, Message, Recipient
from gesta.tenants.flow_records import FlowRecord, TenantRecords
from gesta.tenants.suppression import suppress
from gesta.testing.plugin import Harness
from tests.flows.email.jobs import HASH, OUTBOX


@pytest.fixture
async def engine(gesta: Harness) -> AsyncIterator[Engine]:
    async with Engine("memory://people", flows=[email.flow()]) as engine:
        yield engine


@pytest.fixture
def records(engine: Engine) -> TenantRecords:
    return engine.pipeline.records.of("default")


async def upsert(records: TenantRecords, address: str = "ana@example.com", **fields: str) -> str:
    return await keeping.upsert(
        records, Message(address, "x", OUTBOX, recipient=Recipient(address, **fields))
    )


async def test_a_recipient_is_made_once_and_brought_up_to_date(records):
    first = await upsert(records, external_id="7", nome="Ana")
    assert await upsert(records, external_id="7", razao_social="Lima SA") == first  # R2-32
    known = await keeping.person(records, first)
    assert known == keeping.Person(
        first, "ana@example.com", external_id="7", nome="Ana", razao_social="Lima SA"
    )  # S2-28: what is not given stays
    assert await upsert(records, "ana@example.org", external_id="7", nome="Ana Lima") == first
    known = await keeping.person(records, first)
    assert known is not None
    assert (known.email, known.nome) == ("ana@example.org", "Ana Lima")


async def test_an_email_without_recipient_is_for_its_address(records):
    first = await keeping.upsert(records, Message("ana@example.com", "x", OUTBOX))
    assert await upsert(records, external_id="7") == first
    assert await keeping.upsert(records, Message("Ana@example.com", "x", OUTBOX)) == first


async def test_the_strongest_identifier_decides(records):
    by_id = await upsert(records, "a@example.com", recipient_id=OUTBOX)
    by_external = await upsert(records, "b@example.com", external_id="7")
    by_hash = await upsert(records, "c@example.com", cpf_cnpj_hash=HASH)
    by_email = await upsert(records, "d@example.com")
    assert by_id == OUTBOX
    assert len({by_id, by_external, by_hash, by_email}) == 4
    everything = {"recipient_id": OUTBOX, "external_id": "7", "cpf_cnpj_hash": HASH}
    for name, expected in (
        ("recipient_id", by_id),
        ("external_id", by_external),
        ("cpf_cnpj_hash", by_hash),
    ):
        assert (
            await upsert(records, "d@example.com", **everything) == expected
        )  # S2-28: recipientId > externalId > hash > email
        del everything[name]
    assert await upsert(records, "d@example.com") == by_email  # S2-28


async def test_another_tenants_recipient_is_refused(gesta, engine, records):
    await upsert(records, recipient_id=OUTBOX)
    theirs = engine.pipeline.records.of("other")
    with pytest.raises(keeping.OthersRecipient):
        await upsert(theirs, recipient_id=OUTBOX)  # S2-28
    assert await keeping.person(theirs, OUTBOX) is None
    assert await upsert(theirs, external_id="7") != await upsert(records, external_id="7")
    await engine.admin.put_config(
        "email.sender",
        "default",
        {"kind": "smtp", "host": "x.example", "from_address": "s@example.com"},
        tenant="other",
    )
    ref = await email.store_body(engine, "<p>Hi</p>", tenant="other")
    message = email.Message(
        "ana@example.com",
        "x",
        ref,
        recipient=email.Recipient("ana@example.com", recipient_id=OUTBOX),
    )
    request = await engine.submit(message, tenant="other")
    assert await request.outcome() == Rejected(
        "recipient_not_found", "the tenant has no recipient of this recipientId"
    )
    assert gesta.sandbox.smtp.calls == 0


async def test_two_workers_at_once_make_one_person(records, monkeypatch):
    read = TenantRecords.get_many

    async def slowly(self: TenantRecords, names: list[tuple[str, str]]) -> list[FlowRecord | None]:
        found = await read(self, names)
        # Everybody has read before anybody writes.
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(TenantRecords, "get_many", slowly)
    found = await asyncio.gather(
        *(upsert(records, external_id="7", nome=f"Ana {n}") for n in range(6))
    )
    assert len(set(found)) == 1  # S2-28
    known = await keeping.person(records, found[0])
    assert known is not None
    assert known.external_id == "7"


async def test_a_crash_between_two_steps_is_completed_by_the_next_email(records, monkeypatch):
    put, calls = TenantRecords.put, 0
    for dies_at in range(1, 5):

        async def dying(self: TenantRecords, *given: object, **more: object) -> bool:
            nonlocal calls
            calls += 1
            if calls == dies_at:  # noqa: B023 -- read in the same round
                raise asyncio.CancelledError
            return await put(self, *given, **more)  # type: ignore[arg-type]

        calls, fields = 0, {"external_id": f"x{dies_at}", "cpf_cnpj_hash": f"{dies_at}" * 64}
        monkeypatch.setattr(TenantRecords, "put", dying)
        try:
            await upsert(records, f"p{dies_at}@example.com", **fields)
            died = False
        except asyncio.CancelledError:
            died = True
        monkeypatch.setattr(TenantRecords, "put", put)
        assert died is (dies_at <= 4)
        first = await upsert(records, f"p{dies_at}@example.com", **fields)
        assert await upsert(records, f"p{dies_at}@example.com") == first
        assert await keeping.person(records, first) is not None


async def test_an_erased_person_is_made_anew(engine, records):
    first = await upsert(records, external_id="7", nome="Ana")
    await engine.erase("ana@example.com")
    assert await keeping.person(records, first) is None
    second = await upsert(records, external_id="7")
    assert second != first
    known = await keeping.person(records, second)
    assert known is not None
    assert known.nome is None


async def test_nothing_of_a_recipient_lies_in_the_vault_in_clear(engine, records):
    await upsert(records, external_id="CUST-1", nome="Ana Lima", cpf_cnpj_hash=HASH)
    await suppress(records, ADDRESSES, "ana@example.com", "by hand", 1)
    held = await engine.pipeline.environment.stores.vault.listed(("", "", 0), 1_000)
    stored = b"\n".join(one.name.encode() + one.box for one in held)
    assert [
        word for word in (b"ana@", b"CUST-1", b"Ana Lima", HASH.encode()) if word in stored
    ] == []  # R2-6


async def test_the_list_holds_whatever_the_spelling_and_after_an_erasure(engine, records):
    await email.suppress(engine, "Ana@Example.com", reason="complaint")
    found = await email.suppressed(engine, "ANA@example.com")
    assert found is not None
    assert found.reason == "complaint"
    await engine.erase("ana@example.com")
    await engine.erase("Ana@example.com")
    assert await email.suppressed(engine, "ana@example.com") == found
    assert await email.suppressed(engine, "ana@example.com", tenant="other") is None
    await email.suppress(engine, "ana@example.com", reason="another")
    assert await email.suppressed(engine, "ana@example.com") == found
    assert await email.unsuppress(engine, "ana@example.com")
    assert not await email.unsuppress(engine, "ana@example.com")
    await email.suppress(engine, "ana@example.com", reason="again")
    again = await email.suppressed(engine, "ana@example.com")
    assert again is not None
    assert again.reason == "again"


@pytest.mark.parametrize("bad", ["", "ana", "a@b\nc"])
async def test_an_invalid_address_is_not_suppressed(engine, bad):
    with pytest.raises(BadInput, match="address"):
        await email.suppress(engine, bad)
    with pytest.raises(BadInput, match="tenant"):
        await email.store_body(engine, "x", tenant="no/tenant")


async def test_concurrent_emails_to_one_person_are_all_sent(gesta, engine):
    await engine.admin.put_config(
        "email.sender",
        "default",
        {"kind": "smtp", "host": "x.example", "from_address": "s@example.com"},
    )
    ref = await email.store_body(engine, "<p>Hi</p>")
    person = email.Recipient("ana@example.com", external_id="7")
    requests = [
        await engine.submit(email.Message("ana@example.com", f"{n}", ref, recipient=person))
        for n in range(10)
    ]
    outcomes = [await request.outcome() for request in requests]
    assert len({outcome.target for outcome in outcomes if isinstance(outcome, Done)}) == 1
    assert len(gesta.sandbox.smtp.effects) == 10
