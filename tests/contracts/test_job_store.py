from gesta.testing.contracts.job_store import JobStoreAfterRestartContract, JobStoreContract


class TestJobStore(JobStoreContract): ...


class TestJobStoreAfterRestart(JobStoreAfterRestartContract): ...
