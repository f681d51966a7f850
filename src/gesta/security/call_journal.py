"""Encrypts the rendered call of a journalled attempt, under the key of its tenant.

The event of the attempt carries it. It can be opened only for the same request, operation and
intent: a call that was moved to another one is not sent.
"""

from gesta.domain.codec import event_types
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.domain.transaction.events import CallStarted
from gesta.ports.event_store import EventStore
from gesta.ports.vault import Encrypted
from gesta.security.envelope_encryption import KeyRing


class CallJournal:
    def __init__(self, key_ring: KeyRing, events: EventStore) -> None:
        self._key_ring, self._events = key_ring, events

    async def encrypt(self, state: State, call: bytes) -> bytes:
        encrypted = await self._key_ring.encrypt(state.tenant, _name(state), state.intent, call)
        return encrypted.box

    def encrypt_now(self, state: State, call: bytes) -> bytes | None:
        """As `encrypt`, if the key of the tenant was read before; else None."""
        return self._key_ring.box_now(state.tenant, _name(state), state.intent, call)

    async def read(self, state: State) -> bytes | None:
        """The journaled call of the open intent; None if it was changed or belongs to another
        request.
        """
        stream = request_stream(state.flow, state.tenant, state.id)
        for recorded in await self._events.read_back(stream, state.journal + 1, 1):
            try:
                event = event_types(state.flow).decode(recorded.type, recorded.data)
            except ValueError:
                return None
            if recorded.version == state.journal and isinstance(event, CallStarted):
                return await self._key_ring.decrypt(
                    Encrypted(state.tenant, _name(state), state.intent, event.call)
                )
        return None


def _name(state: State) -> str:
    return f"call/{state.flow}/{state.id}/{state.operation}"
