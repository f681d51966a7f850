from gesta.testing.contracts.checkpoints import CheckpointContract
from gesta.testing.contracts.leases import RoleContract, RolePartsContract
from gesta.testing.contracts.read_model import (
    ShadowContract,
    UndecidedViewsContract,
    ViewsAfterRestartContract,
    ViewsContract,
)
from gesta.testing.contracts.sweep_index import DueViewsContract, StaleViewsContract
from gesta.testing.contracts.undispatched_jobs import PendingAfterRestartContract, PendingContract


class TestViews(ViewsContract): ...


class TestCheckpoint(CheckpointContract): ...


class TestRole(RoleContract): ...


class TestRoleParts(RolePartsContract): ...


class TestPending(PendingContract): ...


class TestPendingAfterRestart(PendingAfterRestartContract): ...


class TestDueViews(DueViewsContract): ...


class TestStaleViews(StaleViewsContract): ...


class TestUndecidedViews(UndecidedViewsContract): ...


class TestShadow(ShadowContract): ...


class TestViewsAfterRestart(ViewsAfterRestartContract): ...
