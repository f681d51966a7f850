from gesta.testing.contracts.checkpoints import CheckpointContract
from gesta.testing.contracts.leases import (
    LeasesContract,
    LiveProcessesContract,
    SharedLeasesContract,
)
from gesta.testing.contracts.read_model import (
    ReadModelAfterRestartContract,
    ReadModelContract,
    ShadowContract,
    UndecidedViewsContract,
)
from gesta.testing.contracts.sweep_index import DueViewsContract, StaleViewsContract
from gesta.testing.contracts.undispatched_jobs import (
    UndispatchedJobsAfterRestartContract,
    UndispatchedJobsContract,
)


class TestViews(ReadModelContract): ...


class TestCheckpoint(CheckpointContract): ...


class TestRole(LeasesContract): ...


class TestRoleParts(SharedLeasesContract): ...


class TestLiveProcesses(LiveProcessesContract): ...


class TestPending(UndispatchedJobsContract): ...


class TestPendingAfterRestart(UndispatchedJobsAfterRestartContract): ...


class TestDueViews(DueViewsContract): ...


class TestStaleViews(StaleViewsContract): ...


class TestUndecidedViews(UndecidedViewsContract): ...


class TestShadow(ShadowContract): ...


class TestViewsAfterRestart(ReadModelAfterRestartContract): ...
