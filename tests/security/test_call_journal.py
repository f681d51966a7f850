"""The journalled call of a payment: who can open it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gesta.domain.codec import encode
from gesta.domain.ids import event_id
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.domain.transaction.events import CallStarted
from gesta.ports.event_store import Append, NewEvent
from gesta.runtime.clock import ManualRuntime
from gesta.security.call_journal import CallJournal
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.vault import MemoryVault
from tests.security.test_envelope_encryption import key_ring

CALL = b'{"body":"amount=4990"}'
#: Its first event carries the call.
PAID = State("r-1", "acme", "payment.card", "queued", 1, 0, 0, operation="sale", journal=1)


@pytest.fixture
def events() -> MemoryEventStore:
    return MemoryEventStore(ManualRuntime())


@pytest.fixture
def journal(events: MemoryEventStore) -> CallJournal:
    return CallJournal(key_ring(MemoryVault()), events)


async def append(events: MemoryEventStore, state: State, data: bytes) -> None:
    stream = request_stream(state.flow, state.tenant, state.id)
    event = NewEvent(event_id(bytes(16), 0), "payment.card.AttemptStarted.v1", data, b"{}")
    await events.append([Append(stream, 0, (event,))])


async def test_a_journalled_call_comes_back_from_its_event(events, journal):
    box = await journal.encrypt(PAID, CALL)
    await append(events, PAID, encode(CallStarted(1, "key", call=box)))
    assert CALL not in box
    assert await journal.read(PAID) == CALL


@pytest.mark.parametrize(
    "other",
    [{"id": "r-2"}, {"intent": 2}, {"operation": "refund"}, {"tenant": "other"}],
    ids=lambda other: next(iter(other)),
)
async def test_a_call_that_was_moved_to_another_intent_is_not_opened(events, journal, other):
    """A person who can write to the store could make one payment send the call of another."""
    thief = replace(PAID, **other)
    await append(events, thief, encode(CallStarted(1, "k", call=await journal.encrypt(PAID, CALL))))
    assert await journal.read(thief) is None


async def test_a_call_that_was_changed_or_is_gone_is_not_opened(events, journal):
    assert await journal.read(PAID) is None
    await append(events, PAID, b'{"attempt":1,"key":"k","call":"not base64!"}')
    assert await journal.read(PAID) is None
    assert await journal.read(replace(PAID, journal=2)) is None


async def test_a_call_is_encrypted_without_waiting_once_the_key_of_its_tenant_was_read(
    events, journal
):
    assert journal.encrypt_now(PAID, CALL) is None
    await journal.encrypt(PAID, b"another")
    box = journal.encrypt_now(PAID, CALL)
    await append(events, PAID, encode(CallStarted(1, "key", call=box)))
    assert CALL not in box
    assert await journal.read(PAID) == CALL
