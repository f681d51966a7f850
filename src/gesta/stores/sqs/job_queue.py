"""Jobs as messages of SQS, in one standard queue for each flow.

A message is a pointer to a request and nothing else. SQS delivers at least once, in any order, and
cannot be asked for a job, so this queue has no UniqueJobs: stores/waiting_room.py makes up for
that. The lease of a job is the visibility timeout of its message. It is extended at half of it, so
a renewal of the lease seldom costs a call.

A released job is sent as a copy, then its message is deleted: the count of receives starts again,
and a release uses up none of them. A crash between the two leaves both, which is harmless.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import msgspec
from msgspec.structs import replace

from gesta.errors import QueueRefused, StoreError
from gesta.ports.job_queue import (
    Ack,
    Backlog,
    Job,
    LeasedJob,
    Release,
    Settled,
    Settlement,
)
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.sqs.client import (
    DELAY_SECONDS_MAX,
    WAIT_SECONDS_MAX,
    Failed,
    Outgoing,
    Sqs,
    together,
)
from gesta.stores.sqs.long_poll import LongPoll, Received
from gesta.stores.sqs.queues import Queues, queue_name

#: The version of the message body, in the attribute `version`.
VERSION = "1.0"
#: A take ends after so long: an answer that comes later than the lease lasts is worth nothing.
TAKE_SECONDS = 1.5
#: At most so much passes between the moment SQS hands a message out and its arrival.
HANDED_OUT_SECONDS = 1.0
#: How long estimates of counts are used.
COUNTED_SECONDS = 1.0

_decoder = msgspec.json.Decoder(Job)


@dataclass(slots=True)
class _Held:
    """A job in the hands of this process."""

    leased: LeasedJob
    message_id: str
    receipt: str
    #: When it becomes visible to others, by the monotonic clock.
    until: float
    #: It is being released: its copy may arrive before the answer does.
    is_leaving: bool = False
    #: Its copy was sent; only the deletion is left.
    is_copied: bool = False

    def is_again(self, other: "_Held", now: float) -> bool:
        """Whether the other is the next delivery of this message, to the same holder and while its
        lease lasts. No other worker had the message in between: it would have been counted.
        """
        return (
            other.message_id == self.message_id
            and other.leased.token == self.leased.token
            and other.leased.takes == self.leased.takes + 1
            and not self.is_leaving
            and self.until > now
        )


class SqsJobQueue:
    """Implements JobQueue and JobCounts."""

    def __init__(self, sqs: Sqs, runtime: Runtime, *, is_polling: bool = True) -> None:
        """`is_polling`: False for a test that owns the clock, which no long poll obeys."""
        self._sqs, self._runtime = sqs, runtime
        self.queues = Queues(sqs)
        self._prefix = sqs.address.prefix
        self._flows: dict[str, str] = {}
        self._held: dict[str, _Held] = {}
        self._queued = Signal(runtime)
        self._long_poll = LongPoll(self._wait_for, self._queued.set, is_on=is_polling)
        self._counted: tuple[float, int] = (float("-inf"), 0)

    async def close(self) -> None:
        """Make visible again what was received and not taken."""
        left = await self._long_poll.close()
        for flow, received in left.items():
            if received:
                receipts = [one.message.receipt for one in received]
                await self._sqs.hide(await self._url(flow), receipts, 0)

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        """True for every job: SQS does not say whether it has one of that id."""
        distinct = {job.id: job for job in jobs}
        await self._send(list(distinct.values()))
        self._queued.set()
        seen: set[str] = set()
        return [_is_first(job.id, seen) for job in jobs]

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        """`durable` changes nothing: SQS keeps what it acknowledged. It does not tell when the
        next job is due.
        """
        await self._renew(token, lease_seconds)
        # If one fails, what the others brought is found by `leased_by`.
        leased = await together(
            self._take(token, flow, free, lease_seconds) for flow, free in flows.items()
        )
        return [job for part in leased for job in part], None

    async def leased_by(self, token: str) -> list[LeasedJob]:
        """What this process knows. A message whose answer was lost comes back by itself."""
        return [one.leased for one in self._held.values() if one.leased.token == token]

    async def extend(self, token: str, lease_seconds: float) -> bool:
        held = [one for one in self._held.values() if one.leased.token == token]
        now = self._runtime.monotonic()
        if not held or any(one.until <= now for one in held):
            return False
        return await self._renew(token, lease_seconds)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Ack and release. `lost` is also the answer for a job that is gone."""
        chosen: dict[int, tuple[Ack | Release, _Held]] = {}
        taken: set[str] = set()
        for n, one in enumerate(settlements):
            if not isinstance(one, Ack | Release):
                raise StoreError(
                    f"{self._sqs.address.name} implements neither UniqueJobs nor JobHolds: it"
                    f" cannot {type(one).__name__.lower()} a job"
                )
            held = self._held.get(one.job_id)
            if held is not None and held.leased.token == one.token and one.job_id not in taken:
                chosen[n] = one, held
                taken.add(one.job_id)
                held.is_leaving = isinstance(one, Release)
        await self._copy(
            [
                (replace(held.leased.job, due_ms=one.due_ms, possibly_executed=False), held)
                for one, held in chosen.values()
                if isinstance(one, Release)
            ]
        )
        await self._delete([held for _, held in chosen.values()])
        for one, held in chosen.values():
            if self._held.get(one.job_id) is held:
                del self._held[one.job_id]
        if any(isinstance(one, Release) for one, _ in chosen.values()):
            self._queued.set()
        return ["done" if n in chosen else "lost" for n in range(len(settlements))]

    async def ready(self, timeout_seconds: float) -> None:
        await self._queued.wait(timeout_seconds)

    async def count(self, limit: int) -> int:
        """How many jobs there are, as SQS estimates it, of the flows this process has used."""
        counted_at, count = self._counted
        if self._runtime.monotonic() - counted_at >= COUNTED_SECONDS:
            names = list(self._flows.values())
            found = await together(self.queues.counts(name) for name in names)
            count = sum(one.live for one in found)
            self._counted = self._runtime.monotonic(), count
        return min(limit, count)

    async def backlog(self) -> dict[str, Backlog]:
        """By flow, as SQS estimates it. How old the oldest job is only CloudWatch knows."""
        names = await self.queues.names(f"{self._prefix}-")
        known = {name: flow for flow, name in self._flows.items()}
        found = {}
        for name in names:
            flow = known.get(name, name[len(self._prefix) + 1 :].replace("-", "."))
            counts = await self.queues.counts(name)
            if counts.live:
                found[flow] = Backlog(
                    waiting=counts.delayed, ready=counts.ready, leased=counts.in_flight
                )
        return found

    async def moved(self) -> dict[str, int]:
        """What is in the dead-letter queues."""
        names = await self.queues.names(f"{self._prefix}-")
        known = {name: flow for flow, name in self._flows.items()}
        counts = {name: (await self.queues.counts(name)).dead for name in names}
        return {
            known.get(name, name[len(self._prefix) + 1 :].replace("-", ".")): dead
            for name, dead in counts.items()
            if dead
        }

    async def _url(self, flow: str) -> str:
        name = self._flows.get(flow)
        if name is None:
            name = self._flows[flow] = queue_name(self._prefix, flow)
        return await self.queues.url(name)

    async def _send(self, jobs: Sequence[Job]) -> None:
        """Raises QueueRefused with the jobs that were not sent."""
        now = self._runtime.now_ms()
        flows: dict[str, list[Job]] = {}
        for job in jobs:
            flows.setdefault(job.flow, []).append(job)
        lost: dict[str, Failed] = {}
        for flow, some in flows.items():
            failed = await self._sqs.send(
                await self._url(flow), [_outgoing(job, now) for job in some]
            )
            lost |= {job.id: one for job, one in zip(some, failed, strict=True) if one is not None}
        if lost:
            first = next(iter(lost.values()))
            raise QueueRefused(
                f"{self._sqs.address.name}: SQS did not take {len(lost)} of {len(jobs)} jobs"
                f" ({first.code}: {first.text})",
                list(lost),
            )

    async def _take(
        self, token: str, flow: str, free: int, lease_seconds: float
    ) -> list[LeasedJob]:
        began = self._runtime.monotonic()
        leased = await self._accept(flow, token, self._long_poll.take(flow, free), lease_seconds)
        while (
            len(leased) < free
            and not self._long_poll.is_polling(flow)
            and self._runtime.monotonic() - began < TAKE_SECONDS
        ):
            received = await self._receive(flow, free - len(leased), lease_seconds)
            if not received:
                self._long_poll.listen_for(flow, free - len(leased), lease_seconds)
                break
            leased += await self._accept(flow, token, received, lease_seconds)
        return leased

    async def _receive(self, flow: str, limit: int, lease_seconds: float) -> list[Received]:
        """What is there now."""
        url, visibility = await self._url(flow), self._visibility(lease_seconds)
        asked_at = self._runtime.monotonic()
        messages = await self._sqs.receive(url, limit, visibility)
        return [Received(one, asked_at + visibility) for one in messages]

    async def _wait_for(self, flow: str, limit: int, lease_seconds: float) -> list[Received]:
        """What comes in the next seconds. SQS may have handed it out a moment before we got it."""
        url = await self._url(flow)
        visibility = self._visibility(lease_seconds + 2 * HANDED_OUT_SECONDS)
        messages = await self._sqs.receive(url, limit, visibility, WAIT_SECONDS_MAX)
        until = self._runtime.monotonic() - HANDED_OUT_SECONDS + visibility
        return [Received(one, until) for one in messages]

    async def _accept(
        self, flow: str, token: str, received: Sequence[Received], lease_seconds: float
    ) -> list[LeasedJob]:
        """The leases. A job that is not due yet goes back, and a copy of a job that this process
        has is deleted. A message that SQS delivers to us a second time while our lease lasts is
        still the same lease.
        """
        received = await self._with_time_left(flow, received, lease_seconds)
        now, now_ms = self._runtime.monotonic(), self._runtime.now_ms()
        early: list[tuple[Job, _Held]] = []
        copies: list[_Held] = []
        leased: list[LeasedJob] = []
        for message, until in received:
            try:
                job = _decoder.decode(message.body)
            except msgspec.DecodeError:
                # Not ours. SQS moves it to the dead-letter queue after the third receive.
                continue
            one = LeasedJob(
                job, token, message.receives, max(job.due_ms, message.sent_ms), may_be_copy=True
            )
            held = _Held(one, message.id, message.receipt, until)
            ours = self._held.get(job.id)
            if job.due_ms > now_ms:
                early.append((replace(job, possibly_executed=one.is_possibly_executed), held))
            elif ours is not None and ours.is_again(held, now):
                # Only the newest receipt is sure to work.
                ours.receipt, ours.until = message.receipt, until
                ours.leased = replace(ours.leased, takes=one.takes)
            elif (
                ours is not None
                and not ours.is_leaving
                and ours.message_id != message.id
                and ours.until > now
            ):
                copies.append(held)
            else:
                self._held[job.id] = held
                leased.append(one)
        await self._copy(early)
        await self._delete([*copies, *(held for _, held in early)])
        return leased

    async def _with_time_left(
        self, flow: str, received: Sequence[Received], lease_seconds: float
    ) -> list[Received]:
        """Extend what lay here for long; without what has become visible to others meanwhile."""
        now = self._runtime.monotonic()
        late = [one for one in received if one.until - now < lease_seconds]
        if not late:
            return list(received)
        visibility = self._visibility(lease_seconds)
        receipts = [one.message.receipt for one in late]
        failed = await self._sqs.hide(await self._url(flow), receipts, visibility)
        kept = {
            one.message.id: Received(one.message, now + visibility)
            for one, failure in zip(late, failed, strict=True)
            if failure is None and one.until > now
        }
        return [
            kept.get(one.message.id, one)
            for one in received
            if one.message.id in kept or one.until - now >= lease_seconds
        ]

    async def _renew(self, token: str, lease_seconds: float) -> bool:
        """Extend the timeouts of this token that are past their half. False: one has run out."""
        now = self._runtime.monotonic()
        visibility = self._visibility(lease_seconds)
        live = [one for one in self._held.values() if one.leased.token == token and one.until > now]
        late = [one for one in live if one.until - now < max(lease_seconds, visibility / 2)]
        is_whole = True
        for flow, some in _by_flow(late).items():
            receipts = [one.receipt for one in some]
            try:
                failed = await self._sqs.hide(await self._url(flow), receipts, visibility)
            except StoreError:
                if any(one.until - now < lease_seconds for one in some):
                    raise
                # There is time to ask again.
                continue
            for one, failure in zip(some, failed, strict=True):
                one.until = now + visibility if failure is None else float("-inf")
                is_whole = is_whole and failure is None
        return is_whole

    def _visibility(self, lease_seconds: float) -> int:
        return max(self._sqs.address.visibility_seconds, ceil(lease_seconds))

    async def _copy(self, releases: Sequence[tuple[Job, _Held]]) -> None:
        """Send the copies of released jobs; repeated, it sends only what is missing."""
        new = [(job, held) for job, held in releases if not held.is_copied]
        jobs = [job for job, _ in new]
        lost: Sequence[str] = ()
        try:
            await self._send(jobs)
        except QueueRefused as error:
            lost = error.job_ids
            raise
        except StoreError:
            # Sent or not, they are sent again.
            lost = [job.id for job in jobs]
            raise
        finally:
            for _, held in new:
                held.is_copied = held.leased.job.id not in lost

    async def _delete(self, held: Sequence[_Held]) -> None:
        for flow, some in _by_flow(held).items():
            failed = await self._sqs.delete(await self._url(flow), [one.receipt for one in some])
            if lost := [one for one in failed if one is not None]:
                raise StoreError(
                    f"{self._sqs.address.name}: SQS did not delete {len(lost)} of {len(some)}"
                    f" messages ({lost[0].code}: {lost[0].text})"
                )


def _by_flow(held: Sequence[_Held]) -> dict[str, list[_Held]]:
    flows: dict[str, list[_Held]] = {}
    for one in held:
        flows.setdefault(one.leased.job.flow, []).append(one)
    return flows


def _outgoing(job: Job, now_ms: int) -> Outgoing:
    """Due later than SQS can delay it: the job comes early and is delayed again."""
    delay = min(max(0, ceil((job.due_ms - now_ms) / 1000)), DELAY_SECONDS_MAX)
    return Outgoing(
        msgspec.json.encode(job).decode(),
        delay,
        {"version": ("String", VERSION)},
        group=job.tenant,
    )


def _is_first(job_id: str, seen: set[str]) -> bool:
    is_first = job_id not in seen
    seen.add(job_id)
    return is_first
