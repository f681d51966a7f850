"""Where a process is killed or frozen, and what must hold for the requests that this met.

The list is the matrix of the hazards.

A point lies before or after a call of a port (`transactions.record`), or of the provider's executor
(`executor.call`). The program stops there
when the call concerns a request (at the provider: when one of each kind has arrived) and writes
down which ones: the victims. Nothing in the product knows of points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gesta.ports.job_queue import Ack, Drop, Release, Settlement

Layout = Literal["together", "separate", "server"]
#: What became of a victim: its status, how many effects it had, how many calls reached the provider
#: (None: any number).
End = tuple[str, int, int | None]
Victims = Callable[[Sequence[Any], Any], Sequence[str]]

#: No process can have called: as if nothing had happened.
UNHARMED: Mapping[str, End] = {
    "order": ("completed", 1, 1),
    "letter": ("completed", 1, 1),
    "parcel": ("completed", 1, 1),
}
#: A call may have been made, and was not: the key is sent, the provider is asked and then called,
#: the rest is left to a person.
NOT_CALLED: Mapping[str, End] = {
    "order": ("completed", 1, 1),
    "letter": ("completed", 1, 1),
    "parcel": ("unknown", 0, 0),
}
#: The call had its effect: the repeat is deduped, the question finds it, the rest is left to a
#: person.
CALLED: Mapping[str, End] = {
    "order": ("completed", 1, 2),
    "letter": ("completed", 1, 1),
    "parcel": ("unknown", 1, 1),
}
#: As CALLED, and the caller came back with its evidence.
CALLED_AND_ACKNOWLEDGED: Mapping[str, End] = {
    "order": ("completed", 1, 2),
    "letter": ("completed", 1, 1),
    "parcel": ("completed", 1, 1),
}
#: Refused once with a time to come back, then done.
THROTTLED: Mapping[str, End] = {
    "order": ("completed", 1, 2),
    "letter": ("completed", 1, 2),
    "parcel": ("completed", 1, 2),
}


@dataclass(frozen=True)
class Point:
    name: str
    #: The line of the matrix.
    k: str
    #: Port and verb.
    at: str
    when: Literal["before", "after"]
    #: Which requests a call concerns; None at a call of the provider, which concerns its own.
    victims: Victims | None
    ends: Mapping[str, End]
    #: None: in turn, by the seed.
    layout: Layout | None = None
    #: AttemptStarted is appended before each call.
    journal: bool = False
    #: The first call of each request is refused with 503 and a Retry-After.
    throttled: bool = False
    #: SIGSTOP until others have done the work, then SIGCONT; else SIGKILL.
    frozen: bool = False
    #: Whether what is appended is projected in the same commit, where ports share a file; None: in
    #: turn, by the seed.
    inline: bool | None = None
    #: The process takes no jobs, as one that only projects: then no process can have leased the
    #: victims at the same instant.
    takes_none: bool = False
    #: Whether the worker's slots are offered with the jobs, which then are taken as they are put;
    #: None: in turn, by the seed.
    eager_dispatch: bool | None = None


def of_appends(args: Sequence[Any], _: Any) -> list[str]:
    return [append.stream[-36:] for append in args[0]]


def of_projected(args: Sequence[Any], _: Any) -> list[str]:
    return [job.request_id for job in args[1]]


def of_jobs(args: Sequence[Any], _: Any) -> list[str]:
    return [job.request_id for job in args[0]]


def of_taken(_: Sequence[Any], answer: Any) -> list[str]:
    return [one.job.request_id for one in answer[0]]


def of_offered(args: Sequence[Any], _: Any) -> list[str]:
    """Requests whose jobs were taken as they were put: the last argument is the projection, or the
    offer itself.
    """
    free_slots = getattr(args[-1], "free_slots", args[-1])
    return [] if free_slots is None else [one.job.request_id for one in free_slots.leased]


def of_loaded(args: Sequence[Any], _: Any) -> list[str]:
    """Requests that a worker has just loaded: it reads their tenant's config in the same call."""
    streams = [stream for stream, _ in args[0]]
    config = [stream for stream in streams if stream.startswith("config-")]
    return [stream[-36:] for stream in streams if stream not in config] if config else []


