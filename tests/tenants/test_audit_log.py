"""The audit log: who changed what of a tenant, newest first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Actor, Engine
from gesta.admin.representations import entity_representation
from gesta.domain.codec import encode
from gesta.domain.events import Meta
from gesta.domain.stream_names import checkpoint_of, config_stream
from gesta.errors import BadInput
from gesta.flows import email, sms, webhook
from gesta.flows.flow import ConfigBody, Payload, Personal, Secret
from gesta.ports.event_store import Append, NewEvent
from gesta.runtime.redaction import without_credentials
from gesta.runtime.settings import Settings
from gesta.tenants.audit_log import WORDS, _diff, _value
from tests.world import URL, Provider, note_flow

ADA, BOB = Actor("ada"), Actor("bob")
KIND = "shop.account"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL_SHOWN = without_credentials("https://a.example/?k=planted")


class Account(ConfigBody, frozen=True):
    url: str
    token: Secret[str]


class Letter(Payload, frozen=True):
    to: Personal[str]


def engine_here() -> Engine:
    return Engine(URL, flows=[note_flow(Provider(), config={KIND: Account})], work=False)


async def test_every_kind_of_change_is_in_the_audit_log(gesta):
    async with engine_here() as engine:
        admin = engine.admin
        await admin.put_config(
            KIND,
            "main",
            {"url": "https://a.example/?k=planted", "token": "planted"},
            tenant="acme",
            actor=ADA,
        )
        await admin.pause(flow="test.note", tenant="acme", reason="too loud", actor=BOB)
        await admin.resume(flow="test.note", tenant="acme", actor=ADA)
        await admin.pause(credential=f"{KIND}/main", tenant="acme", actor=BOB)
        await admin.pause(tenant="acme", actor=BOB)
        await admin.delete_config(KIND, "main", tenant="acme", actor=BOB)
        await admin.erase("a-person", tenant="acme", actor=ADA)
        key, text = await admin.create_key(name="shop", tenant="acme", actor=ADA)
        await admin.revoke_key(key.id, tenant="acme", actor=BOB)
        trail = await admin.audit("acme")
        erased = [one for one in trail if one.what == "subject_erased"]
        reported: list[tuple[str, str, str, dict[str, Any]]] = [
            (one.what, one.about, one.by, one.details) for one in trail if one not in erased
        ]
        assert reported == [
            ("key_revoked", key.id, "bob", {}),
            ("key_created", key.id, "ada", {"name": "shop", "scopes": ["read", "submit"]}),
            (
                "config_deleted",
                f"{KIND}/main",
                "bob",
                {
                    "changes": {
                        "token": {"before": "[secret, version 1]"},
                        "url": {"before": URL_SHOWN},
                    }
                },
            ),
            ("paused", "everything", "bob", {}),
            ("paused", f"credential:{KIND}/main", "bob", {}),
            ("resumed", "flow:test.note", "ada", {}),
            ("paused", "flow:test.note", "bob", {"reason": "too loud"}),
            (
                "config_put",
                f"{KIND}/main",
                "ada",
                {
                    "secrets": ["token"],
                    "changes": {
                        "token": {"after": "[secret, version 1]"},
                        "url": {"after": URL_SHOWN},
                    },
                },
            ),
        ]
        assert {one.what for one in trail} <= set(WORDS.values())
        assert "planted" not in repr(trail)
        assert text not in repr(trail)
        assert await admin.audit("globex") == []


async def test_an_erasure_is_logged_under_the_digest_of_the_subject(gesta):
    async def send(letter: Letter, attempt: Any) -> Any:
        raise AssertionError

    from gesta import Flow

    async with Engine(URL, flows=[Flow("shop.letter", Letter, send)], work=False) as engine:
        await engine.submit(Letter("a-person"), tenant="acme")
        assert await engine.admin.erase("a-person", tenant="acme", actor=ADA) == 1
        (change,) = await engine.admin.audit("acme")
        assert (change.what, change.by) == ("subject_erased", "ada")
        assert change.about
        assert "a-person" not in change.about


async def test_suppressing_and_unsuppressing_an_address_is_logged_with_the_actor(gesta):
    async with Engine(URL, flows=[email.flow(), sms.flow()], work=False) as engine:
        admin = engine.admin
        text = await admin.suppress(
            sms.message.NAME, "+4930123456", reason="asked by phone", tenant="acme", actor=ADA
        )
        await email.suppress(engine, "bo@example.com", tenant="acme", actor=ADA)
        letter = await admin.suppressed(email.NAME, "bo@example.com", tenant="acme")
        # The entry exists already, so nothing is logged.
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


async def test_a_refused_suppression_is_not_logged(gesta):
    plain_name: Any = "ada"
    async with Engine(URL, flows=[email.flow()], work=False) as engine:
        for given in (
            {"address": "no address"},
            {"reason": ""},
            {"actor": plain_name},
            {"tenant": "no/tenant"},
        ):
            asked: Any = {"address": "bo@example.com"} | given
            with pytest.raises(BadInput, match=next(iter(given))):
                await engine.admin.suppress(email.NAME, **asked)
        assert await engine.admin.audit() == []
        assert await engine.admin.suppressed(email.NAME, "bo@example.com") is None


async def test_many_addresses_are_suppressed_concurrently(tmp_path):
    async with Engine(
        f"sqlite:///{tmp_path / 'gesta.db'}", flows=[email.flow()], work=False
    ) as engine:
        people = [f"person{number}@example.com" for number in range(40)]
        await asyncio.gather(*(engine.admin.suppress(email.NAME, one, actor=ADA) for one in people))
        assert len(await engine.admin.audit(limit=100)) == len(people)


async def test_forgetting_a_handler_is_logged_with_the_tenant_of_the_settings(gesta):
    async with Engine(
        settings=Settings(url=URL, tenant="acme"), flows=[note_flow(Provider())], work=False
    ) as engine:
        await engine.pipeline.environment.stores.checkpoints.begin(checkpoint_of("old ledger"), 1)
        await engine.admin.forget_handler("old ledger", actor=ADA)
        (change,) = await engine.admin.audit("acme")
        assert (change.what, change.about, change.by) == ("handler_forgotten", "old ledger", "ada")


async def test_the_audit_log_is_read_in_pages_newest_first(gesta, ports):
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


async def test_an_unreadable_event_hides_no_other(gesta):
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


async def test_a_put_is_logged_with_the_fields_before_and_after(gesta):
    async with engine_here() as engine:
        for fields in (
            {"url": "https://a", "token": "first"},
            {"url": "https://b", "token": "2nd"},
        ):
            await engine.admin.put_config(KIND, "main", fields, actor=ADA)
            await engine.admin.put_config(KIND, "other", {"url": "u", "token": "t"}, actor=ADA)
        newest = next(one for one in await engine.admin.audit() if one.about == f"{KIND}/main")
        assert newest.details["changes"] == {
            "token": {"before": "[secret, version 1]", "after": "[secret, version 2]"},
            "url": {"before": "https://a", "after": "https://b"},
        }
        await engine.admin.put_config(KIND, "main", {"url": "x" * 900}, actor=ADA)
        (newest,) = await engine.admin.audit(limit=1)
        assert newest.details["changes"] == {
            "url": {"before": "https://b", "after": "x" * 200 + "…"}
        }


async def test_a_change_by_the_engine_names_the_engine_as_the_actor(gesta):
    async with Engine(URL, flows=[webhook.flow()], work=False) as engine:
        shop = {"url": "https://shop.example.com", "secret": SECRET}
        await engine.admin.put_config(webhook.ENDPOINT, "shop", shop, actor=ADA)
        config = engine.pipeline.config.of("default")
        await config.disable(webhook.ENDPOINT, "shop", "answered 410")
        (newest, _) = await engine.admin.audit()
        assert (newest.by, newest.roles) == ("gesta", ("engine",))
        assert newest.details["changes"] == {
            "disabled": {"after": True},
            "disabled_reason": {"after": "answered 410"},
        }
        assert newest.about == f"{webhook.ENDPOINT}/shop"


async def test_a_put_that_enables_a_disabled_endpoint_warns_of_that(gesta):
    async with Engine(URL, flows=[webhook.flow()], work=False) as engine:
        shop = {"url": "https://shop.example.com", "secret": SECRET}
        put = await engine.admin.put_config(webhook.ENDPOINT, "shop", shop, actor=ADA)
        assert put.warnings == ()
        await engine.pipeline.config.of("default").disable(webhook.ENDPOINT, "shop", "answered 410")
        put = await engine.admin.put_config(webhook.ENDPOINT, "shop", shop, actor=ADA)
        assert put.warnings == ("it was disabled (answered 410); this change enables it again",)
        assert entity_representation(put).warnings == list(put.warnings)
        put = await engine.admin.put_config(webhook.ENDPOINT, "shop", shop, actor=ADA)
        assert put.warnings == ()


async def test_the_version_of_an_entity_counts_its_own_changes_and_goes_on_after_a_deletion(gesta):
    async with engine_here() as engine:
        admin, fields = engine.admin, {"url": "u", "token": "t"}
        versions = []
        for code in ("main", "other", "main"):
            versions.append((await admin.put_config(KIND, code, fields)).version)
            await admin.pause(flow="test.note", reason=str(versions))
        assert versions == [1, 1, 2]
        assert (await admin.get_config(KIND, "main")).version == 2
        await admin.delete_config(KIND, "main", expected=2)
        assert await admin.config_version(KIND, "main") == 0
        # A caller that still has version 1 or 2 must not overwrite the new entity.
        assert (await admin.put_config(KIND, "main", fields, expected=0)).version == 3
    async with engine_here() as engine:
        assert (await engine.admin.get_config(KIND, "main")).version == 3


def test_a_field_that_is_set_to_nothing_differs_from_one_that_is_absent():
    assert _diff({"a": None, "b": 1}, {"b": 1, "c": None}) == {
        "a": {"before": None},
        "c": {"after": None},
    }


@pytest.mark.parametrize(("length", "shown"), [(200, "x" * 200), (201, "x" * 200 + "…")])
def test_a_value_is_cut_after_200_characters(length, shown):
    assert _value("x" * length) == shown
