"""The audit trail: who changed what of a tenant, newest first."""

from __future__ import annotations

from typing import Any

from gesta import Actor, Engine
from gesta.addresses import config_stream
from gesta.audit import WORDS
from gesta.domain.codec import encode
from gesta.domain.events import Meta
from gesta.event_store import Append, NewEvent
from gesta.flows.flow import ConfigBody, Payload, Personal, Secret
from tests.stations.world import URL, Provider, note_flow

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
        operating = engine.operating
        await operating.put_config(KIND, "main", {"url": "https://planted", "token": "planted"}, tenant="acme", actor=ADA)
        await operating.pause(flow="test.note", tenant="acme", reason="too loud", actor=BOB)
        await operating.resume(flow="test.note", tenant="acme", actor=ADA)
        await operating.pause(credential=f"{KIND}/main", tenant="acme", actor=BOB)
        await operating.pause(tenant="acme", actor=BOB)
        await operating.delete_config(KIND, "main", tenant="acme", actor=BOB)
        await operating.erase("somebody", tenant="acme", actor=ADA)
        key, text = await operating.create_key(name="shop", tenant="acme", actor=ADA)
        await operating.revoke_key(key.id, tenant="acme", actor=BOB)
        trail = await operating.audit("acme")
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
        assert await operating.audit("globex") == []


async def test_an_erasure_is_on_the_trail_by_its_digest(gesta):
    async def send(letter: Letter, attempt: Any) -> Any:
        raise AssertionError

    from gesta import Flow

    async with Engine(URL, flows=[Flow("shop.letter", Letter, send)], work=False) as engine:
        await engine.submit(Letter("somebody"), tenant="acme")
        assert await engine.operating.erase("somebody", tenant="acme", actor=ADA) == 1
        (change,) = await engine.operating.audit("acme")
        assert (change.what, change.by) == ("subject_erased", "ada")
        assert change.about
        assert "somebody" not in change.about


async def test_the_trail_is_read_in_pages_from_its_end(gesta, ports):
    async with engine_here() as engine:
        for number in range(7):
            await engine.operating.put_config(KIND, str(number), {"url": "u", "token": "t"}, actor=ADA)
        pages, before = [], None
        while page := await engine.operating.audit(before=before, limit=3):
            pages.append([one.about for one in page])
            before = page[-1].version
        assert pages == [[f"{KIND}/{n}" for n in numbers] for numbers in ((6, 5, 4), (3, 2, 1), (0,))]


async def test_an_event_that_nobody_can_read_hides_no_other(gesta):
    async with engine_here() as engine:
        stream = config_stream("acme")
        await engine.operating.pause(tenant="acme", actor=ADA)
        meta = encode(Meta("acme", "config", stream, 5, stream, stream, actor=BOB))
        events = (NewEvent(b"1" * 16, "config.Later.v1", b'{"x": 1}', meta), NewEvent(b"2" * 16, "config.Paused.v1", b"{", meta))
        await engine.road.outside.stores.events.append([Append(stream, 1, events)])
        trail = [(one.what, one.about, one.by) for one in await engine.operating.audit("acme")]
        assert trail == [("paused", "(cannot be read)", ""), ("config.Later.v1", "", "bob"), ("paused", "everything", "ada")]
