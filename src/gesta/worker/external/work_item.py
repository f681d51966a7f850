"""Work that is leased out, the token that proves the lease, and the answers to its holder.

Field names are the wire's; times are epoch milliseconds. A token names the lease, the attempt and
the opening, with a keyed digest. Nothing of it is stored, so it stays valid after a restart and in
another process.
"""

from hmac import compare_digest

import msgspec

from gesta.domain.ids import idempotency_key
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.domain.transaction.funds import in_doubt
from gesta.security.keyed_digests import KeyedDigests

#: Longer texts are not our tokens.
LENGTH_MAX = 200


class LeaseToken(msgspec.Struct, frozen=True, gc=False):
    """What a token says. `lease`: the queue's own token."""

    lease: str
    dispatch_version: int
    attempt: int
    intent: int
    leased_ms: int
    #: 1 if the caller chose the id of the request; the id of its job depends on that.
    own: int = 0


class LeaseTokens:
    def __init__(self, identity: KeyedDigests) -> None:
        self._identity = identity

    def write(self, tenant: str, flow: str, request_id: str, lease_token: LeaseToken) -> str:
        said = _said(lease_token)
        return f"{said}.{self._digest(tenant, flow, request_id, said)}"

    def read(self, tenant: str, flow: str, request_id: str, text: object) -> LeaseToken | None:
        """None for a text that is not a token of this request."""
        if not isinstance(text, str) or not text.isascii() or len(text) > LENGTH_MAX:
            return None
        said, _, digest = text.rpartition(".")
        if not compare_digest(digest, self._digest(tenant, flow, request_id, said)):
            return None
        lease, *numbers = said.split(".")
        return LeaseToken(lease, *map(int, numbers))

    def cause(self, token: str, report: bytes) -> bytes:
        """16 bytes that identify the events of one report under one token: the same report
        gives the same.
        """
        return self._identity.lease_token(["report", token, report.decode()])

    def _digest(self, tenant: str, flow: str, request_id: str, said: str) -> str:
        return self._identity.lease_token(["lease", tenant, flow, request_id, said]).hex()


def _said(lease_token: LeaseToken) -> str:
    own = ".1" if lease_token.own else ""
    numbers = (
        lease_token.dispatch_version,
        lease_token.attempt,
        lease_token.intent,
        lease_token.leased_ms,
    )
    return f"{lease_token.lease}.{'.'.join(map(str, numbers))}{own}"


class WorkItem(msgspec.Struct, frozen=True, rename="camel"):
    """A leased request. Its payload is in clear, for the external worker only."""

    flow: str
    id: str
    #: Proves that the work is the holder's; every report and extension carries it.
    token: str
    #: Report before this, or ask for more time.
    lease_until: int
    #: The number of this attempt, from 1.
    attempt: int
    #: The idempotency key of the effect: the same for every attempt.
    key: str
    payload: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"))
    correlation_id: str = ""
    created_at: int = 0
    due_at: int | None = None
    #: Useless after this.
    expires_at: int | None = None
    priority: int = 5
    #: Cancelled: stop if possible, and report what happened.
    cancel_requested: bool = False
    #: The operation, if a request has several: `authorization`, `capture`.
    operation: str = "send"
    #: The amount of the operation of a transaction.
    amount: Money | None = None

    def __repr__(self) -> str:
        # Without payload and token: they are for the holder of the lease only.
        return f"WorkItem({self.flow} {self.id} attempt {self.attempt})"


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """How long the lease lasts."""

    lease_until: int
    cancel_requested: bool


class Reported(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The request after a report."""

    flow: str
    id: str
    status: str
    attempts: int
    reason: str = ""
    #: When it can be leased again.
    next_attempt_at: int | None = None


def item_of(state: State, token: str, lease_until: int, payload: bytes) -> WorkItem:
    return WorkItem(
        state.flow,
        state.id,
        token,
        lease_until,
        state.attempts + 1,
        idempotency_key(state.tenant, state.id, state.operation, state.intent),
        msgspec.Raw(payload),
        state.correlation_id,
        state.created_at,
        state.due_at,
        state.expires_at,
        state.priority,
        state.cancel_requested,
        state.operation,
        _amount(state),
    )


def _amount(state: State) -> Money | None:
    if lifecycle_of(state.flow).stream != "transaction":
        return None
    return in_doubt(state)


def reported(state: State) -> Reported:
    next_at = state.due_at if state.wants is not None else None
    return Reported(state.flow, state.id, state.status, state.attempts, state.reason, next_at)
