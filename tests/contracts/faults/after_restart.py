"""Stores that do not come back as they went."""

from gesta.ports.job_queue import Job
from gesta.stores.memory.database import MemoryDatabase
from gesta.testing.contracts.event_store import EventStoreAfterRestartContract as Events
from gesta.testing.contracts.job_holds import JobHoldsAfterRestartContract
from gesta.testing.contracts.job_queue import JobQueueAfterRestartContract as Queue
from gesta.testing.contracts.key_claims import EventClaimsAfterRestartContract as Claims
from gesta.testing.contracts.read_model import ReadModelAfterRestartContract as ReadModel
from gesta.testing.contracts.transactions import TransactionsAfterRestartContract as Transactions
from gesta.testing.contracts.undispatched_jobs import (
    UndispatchedJobsAfterRestartContract as Pending,
)
from gesta.testing.contracts.vault import VaultAfterRestartContract as Vault
from gesta.testing.harnesses.memory import Harness
from tests.contracts.faults.planting import breaks


@breaks(
    Events.test_an_accepted_append_is_there_again,
    Events.test_a_stale_version_is_still_refused,
    Events.test_positions_go_on_rising,
    Claims.test_a_claimed_key_stays_claimed,
    Queue.test_jobs_are_there_again,
    Queue.test_a_durable_take_is_remembered,
    JobHoldsAfterRestartContract.test_a_held_job_stays_held,
    ReadModel.test_views_and_checkpoint_are_there_again,
    Vault.test_secrets_are_there_again_and_destroyed_ones_are_not,
    Transactions.test_what_was_recorded_is_there_again,
    Transactions.test_what_was_projected_is_there_again,
    Pending.test_pending_jobs_are_there_again,
)
class ForgetsEverything(Harness):
    async def open(self):
        self.database = MemoryDatabase(self.runtime)
        await super().open()


@breaks(Queue.test_a_settled_job_stays_settled)
class BringsBackWhatWasAcked(Harness):
    """As a queue does that loses its last second."""

    async def open(self):
        await super().open()
        self.put: list[Job] = []
        put = self.database.queue.put_one

        def remember(job):
            self.put.append(job)
            return put(job)

        setattr(self.database.queue, "put_one", remember)  # noqa: B010 -- one object, not its class

    async def close(self):
        await self.database.queue.put(list(self.put))
        await super().close()
