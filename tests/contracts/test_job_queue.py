from gesta.testing.contracts.external_leases import (
    LanesAfterRestartContract,
    LanesContract,
    ListedExternalLeasesContract,
)
from gesta.testing.contracts.fair_queue import TurnsContract
from gesta.testing.contracts.job_holds import HoldAfterRestartContract, HoldContract
from gesta.testing.contracts.job_inspection import JobListingContract
from gesta.testing.contracts.job_leases import JobLeasesContract
from gesta.testing.contracts.job_queue import (
    JobQueueAfterRestartContract,
    PutContract,
    TakeContract,
)
from gesta.testing.contracts.job_settlements import SettleContract


class TestPut(PutContract): ...


class TestTake(TakeContract): ...


class TestTurns(TurnsContract): ...


class TestHold(HoldContract): ...


class TestSettle(SettleContract): ...


class TestJobLeases(JobLeasesContract): ...


class TestJobQueueAfterRestart(JobQueueAfterRestartContract): ...


class TestJobListing(JobListingContract): ...


class TestLanes(LanesContract): ...


class TestLanesAfterRestart(LanesAfterRestartContract): ...


class TestHoldAfterRestart(HoldAfterRestartContract): ...


class TestListedExternalLeases(ListedExternalLeasesContract): ...
