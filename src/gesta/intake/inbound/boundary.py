"""Events through a boundary queue: published by the inbox, and taken from it by the consumer.

A message is deleted after what follows from it is on disk; a crash before that delivers it again,
and the inbox recognises it. It is processed three times at most. Then, or at once if no repetition
can help, it becomes a dead letter with its error, and is deleted after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from traceback import extract_tb
from typing import NamedTuple

from msgspec.structs import replace

from gesta.domain.event_message import (
    BATCH_MAX,
    TRIES_MAX,
    BadMessage,
    EventMessage,
    attributes_of,
    by_reference,
    decode_message,
    encode_dead_letter,
    encode_message,
    error_info,
    is_too_large,
    unwrapped,
    wrapped,
)
from gesta.domain.ids import TENANT
from gesta.errors import InvalidRequest, MessagesRefused, Overloaded, StoreError, UnknownFlow
from gesta.intake.inbound.inbox import Inbox
from gesta.intake.inbound.queue_age import QueueAge
from gesta.ports.boundary_queue import BoundaryQueue, Delivery, Envelope
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.component import Process, repeat
from gesta.runtime.group_commit import GroupCommit
from gesta.runtime.redaction import scrub
from gesta.tenants.flow_records import Records

COMPONENT = "inbound"
#: The longest that SQS lets a call wait.
WAIT_SECONDS = 20
#: Before the second and the third try.
PAUSES_SECONDS = (1, 3)
#: A message comes back after this time if our own store is unavailable, which does not use up a
#: try.
OUTAGE_SECONDS = 10
#: The kind of the records that hold large messages.
RECORD = "inbound.message"
#: Messages whose tries are remembered.
TRIES_KEPT = 10_000


class Failure(NamedTuple):
    """Why a message was not processed. `is_final`: a repetition fails, too."""

    error_type: str
    text: str
    trace: str
    is_final: bool


class Publisher:
    """Puts messages into the boundary queue, several in one call."""

    def __init__(self, queue: BoundaryQueue, records: Records, tenant: str) -> None:
        """`tenant`: that of the installation, which messages do not name."""
        self._queue, self._records, self._tenant = queue, records, tenant
        self._commit: GroupCommit[Envelope, StoreError | None] = GroupCommit(
            self._send, "gesta-boundary", BATCH_MAX
        )

    async def publish(self, tenant: str, message: EventMessage, priority: int) -> None:
        """Durable when it returns. A body above 64 KB is stored, and the message refers to it."""
        if is_too_large(message):
            records = self._records.of(tenant)
            # A repeated delivery finds the version there.
            await records.put(RECORD, message.message_id, 1, encode_message(message))
            message = by_reference(message, message.message_id)
        envelope = Envelope(
            encode_message(message),
            attributes_of(message, priority),
            "" if tenant == self._tenant else tenant,
        )
        refused = await self._commit.add(envelope, len(envelope.body))
        if refused is not None:
            raise refused

    async def _send(self, envelopes: list[Envelope]) -> list[StoreError | None]:
        try:
            await self._queue.send(envelopes)
        except MessagesRefused as refused:
            # Only their callers have to send them again.
            return [refused if n in refused.numbers else None for n in range(len(envelopes))]
        return [None] * len(envelopes)


class Consumer:
    """Takes messages from the boundary queue and hands them to the inbox."""

    def __init__(
        self,
        queue: BoundaryQueue,
        *,
        inbox: Inbox,
        records: Records,
        tenant: str,
        age: QueueAge,
        process: Process,
    ) -> None:
        """`tenant`: of messages that name none."""
        self._queue, self._inbox, self._records, self._tenant = queue, inbox, records, tenant
        self._seconds, self._age, self._process = queue.visibility_seconds, age, process
        self._runtime, self._telemetry = process.runtime, process.telemetry
        #: Message → how often it was processed, here or, as far as the broker tells, elsewhere.
        self._tries: dict[bytes, int] = {}

    async def run(self) -> None:
        """Consume for ever."""
        await repeat(self.step, COMPONENT, self._process)

    async def step(self) -> int:
        """One batch; returns how many messages it had."""
        received = await self._queue.receive(BATCH_MAX, WAIT_SECONDS)
        if not received:
            return 0
        deliveries = [self._unwrapped(one) for one in received]
        keeping = spawn(self._keep(deliveries), "gesta-boundary-lease")
        try:
            await self._deal_with(deliveries)
        finally:
            keeping.cancel()
        # After the work: an error here must not cost the messages a try.
        await self._age.received(min(one.sent_ms for one in deliveries))
        return len(deliveries)

    def _unwrapped(self, delivery: Delivery) -> Delivery:
        envelope = delivery.envelope
        version, now = envelope.attributes.version, self._runtime.now_ms()
        body = unwrapped(envelope.body, version, now)
        return replace(delivery, envelope=replace(envelope, body=body))

    async def _keep(self, deliveries: Sequence[Delivery]) -> None:
        """Hide the messages from other consumers at half of their time, for as long as we work."""
        while True:
            await sleep(self._runtime, self._seconds / 2)
            try:
                await self._queue.hide(deliveries, self._seconds)
            except StoreError as error:
                self._telemetry.store_failed(COMPONENT, error)

    async def _deal_with(self, deliveries: Sequence[Delivery]) -> None:
        tasks = [spawn(self._process_one(one), "gesta-boundary-message") for one in deliveries]
        done: list[Delivery] = []
        dead: list[tuple[Delivery, Failure]] = []
        again: list[Delivery] = []
        later: dict[int, list[Delivery]] = {}
        errors: list[StoreError] = []
        for one, task in zip(deliveries, tasks, strict=True):
            try:
                failure = await task
            except (StoreError, Overloaded) as error:
                again.append(one)
                errors = [error if isinstance(error, StoreError) else StoreError(str(error))]
                continue
            if failure is None:
                done.append(one)
            elif failure.is_final or self._tried(one) >= TRIES_MAX:
                dead.append((one, failure))
            else:
                pause = PAUSES_SECONDS[min(one.receives, len(PAUSES_SECONDS)) - 1]
                later.setdefault(pause, []).append(one)
        hidden = (self._queue.hide(some, pause) for pause, some in later.items())
        # Each one separately: a message that the queue refuses must not keep the others in it.
        for step in (self._delete(done), self._send_again(again), self._bury(dead), *hidden):
            try:
                await step
            except StoreError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _bury(self, dead: Sequence[tuple[Delivery, Failure]]) -> None:
        """A letter that is not taken, for instance because it is too large, is left to the broker,
        which moves its message without our error.
        """
        if not dead:
            return
        arn, refused = await self._queue.arn(), None
        try:
            await self._queue.bury([self._letter(one, failure, arn) for one, failure in dead])
        except MessagesRefused as error:
            refused = error
            dead = [one for n, one in enumerate(dead) if n not in error.numbers]
        for _ in dead:
            self._telemetry.inbound(COMPONENT, "dead_letter")
        await self._delete([one for one, _ in dead])
        if refused is not None:
            raise refused

    async def _send_again(self, again: Sequence[Delivery]) -> None:
        """A copy starts its count of receives anew: an outage of our store does not use up a
        try.
        """
        if again:
            await self._queue.send([one.envelope for one in again], OUTAGE_SECONDS)
            await self._delete(again)

    async def _delete(self, settled: Sequence[Delivery]) -> None:
        """Last of all: a message that is not deleted comes again."""
        if settled:
            await self._queue.delete(settled)
            for one in settled:
                self._tries.pop(_digest(one), None)

    async def _process_one(self, delivery: Delivery) -> Failure | None:
        """None: what follows is on disk. Raises StoreError and Overloaded."""
        self._count(delivery)
        envelope = delivery.envelope
        tenant = envelope.tenant or self._tenant
        try:
            if not TENANT.fullmatch(tenant):
                raise BadMessage("MalformedMessage", "the attribute tenant is not a tenant name")
            message = decode_message(envelope.body, envelope.attributes.version)
            if message.data.metadata.reference:
                stored = await self._stored(message, tenant)
                if stored is None:
                    # It was processed, and forgotten after that.
                    return None
                message = stored
            await self._inbox.process(message, tenant, self._source_of(message))
            if message.data.metadata.event_id and is_too_large(message):
                await self._records.of(tenant).forget(RECORD, message.message_id, upto=1)
        except (StoreError, Overloaded):
            raise
        except BadMessage as bad:
            return Failure(bad.error_type, scrub(str(bad)), "", is_final=True)
        except (InvalidRequest, UnknownFlow) as error:
            return Failure(type(error).__name__, scrub(str(error)), "", is_final=True)
        except Exception as error:  # noqa: BLE001 -- a poisonous message must not stop the others
            self._telemetry.log.warning("inbound message failed", error=type(error).__name__)
            return Failure("ProcessingError", scrub(str(error)), _trace(error), is_final=False)
        return None

    async def _stored(self, message: EventMessage, tenant: str) -> EventMessage | None:
        """The whole message; None: it was forgotten. Raises BadMessage if there never was one."""
        name = message.data.metadata.reference
        record = await self._records.of(tenant).get(RECORD, name)
        if record is None:
            raise BadMessage("ReferenceMissing", "no body is stored under its reference")
        return None if record.value is None else decode_message(record.value)

    def _source_of(self, message: EventMessage) -> str:
        name = message.event_type.partition(".")[0]
        if name not in self._inbox.followed:
            raise BadMessage(
                "UnknownEventType", "this installation has no source for its eventType"
            )
        return name

    def _letter(self, delivery: Delivery, failure: Failure, arn: str) -> Envelope:
        now = self._runtime.now_ms()
        error = error_info(
            failure.error_type,
            failure.text,
            failure.trace,
            attempts=self._tried(delivery),
            last_attempt_ms=now,
        )
        body = delivery.envelope.body
        letter = wrapped(body, error, at_ms=now, queue_arn=arn, receives=delivery.receives)
        return Envelope(
            encode_dead_letter(letter), delivery.envelope.attributes, delivery.envelope.tenant
        )

    def _count(self, delivery: Delivery) -> None:
        if len(self._tries) >= TRIES_KEPT:
            self._tries.clear()
        name = _digest(delivery)
        # Other processes may have tried it since, and copies of it may have come to this one.
        self._tries[name] = max(self._tries.get(name, 0) + 1, delivery.receives)

    def _tried(self, delivery: Delivery) -> int:
        return self._tries.get(_digest(delivery), delivery.receives)


def _digest(delivery: Delivery) -> bytes:
    return blake2b(delivery.envelope.body, digest_size=16).digest()


def _trace(error: BaseException) -> str:
    """Where it was raised, without the values of variables."""
    return "\n".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}"
        for frame in extract_tb(error.__traceback__)
    )
