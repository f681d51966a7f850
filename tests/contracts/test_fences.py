from gesta.testing.contracts.fences import (
    FencesAfterRestartContract,
    FencesContract,
    QueueFencesAfterRestartContract,
    QueueFencesContract,
)


class TestFences(FencesContract): ...


class TestFencesAfterRestart(FencesAfterRestartContract): ...


class TestQueueFences(QueueFencesContract): ...


class TestQueueFencesAfterRestart(QueueFencesAfterRestartContract): ...
