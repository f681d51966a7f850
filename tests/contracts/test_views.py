from gesta.contracts.checkpoints import CheckpointContract, RoleContract
from gesta.contracts.pending import PendingAfterRestartContract, PendingContract
from gesta.contracts.role_parts import RolePartsContract
from gesta.contracts.view_shadows import ShadowContract
from gesta.contracts.view_sweeps import DueViewsContract, StaleViewsContract, UndecidedViewsContract
from gesta.contracts.views import ViewsAfterRestartContract, ViewsContract


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
