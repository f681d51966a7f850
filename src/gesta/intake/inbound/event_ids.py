"""The ids of accepted events: each belongs to the thing that it was first about.

The claim is on disk before the request. A crash between the two changes nothing: the event comes
again about the same thing, and holds the claim.
"""

from collections.abc import Sequence

from gesta.domain.ids import id_text
from gesta.ports.event_store import Claim, KeyClaims
from gesta.runtime.group_commit import GroupCommit
from gesta.security.keyed_digests import KeyedDigests

#: Claims of one commit.
BATCH = 500


class EventIds:
    def __init__(self, claims: KeyClaims, identity: KeyedDigests) -> None:
        self._claims, self._identity = claims, identity
        self._commit: GroupCommit[Claim, bool] = GroupCommit(self._put, "gesta-event-ids", BATCH)

    async def claim(self, tenant: str, source: str, event_id: str, about: str) -> bool:
        """Whether the event is about this thing; False: an event with the same id was about another
        thing.
        """
        # No flow has such a name, so that no key of a request is claimed.
        scope = f"{source}~event"
        holder = id_text(self._identity.name(tenant, scope, about))
        name = self._identity.name(tenant, f"{scope}-id", event_id)
        return await self._commit.add(Claim(name, holder, self._identity.content(about.encode())))

    async def _put(self, claims: Sequence[Claim]) -> list[bool]:
        return await self._claims.put_claims(claims)
