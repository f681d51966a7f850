"""Encrypts the rendered call of a journalled attempt, under the key of its tenant.

It can be opened only for the same request, operation and intent: a call that was moved to another
one is not sent.
"""

import base64

from gesta.domain.state import State
from gesta.ports.vault import Encrypted
from gesta.security.envelope_encryption import KeyRing


class CallJournal:
    def __init__(self, key_ring: KeyRing) -> None:
        self._key_ring = key_ring

    async def encrypt(self, state: State, call: bytes) -> str:
        encrypted = await self._key_ring.encrypt(state.tenant, _name(state), state.intent, call)
        return base64.b64encode(encrypted.box).decode()

    async def decrypt(self, state: State) -> bytes | None:
        """The call of the open intent; None when it was changed, or is another request's."""
        try:
            box = base64.b64decode(state.journal, validate=True)
        except ValueError:
            return None
        return await self._key_ring.decrypt(
            Encrypted(state.tenant, _name(state), state.intent, box)
        )


def _name(state: State) -> str:
    return f"call/{state.flow}/{state.id}/{state.operation}"
