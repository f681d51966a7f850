"""Amazon's client for SQS: batches, failures of single entries, and errors in our words.

Its own retries are off. A send whose answer was lost may have been made, and only the caller knows
whether a second message is harmless.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, NamedTuple, TypeVar

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, sleep, spawn
from gesta.stores.sqs.address import Address

T = TypeVar("T")

#: R3-14: entries of one call.
BATCH = 10
#: Bodies and attributes of one call together. SQS takes 1 MiB, older endpoints and queues less.
BATCH_BYTES = 256 * 1024
#: The longest that a message may be delayed, and a call may wait for one.
DELAY_SECONDS_MAX = 900
WAIT_SECONDS_MAX = 20
CONNECT_SECONDS = 5.0
#: Longer than the longest wait.
ANSWER_SECONDS = 30.0
CONNECTIONS = 50
#: How often an entry is sent again that SQS could not take, and the pauses in between.
TRIES = 3
PAUSE_SECONDS = 0.1
#: SQS refuses the call for what is in it. A call of one entry says that of the entry.
REFUSES_CONTENT = ("BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue")
#: SQS cannot find the message: it is deleted, or another worker has it.
GONE = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")


@cache
def _session() -> Any:
    """One for all clients of the process: it reads Amazon's description of SQS, which is large."""
    return get_session()


class Message(NamedTuple):
    """A message as it was received."""

    id: str
    receipt: str
    body: str
    #: How often it was received, this time included.
    receives: int
    #: When it was sent, by the clock of SQS.
    sent_ms: int
    #: Name → type and value.
    attributes: Mapping[str, tuple[str, str]]


class Outgoing(NamedTuple):
    """A message to send. `group` is the tenant: SQS shares a queue fairly between groups."""

    body: str
    delay_seconds: int = 0
    attributes: Mapping[str, tuple[str, str]] = {}
    group: str | None = None

    @property
    def size(self) -> int:
        """In bytes, as SQS counts them."""
        return len(self.body.encode()) + sum(
            len(part.encode())
            for name, (kind, value) in self.attributes.items()
            for part in (name, kind, value)
        )


class Failed(NamedTuple):
    """An entry of a batch that SQS did not take. `is_ours`: sent again, it fails again."""

    code: str
    text: str
    is_ours: bool


