from gesta.testing.contracts.checkpoints import CheckpointContract, RoleContract
from gesta.testing.contracts.leases import RolePartsContract
from gesta.testing.contracts.read_model import ViewsAfterRestartContract, ViewsContract
from gesta.testing.contracts.rebuilds import ShadowContract
from gesta.testing.contracts.sweeps import (
    DueViewsContract,
    StaleViewsContract,
    UndecidedViewsContract,
)
from gesta.testing.contracts.undispatched import PendingAfterRestartContract, PendingContract


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
