"""The dead letters of the boundary queue: read, inspected, and sent back to it.

A letter is a wrapper that the consumer wrote, or a message that the broker moved by itself. A crash
between the wrapper and the deletion leaves both; they count as one letter, by the message's id.
SQS has no list: reading receives the letters, which hides them from other readers for a minute.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import Literal

import msgspec

from gesta.domain.durations import iso
from gesta.domain.event_message import (
    BATCH_MAX,
    BadMessage,
    EventMessage,
    decode_dead_letter,
    encode_message,
    original_of,
    redriven,
)
from gesta.domain.events import Actor
from gesta.errors import StoreError
from gesta.ports.boundary_queue import BoundaryQueue, Delivery, Envelope
from gesta.runtime.clock import Runtime, sleep, spawn
from gesta.tenants.config import BulkStarted
from gesta.tenants.config_writer import ConfigWriter

#: How long letters are hidden while they are read.
READ_SECONDS = 60
#: The most that one run reads: SQS hides a limited number, and memory holds them.
LETTERS_MAX = 10_000
#: A queue sometimes answers that it is empty although it is not.
EMPTY_ANSWERS = 2
PER_SECOND = 10.0

Shape = Literal["wrapper", "native", "unreadable"]


class QueueLetter(msgspec.Struct, frozen=True, rename="camel"):
    """One dead letter, however many copies of it there are."""

    message_id: str
    event_id: str
    event_type: str
    tenant: str
    shape: Shape
    #: Empty where the broker moved the message by itself.
    error_type: str
    error_message: str
    #: How often it was processed, delivered by the broker, and redriven.
    attempt_count: int
    receive_count: int
    retry_count: int
    #: When it became a dead letter.
    since: str
    copies: int
    #: Where processing failed; empty where the broker moved the message by itself.
    stack_trace: str
    #: The body as it was, JSON or a text.
    original_message: msgspec.Raw


class Choice(msgspec.Struct, frozen=True):
    """Which letters. Without a condition: all."""

    message_ids: frozenset[str] = frozenset()
    error_type: str | None = None
    event_type: str | None = None
    tenant: str | None = None

    def fits(self, letter: QueueLetter) -> bool:
        return (
            (not self.message_ids or letter.message_id in self.message_ids)
            and self.error_type in (None, letter.error_type)
            and self.event_type in (None, letter.event_type)
            and self.tenant in (None, letter.tenant)
        )

    def shown(self) -> dict[str, str]:
        found = {
            "message_ids": " ".join(sorted(self.message_ids)),
            "error_type": self.error_type or "",
            "event_type": self.event_type or "",
            "tenant": self.tenant or "",
        }
        return {name: value for name, value in found.items() if value}


class Redriven(msgspec.Struct, frozen=True, rename="camel"):
    """The result for one letter, and the progress of the run."""

    letter: QueueLetter
    result: Literal["redriven", "would_redrive", "unreadable", "purged", "would_purge"]
    number: int
    total: int


class _Found(msgspec.Struct):
    letter: QueueLetter
    envelope: Envelope
    #: None: it cannot be read.
    message: EventMessage | None
    deliveries: list[Delivery]


class BoundaryDeadLetters:
    def __init__(
        self, queue: BoundaryQueue, *, writer: ConfigWriter, tenant: str, runtime: Runtime
    ) -> None:
        self._queue, self._writer, self._tenant, self._runtime = queue, writer, tenant, runtime

    async def letters(self, choice: Choice | None = None) -> list[QueueLetter]:
        """The letters that match, oldest first. They are visible to others again afterwards."""
        async with self._reading() as held:
            return [one.letter for one in await self._chosen(held, choice or Choice())]

    async def redrive(
        self,
        choice: Choice,
        *,
        actor: Actor | None = None,
        per_second: float = PER_SECOND,
        dry_run: bool = False,
    ) -> AsyncIterator[Redriven]:
        """Send letters back to the queue and delete them, each on its own: the body and attributes
        of the original, with one more retry. A letter that cannot be read stays.

        The entry in the audit log is written first. A crash between the send and the deletion
        sends the message again, and the inbox recognises it.
        """
        async with self._reading() as held:
            chosen = await self._chosen(held, choice)
            if not dry_run and chosen:
                await self._audit("redrive_inbound", choice, len(chosen), actor)
            for number, one in enumerate(chosen, 1):
                result: Literal["redriven", "would_redrive", "unreadable"]
                if one.message is None:
                    result = "unreadable"
                elif dry_run:
                    result = "would_redrive"
                else:
                    if number > 1:
                        await sleep(self._runtime, 1 / per_second)
                    await self._redrive(one)
                    held.difference_update(one.deliveries)
                    result = "redriven"
                yield Redriven(one.letter, result, number, len(chosen))

    async def purge(
        self, choice: Choice, *, actor: Actor | None = None, dry_run: bool = False
    ) -> AsyncIterator[Redriven]:
        """Delete letters, readable or not. The entry in the audit log is written first."""
        async with self._reading() as held:
            chosen = await self._chosen(held, choice)
            if not dry_run and chosen:
                await self._audit("purge_inbound", choice, len(chosen), actor)
            for number, one in enumerate(chosen, 1):
                if not dry_run:
                    await self._queue.delete_dead(one.deliveries)
                    held.difference_update(one.deliveries)
                result: Literal["purged", "would_purge"] = "would_purge" if dry_run else "purged"
                yield Redriven(one.letter, result, number, len(chosen))

    async def _redrive(self, one: _Found) -> None:
        letter = decode_dead_letter(one.envelope.body)
        attributes = one.envelope.attributes
        message = redriven(letter, at_ms=self._runtime.now_ms(), version=attributes.version)
        if not attributes.event_type:
            # The broker keeps them, but another program may have sent none.
            attributes = msgspec.structs.replace(
                attributes, event_type=message.event_type, source=message.source
            )
        envelope = Envelope(encode_message(message), attributes, one.envelope.tenant)
        await self._queue.send([envelope])
        await self._queue.delete_dead(one.deliveries)

    async def _audit(self, action: str, choice: Choice, count: int, actor: Actor | None) -> None:
        asked = msgspec.Raw(msgspec.json.encode({"queue": self._queue.name, **choice.shown()}))

        async def decide() -> BulkStarted:
            return BulkStarted(action, choice.shown(), count, asked)

        await self._writer.change(self._tenant, decide, actor)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[set[Delivery]]:
        """Keep what is received hidden from other readers, and show the rest at the end."""
        held: set[Delivery] = set()
        keeping = spawn(self._keep(held), "gesta-dead-letters")
        try:
            yield held
        finally:
            keeping.cancel()
            if held:
                await self._queue.hide_dead(list(held), 0)

    async def _keep(self, held: set[Delivery]) -> None:
        while True:
            await sleep(self._runtime, READ_SECONDS / 2)
            # An error shows at the next letter that is sent or deleted.
            with suppress(StoreError):
                await self._queue.hide_dead(list(held), READ_SECONDS)

    async def _chosen(self, held: set[Delivery], choice: Choice) -> list[_Found]:
        """The letters that match, oldest first, with the copies of one message together."""
        found: dict[str, _Found] = {}
        empty = count = 0
        while empty < EMPTY_ANSWERS and count < LETTERS_MAX:
            page = await self._queue.dead_letters(BATCH_MAX, READ_SECONDS)
            empty = 0 if page else empty + 1
            count += len(page)
            held.update(page)
            for delivery in page:
                one = self._found(delivery)
                same = found.get(one.letter.message_id)
                found[one.letter.message_id] = one if same is None else _merged(same, one)
        chosen = (one for one in found.values() if choice.fits(one.letter))
        return sorted(chosen, key=lambda one: one.letter.since)

    def _found(self, delivery: Delivery) -> _Found:
        envelope = delivery.envelope
        letter = decode_dead_letter(envelope.body)
        message: EventMessage | None = None
        try:
            message = original_of(letter, envelope.attributes.version)
        except BadMessage:
            shape: Shape = "unreadable"
        else:
            shape = "native" if letter.error_info is None else "wrapper"
        error, metadata = letter.error_info, letter.dlq_metadata
        shown = QueueLetter(
            message.message_id if message else f"unreadable-{_digest(envelope.body)}",
            message.data.metadata.event_id if message else "",
            message.event_type if message else envelope.attributes.event_type,
            envelope.tenant or self._tenant,
            shape,
            error.error_type if error else "",
            error.error_message if error else "",
            error.attempt_count if error else 0,
            metadata.receive_count if metadata else delivery.receives,
            message.retry_count if message else 0,
            metadata.sent_to_dlq_at if metadata else iso(delivery.sent_ms),
            1,
            error.stack_trace if error else "",
            letter.original_message,
        )
        return _Found(shown, envelope, message, [delivery])


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=8).hexdigest()


def _merged(one: _Found, other: _Found) -> _Found:
    """The copy with the error is shown."""
    best, rest = (other, one) if one.letter.shape == "native" else (one, other)
    deliveries = [*best.deliveries, *rest.deliveries]
    letter = msgspec.structs.replace(best.letter, copies=len(deliveries))
    return _Found(letter, best.envelope, best.message, deliveries)
