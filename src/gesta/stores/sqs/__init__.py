"""A job queue and a boundary queue on Amazon SQS."""

from gesta.ports.stores import QueuePorts
from gesta.runtime.clock import Runtime
from gesta.stores.sqs.address import Address, address_of
from gesta.stores.sqs.boundary import open_boundary as open_boundary
from gesta.stores.sqs.client import Sqs
from gesta.stores.sqs.job_queue import SqsJobQueue


async def open_queue(url: str, runtime: Runtime) -> QueuePorts:
    """Open the queues below `sqs://region/queue-prefix`."""
    return await open_queue_at(address_of(url), runtime)


async def open_queue_at(
    address: Address,
    runtime: Runtime,
    *,
    is_polling: bool = True,
    credentials: tuple[str, str] | None = None,
) -> QueuePorts:
    """As `open_queue`. Without polling, a take finds what is there at that moment."""
    sqs = Sqs(address, runtime, credentials=credentials)
    queue = SqsJobQueue(sqs, runtime, is_polling=is_polling)

    async def close() -> None:
        try:
            await queue.close()
        finally:
            await sqs.close()

    try:
        # One call that shows a wrong region, endpoint or credential before any work begins.
        await queue.queues.names(f"{address.prefix}-")
    except BaseException:
        await sqs.close()
        raise
    return QueuePorts(
        queue=queue,
        job_counts=queue,
        close=close,
        now_ms=runtime.now_ms,
        name=address.name,
        # SQS counts receives approximately and may deliver a message twice.
        leases_are_durable=False,
    )
