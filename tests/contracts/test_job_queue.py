from gesta.contracts.job_holds import HoldContract
from gesta.contracts.job_lanes import LanesAfterRestartContract, LanesContract
from gesta.contracts.job_leases import JobLeasesContract
from gesta.contracts.job_listing import JobListingContract
from gesta.contracts.job_queue import JobQueueAfterRestartContract, PutContract, TakeContract
from gesta.contracts.job_settlements import SettleContract
from gesta.contracts.job_turns import TurnsContract


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
