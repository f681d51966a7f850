from gesta.testing.contracts.vault import VaultAfterRestartContract, VaultContract


class TestVault(VaultContract): ...


class TestVaultAfterRestart(VaultAfterRestartContract): ...
