"""The token that a holder of work gets: which lease it is, and which attempt of which opening, with
a digest that only we can make.

Nothing of it is kept here, so it is as good after a restart and in another process as it was
before.
"""

from __future__ import annotations

from hmac import compare_digest

import msgspec

from gesta.security.keyed_digests import KeyedDigests

#: Longer texts are no ticket of ours.
LENGTH_MAX = 200


class LeaseToken(msgspec.Struct, frozen=True, gc=False):
    """What a token says. `lease`: the queue's own token."""

    lease: str
    dispatch_version: int
    attempt: int
    intent: int
    leased_ms: int
    #: 1 where the id of the request is its caller's own, which the name of its job hangs on.
    own: int = 0


class LeaseTokens:
    def __init__(self, identity: KeyedDigests) -> None:
        self._identity = identity

    def write(self, tenant: str, flow: str, request_id: str, lease_token: LeaseToken) -> str:
        said = _said(lease_token)
        return f"{said}.{self._digest(tenant, flow, request_id, said)}"

    def read(self, tenant: str, flow: str, request_id: str, text: object) -> LeaseToken | None:
        """None for whatever we did not give out for this very request."""
        if not isinstance(text, str) or not text.isascii() or len(text) > LENGTH_MAX:
            return None
        said, _, digest = text.rpartition(".")
        if not compare_digest(digest, self._digest(tenant, flow, request_id, said)):
            return None
        lease, *numbers = said.split(".")
        return LeaseToken(lease, *map(int, numbers))

    def cause(self, token: str, report: bytes) -> bytes:
        """16 bytes by which the events of one report under one token are told: the same report
        gives the same.
        """
        return self._identity.lease_token(["report", token, report.decode()])

    def _digest(self, tenant: str, flow: str, request_id: str, said: str) -> str:
        return self._identity.lease_token(["lease", tenant, flow, request_id, said]).hex()


def _said(lease_token: LeaseToken) -> str:
    own = ".1" if lease_token.own else ""
    return f"{lease_token.lease}.{lease_token.dispatch_version}.{lease_token.attempt}.{lease_token.intent}.{lease_token.leased_ms}{own}"
