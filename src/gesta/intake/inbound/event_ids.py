"""The ids of accepted events: each belongs to the thing that it was first about.

The claim is on disk with the request or before it. A crash between the two changes nothing: the
event comes again about the same thing, and holds the claim.
"""

from gesta.domain.ids import id_text
from gesta.ports.event_store import Claim
from gesta.security.keyed_digests import KeyedDigests


def event_claim(
    identity: KeyedDigests, tenant: str, source: str, event_id: str, about: str
) -> Claim:
    """It leads elsewhere if an event with the same id was about another thing."""
    # No flow has such a name, so that no key of a request is claimed.
    scope = f"{source}~event"
    holder = identity.name(tenant, scope, about)
    return Claim(identity.name(tenant, f"{scope}-id", event_id), id_text(holder), holder)
