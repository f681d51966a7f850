from gesta.testing.contracts.eager_dispatch import (
    EagerDispatchContract,
    InlineEagerDispatchContract,
)
from gesta.testing.contracts.inline_projection import (
    InlineProjectionContract,
    InlineProjectionFenceContract,
)
from gesta.testing.contracts.removal import LogRemovalContract, RemovalContract
from gesta.testing.contracts.sweep_index import OldViewsContract
from gesta.testing.contracts.transactions import (
    ProjectContract,
    RecordContract,
    TransactionsAfterRestartContract,
)


class TestProject(ProjectContract): ...


class TestRecord(RecordContract): ...


class TestCommitsAfterRestart(TransactionsAfterRestartContract): ...


class TestRemoval(RemovalContract): ...


class TestLogRemoval(LogRemovalContract): ...


class TestOldViews(OldViewsContract): ...


class TestAtOnce(InlineProjectionContract): ...


class TestAtOnceFence(InlineProjectionFenceContract): ...


class TestOffers(EagerDispatchContract): ...


class TestOffersAtOnce(InlineEagerDispatchContract): ...
