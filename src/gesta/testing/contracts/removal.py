"""What every store whose ports share a database promises about old requests: found without a scan,
gone whole or not at all.
"""

from msgspec.structs import replace

from gesta.ports.checkpoints import Move
from gesta.ports.event_store import Append, Claim, Claimed, Stale
from gesta.ports.read_model import Filter, View
from gesta.ports.vault import Encrypted
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import (
    OLD_MS,
    end_of_log,
    follow_from,
    fresh_append,
    fresh_claim,
    fresh_name,
    fresh_quarantined,
    fresh_stream,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract


class RemovalContract(Contract):
    needs = frozenset({"events", "read_model", "checkpoints", "transactions", "vault"})

    async def test_an_ended_request_goes_with_its_events_and_its_view(
        self, harness: Harness
    ) -> None:
        stream, view, _ = await _ended(harness)
        kept, other, _ = await _ended(harness, tenant=view.state.tenant)
        await _pass(harness)
        assert await harness.transactions.remove([(stream, view.state)]) == 1
        assert await harness.events.read([(stream, 0)]) == []
        assert await harness.read_model.find(Filter(view.state.tenant)) == [other]
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.counts(view.state.tenant) == {(view.state.flow, "sent"): 1}
        assert len(await harness.events.read([(kept, 0)])) == 2

    async def test_its_secret_is_destroyed_with_it_and_no_other(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        stays, other, _ = await _ended(harness, tenant=view.state.tenant)
        await harness.events.append([fresh_append(stays, expected=2)])
        await _pass(harness)
        tenant, first, second = view.state.tenant, fresh_name(), fresh_name()
        boxes = [Encrypted(tenant, first, 1, b"1"), Encrypted(tenant, first, 2, b"2")]
        boxes.append(Encrypted(tenant, second, 1, b"3"))
        assert await harness.vault.put(boxes) == [True] * 3
        ended = [(stream, view.state), (stays, other.state)]
        secrets = {stream: first, stays: second}
        assert await harness.transactions.remove(ended, secrets) == 1
        newest = await harness.vault.newest([(tenant, first), (tenant, second)])
        assert newest[tenant, first] == Encrypted(tenant, first, 2, b"")
        assert await harness.vault.get([(tenant, first, 1), (tenant, second, 1)]) == {
            (tenant, second, 1): boxes[2]
        }

    async def test_its_key_stays_claimed(self, harness: Harness) -> None:
        stream, view, claim = await _ended(harness)
        await _pass(harness)
        await harness.transactions.remove([(stream, view.state)])
        again = fresh_append(claim=Claim(claim.name, fresh_view().state.id, claim.content))
        assert await harness.events.append([again]) == [Claimed(claim.request_id, claim.content)]

    async def test_positions_go_on_behind_what_is_gone(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        end = await harness.events.end()
        await harness.transactions.remove([(stream, view.state)])
        assert await harness.events.end() == end
        late = fresh_append()
        await harness.events.append([late])
        assert [event.stream for event in await harness.events.follow(end, 10)] == [late.stream]

    async def test_a_request_that_has_changed_since_is_left_alone(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        await harness.events.append([fresh_append(stream, expected=2)])
        await _pass(harness)
        assert await harness.transactions.remove([(stream, view.state)]) == 0
        assert len(await harness.events.read([(stream, 0)])) == 3
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}

    async def test_events_that_a_follower_has_not_passed_are_not_removed(
        self, harness: Harness
    ) -> None:
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        (first, _) = await harness.events.read([(stream, 0)])
        await harness.checkpoints.begin(fresh_name(), first.position)
        assert await harness.transactions.remove([(stream, view.state)]) == 0
        assert len(await harness.events.read([(stream, 0)])) == 2

    async def test_quarantined_events_are_removed_with_their_request(
        self, harness: Harness
    ) -> None:
        stream, view, _ = await _ended(harness)
        await harness.read_model.save(
            [], [replace(fresh_quarantined(view.state.tenant), stream=stream)]
        )
        await _pass(harness)
        await harness.transactions.remove([(stream, view.state)])
        assert await harness.read_model.quarantined(view.state.tenant, 10) == []

    async def test_a_large_batch_of_requests_is_removed(self, harness: Harness) -> None:
        ended = [await _ended(harness) for _ in range(150)]
        await _pass(harness)
        assert (
            await harness.transactions.remove([(stream, view.state) for stream, view, _ in ended])
            == 150
        )
        assert await harness.events.read([(stream, 0) for stream, _, _ in ended]) == []

    async def test_a_late_append_to_what_is_gone_is_refused(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        await harness.transactions.remove([(stream, view.state)])
        assert await harness.events.append([fresh_append(stream, expected=2)]) == [Stale(0)]

    async def test_a_shadow_made_before_is_not_swapped_in(self, harness: Harness) -> None:
        """It may have seen the request, and would bring it back without its events."""
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        shadow = await harness.read_model.shadow()
        await shadow.save([replace_status(view, "queued")])
        await harness.transactions.remove([(stream, view.state)])
        assert await shadow.swap([fresh_name()], 0, []) is False
        assert await harness.read_model.get([key_of(view)]) == {}

    async def test_what_is_gone_stays_gone_after_a_restart(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        await harness.transactions.remove([(stream, view.state)])
        await reopen(harness)
        assert await harness.events.read([(stream, 0)]) == []


class LogRemovalContract(Contract):
    """Not of a store that keeps removed events in its log until it is scavenged."""

    needs = frozenset({"events", "read_model", "checkpoints", "transactions", "log_removal"})

    async def test_removed_events_are_not_in_the_log(self, harness: Harness) -> None:
        stream, view, _ = await _ended(harness)
        await _pass(harness)
        assert await harness.transactions.remove([(stream, view.state)]) == 1
        assert stream not in {event.stream for event in await follow_from(harness.events, 0)}


def replace_status(view: View, status: str) -> View:
    return View(replace(view.state, status=status, version=view.state.version + 1), view.payload)


async def _ended(harness: Harness, tenant: str | None = None) -> tuple[str, View, Claim]:
    """A request of two events that has ended."""
    view = fresh_view(
        tenant=tenant or fresh_name("tenant"), status="sent", version=2, updated_at=OLD_MS
    )
    stream, claim = fresh_stream(), replace(fresh_claim(), request_id=view.state.id)
    first = fresh_append(stream, count=2)
    await harness.events.append([Append(stream, 0, first.events, claim)])
    await harness.read_model.save([view], [])
    return stream, view, claim


async def _pass(harness: Harness) -> None:
    """Every follower of the log reaches its end."""
    end = await end_of_log(harness.events)
    await harness.checkpoints.begin("projector/0", 0)
    for one in await harness.checkpoints.checkpoints():
        if one.position < end:
            await harness.checkpoints.move([Move(one.name, one.position, end)])
