"""The lock of a request in the slot of its tenant."""

from msgspec.structs import replace

from gesta.ports.job_queue import Ack, Hold, Release
from gesta.stores.redis.keys import RequestKeys
from gesta.testing.contracts.samples import fresh_job

SLACK = "notification.slack"


def lock_of(job):
    return RequestKeys(job.flow, job.tenant, job.request_id).lock


async def take(ports, flow=SLACK, token="t", lease_seconds=10.0):
    leased, _ = await ports.queue.take(token, {flow: 10}, lease_seconds, durable=False)
    return [one.job.id for one in leased]


async def test_a_taken_job_locks_its_request_for_900_seconds(ports, raw):
    slack, other = fresh_job(SLACK), fresh_job("billing.receipt")
    await ports.queue.put([slack, other])
    await take(ports)
    await take(ports, "billing.receipt")
    assert lock_of(slack).endswith(":send-lock")  # R0-15
    assert lock_of(other).endswith(":execute-lock")  # R1-16
    for job in (slack, other):
        assert await raw.command("GET", lock_of(job)) == f"{job.id} t"  # S0-6
        assert 890_000 < await raw.command("PTTL", lock_of(job)) <= 900_000  # R0-15, R1-16


async def test_every_end_of_a_lease_removes_the_lock(ports, raw):
    jobs = [fresh_job(SLACK) for _ in range(3)]
    await ports.queue.put(jobs)
    await take(ports)
    later = ports.now_ms() + 60_000
    await ports.queue.settle(
        [Ack(jobs[0].id, "t"), Release(jobs[1].id, "t", later), Hold(jobs[2].id, "t", "s")]
    )
    assert await raw.command("EXISTS", *map(lock_of, jobs)) == 0  # S0-8


async def test_a_newer_lease_of_the_same_job_takes_the_lock_over(ports, raw):
    job = fresh_job(SLACK)
    await ports.queue.put([job])
    await take(ports, lease_seconds=0)
    assert await take(ports, token="next") == [job.id]  # S0-5
    assert await raw.command("GET", lock_of(job)) == f"{job.id} next"
    assert await ports.queue.settle([Ack(job.id, "t")]) == ["lost"]
    # The first holder removes nothing that is not its own.
    assert await raw.command("GET", lock_of(job)) == f"{job.id} next"  # S0-6


async def test_another_job_of_a_locked_request_waits_and_never_completes(ports, raw):
    first = fresh_job(SLACK)
    second = replace(first, id=f"{first.request_id}-2", dispatch_version=2)
    await ports.queue.put([first])
    assert await take(ports) == [first.id]
    await ports.queue.put([second])
    assert await take(ports, token="other") == []  # S0-5, R1-21
    assert await ports.queue.find([second.id]) == {second.id}
    (standing,) = await ports.job_inspection.jobs(first.id, 1)
    assert (standing.state, standing.takes) == ("waiting", 0)
    assert await raw.command("GET", lock_of(first)) == f"{first.id} t"


async def test_a_lock_whose_job_is_gone_is_taken_over(ports, raw):
    job = fresh_job(SLACK)
    await raw.command("SET", lock_of(job), "a-job-that-is-gone-1 dead", "PX", 900_000)
    await ports.queue.put([job])
    assert await take(ports) == [job.id]
    assert await raw.command("GET", lock_of(job)) == f"{job.id} t"