class Sqs:
    """Calls on queues by their URLs. Nothing of Amazon's client leaves it but values."""

    def __init__(
        self, address: Address, runtime: Runtime, *, credentials: tuple[str, str] | None = None
    ) -> None:
        """`credentials`: key id and secret; None: as Amazon's client finds them."""
        self.address, self._runtime, self._credentials = address, runtime, credentials
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        await self._stack.aclose()

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One call. Raises StoreError; `code_of` has Amazon's code."""
        try:
            if self._client is None:
                async with self._opening:
                    if self._client is None:
                        self._client = await self._open()
            return dict(await getattr(self._client, operation)(**arguments))
        except ClientError as error:
            raise self._refused(operation, error) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise StoreError(
                f"{self.address.name}: {operation} failed ({type(error).__name__}: {error}); it"
                " may have been done. Check the network, the region and the credentials"
            ) from error

    async def send(self, url: str, messages: Sequence[Outgoing]) -> list[Failed | None]:
        """Send in batches; None: sent. An entry that fails is sent again by itself."""
        return await self._in_batches(
            [(one.size, _entry(one)) for one in messages],
            lambda entries: self.call("send_message_batch", QueueUrl=url, Entries=entries),
        )

    async def receive(
        self, url: str, limit: int, visibility_seconds: int, wait_seconds: int = 0
    ) -> list[Message]:
        answer = await self.call(
            "receive_message",
            QueueUrl=url,
            MaxNumberOfMessages=min(limit, BATCH),
            VisibilityTimeout=visibility_seconds,
            WaitTimeSeconds=wait_seconds,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
            MessageAttributeNames=["All"],
        )
        return [_message(one) for one in answer.get("Messages", ())]

    async def delete(self, url: str, receipts: Sequence[str]) -> list[Failed | None]:
        """One that is gone already counts as deleted."""
        failed = await self._in_batches(
            [(0, {"ReceiptHandle": one}) for one in receipts],
            lambda entries: self.call("delete_message_batch", QueueUrl=url, Entries=entries),
        )
        return [None if one is None or one.code in GONE else one for one in failed]

    async def hide(
        self, url: str, receipts: Sequence[str], visibility_seconds: int
    ) -> list[Failed | None]:
        """Keep messages from other receivers for so long from now."""
        entries: list[tuple[int, dict[str, Any]]] = [
            (0, {"ReceiptHandle": one, "VisibilityTimeout": visibility_seconds}) for one in receipts
        ]
        return await self._in_batches(
            entries,
            lambda part: self.call("change_message_visibility_batch", QueueUrl=url, Entries=part),
        )

    async def attributes(self, url: str, names: Sequence[str]) -> dict[str, str]:
        answer = await self.call("get_queue_attributes", QueueUrl=url, AttributeNames=list(names))
        return dict(answer.get("Attributes", {}))

    async def _in_batches(
        self,
        entries: Sequence[tuple[int, dict[str, Any]]],
        call: Callable[[list[dict[str, Any]]], Awaitable[dict[str, Any]]],
    ) -> list[Failed | None]:
        """The failures, in the order of the entries. Raises the first StoreError after all batches
        have ended.
        """
        answers: list[Failed | None] = [None] * len(entries)
        left = list(range(len(entries)))
        for tries in range(TRIES):
            # Failed ones go alone: one bad entry must not be refused with its batch again.
            parts = (
                list(_parts(left, [entries[n][0] for n in left]))
                if not tries
                else [[n] for n in left]
            )
            ended = await together(
                self._batch([(n, entries[n][1]) for n in part], call) for part in parts
            )
            failed = {n: one for part in ended for n, one in part.items()}
            for n in left:
                answers[n] = failed.get(n)
            left = [n for n, one in failed.items() if not one.is_ours and one.code not in GONE]
            if not left:
                break
            await sleep(self._runtime, PAUSE_SECONDS * (tries + 1))
        return answers

    async def _batch(
        self,
        entries: Sequence[tuple[int, dict[str, Any]]],
        call: Callable[[list[dict[str, Any]]], Awaitable[dict[str, Any]]],
    ) -> dict[int, Failed]:
        try:
            answer = await call([{"Id": str(n), **entry} for n, entry in entries])
        except SqsRefused as refused:
            if len(entries) == 1 and refused.code.rpartition(".")[2] in REFUSES_CONTENT:
                return {entries[0][0]: Failed(refused.code, str(refused), is_ours=True)}
            raise
        return {
            int(one["Id"]): Failed(
                str(one.get("Code", "")),
                str(one.get("Message", "")),
                bool(one.get("SenderFault")),
            )
            for one in answer.get("Failed", ())
        }

    async def _open(self) -> Any:
        options = AioConfig(
            retries={"total_max_attempts": 1},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            max_pool_connections=CONNECTIONS,
        )
        address, (key_id, secret) = self.address, self._credentials or (None, None)
        return await self._stack.enter_async_context(
            _session().create_client(
                "sqs",
                region_name=address.region,
                endpoint_url=address.endpoint,
                aws_access_key_id=key_id,
                aws_secret_access_key=secret,
                config=options,
            )
        )

    def _refused(self, operation: str, error: Any) -> StoreError:
        answer = error.response.get("Error", {})
        code = str(answer.get("Code", ""))
        refused = SqsRefused(
            f"{self.address.name}: SQS refused {operation} ({code}: {answer.get('Message', '')})",
            code,
        )
        if "AccessDenied" in code or "InvalidClientTokenId" in code or "Signature" in code:
            refused = SqsRefused(
                f"{refused}; give the credentials of this process the rights that docs/sqs.md"
                " lists",
                code,
            )
        return refused


class SqsRefused(StoreError):
    """SQS answered with an error. `code` is its code."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_missing_queue(self) -> bool:
        return "NonExistentQueue" in self.code or "QueueDoesNotExist" in self.code


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of calls that are made at once. Raises the first error after all have ended."""
    tasks = [spawn(one, "gesta-sqs") for one in calls]
    answers: list[T] = []
    errors: list[StoreError] = []
    try:
        for task in tasks:
            try:
                answers.append(await task)
            except StoreError as error:
                errors.append(error)
    finally:
        for task in tasks:
            task.cancel()
    if errors:
        raise errors[0]
    return answers


def _parts(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Batches of at most BATCH entries and BATCH_BYTES bytes."""
    part: list[int] = []
    total = 0
    for n, size in zip(numbers, sizes, strict=True):
        if part and (len(part) == BATCH or total + size > BATCH_BYTES):
            yield part
            part, total = [], 0
        part.append(n)
        total += size
    if part:
        yield part


def _entry(message: Outgoing) -> dict[str, Any]:
    entry: dict[str, Any] = {"MessageBody": message.body}
    if message.delay_seconds:
        entry["DelaySeconds"] = message.delay_seconds
    if message.group is not None:
        entry["MessageGroupId"] = message.group
    if message.attributes:
        entry["MessageAttributes"] = {
            name: {"DataType": kind, "StringValue": value}
            for name, (kind, value) in message.attributes.items()
        }
    return entry


def _message(answer: dict[str, Any]) -> Message:
    system = answer.get("Attributes", {})
    return Message(
        answer["MessageId"],
        answer["ReceiptHandle"],
        answer.get("Body", ""),
        int(system.get("ApproximateReceiveCount", 1)),
        int(system.get("SentTimestamp", 0)),
        {
            name: (str(one.get("DataType", "")), str(one.get("StringValue", "")))
            for name, one in answer.get("MessageAttributes", {}).items()
        },
    )
