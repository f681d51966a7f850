"""The program that is killed: it works on a store and on SQS until it reaches its point.

python -m tests.stores.sqs.killed_program POINT FOLDER URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gesta import Done, Engine, Flow, Payload, Retry, flow
from gesta.domain.retry_policy import RetryPolicy
from gesta.intake.inbound import slack as slack_events
from gesta.ports.job_queue import Ack
from gesta.runtime.settings import load
from gesta.stores.sqlite.read_model import SqliteReadModel
from gesta.stores.sqs.boundary import SqsBoundaryQueue
from gesta.stores.sqs.job_queue import SqsJobQueue
from tests.intake.inbound.slack_posts import issue

SOON = RetryPolicy(attempts=5, base_seconds=0.1, cap_seconds=0.1)


#: Not empty: the process dies right after its effect.
DEADLY: list[bool] = []


class Parcel(Payload, frozen=True):
    number: int
    #: Its first call is refused.
    is_refused: bool = False


def parcels(folder: Path) -> Flow:
    """Each call adds a line to a file, which stands for the provider."""

    @flow("test.parcel", on_unknown="manual", retry=SOON)
    async def send(payload: Parcel, attempt: Any) -> Done | Retry:
        if payload.is_refused and attempt.number == 1:
            return Retry("busy")
        with Path(folder, "effects").open("a") as effects:
            effects.write(f"{payload.number}\n")
        if DEADLY:
            die()
        return Done()

    return send


def effects_in(folder: Path) -> list[str]:
    path = Path(folder, "effects")
    return path.read_text().split() if path.exists() else []


def settings_of(folder: Path, queue_url: str, inbound_queue_url: str | None = None) -> Any:
    return load(
        {
            "url": f"sqlite:///{folder}/gesta.db",
            "queue_url": queue_url or None,
            "inbound_queue_url": inbound_queue_url,
            "log_level": "critical",
        }
    )


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(kind: type[Any], name: str, concerns: Callable[..., bool] = lambda *_: True) -> None:
    """Die when the method is called and the call concerns a request."""
    method = getattr(kind, name)

    async def dying(self: Any, *args: Any, **options: Any) -> Any:
        if concerns(*args):
            die()
        return await method(self, *args, **options)

    setattr(kind, name, dying)


def _after_take() -> None:
    take = SqsJobQueue.take

    async def dying(self: SqsJobQueue, *args: Any, **options: Any) -> Any:
        answer = await take(self, *args, **options)
        if answer[0]:
            die()
        return answer

    setattr(SqsJobQueue, "take", dying)  # noqa: B010 -- a method is replaced on purpose


def _is_ack(settlements: Any) -> bool:
    return any(isinstance(one, Ack) for one in settlements)


#: Point → how the program comes to die there.
POINTS: dict[str, Callable[[], None]] = {
    "enqueued, still undispatched": lambda: _before(SqliteReadModel, "remove_undispatched", bool),
    "leased, nothing done": _after_take,
    "called, not recorded": lambda: DEADLY.append(True),
    "recorded, not deleted": lambda: _before(SqsJobQueue, "settle", _is_ack),
    "copied, not deleted": lambda: _before(SqsJobQueue, "_delete", bool),
    "buried, not deleted": lambda: _before(SqsBoundaryQueue, "delete", bool),
}


async def main(point: str, folder: Path, url: str) -> None:
    is_inbound = point == "buried, not deleted"
    settings = settings_of(folder, "" if is_inbound else url, url if is_inbound else None)
    flows = [parcels(folder), issue, slack_events.flow()]
    POINTS[point]()
    async with Engine(flows=flows, settings=settings):
        await asyncio.sleep(60)
    raise SystemExit("the point was not reached")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
