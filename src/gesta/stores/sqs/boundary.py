"""The boundary queue on SQS: `sqs://region/queue-name`, and `queue-name-dlq` beside it.

It is created with the settings of the documents where it does not exist. Messages for other tenants
than that of the installation have one attribute more, `tenant`.
"""

from collections.abc import Sequence

from gesta.domain.event_message import (
    RETENTION_SECONDS,
    TRIES_MAX,
    decode_attributes,
    encode_attributes,
)
from gesta.errors import MessagesRefused
from gesta.ports.boundary_queue import BoundaryCounts, Delivery, Envelope
from gesta.runtime.clock import Runtime
from gesta.stores.sqs.address import Address, address_of
from gesta.stores.sqs.client import Failed, Message, Outgoing, Sqs
from gesta.stores.sqs.queues import RECEIVES_MAX, Queues

assert RECEIVES_MAX == TRIES_MAX


async def open_boundary(url: str, runtime: Runtime) -> "SqsBoundaryQueue":
    return await open_boundary_at(address_of(url), runtime)


async def open_boundary_at(address: Address, runtime: Runtime) -> "SqsBoundaryQueue":
    """Find or create both queues."""
    queue = SqsBoundaryQueue(address, runtime)
    try:
        await queue.arn()
    except BaseException:
        await queue.close()
        raise
    return queue


class SqsBoundaryQueue:
    """Implements BoundaryQueue."""

    def __init__(self, address: Address, runtime: Runtime) -> None:
        self.name = address.name
        self._sqs = Sqs(address, runtime)
        self._queues = Queues(self._sqs)
        self._queue = address.prefix
        #: The visibility timeout of the documents, unless the URL has another.
        self.visibility_seconds = address.visibility_seconds
        self._arn = ""

    async def close(self) -> None:
        await self._sqs.close()

    async def send(self, envelopes: Sequence[Envelope], delay_seconds: int = 0) -> None:
        await self._send(await self._url(), envelopes, delay_seconds)

    async def receive(self, limit: int, wait_seconds: int) -> list[Delivery]:
        found = await self._sqs.receive(
            await self._url(), limit, self.visibility_seconds, wait_seconds
        )
        return [_delivery(one) for one in found]

    async def hide(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        receipts = [one.receipt for one in deliveries]
        await self._sqs.hide(await self._url(), receipts, seconds)

    async def delete(self, deliveries: Sequence[Delivery]) -> None:
        receipts = [one.receipt for one in deliveries]
        self._raise(await self._sqs.delete(await self._url(), receipts), "delete")

    async def bury(self, envelopes: Sequence[Envelope]) -> None:
        await self._send(await self._dead_url(), envelopes, 0)

    async def dead_letters(self, limit: int, seconds: int) -> list[Delivery]:
        found = await self._sqs.receive(await self._dead_url(), limit, seconds)
        return [_delivery(one) for one in found]

    async def hide_dead(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        receipts = [one.receipt for one in deliveries]
        await self._sqs.hide(await self._dead_url(), receipts, seconds)

    async def delete_dead(self, deliveries: Sequence[Delivery]) -> None:
        receipts = [one.receipt for one in deliveries]
        self._raise(await self._sqs.delete(await self._dead_url(), receipts), "delete")

    async def arn(self) -> str:
        if not self._arn:
            self._arn = await self._queues.arn(await self._url())
        return self._arn

    async def counts(self) -> BoundaryCounts:
        found = await self._queues.counts(self._queue)
        return BoundaryCounts(found.ready + found.delayed, found.in_flight, found.dead)

    async def _url(self) -> str:
        return await self._queues.url(self._queue, retention_seconds=RETENTION_SECONDS)

    async def _dead_url(self) -> str:
        return await self._queues.dead_letter_url(self._queue)

    async def _send(self, url: str, envelopes: Sequence[Envelope], delay_seconds: int) -> None:
        failed = await self._sqs.send(url, [_outgoing(one, delay_seconds) for one in envelopes])
        self._raise(failed, "take")

    def _raise(self, failed: Sequence[Failed | None], verb: str) -> None:
        lost = {n: one for n, one in enumerate(failed) if one is not None}
        if lost:
            first = next(iter(lost.values()))
            raise MessagesRefused(
                f"{self.name}: SQS did not {verb} {len(lost)} of {len(failed)} messages"
                f" ({first.code}: {first.text})",
                list(lost),
            )


def _outgoing(envelope: Envelope, delay_seconds: int) -> Outgoing:
    attributes = {
        name: (one["DataType"], one["StringValue"])
        for name, one in encode_attributes(envelope.attributes).items()
        # SQS refuses an empty value.
        if one["StringValue"]
    }
    if envelope.tenant:
        attributes["tenant"] = "String", envelope.tenant
    return Outgoing(envelope.body.decode(), delay_seconds, attributes)


def _delivery(message: Message) -> Delivery:
    found = {
        name: {"DataType": kind, "StringValue": value}
        for name, (kind, value) in message.attributes.items()
    }
    _, tenant = message.attributes.get("tenant", ("", ""))
    envelope = Envelope(message.body.encode(), decode_attributes(found), tenant)
    return Delivery(envelope, message.receipt, message.receives, message.sent_ms)
