from gesta.testing.contracts.event_shares import EventSharesContract
from gesta.testing.contracts.event_store import EventStoreAfterRestartContract, EventStoreContract
from gesta.testing.contracts.key_claims import (
    EventClaimsAfterRestartContract,
    EventClaimsContract,
    KeyClaimsAfterRestartContract,
    KeyClaimsContract,
)


class TestEventStore(EventStoreContract): ...


class TestEventStoreAfterRestart(EventStoreAfterRestartContract): ...


class TestEventShares(EventSharesContract): ...


class TestEventClaims(EventClaimsContract): ...


class TestEventClaimsAfterRestart(EventClaimsAfterRestartContract): ...


class TestKeyClaims(KeyClaimsContract): ...


class TestKeyClaimsAfterRestart(KeyClaimsAfterRestartContract): ...
