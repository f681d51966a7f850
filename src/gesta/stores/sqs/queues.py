"""The queues of one prefix: their names, their settings, and how they are created.

Each queue has a dead-letter queue beside it, `<name>-dlq`, to which SQS itself moves a message that
was received three times and never deleted.
"""

import asyncio
import hashlib

import msgspec

from gesta.errors import StoreError
from gesta.stores.sqs.client import Sqs, SqsRefused

NAME_LENGTH_MAX = 80
DEAD_LETTERS = "-dlq"
#: R3-9: SQS moves a message when it is received once more than this.
RECEIVES_MAX = 3
#: R3-17: 14 days, the longest that SQS keeps a message.
RETENTION_SECONDS = 14 * 86_400
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class Counts(msgspec.Struct, frozen=True):
    """How many messages a queue has, as SQS estimates it."""

    ready: int
    #: Received, neither deleted nor visible again.
    in_flight: int
    delayed: int
    dead: int

    @property
    def live(self) -> int:
        return self.ready + self.in_flight + self.delayed


class Queues:
    """Finds queues by name, and creates those that do not exist."""

    def __init__(self, sqs: Sqs) -> None:
        self._sqs = sqs
        self._urls: dict[str, str] = {}
        self._looking = asyncio.Lock()

    async def url(self, name: str, *, retention_seconds: int = RETENTION_SECONDS) -> str:
        """The URL of a queue; created with its dead-letter queue where it does not exist."""
        if name not in self._urls:
            async with self._looking:
                if name not in self._urls:
                    self._urls[name] = await self._find(name) or await self._create(
                        name, retention_seconds
                    )
        return self._urls[name]

    async def dead_letter_url(self, name: str) -> str:
        """The URL of the dead-letter queue of a queue."""
        dead = f"{name}{DEAD_LETTERS}"
        if dead not in self._urls:
            await self.url(name)
            async with self._looking:
                self._urls[dead] = await self._find(dead) or await self._create_one(dead, {})
        return self._urls[dead]

    async def names(self, prefix: str) -> list[str]:
        """The queues whose names begin so, without dead-letter queues."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            answer = await self._sqs.call(
                "list_queues", QueueNamePrefix=prefix, MaxResults=1000, **more
            )
            for url in answer.get("QueueUrls", ()):
                name = str(url).rsplit("/", 1)[-1]
                self._urls[name] = str(url)
                if not name.endswith(DEAD_LETTERS):
                    found.append(name)
            if not answer.get("NextToken"):
                return sorted(found)
            more = {"NextToken": answer["NextToken"]}

    async def counts(self, name: str) -> Counts:
        found = await self._sqs.attributes(await self.url(name), COUNTS)
        dead = await self._sqs.attributes(await self.dead_letter_url(name), COUNTS[:1])
        ready, in_flight, delayed = (int(found.get(one, 0)) for one in COUNTS)
        return Counts(ready, in_flight, delayed, int(dead.get(COUNTS[0], 0)))

    async def arn(self, url: str) -> str:
        return (await self._sqs.attributes(url, ["QueueArn"])).get("QueueArn", "")

    async def _find(self, name: str) -> str | None:
        try:
            return str((await self._sqs.call("get_queue_url", QueueName=name))["QueueUrl"])
        except SqsRefused as error:
            if error.is_missing_queue:
                return None
            raise

    async def _create(self, name: str, retention_seconds: int) -> str:
        dead = f"{name}{DEAD_LETTERS}"
        dead_url = await self._find(dead) or await self._create_one(dead, {})
        self._urls[dead] = dead_url
        policy = {
            "deadLetterTargetArn": await self.arn(dead_url),
            "maxReceiveCount": str(RECEIVES_MAX),
        }
        return await self._create_one(
            name,
            {
                "VisibilityTimeout": str(self._sqs.address.visibility_seconds),
                "MessageRetentionPeriod": str(retention_seconds),
                "ReceiveMessageWaitTimeSeconds": "20",
                "RedrivePolicy": msgspec.json.encode(policy).decode(),
            },
        )

    async def _create_one(self, name: str, attributes: dict[str, str]) -> str:
        wanted = {
            "MessageRetentionPeriod": str(RETENTION_SECONDS),
            "SqsManagedSseEnabled": "true",
            **attributes,
        }
        try:
            made = await self._sqs.call("create_queue", QueueName=name, Attributes=wanted)
        except SqsRefused as error:
            if url := await self._find(name):
                # Another process has created it meanwhile.
                return url
            raise StoreError(
                f"{error}; the queue {name} does not exist. Create it as docs/sqs.md says, or let"
                " these credentials create queues"
            ) from error
        return str(made["QueueUrl"])


def queue_name(prefix: str, flow: str) -> str:
    """The queue of a flow. No two flows share one: a flow has no dash, a queue name no dot."""
    name = f"{prefix}-{flow.replace('.', '-')}"
    if len(name) + len(DEAD_LETTERS) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.blake2b(flow.encode(), digest_size=8).hexdigest()
    return f"{name[: NAME_LENGTH_MAX - len(DEAD_LETTERS) - 17]}-{digest}"
