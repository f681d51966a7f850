from gesta.contracts.event_claims import EventClaimsAfterRestartContract, EventClaimsContract
from gesta.contracts.event_store import EventStoreAfterRestartContract, EventStoreContract


class TestEventStore(EventStoreContract): ...


class TestEventStoreAfterRestart(EventStoreAfterRestartContract): ...


class TestEventClaims(EventClaimsContract): ...


class TestEventClaimsAfterRestart(EventClaimsAfterRestartContract): ...
