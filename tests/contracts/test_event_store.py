from gesta.testing.contracts.event_shares import EventSharesContract, LargeEventSharesContract
from gesta.testing.contracts.event_store import (
    EventStoreAfterRestartContract,
    EventStoreContract,
    LargeEventsAfterRestartContract,
    LargeEventsContract,
)
from gesta.testing.contracts.key_claims import (
    EventClaimsAfterRestartContract,
    EventClaimsContract,
    FirstClaimsContract,
    KeyClaimsAfterRestartContract,
    KeyClaimsContract,
)


class TestEventStore(EventStoreContract): ...


class TestEventStoreAfterRestart(EventStoreAfterRestartContract): ...


class TestLargeEvents(LargeEventsContract): ...


class TestLargeEventsAfterRestart(LargeEventsAfterRestartContract): ...


class TestLargeEventShares(LargeEventSharesContract): ...


class TestEventShares(EventSharesContract): ...


class TestEventClaims(EventClaimsContract): ...


class TestFirstClaims(FirstClaimsContract): ...


class TestEventClaimsAfterRestart(EventClaimsAfterRestartContract): ...


class TestKeyClaims(KeyClaimsContract): ...


class TestKeyClaimsAfterRestart(KeyClaimsAfterRestartContract): ...
