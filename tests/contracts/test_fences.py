from gesta.testing.contracts.fences import (
    EventFencesContract,
    ExternalFencesContract,
    FencesAfterRestartContract,
    FencesContract,
    QueueFencesAfterRestartContract,
    QueueFencesContract,
)


class TestFences(FencesContract): ...


class TestFencesAfterRestart(FencesAfterRestartContract): ...


class TestQueueFences(QueueFencesContract): ...


class TestQueueFencesAfterRestart(QueueFencesAfterRestartContract): ...


class TestExternalFences(ExternalFencesContract): ...


class TestEventFences(EventFencesContract): ...
