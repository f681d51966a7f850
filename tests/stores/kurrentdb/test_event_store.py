"""What the KurrentDB adapter does beyond the contracts, against the protocol double."""

from __future__ import annotations

import asyncio

import pytest
from kurrentdbclient import NewEvent

from gesta.errors import BadSettings, Fenced, StoreError
from gesta.ports.event_store import FOLLOW_BYTES, Append, Appended, Claimed, Stale
from gesta.ports.fences import Fence
from gesta.runtime.clock import SystemRuntime
from gesta.stores.kurrentdb import key_claims, open_events_at
from gesta.stores.kurrentdb import open_events as open_url
from gesta.stores.kurrentdb.client import Write, Written
from gesta.stores.kurrentdb.connection import address_of
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_stream,
    sized_append,
)
from gesta.testing.kurrentdb_double.log import Log, Proposed

MIB = 1024 * 1024


def proposed(text):
    return Proposed(text, {"type": "t"}, b"{}", b"")


async def test_a_claim_is_a_stream_that_did_not_exist(open_events, raw):
    ports, claim = await open_events(), fresh_claim()
    await ports.events.append([fresh_append(claim=claim)])
    (event,) = await raw.read(f"gesta.key-{claim.name.hex()}", 0)
    assert (event.type, event.stream_position) == ("KeyClaimed.v1", 0)


async def test_a_key_whose_request_never_came_is_taken_over(open_events, raw, monkeypatch):
    """As after a crash between the claim and the events of the first process."""
    monkeypatch.setattr(key_claims, "GRACE_SECONDS", 0.05)
    first, claim = fresh_append(), fresh_claim()
    holder = key_claims.holder_of(claim, first.stream)
    assert await raw.append([key_claims.claiming(claim.name, 0, holder, b"1")]) == [Written()]
    second, ports = fresh_append(claim=fresh_claim(claim.name)), await open_events()
    assert await ports.events.append([second]) == [Appended(1)]
    late = Append(first.stream, 0, first.events, claim)
    assert second.claim is not None
    # The first process comes back, and learns that it was too late.
    assert await ports.events.append([late]) == [Claimed(second.claim.request_id, b"content")]
    assert await ports.events.read([(first.stream, 0)]) == []
    found = [event.stream for event in await ports.events.follow(0, 100)]
    assert found == [second.stream]
    claims = await ports.key_claims.claims(b"", 10)
    assert [one.request_id for one in claims] == [second.claim.request_id]


async def test_an_append_that_comes_after_the_takeover_is_refused(open_events, raw):
    """The first process had its claim, was slow, and sends its events now."""
    append = fresh_append()
    mark = NewEvent(type=key_claims.TAKEN_OVER, data=b"{}", metadata=b"")
    await raw.append([Write(append.stream, 0, [mark])])
    ports = await open_events()
    with pytest.raises(StoreError, match="taken over the key"):
        await ports.events.append([append])
    assert await ports.events.follow(0, 100) == []


async def test_a_claim_without_a_request_is_not_listed(open_events, raw):
    ports, lost, kept = await open_events(), fresh_claim(), fresh_claim()
    holder = key_claims.holder_of(lost, "x.request-a")
    await raw.append([key_claims.claiming(lost.name, 0, holder, b"1")])
    await ports.events.append([fresh_append(claim=kept)])
    assert await ports.key_claims.claims(b"", 10) == [kept]


async def test_a_refused_repetition_does_not_release_the_key_of_its_request(open_events):
    ports, claim = await open_events(), fresh_claim()
    first = fresh_append(claim=claim)
    await ports.events.append([first])
    other = Append(first.stream, 0, fresh_append().events, claim)
    assert await ports.events.append([other]) == [Stale(1)]
    stolen = fresh_append(claim=fresh_claim(claim.name))
    assert await ports.events.append([stolen]) == [Claimed(claim.request_id, claim.content)]


async def test_two_processes_that_want_a_key_at_the_same_time_agree(open_events):
    one, other, claim = await open_events(), await open_events(), fresh_claim()
    appends = [fresh_append(claim=fresh_claim(claim.name)) for _ in range(2)]
    answers = await asyncio.gather(one.events.append(appends[:1]), other.events.append(appends[1:]))
    kinds = sorted(type(verdict).__name__ for (verdict,) in answers)
    assert kinds == ["Appended", "Claimed"]
    assert len(await one.events.follow(0, 10)) == 1


