from gesta.contracts.at_once import AtOnceContract, AtOnceFenceContract
from gesta.contracts.commits import CommitsAfterRestartContract, ProjectContract, RecordContract
from gesta.contracts.offers import OffersAtOnceContract, OffersContract
from gesta.contracts.removal import OldViewsContract, RemovalContract


class TestProject(ProjectContract): ...


class TestRecord(RecordContract): ...


class TestCommitsAfterRestart(CommitsAfterRestartContract): ...


class TestRemoval(RemovalContract): ...


class TestOldViews(OldViewsContract): ...


class TestAtOnce(AtOnceContract): ...


class TestAtOnceFence(AtOnceFenceContract): ...


class TestOffers(OffersContract): ...


class TestOffersAtOnce(OffersAtOnceContract): ...
