"""The audit trail: who changed what of a tenant, newest first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Actor, Engine
from gesta.domain.codec import encode
from gesta.domain.events import Meta
from gesta.domain.stream_names import checkpoint_of, config_stream
from gesta.errors import BadInput
from gesta.flows import email, sms
from gesta.flows.flow import ConfigBody, Payload, Personal, Secret
from gesta.ports.event_store import Append, NewEvent
from gesta.runtime.settings import Settings
from gesta.tenants.audit_log import WORDS
from tests.world import URL, Provider, note_flow

ADA, BOB = Actor("ada"), Actor("bob")
KIND = "shop.account"


class Account(ConfigBody, frozen=True):
    url: str
    token: Secret[str]


class Letter(Payload, frozen=True):
    to: Personal[str]


def engine_here() -> Engine:
    return Engine(URL, flows=[note_flow(Provider(), config={KIND: Account})], work=False)


async def test_every_kind_of_change_is_on_the_trail(gesta):
    async with engine_here() as engine:
        admin = engine.admin
        await admin.put_config(
            KIND, "main", {"url": "https://planted", "token": "planted"}, tenant="acme", actor=ADA
        )
        await admin.pause(flow="test.note", tenant="acme", reason="too loud", actor=BOB)
        await admin.resume(flow="test.note", tenant="acme", actor=ADA)
        await admin.pause(credential=f"{KIND}/main", tenant="acme", actor=BOB)
        await admin.pause(tenant="acme", actor=BOB)
        await admin.delete_config(KIND, "main", tenant="acme", actor=BOB)
        await admin.erase("somebody", tenant="acme", actor=ADA)
        key, text = await admin.create_key(name="shop", tenant="acme", actor=ADA)
        await admin.revoke_key(key.id, tenant="acme", actor=BOB)
        trail = await admin.audit("acme")
        erased = [one for one in trail if one.what == "subject_erased"]
        told: list[tuple[str, str, str, dict[str, Any]]] = [
            (one.what, one.about, one.by, one.details) for one in trail if one not in erased
        ]
        assert told == [
            ("key_revoked", key.id, "bob", {}),
            ("key_created", key.id, "ada", {"name": "shop", "scopes": ["read", "submit"]}),
            ("config_deleted", f"{KIND}/main", "bob", {}),
            ("paused", "everything", "bob", {}),
            ("paused", f"credential:{KIND}/main", "bob", {}),
            ("resumed", "flow:test.note", "ada", {}),
            ("paused", "flow:test.note", "bob", {"reason": "too loud"}),
            ("config_put", f"{KIND}/main", "ada", {"secrets": ["token"]}),
        ]
        assert {one.what for one in trail} <= set(WORDS.values())
        assert "planted" not in repr(trail)
        assert text not in repr(trail)
        assert await admin.audit("globex") == []


async def test_an_erasure_is_on_the_trail_by_its_digest(gesta):
    async def send(letter: Letter, attempt: Any) -> Any:
        raise AssertionError

    from gesta import Flow

    async with Engine(URL, flows=[Flow("shop.letter", Letter, send)], work=False) as engine:
        await engine.submit(Letter("somebody"), tenant="acme")
        assert await engine.admin.erase("somebody", tenant="acme", actor=ADA) == 1
        (change,) = await engine.admin.audit("acme")
        assert (change.what, change.by) == ("subject_erased", "ada")
        assert change.about
        assert "somebody" not in change.about


async def test_who_puts_an_address_on_a_list_and_takes_it_off_is_on_the_trail(gesta):
    async with Engine(URL, flows=[email.flow(), sms.flow()], work=False) as engine:
        admin = engine.admin
        text = await admin.suppress(
            sms.message.NAME, "+4930123456", reason="asked by phone", tenant="acme", actor=ADA
        )
        await email.suppress(engine, "bo@example.com", tenant="acme", actor=ADA)
        letter = await admin.suppressed(email.NAME, "bo@example.com", tenant="acme")
        # What stands already is nobody's doing.
        await email.suppress(engine, "Bo@example.com", tenant="acme", actor=BOB)
        assert await email.unsuppress(engine, "bo@example.com", tenant="acme", actor=BOB)
        assert not await email.unsuppress(engine, "bo@example.com", tenant="acme", actor=ADA)
        await admin.unsuppress_entry(sms.message.NAME, text.id, tenant="acme", actor=BOB)
        trail = await admin.audit("acme")
        assert letter is not None
        numbers, letters = f"{sms.message.NAME}/{text.id}", f"{email.NAME}/{letter.id}"
        assert [(one.what, one.about, one.by) for one in trail] == [
            ("unsuppressed", numbers, "bob"),
            ("unsuppressed", letters, "bob"),
            ("suppressed", letters, "ada"),
            ("suppressed", numbers, "ada"),
        ]
        assert [word for word in ("bo@", "493012", "by phone") if word in repr(trail)] == []
        assert all(one.at_ms for one in trail)


async def test_nothing_is_noted_of_what_cannot_be_put_on_a_list(gesta):
    nobody: Any = "ada"
    async with Engine(URL, flows=[email.flow()], work=False) as engine:
        for given in (
            {"address": "no address"},
            {"reason": ""},
            {"actor": nobody},
            {"tenant": "no/tenant"},
        ):
            asked: Any = {"address": "bo@example.com"} | given
            with pytest.raises(BadInput, match=next(iter(given))):
                await engine.admin.suppress(email.NAME, **asked)
        assert await engine.admin.audit() == []
        assert await engine.admin.suppressed(email.NAME, "bo@example.com") is None


async def test_a_whole_list_is_brought_at_once(tmp_path):
    async with Engine(
        f"sqlite:///{tmp_path / 'gesta.db'}", flows=[email.flow()], work=False
    ) as engine:
        people = [f"person{number}@example.com" for number in range(40)]
        await asyncio.gather(*(engine.admin.suppress(email.NAME, one, actor=ADA) for one in people))
        assert len(await engine.admin.audit(limit=100)) == len(people)


async def test_who_forgot_a_handler_is_on_the_trail_of_those_who_run_the_installation(gesta):
    async with Engine(
        settings=Settings(url=URL, tenant="acme"), flows=[note_flow(Provider())], work=False
    ) as engine:
        await engine.pipeline.environment.stores.checkpoints.begin(checkpoint_of("old ledger"), 1)
        await engine.admin.forget_handler("old ledger", actor=ADA)
        (change,) = await engine.admin.audit("acme")
        assert (change.what, change.about, change.by) == ("handler_forgotten", "old ledger", "ada")


async def test_the_trail_is_read_in_pages_from_its_end(gesta, ports):
    async with engine_here() as engine:
        for number in range(7):
            await engine.admin.put_config(KIND, str(number), {"url": "u", "token": "t"}, actor=ADA)
        pages, before = [], None
        while page := await engine.admin.audit(before=before, limit=3):
            pages.append([one.about for one in page])
            before = page[-1].version
        assert pages == [
            [f"{KIND}/{n}" for n in numbers] for numbers in ((6, 5, 4), (3, 2, 1), (0,))
        ]


async def test_an_event_that_nobody_can_read_hides_no_other(gesta):
    async with engine_here() as engine:
        stream = config_stream("acme")
        await engine.admin.pause(tenant="acme", actor=ADA)
        meta = encode(Meta("acme", "config", stream, 5, stream, stream, actor=BOB))
        events = (
            NewEvent(b"1" * 16, "config.Later.v1", b'{"x": 1}', meta),
            NewEvent(b"2" * 16, "config.Paused.v1", b"{", meta),
        )
        await engine.pipeline.environment.stores.events.append([Append(stream, 1, events)])
        trail = [(one.what, one.about, one.by) for one in await engine.admin.audit("acme")]
        assert trail == [
            ("paused", "(cannot be read)", ""),
            ("config.Later.v1", "", "bob"),
            ("paused", "everything", "ada"),
        ]