async def test_events_of_other_programs_are_not_followed(open_events, raw):
    ports, append = await open_events(), fresh_append()
    foreign = NewEvent(type="OrderPaid", data=b"{}")
    await raw.append([Write("order-7", 0, [foreign])])
    await ports.events.append([append])
    await raw.append([Write("shop.order-8", 0, [foreign])])
    assert [event.stream for event in await ports.events.follow(0, 100)] == [append.stream]
    assert await ports.events.end() == (await ports.events.follow(0, 1))[0].position


async def test_a_stream_that_would_not_be_followed_is_refused(open_events):
    ports = await open_events()
    with pytest.raises(StoreError, match="has a name that gesta does not follow"):
        await ports.events.append([fresh_append("ledger")])


async def test_an_event_that_the_server_does_not_accept_is_named_with_the_cure(open_events):
    ports, append = await open_events(), sized_append(MIB)
    with pytest.raises(StoreError, match="MaxAppendSize"):
        await ports.events.append([append])
    assert await ports.events.read([(append.stream, 0)]) == []


async def test_a_page_ends_with_the_event_that_makes_it_full(open_events):
    """The contract uses events that are larger than KurrentDB accepts."""
    ports, half = await open_events(), MIB // 2
    count = FOLLOW_BYTES // half
    await ports.events.append([sized_append(half) for _ in range(count + 3)])
    first = await ports.events.follow(0, 1_000)
    assert len(first) == count
    assert len(await ports.events.follow(first[-1].position, 1_000)) == 3


async def test_another_process_is_woken_by_an_append(open_events):
    ports, other = await open_events(), await open_events()
    assert await ports.events.follow(0, 10) == []
    waiting = asyncio.create_task(ports.events.changed(60))
    await asyncio.sleep(0)
    await other.events.append([fresh_append()])
    async with asyncio.timeout(60):
        await waiting
        while not await ports.events.follow(0, 10):
            await ports.events.changed(60)


async def test_a_fence_of_another_process_is_seen_within_a_second(open_events):
    ports, other = await open_events(), await open_events()
    await ports.events.append([fresh_append()])
    await other.fences.put_up(Fence("left", "elsewhere"))

    async def append_for_ever():
        while True:
            await ports.events.append([fresh_append()])
            await asyncio.sleep(0.05)

    with pytest.raises(Fenced):
        await asyncio.wait_for(append_for_ever(), 20)


async def test_a_removed_stream_is_never_used_again(open_events):
    ports, append = await open_events(), fresh_append(count=2)
    await ports.events.append([append])
    end = await ports.events.end()
    assert await ports.event_removal.remove_streams([(append.stream, 1)], end) == [False]
    assert await ports.event_removal.remove_streams([(append.stream, 2)], end - 1) == [False]
    assert await ports.event_removal.remove_streams([(append.stream, 2)], end) == [True]
    assert await ports.event_removal.remove_streams([(append.stream, 2)], end) == [True]
    assert await ports.events.append([fresh_append(append.stream)]) == [Stale(0)]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("kurrentdb://", "No targets"),
        ("kurrentdb://10.0.0.7:2113?Tls=false", "unencrypted"),
        ("kurrentdb://u:secret@127.0.0.1:2113?Colour=red", "COLOUR"),
        ("kurrentdb://127.0.0.1:2113?Tls=false&NodePreference=follower", "lag behind"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url, error):
    with pytest.raises(BadSettings, match=error) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)


async def test_a_server_that_does_not_answer_is_named(tmp_path):
    with pytest.raises(StoreError, match="does not answer"):
        await open_url("kurrentdb://127.0.0.1:9?Tls=false", SystemRuntime())


async def test_appends_go_on_after_the_double_was_killed(double_process):
    address = address_of(double_process.url)
    ports = await open_events_at(address, SystemRuntime(), settle_seconds=0)
    append = fresh_append(count=2)
    await ports.events.append([append])
    double_process.kill()
    with pytest.raises(StoreError, match="does not answer"):
        await ports.events.append([fresh_append()])
    await double_process.start()
    assert await ports.events.append([append]) == [Appended(2)]
    assert [one.version for one in await ports.events.follow(0, 10)] == [1, 2]
    await ports.close()


def test_the_double_keeps_whole_appends_only(tmp_path):
    log = Log(tmp_path)
    stream = fresh_stream()
    log.append(stream, "no_stream", [proposed("1"), proposed("2")])
    log.append(stream, 1, [proposed("3")])
    log.close()
    file = tmp_path / "log"
    file.write_bytes(file.read_bytes()[:-1])
    again = Log(tmp_path)
    assert [one.id for one in again.records] == ["1", "2"]
    assert [one.position for one in again.records] == [one.position for one in log.records[:2]]
    again.close()
