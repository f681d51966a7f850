from gesta.testing.contracts.eager_jobs import EagerJobsContract
from gesta.testing.contracts.external_leases import (
    ExternalLeasesAfterRestartContract,
    ExternalLeasesContract,
    ListedExternalLeasesContract,
)
from gesta.testing.contracts.fair_queue import FairQueueContract, OrderContract
from gesta.testing.contracts.job_holds import JobHoldsAfterRestartContract, JobHoldsContract
from gesta.testing.contracts.job_inspection import JobInspectionContract
from gesta.testing.contracts.job_leases import JobLeasesContract
from gesta.testing.contracts.job_queue import (
    JobQueueAfterRestartContract,
    PutContract,
    TakeContract,
)
from gesta.testing.contracts.job_settlements import SettleContract
from gesta.testing.contracts.unique_jobs import UniqueJobsContract


class TestPut(PutContract): ...


class TestTake(TakeContract): ...


class TestUniqueJobs(UniqueJobsContract): ...


class TestEagerJobs(EagerJobsContract): ...


class TestTurns(FairQueueContract): ...


class TestOrder(OrderContract): ...


class TestHold(JobHoldsContract): ...


class TestSettle(SettleContract): ...


class TestJobLeases(JobLeasesContract): ...


class TestJobQueueAfterRestart(JobQueueAfterRestartContract): ...


class TestJobListing(JobInspectionContract): ...


class TestExternalLeases(ExternalLeasesContract): ...


class TestExternalLeasesAfterRestart(ExternalLeasesAfterRestartContract): ...


class TestHoldAfterRestart(JobHoldsAfterRestartContract): ...


class TestListedExternalLeases(ListedExternalLeasesContract): ...
