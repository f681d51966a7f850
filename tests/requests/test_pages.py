"""Lists in pages: nothing twice, nothing left out, and no page costs more than so many reads."""

from __future__ import annotations

import pytest

from gesta import Done, Engine, InvalidRequest, Rejected, Unknown
from gesta.ports.read_model import Filter, View
from gesta.requests import pages
from gesta.stores.memory.read_model import MemoryReadModel
from tests.world import FLOW, URL, Note, Provider, let_run, note_flow


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(pages, "READ_AT_ONCE", 3)
    monkeypatch.setattr(pages, "LOOKED_AT_MAX", 6)


async def _ended(gesta, engine: Engine, count: int) -> list[str]:
    """Newest first."""
    requests = [await engine.submit(Note(str(number))) for number in range(count)]
    await let_run(gesta)
    return [request.id for request in requests][::-1]


async def test_pages_of_dead_letters_are_all_of_them_once(gesta):
    async with Engine(URL, flows=[note_flow(Provider(*[Rejected("no")] * 10))]) as engine:
        ids = await _ended(gesta, engine, 10)
        seen: list[str] = []
        before: str | None = None
        for _ in range(10):
            page = await engine.admin.dead_letter_page(before_id=before, limit=4)
            seen += [letter.id for letter in page.items]
            before = page.next
            if before is None:
                break
        assert seen == ids
        assert [one.id for one in await engine.admin.dead_letters(limit=7)] == ids[:7]


async def test_a_page_that_is_full_with_the_last_one_does_not_go_on(gesta):
    async with Engine(URL, flows=[note_flow(Provider(*[Rejected("no")] * 4))]) as engine:
        await _ended(gesta, engine, 4)
        assert (await engine.admin.dead_letter_page(limit=4)).next is None
        assert (await engine.admin.dead_letter_page(limit=3)).next is not None


async def test_a_page_ends_after_a_bounded_number_of_reads_and_the_next_one_continues_there(
    gesta, monkeypatch
):
    """One letter that fits behind eight that do not."""
    reads = 0
    find = MemoryReadModel.find

    async def counted(self: MemoryReadModel, chosen: Filter) -> list[View]:
        nonlocal reads
        reads += 1
        return await find(self, chosen)

    monkeypatch.setattr(MemoryReadModel, "find", counted)
    provider = Provider(Rejected("rare"), *[Rejected("common")] * 8)
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        ids = await _ended(gesta, engine, 9)
        reads = 0
        first = await engine.admin.dead_letter_page(reason="rare", limit=1)
        assert (first.items, first.next, reads) == ([], ids[5], 2)
        second = await engine.admin.dead_letter_page(reason="rare", before_id=first.next, limit=1)
        assert [one.id for one in second.items] == ids[-1:]


async def test_only_what_waits_for_a_person_is_undecided(gesta):
    """One that the engine itself will ask about is not."""
    parks, asks = Provider(Unknown("lost"), Unknown("lost"), Done()), Provider(Unknown("lost"))
    flows = [note_flow(parks, on_unknown="manual")]
    async with Engine(URL, flows=flows) as engine:
        ids = await _ended(gesta, engine, 3)
        page = await engine.admin.undecided_page()
        assert [state.id for state in page.items] == ids[1:]
        assert (page.items[0].reason, page.items[0].flow) == ("lost", FLOW)
        assert (await engine.admin.undecided_page("acme")).items == []
    async with Engine("memory:others", flows=[note_flow(asks)]) as engine:
        await _ended(gesta, engine, 1)
        assert (await engine.admin.undecided_page()).items == []


async def test_pages_belong_to_their_tenant(gesta):
    async with Engine(URL, flows=[note_flow(Provider(Rejected("no")))]) as engine:
        await engine.submit(Note(), tenant="acme")
        await let_run(gesta)
        assert (await engine.admin.dead_letter_page("default")).items == []
        assert len((await engine.admin.dead_letter_page("acme")).items) == 1


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (
            {"status": "sentt"},
            "status: 'sentt' is not a status; known: requested, validated, queued, sent",
        ),
        ({"limit": -1}, "limit: a whole number, 1 or more"),
        ({"limit": 0, "key": "x"}, "limit: a whole number, 1 or more"),
    ],
)
async def test_a_list_that_cannot_be_is_refused_and_not_empty_or_endless(gesta, wish, words):
    async with Engine(URL, flows=[note_flow(Provider())]) as engine:
        with pytest.raises(InvalidRequest, match=words):
            await engine.find(**wish)
