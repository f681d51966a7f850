from gesta.testing.contracts.eager_dispatch import OffersAtOnceContract, OffersContract
from gesta.testing.contracts.inline_projection import AtOnceContract, AtOnceFenceContract
from gesta.testing.contracts.removal import RemovalContract
from gesta.testing.contracts.sweep_index import OldViewsContract
from gesta.testing.contracts.transactions import (
    CommitsAfterRestartContract,
    ProjectContract,
    RecordContract,
)


class TestProject(ProjectContract): ...


class TestRecord(RecordContract): ...


class TestCommitsAfterRestart(CommitsAfterRestartContract): ...


class TestRemoval(RemovalContract): ...


class TestOldViews(OldViewsContract): ...


class TestAtOnce(AtOnceContract): ...


class TestAtOnceFence(AtOnceFenceContract): ...


class TestOffers(OffersContract): ...


class TestOffersAtOnce(OffersAtOnceContract): ...
