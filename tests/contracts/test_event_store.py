from gesta.testing.contracts.event_claims import (
    EventClaimsAfterRestartContract,
    EventClaimsContract,
)
from gesta.testing.contracts.event_shares import EventSharesContract
from gesta.testing.contracts.event_store import EventStoreAfterRestartContract, EventStoreContract


class TestEventStore(EventStoreContract): ...


class TestEventStoreAfterRestart(EventStoreAfterRestartContract): ...


class TestEventShares(EventSharesContract): ...


class TestEventClaims(EventClaimsContract): ...


class TestEventClaimsAfterRestart(EventClaimsAfterRestartContract): ...