def of_records(args: Sequence[Any], _: Any) -> list[str]:
    """Requests whose last outcome is recorded in this commit."""
    return [
        _request(entry.settlement)
        for entry in args[0]
        if entry.append is not None and isinstance(entry.settlement, Ack)
    ]


def of_acks(args: Sequence[Any], _: Any) -> list[str]:
    return [_request(one) for one in args[0] if isinstance(one, Ack)]


def of_releases(args: Sequence[Any], _: Any) -> list[str]:
    return [_request(one) for one in args[0] if isinstance(one, Release)]


def _request(settlement: Settlement) -> str:
    assert not isinstance(settlement, Drop)
    return settlement.job_id[:36]


POINTS = [
    Point(
        "appended, not answered",
        "K-1",
        "events.append",
        "after",
        of_appends,
        UNHARMED,
        inline=False,
    ),
    Point(
        "appended, not projected",
        "K-1",
        "transactions.project",
        "before",
        of_projected,
        UNHARMED,
        inline=False,
    ),
    Point(
        "projected, not answered",
        "K-1",
        "transactions.project",
        "after",
        of_projected,
        UNHARMED,
        inline=False,
        takes_none=True,
    ),
    Point(
        "appended and projected",
        "K-1",
        "transactions.append",
        "after",
        of_appends,
        UNHARMED,
        "together",
        inline=True,
        takes_none=True,
    ),
    Point("pending, not put", "K-2", "queue.put", "before", of_jobs, UNHARMED, "separate"),
    Point(
        "put, still pending",
        "K-3",
        "queue.put",
        "after",
        of_jobs,
        UNHARMED,
        "separate",
        takes_none=True,
    ),
    Point(
        "taken, nothing done",
        "K-4",
        "queue.take",
        "after",
        of_taken,
        NOT_CALLED,
        eager_dispatch=False,
    ),
    Point(
        "taken as it was put",
        "K-4",
        "transactions.append",
        "after",
        of_offered,
        NOT_CALLED,
        "together",
        inline=True,
        eager_dispatch=True,
    ),
    Point(
        "taken as it was projected",
        "K-4",
        "transactions.project",
        "after",
        of_offered,
        NOT_CALLED,
        "together",
        inline=False,
        eager_dispatch=True,
    ),
    Point("taken, not called", "K-5", "executor.call", "before", None, NOT_CALLED),
    Point(
        "journalled, not called", "K-6", "executor.call", "before", None, NOT_CALLED, journal=True
    ),
    Point("called, not recorded", "K-7", "executor.call", "after", None, CALLED),
    Point(
        "journalled, answered, not recorded",
        "K-8",
        "transactions.record",
        "before",
        of_records,
        CALLED,
        journal=True,
    ),
    Point("recorded, not acked", "K-9", "queue.settle", "before", of_acks, UNHARMED, "separate"),
    Point("recorded, not answered", "K-9", "transactions.record", "after", of_records, UNHARMED),
    Point(
        "frozen with a job, not called",
        "K-12",
        "queue.take",
        "after",
        of_taken,
        NOT_CALLED,
        frozen=True,
        eager_dispatch=False,
    ),
    Point(
        "frozen with a job that was just put",
        "K-12",
        "transactions.append",
        "after",
        of_offered,
        NOT_CALLED,
        "together",
        frozen=True,
        inline=True,
        eager_dispatch=True,
    ),
    Point(
        "frozen with a request, not called",
        "K-12",
        "events.read",
        "after",
        of_loaded,
        NOT_CALLED,
        frozen=True,
        eager_dispatch=False,
    ),
    Point(
        "frozen with an answer",
        "K-12",
        "executor.call",
        "after",
        None,
        CALLED_AND_ACKNOWLEDGED,
        frozen=True,
    ),
    Point(
        "failed, not released",
        "K-17",
        "queue.settle",
        "before",
        of_releases,
        THROTTLED,
        "separate",
        throttled=True,
    ),
]

#: Lines of the matrix that are no point in one process, each with its test in
#: test_whole_processes.py.
ELSEWHERE = {
    "K-11": "test_emptied_views_and_a_lost_queue_are_made_again",
    "K-13": "test_two_of_everything_at_once_do_each_thing_once",
    "K-14": "test_a_clock_that_is_wrong_takes_nothing_early_and_expires_nothing",
}
MATRIX = {f"K-{n}" for n in (*range(1, 10), *range(11, 15), 17)}
