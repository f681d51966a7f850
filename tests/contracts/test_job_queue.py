from gesta.contracts.job_leases import JobLeasesContract
from gesta.contracts.job_listing import JobListingContract
from gesta.contracts.job_queue import JobQueueAfterRestartContract, PutContract, TakeContract
from gesta.contracts.job_settlements import SettleContract


class TestPut(PutContract): ...


class TestTake(TakeContract): ...


class TestSettle(SettleContract): ...


class TestJobLeases(JobLeasesContract): ...


class TestJobQueueAfterRestart(JobQueueAfterRestartContract): ...


class TestJobListing(JobListingContract): ...
