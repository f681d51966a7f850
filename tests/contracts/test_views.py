from gesta.contracts.checkpoints import CheckpointContract, RoleContract
from gesta.contracts.pending import PendingAfterRestartContract, PendingContract
from gesta.contracts.view_sweeps import DueViewsContract, StaleViewsContract
from gesta.contracts.views import ViewsAfterRestartContract, ViewsContract


class TestViews(ViewsContract): ...


class TestCheckpoint(CheckpointContract): ...


class TestRole(RoleContract): ...


class TestPending(PendingContract): ...


class TestPendingAfterRestart(PendingAfterRestartContract): ...


class TestDueViews(DueViewsContract): ...


class TestStaleViews(StaleViewsContract): ...


class TestViewsAfterRestart(ViewsAfterRestartContract): ...
