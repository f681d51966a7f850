"""The queue on Redis answers as the memory queue does, whatever is asked in whatever order.

Takes ask for everything, so that the order among equals does not matter.
"""

import random

from msgspec.structs import replace

from gesta.domain.ids import external_queue_of, external_queues_of
from gesta.ports.job_queue import Ack, Drop, Hold, Release, Settlement
from gesta.testing.contracts.samples import fresh_job
from gesta.testing.harnesses.memory import Harness as MemoryHarness
from gesta.testing.harnesses.redis import Harness as RedisHarness

FLOWS = ("walk.one", "walk.two")
EXTERNAL = [external_queue_of("walk.far", tenant) for tenant in ("acme", "globex")]
TOKENS, SCOPES = ("t1", "t2", "t3"), ("s1", "s2")
LEASE_SECONDS = 10.0
STEPS = 150


class Walk:
    def __init__(self, seed, both):
        self.dice, self.both = random.Random(seed), both
        self.jobs, self.leased = [], []

    async def ask(self, call):
        """The answer of the memory queue, which the other one has to give, too."""
        expected, found = [await call(one) for one in self.both]
        assert found == expected
        return expected

    async def leases(self, call):
        async def in_order(one):
            return sorted(await call(one), key=lambda leased: leased.job.id)

        self.leased += await self.ask(in_order)

    async def put(self):
        now = self.both[0].runtime.now_ms()
        fresh = [
            fresh_job(
                self.dice.choice([*FLOWS, *EXTERNAL]),
                self.dice.choice(["acme", "globex"]),
                priority=self.dice.randint(1, 10),
                due_ms=self.dice.choice([0, now, now + 3_000, now + 30_000]),
                possibly_executed=self.dice.random() < 0.1,
            )
            for _ in range(self.dice.randint(1, 6))
        ]
        again = [replace(job, due_ms=0) for job in self.jobs if self.dice.random() < 0.1]
        self.jobs += fresh
        await self.ask(lambda one: one.queue.put([*fresh, *again]))

    async def take(self):
        token = self.dice.choice(TOKENS)

        async def take(one):
            leased, _ = await one.queue.take(
                token, dict.fromkeys(FLOWS, 1_000), LEASE_SECONDS, durable=False
            )
            return leased

        await self.leases(take)

    async def lease_external(self):
        token, queue = self.dice.choice(TOKENS), self.dice.choice(EXTERNAL)
        await self.leases(
            lambda one: one.external_leases.lease_external(token, queue, 1_000, LEASE_SECONDS)
        )

    async def expire(self):
        token, queues = self.dice.choice(TOKENS), external_queues_of("walk.far")
        await self.leases(
            lambda one: one.external_leases.expired_leases(token, queues, 1_000, LEASE_SECONDS)
        )

    async def settle(self):
        now = self.both[0].runtime.now_ms()
        chosen: list[Settlement] = []
        for leased in self.dice.sample(self.leased, min(len(self.leased), 5)):
            known = (leased.job.id, self.dice.choice([leased.token, leased.token, "stranger"]))
            ways: list[Settlement] = [
                Ack(*known),
                Release(*known, self.dice.choice([0, now + 2_000])),
                Hold(*known, self.dice.choice(SCOPES)),
            ]
            chosen.append(self.dice.choice(ways))
        chosen += [Drop(self.dice.choice(self.jobs).id)] if self.jobs else []
        # One settlement of each job: what the second one meets is not the queue's to say.
        chosen = list({one.job_id: one for one in chosen}.values())
        await self.ask(lambda one: one.queue.settle(chosen))

    async def prolong(self):
        if self.leased:
            leased = self.dice.choice(self.leased)
            await self.ask(
                lambda one: one.external_leases.prolong(leased.job.id, leased.token, LEASE_SECONDS)
            )

    async def extend(self):
        token = self.dice.choice(TOKENS)
        await self.ask(lambda one: one.queue.extend(token, LEASE_SECONDS))

    async def unhold(self):
        scope = self.dice.choice(SCOPES)
        await self.ask(lambda one: one.job_holds.unhold(scope, 1_000))

    async def pass_time(self):
        seconds = self.dice.choice([0.001, 1, 4, 11])
        for one in self.both:
            one.runtime.advance(seconds)

    async def look(self):
        async def seen(one):
            held = await one.job_holds.held()
            ids = [job.id for job in self.jobs]
            return (
                await one.job_inspection.jobs("", 1_000),
                await one.job_inspection.backlog(),
                await one.job_inspection.count(1_000),
                sorted(held, key=lambda entry: (entry.tenant, entry.scope)),
                await one.queue.find(ids),
                await one.external_leases.stocked(EXTERNAL),
                [
                    sorted(leased.job.id for leased in await one.queue.leased_by(token))
                    for token in TOKENS
                ],
            )

        await self.ask(seen)


async def test_redis_answers_as_memory_does(tmp_path, seed):
    both = MemoryHarness(tmp_path), RedisHarness(tmp_path)
    for one in both:
        await one.open()
    try:
        walk = Walk(seed, both)
        steps = [walk.put, walk.put, walk.take, walk.settle, walk.settle, walk.lease_external]
        steps += [walk.expire, walk.prolong, walk.extend, walk.unhold, walk.pass_time]
        for _ in range(STEPS):
            await walk.dice.choice(steps)()
            await walk.look()
    finally:
        for one in both:
            await one.close()
