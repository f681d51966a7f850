from gesta.testing.contracts.fences import FencesAfterRestartContract, FencesContract


class TestFences(FencesContract): ...


class TestFencesAfterRestart(FencesAfterRestartContract): ...
