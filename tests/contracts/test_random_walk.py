from gesta.testing.contracts.suite import Contract
from gesta.testing.harnesses.memory import Harness as Reference
from tests.contracts.random_walk import Walk


class TestRandomWalk(Contract):
    needs = frozenset(
        {
            "events",
            "read_model",
            "sweep_index",
            "checkpoints",
            "queue",
            "unique_jobs",
            "turns",
            "job_inspection",
            "job_holds",
            "external_leases",
            "transactions",
        }
    )

    async def test_a_store_answers_as_the_memory_stores_do(self, harness, seed, tmp_path):
        reference = Reference(tmp_path)
        await reference.open()
        await Walk(seed, reference, harness).go(steps=120)
        await reference.close()
