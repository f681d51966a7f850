"""Config is put and deleted at the version that its caller has seen, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Engine, Flow, NotFound
from gesta.domain.commands import Rules
from gesta.errors import BadConfig, VersionConflict
from gesta.flows.flow import ConfigBody, Secret
from gesta.tenants.config import ConfigEvent, EntityPut
from gesta.tenants.config_writer import ConfigWriter
from tests.tenants.test_config import Letter, Post
from tests.world import URL

KIND, STRICT = "test.account", "test.strict"


class Strict(ConfigBody, frozen=True):
    token: Secret[str]


class Account(ConfigBody, frozen=True):
    address: str
    token: Secret[str] = ""


@pytest.fixture
async def admin(gesta):
    flow = Flow(
        "test.letter", Letter, Post().execute, Rules(), config={KIND: Account, STRICT: Strict}
    )
    async with Engine(URL, flows=[flow], work=False) as engine:
        yield engine.admin


async def test_a_put_succeeds_only_at_the_expected_version(admin):
    first = await admin.put_config(KIND, "main", {"address": "one"}, expected=0)
    second = await admin.put_config(KIND, "main", {"address": "two"}, expected=first.version)
    for outdated in (0, first.version, second.version + 1):
        with pytest.raises(VersionConflict) as refused:
            await admin.put_config(KIND, "main", {"address": "three"}, expected=outdated)
        assert refused.value.version == second.version
    assert (await admin.get_config(KIND, "main")) == second


async def test_a_change_of_another_entity_causes_no_version_conflict(admin):
    first = await admin.put_config(KIND, "main", {"address": "one"})
    await admin.put_config(KIND, "other", {"address": "one"})
    await admin.pause(tenant="default")
    assert (
        await admin.put_config(KIND, "main", {"address": "two"}, expected=first.version)
    ).version > first.version


async def test_a_delete_succeeds_only_at_the_expected_version(admin):
    first = await admin.put_config(KIND, "main", {"address": "one"})
    second = await admin.put_config(KIND, "main", {"address": "two"})
    with pytest.raises(VersionConflict):
        await admin.delete_config(KIND, "main", expected=first.version)
    await admin.delete_config(KIND, "main", expected=second.version)
    with pytest.raises(VersionConflict) as refused:
        await admin.delete_config(KIND, "main", expected=second.version)
    assert refused.value.version == 0
    with pytest.raises(NotFound):
        await admin.delete_config(KIND, "main")


async def test_one_of_many_concurrent_puts_at_a_version_succeeds(admin):
    first = await admin.put_config(KIND, "main", {"address": "one"})
    changes = [
        admin.put_config(KIND, "main", {"address": str(n)}, expected=first.version)
        for n in range(8)
    ]
    answers = await asyncio.gather(*changes, return_exceptions=True)
    assert sorted(type(one).__name__ for one in answers) == ["Entity", *["VersionConflict"] * 7]


async def test_a_put_returns_what_it_wrote_despite_later_changes(admin, monkeypatch):
    """The version is the caller's to build on: that of another caller's change would let them
    undo it unseen.
    """
    append = ConfigWriter.append

    async def followed(
        self: ConfigWriter, tenant: str, expected: int, event: ConfigEvent, actor: Any
    ) -> bool:
        done = await append(self, tenant, expected, event, actor)
        if isinstance(event, EntityPut) and b"mine" in bytes(event.body):
            monkeypatch.setattr(ConfigWriter, "append", append)
            await admin.put_config(KIND, "main", {"address": "theirs"})
        return done

    monkeypatch.setattr(ConfigWriter, "append", followed)
    mine = await admin.put_config(KIND, "main", {"address": "mine"})
    assert (mine.body.address, mine.version) == ("mine", 1)
    with pytest.raises(VersionConflict):
        await admin.put_config(KIND, "main", {"address": "mine again"}, expected=mine.version)


async def test_a_secret_of_a_concurrently_deleted_entity_is_not_kept(admin, monkeypatch):
    """Between the look, which found one to keep, and the append: the entity must not come back
    without its secret.
    """
    await admin.put_config(STRICT, "main", {"token": "t-1"})
    check = ConfigWriter._checked

    async def deleted_meanwhile(self: ConfigWriter, *arguments: Any) -> Any:
        checked = await check(self, *arguments)
        monkeypatch.setattr(ConfigWriter, "_checked", check)
        await admin.delete_config(STRICT, "main")
        await admin.list_config()
        return checked

    monkeypatch.setattr(ConfigWriter, "_checked", deleted_meanwhile)
    with pytest.raises(BadConfig, match="token: missing"):
        await admin.put_config(STRICT, "main", {})
    assert await admin.list_config() == []


async def test_a_put_of_a_masked_url_keeps_the_stored_url(admin):
    whole = "https://user:pass@hooks.example/in?token=abc"
    await admin.put_config(KIND, "main", {"address": whole})
    await admin.put_config(
        KIND, "main", {"address": "https://[hidden]@hooks.example/in?…", "token": "t-1"}
    )
    assert (await admin.get_config(KIND, "main")).body.address == whole
    await admin.put_config(KIND, "main", {"address": "https://hooks.example/in"})
    assert (await admin.get_config(KIND, "main")).body.address == "https://hooks.example/in"
