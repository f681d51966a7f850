from gesta.testing.contracts.job_store import (
    JobRowsContract,
    JobStoreAfterRestartContract,
    JobStoreContract,
)


class TestJobStore(JobStoreContract): ...


class TestJobRows(JobRowsContract): ...


class TestJobStoreAfterRestart(JobStoreAfterRestartContract): ...
