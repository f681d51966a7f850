"""Records about people in the vault: one tenant's are never another's, and removed ones leave."""

from __future__ import annotations

import pytest

from gesta import Engine
from gesta.tenants import suppression
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.suppression import Addresses, suppress, unsuppress
from tests.world import URL, Provider, note_flow


@pytest.fixture
async def engine(gesta):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        yield engine


@pytest.fixture
def ours(engine: Engine) -> TenantRecords:
    return engine.pipeline.records.of("acme")


@pytest.fixture
def theirs(engine: Engine) -> TenantRecords:
    # The next tenant by name: its records follow ours in the vault.
    return engine.pipeline.records.of("acme2")


async def all_of(records: TenantRecords, kind: str, limit: int = 100) -> list[bytes | None]:
    found: list[bytes | None] = []
    after = ""
    while page := await records.listed(kind, after, limit):
        found += [value for _, value in page]
        after = page[-1][0]
    return found


async def test_a_list_ends_with_the_tenants_own_records_of_the_kind(ours, theirs):
    await ours.put("list", "a", 1, b"ours")
    await theirs.put("list", "a", 1, b"theirs")
    await ours.put("other", "a", 1, b"of another kind")
    assert await all_of(ours, "list") == [b"ours"]
    assert await all_of(theirs, "list") == [b"theirs"]


async def test_pages_show_every_record_once_in_its_newest_version(ours):
    for n in range(5):
        await ours.put("list", str(n), 1, b"%d" % n)
    await ours.put("list", "0", 2, b"newer")
    found = await all_of(ours, "list", limit=2)
    assert (len(found), set(found)) == (5, {b"1", b"2", b"3", b"4", b"newer"})


async def test_a_removed_record_is_gone_in_all_its_versions_and_continues_above_them(ours):
    for version in (1, 2):
        await ours.put("list", "a", version, b"%d" % version)
    digest = ours.digest("list", "a")
    assert await ours.has_digest("list", digest)
    assert await ours.forget_digest("list", digest)
    assert not await ours.has_digest("list", digest)
    assert not await ours.forget_digest("list", digest)
    assert [await ours.version("list", "a", version) for version in (1, 2)] == [None, None]
    changed = await ours.change("list", "a", lambda standing: standing or b"new")
    assert changed is not None
    assert (changed.version, changed.value) == (3, b"new")


async def test_an_address_that_is_suppressed_again_is_listed_at_the_end_of_any_page(ours):
    """Its removed version used to end the page, and the next page began behind the new one."""
    channel = Addresses("list", str, str)
    for address in ("a", "b", "c"):
        await suppress(ours, channel, address, "first", 1)
        assert await unsuppress(ours, channel, address)
        assert not await unsuppress(ours, channel, address)
        await suppress(ours, channel, address, "again", 2)
    for limit in (1, 2, 3, 100):
        shown: list[str] = []
        after: str | None = ""
        while after is not None:
            page, after = await suppression.listed(ours, channel, after, limit)
            assert len(page) <= limit
            shown += [entry.suppressed.masked for entry in page]
        assert sorted(shown) == ["a", "b", "c"]


async def test_a_change_that_leaves_the_record_returns_it(ours):
    await ours.put("list", "a", 1, b"first")
    kept = await ours.change("list", "a", lambda _standing: None)
    assert kept is not None
    assert (kept.version, kept.value) == (1, b"first")


async def test_a_claimed_thing_stays_with_its_tenant(ours, theirs):
    assert await ours.claim("recipient", "7")
    assert await ours.claim("recipient", "7")
    assert not await theirs.claim("recipient", "7")
    assert await theirs.owner("recipient", "7") == "acme"
