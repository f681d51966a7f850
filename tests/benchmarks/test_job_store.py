"""What the benchmark of the job store measures is true of a small run, too."""

from benchmarks.job_store import claims, costs
from gesta.testing.harnesses.redis import SharedServer


async def test_a_life_in_hashes_takes_fewer_bytes_and_round_trips():
    before, after = await costs(f"{await SharedServer.url()}/7")
    assert (before.store, after.store) == ("string", "hash")
    # R4-19; counted on the wire: create, claim, complete and read are one round trip each.
    assert (before.round_trips, after.round_trips) == (11, 4)
    assert after.bytes < before.bytes  # R4-19


async def test_workers_claim_each_job_once():
    found = await claims(f"{await SharedServer.url()}/8", 4, jobs=200)
    assert found.wrong == 0
    assert found.per_second > 0
