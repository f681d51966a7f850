"""API keys: what they open, for whom, for how long, and what it costs to find out."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gesta import Actor, Engine
from gesta.errors import Fenced, Forbidden, InvalidRequest, NotFound, StoreError
from gesta.flows import webhook
from gesta.ports.vault import Encrypted
from gesta.runtime.redaction import scrub, scrubbed_name
from gesta.security.envelope_encryption import SYSTEM
from gesta.tenants.api_keys import KEPT, SCOPES, ApiKey, Grant
from gesta.tenants.config import KEY_CREATED, KEY_REVOKED
from tests.world import URL, Provider, note_flow

ADA, BOB = Actor("ada", ("owner",)), Actor("bob")
SECONDS_OF_OTHERS = 1.0


def engine_here() -> Engine:
    return Engine(URL, flows=[note_flow(Provider())], work=False)


async def key_of(engine: Engine, tenant: str = "acme", **options):
    given: dict[str, Any] = {"name": "shop", "scopes": ["read"], "actor": ADA} | options
    return await engine.pipeline.keys.create(tenant, **given)


async def denied(engine: Engine, text: str) -> str:
    with pytest.raises(Forbidden) as error:
        await engine.pipeline.keys.check(text)
    return str(error.value)


def another(text: str) -> str:
    """The same key but for one letter of its secret."""
    return text[:-1] + ("a" if text[-1] != "a" else "b")


async def test_a_key_allows_what_it_was_created_for(gesta):
    async with engine_here() as engine:
        expires = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(days=90)
        key, text = await key_of(engine, scopes=["submit", "read"], expires_at=expires)
        ends = round(expires.timestamp() * 1000)
        assert await engine.pipeline.keys.check(text) == Grant(
            key.id, "acme", frozenset({"read", "submit"}), "shop", False, ends
        )
        assert re.fullmatch(r"gesta_live_[a-z0-9]{18}_[A-Za-z0-9]{43}", text)
        assert (await key_of(engine, test=True))[1].startswith("gesta_test_")
        assert (await engine.pipeline.keys.check((await key_of(engine, test=True))[1])).is_test


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_allows_itself_and_admin_allows_everything(scope):
    grant = Grant("id", "acme", frozenset({scope}), "", False, None)
    assert [other for other in SCOPES if grant.allows(other)] == (
        list(SCOPES) if scope == "admin" else [scope]
    )


async def test_every_invalid_key_gets_the_same_answer(gesta):
    async with engine_here() as engine:
        soon = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(seconds=5)
        (_, expired), (revoked, ended) = await key_of(engine, expires_at=soon), await key_of(engine)
        _, good = await key_of(engine)
        await engine.pipeline.keys.check(expired)
        gesta.advance(5)
        await engine.pipeline.keys.revoke("acme", revoked.id, BOB)
        texts = [
            expired,
            ended,
            another(good),
            good.replace("live", "test"),
            good[:-1],
            good + "a",
            good.upper(),
            f" {good}",
            f"{good}\n",
            "",
            "gesta_live_",
            "x" * 10_000,
            good.replace("_", "-"),
            good[:-1] + "\N{ARABIC-INDIC DIGIT ONE}",
            good[:-1] + "\ud800",
        ]
        assert len({await denied(engine, text) for text in texts}) == 1
        assert (await engine.pipeline.keys.check(good)).tenant == "acme"


async def test_the_text_of_a_key_is_stored_nowhere(gesta):
    async with engine_here() as engine:
        key, text = await key_of(engine)
        await engine.pipeline.keys.check(text)
        stores = engine.pipeline.environment.stores
        held = await stores.vault.listed(("", "", 0), 100)
        log = await stores.events.follow(0, 100)
        secret = text.rpartition("_")[2].encode()
        assert any(key.id in one.name for one in held)
        assert not [one for one in held if secret in one.box or secret in one.name.encode()]
        assert not [one for one in log if secret in one.data or secret in one.meta]
        assert secret.decode() not in repr(key) + repr(await engine.pipeline.keys.listed("acme"))


async def test_a_list_shows_everything_but_the_text(gesta):
    async with engine_here() as engine:
        first, _ = await key_of(engine, name="first")
        gesta.advance(1)
        second, _ = await key_of(engine, name="second", scopes=["admin"], actor=BOB)
        await key_of(engine, "globex")
        ended = await engine.admin.revoke_key(first.id, tenant="acme", actor=BOB)
        assert await engine.admin.list_keys("acme") == [second, ended]
        assert (ended.created_by, ended.revoked_by, ended.revoked_ms) == (
            "ada",
            "bob",
            gesta.runtime.now_ms(),
        )
        assert await engine.admin.list_keys("initech") == []


async def test_a_key_of_another_tenant_is_not_found(gesta):
    async with engine_here() as engine:
        key, text = await key_of(engine, "acme-b")
        for name in (
            key.id,
            f"{key.id}/acme-b",
            key.id.upper(),
            "",
            "x" * 500,
            f"../{key.id}",
            text,
        ):
            for tenant in ("acme", "acme-b")[: 1 if name == key.id else 2]:
                with pytest.raises(NotFound) as error:
                    await engine.pipeline.keys.revoke(tenant, name, BOB)
                assert text not in str(error.value)
        assert (await engine.pipeline.keys.check(text)).tenant == "acme-b"
        assert await engine.admin.list_keys("acme") == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["read", "root"]}, "scopes"),
        ({"scopes": "read"}, "scopes"),
        ({"scopes": ["admin"], "test": True}, "scopes"),
        ({"scopes": ["operate"], "test": True}, "scopes"),
        ({"scopes": ["execute"], "test": True}, "scopes"),
        ({"test": "yes"}, "test"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expiresAt"),
        ({"expires_at": datetime(2200, 1, 1)}, "expiresAt"),
        ({"actor": None}, "actor"),
        ({"tenant": "a/b"}, "tenant"),
        ({"tenant": SYSTEM}, "tenant"),
    ],
)
async def test_a_wrong_key_is_refused_and_nothing_is_written(gesta, given, error):
    async with engine_here() as engine:
        before = await engine.pipeline.environment.stores.vault.listed(("", "", 0), 100)
        with pytest.raises(InvalidRequest) as refused:
            await key_of(engine, **given)
        assert refused.value.fields.keys() == {error}
        assert await engine.pipeline.environment.stores.vault.listed(("", "", 0), 100) == before
        assert await engine.pipeline.environment.stores.events.follow(0, 10) == []


async def test_all_errors_of_a_key_are_reported_at_once(gesta):
    async with engine_here() as engine:
        with pytest.raises(InvalidRequest) as error:
            await key_of(
                engine, name="", scopes=["root"], expires_at=datetime(2020, 1, 1, tzinfo=UTC)
            )
        assert error.value.fields.keys() == {"name", "scopes", "expiresAt"}


async def test_a_key_is_valid_in_every_process_and_its_revocation_within_a_second(gesta):
    async with engine_here() as here, engine_here() as there:
        key, text = await key_of(here)
        assert (await there.pipeline.keys.check(text)).key_id == key.id
        await here.pipeline.keys.revoke("acme", key.id, BOB)
        await denied(here, text)
        gesta.advance(SECONDS_OF_OTHERS)
        await denied(there, text)


async def test_requests_with_one_key_do_not_each_read_the_vault(gesta, ports):
    async with engine_here() as engine:
        _, text = await key_of(engine)
        await engine.pipeline.keys.check(text)
        looked = ports.vault.calls.total()
        for _ in range(100):
            await engine.pipeline.keys.check(text)
            await denied(engine, another(text))
        assert ports.vault.calls.total() == looked
        gesta.advance(SECONDS_OF_OTHERS)
        await asyncio.gather(*(engine.pipeline.keys.check(text) for _ in range(100)))
        assert ports.vault.calls.total() == looked + 1


async def test_a_made_up_key_costs_neither_a_read_of_the_vault_nor_memory(gesta, ports):
    async with engine_here() as engine:
        _, text = await key_of(engine)
        await engine.pipeline.keys.check(text)
        looked, remembered = ports.vault.calls.total(), len(engine.pipeline.keys._seen)
        for number in range(1_000):
            await denied(engine, f"gesta_live_{number:018d}_{text[-43:]}")
        assert ports.vault.calls.total() == looked
        assert len(engine.pipeline.keys._seen) == remembered == 1


async def test_the_cache_of_keys_is_bounded(gesta):
    async with engine_here() as engine:
        keys = engine.pipeline.keys
        for number in range(KEPT + 10):
            keys._remember(str(number), 0.0, None)
        assert len(keys._seen) <= KEPT


async def test_a_revocation_is_not_undone_by_an_older_read_that_ends_later(gesta, ports):
    async with engine_here() as engine:
        key, text = await key_of(engine)
        began, go_on = asyncio.Event(), asyncio.Event()

        async def late(original, *args):
            answer = await original(*args)
            if not began.is_set():
                began.set()
                await go_on.wait()
            return answer

        ports.vault.replace("newest", late)
        looking = asyncio.create_task(engine.pipeline.keys.check(text))
        await began.wait()
        await engine.pipeline.keys.revoke("acme", key.id, BOB)
        go_on.set()
        with pytest.raises(Forbidden):
            await looking
        await denied(engine, text)


async def test_a_cancelled_caller_does_not_cancel_others(gesta, ports):
    async with engine_here() as engine:
        _, text = await key_of(engine)
        first, second = (asyncio.create_task(engine.pipeline.keys.check(text)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).tenant == "acme"


async def test_without_the_vault_no_key_is_accepted_or_refused(gesta, ports):
    async with engine_here() as engine:
        _, text = await key_of(engine)
        ports.vault.is_down = True
        for _ in range(2):
            with pytest.raises(StoreError):
                await engine.pipeline.keys.check(text)
        await denied(engine, "nonsense")
        ports.vault.heal()
        assert (await engine.pipeline.keys.check(text)).tenant == "acme"
        ports.vault.is_down = True
        gesta.advance(SECONDS_OF_OTHERS)
        with pytest.raises(StoreError):
            await engine.pipeline.keys.check(text)


async def test_a_crash_while_creating_a_key_leaves_an_audit_entry_without_a_key(gesta, ports):
    async with engine_here() as engine:
        ports.vault.fail("put")
        with pytest.raises(StoreError):
            await key_of(engine, scopes=["admin"])
        (note,) = await engine.admin.audit("acme")
        assert note.what == "key_created"
        assert await engine.admin.list_keys("acme") == []
        assert not await engine.pipeline.keys.any_admin()
        with pytest.raises(NotFound):
            await engine.admin.revoke_key(note.about, tenant="acme", actor=BOB)


async def test_a_key_whose_creation_was_not_answered_is_listed_and_can_be_revoked(gesta, ports):
    async with engine_here() as engine:
        ports.vault.fail("put", answer_lost=True)
        with pytest.raises(StoreError):
            await key_of(engine)
        (unseen,) = await engine.admin.list_keys("acme")
        assert (
            await engine.admin.revoke_key(unseen.id, tenant="acme", actor=BOB)
        ).revoked_by == "bob"


async def test_no_key_is_created_without_an_audit_entry(gesta, ports):
    async with engine_here() as engine:
        before = await engine.pipeline.environment.stores.vault.listed((SYSTEM, "", 0), 100)
        for error in (None, Fenced("here", "left", other="there", tenant="acme")):
            ports.events.fail("append", error)
            with pytest.raises(StoreError):
                await key_of(engine)
        assert await engine.pipeline.environment.stores.vault.listed((SYSTEM, "", 0), 100) == before


async def test_a_crash_while_revoking_leaves_a_revoked_key_and_a_repeat_logs_it(gesta, ports):
    async with engine_here() as engine, engine_here() as other:
        key, text = await key_of(other)
        ports.events.fail("append")
        with pytest.raises(StoreError):
            await other.admin.revoke_key(key.id, tenant="acme", actor=ADA)
        await denied(engine, text)
        await denied(other, text)
        assert [one.what for one in await engine.admin.audit("acme")] == ["key_created"]
        assert (await engine.admin.list_keys("acme"))[0].revoked_by == "ada"
        for _ in range(2):
            again = await engine.admin.revoke_key(key.id, tenant="acme", actor=BOB)
            assert again.revoked_by == "ada"
        assert [one.what for one in await engine.admin.audit("acme")] == [
            "key_revoked",
            "key_created",
        ]


async def test_two_concurrent_revocations_succeed_and_one_is_logged(gesta):
    async with engine_here() as here, engine_here() as there:
        key, _ = await key_of(here)
        ended = await asyncio.gather(
            *(one.admin.revoke_key(key.id, tenant="acme", actor=ADA) for one in (here, there))
        )
        assert ended[0] == ended[1]
        assert [one.what for one in await here.admin.audit("acme")] == [
            "key_revoked",
            "key_created",
        ]


@pytest.mark.parametrize(
    "forged", ["another's", "an earlier version", "made up", "destroyed", "under another name"]
)
async def test_a_key_changed_in_the_store_is_invalid(gesta, forged):
    async with engine_here() as engine:
        (good, text), (other, _) = (
            await key_of(engine, scopes=["read"]),
            await key_of(engine, "globex", scopes=["admin"]),
        )
        vault = engine.pipeline.environment.stores.vault
        (mine,) = [one for one in await vault.listed((SYSTEM, "", 0), 100) if good.id in one.name]
        (theirs,) = [
            one for one in await vault.listed((SYSTEM, "", 0), 100) if other.id in one.name
        ]
        if forged == "an earlier version":
            # A process that can write into the store would undo the revocation.
            await engine.pipeline.keys.revoke("acme", good.id, BOB)
            await vault.put([Encrypted(SYSTEM, mine.name, 3, mine.box)])
        else:
            box = {
                "another's": theirs.box,
                "made up": b"x" * 100,
                "destroyed": b"",
                "under another name": mine.box,
            }[forged]
            name = (
                mine.name.replace("acme", "aaaa") if forged == "under another name" else mine.name
            )
            await vault.put([Encrypted(SYSTEM, name, 2, box)])
        engine.pipeline.keys._seen.clear()
        await denied(engine, text)
        if forged != "under another name":
            assert await engine.admin.list_keys("acme") == []


async def test_a_key_event_between_two_puts_does_not_change_the_entity(gesta):
    hook = {"url": "https://shop.example.com/", "secret": f"whsec_{'a' * 32}"}
    async with Engine(URL, flows=[webhook.flow()], work=False) as engine:
        await engine.admin.put_config("webhook.endpoint", "shop", hook, tenant="acme")
        seen = engine.pipeline.config.of("acme")
        key, _ = await key_of(engine)
        await engine.pipeline.keys.revoke("acme", key.id, BOB)
        await seen.disable("webhook.endpoint", "shop", "the receiver answered 410 Gone")
        entity = await engine.admin.get_config("webhook.endpoint", "shop", tenant="acme")
        assert getattr(entity.body, "disabled", None) is True


async def test_a_valid_admin_key_is_found_over_all_tenants_and_pages(gesta, monkeypatch):
    monkeypatch.setattr("gesta.tenants.api_keys.PAGE", 2)
    async with engine_here() as engine:
        keys = engine.pipeline.keys
        assert not await keys.any_admin()
        for number in range(5):
            await key_of(engine, f"t{number}", scopes=["read", "operate"])
        assert not await keys.any_admin()
        made = []
        for number in range(7):
            soon = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(
                seconds=60
            )
            key, _ = await key_of(
                engine, f"t{number}", scopes=["admin"], expires_at=soon if number == 3 else None
            )
            made.append(key)
        for key in made[:3] + made[4:]:
            assert await keys.any_admin()
            await keys.revoke(key.tenant, key.id, BOB)
        assert await keys.any_admin()
        gesta.advance(60)
        assert not await keys.any_admin()


async def test_creating_and_revoking_a_key_are_logged_with_the_actor(gesta):
    async with engine_here() as engine:
        key, _ = await key_of(engine, name="call +49 171 5550123", scopes=["admin"])
        await engine.admin.revoke_key(key.id, tenant="acme", actor=BOB)
        stored = await engine.pipeline.environment.stores.events.read([("config-acme", 0)])
        assert (
            [one.type for one in stored]
            == [KEY_CREATED, KEY_REVOKED]
            == ["config.KeyCreated.v1", "config.KeyRevoked.v1"]
        )
        assert b"5550123" not in stored[0].data
        trail = [
            (one.what, one.about, one.by, one.roles) for one in await engine.admin.audit("acme")
        ]
        assert trail == [
            ("key_revoked", key.id, "bob", ()),
            ("key_created", key.id, "ada", ("owner",)),
        ]


def test_no_log_shows_the_text_of_a_key():
    text = "gesta_live_6tbbfyrlwwr5eo5nzg_0yEtQcdQgKTOWVzyFUknXGxxMgCEBaBNQqN46DX3xDS"
    for said in (
        text,
        f"key {text}.",
        f"x{text}",
        f"https://h/{text}?k={text}",
        f'{{"a": "{text}"}}',
        f"{text},{text}",
    ):
        assert text[-43:] not in scrub(said)
        assert text[-43:] not in scrubbed_name(said)
    assert scrub("gesta_live is fine") == "gesta_live is fine"


async def test_a_long_call_notices_within_a_second_that_another_process_revoked_its_key(gesta):
    async with engine_here() as ours, engine_here() as other:
        key, text = await key_of(ours)
        grant = await ours.pipeline.keys.check(text)
        assert await ours.pipeline.keys.is_still_valid(grant)
        await other.pipeline.keys.revoke("acme", key.id, BOB)
        gesta.advance(SECONDS_OF_OTHERS)
        assert not await ours.pipeline.keys.is_still_valid(grant)


async def test_of_two_processes_that_revoke_a_key_the_first_is_shown(gesta, ports):
    async with engine_here() as first, engine_here() as second:
        key, _ = await key_of(first)
        newest = second.pipeline.keys._newest
        revoked: list[ApiKey] = []

        async def late(tenant: str, key_id: str) -> Any:
            found = await newest(tenant, key_id)
            if not revoked:
                revoked.append(await first.pipeline.keys.revoke("acme", key.id, ADA))
            return found

        second.pipeline.keys._newest = late  # type: ignore[method-assign]
        gesta.advance(1)
        ended = await second.pipeline.keys.revoke("acme", key.id, BOB)
        assert ended == revoked[0]
        assert ended.revoked_by == "ada"


async def test_a_key_that_would_end_now_is_refused(gesta):
    async with engine_here() as engine:
        now = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC)
        with pytest.raises(InvalidRequest, match="expiresAt: is in the past"):
            await key_of(engine, expires_at=now)
        key, _ = await key_of(engine, expires_at=now + timedelta(milliseconds=1))
        assert key.expires_ms == gesta.runtime.now_ms() + 1
