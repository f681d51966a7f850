"""After the run: checks that every request was executed, and executed once.

Counted from the store, by an engine that has seen nothing of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from benchmarks.subjects import Subject
from gesta.domain.codec import event_types
from gesta.domain.events import Succeeded
from gesta.domain.stream_names import request_stream
from gesta.engine.engine import Engine
from gesta.runtime.settings import Settings

PAGE = 1_000
TENANT = "default"


class Mark(NamedTuple):
    """Where a run begins: the last position of the log, and the effects of the outside world until
    then.
    """

    position: int
    effects: int


async def mark(engine: Engine, subject: Subject) -> Mark:
    """To be taken while the engine is idle."""
    return Mark(await engine.pipeline.environment.stores.events.end(), subject.effects())


class Part(NamedTuple):
    """A part of a run, on one store."""

    settings: Settings
    since: Mark
    ids: Sequence[str]
    expected: int
    #: Of the outside world, until its end.
    effects: int


async def errors_of(parts: Sequence[Part], subject: Subject) -> list[str]:
    """What is wrong with any part of a run, whose engines are closed."""
    errors: list[str] = []
    for part in parts:
        async with Engine(settings=part.settings, flows=[subject.flow], work=False) as engine:
            errors += await count_errors(
                engine, subject, part.since, part.ids, part.expected, part.effects
            )
    return errors


async def count_errors(
    engine: Engine, subject: Subject, since: Mark, ids: Sequence[str], expected: int, effects: int
) -> list[str]:
    """What is wrong with the requests since then; nothing when each of them has one event of
    success and a view that says so.
    """
    flow = subject.flow.name
    succeeded = await _successes(engine, flow, since.position)
    events = [succeeded[request_stream(flow, TENANT, request_id)] for request_id in ids]
    found = {
        "were never accepted": expected - len(set(ids)),
        "have no event of success": events.count(0),
        "have more than one event of success": sum(count > 1 for count in events),
        "have a view without success": len(ids) - await _successful_views(engine, subject, ids),
    }
    errors = [
        f"{count:,} of {expected:,} requests {what}" for what, count in found.items() if count
    ]
    if subject.has_outside and effects - since.effects != expected:
        errors.append(
            f"the outside world saw {effects - since.effects:,} effects, not {expected:,}"
        )
    return errors


async def _successes(engine: Engine, flow: str, after: int) -> Counter[str]:
    """How many events of success each stream has."""
    events, names = engine.pipeline.environment.stores.events, event_types(flow).name_of
    wanted = {name for kind, name in names.items() if issubclass(kind, Succeeded)}
    found: Counter[str] = Counter()
    while page := await events.follow(after, PAGE):
        after = page[-1].position
        found.update(recorded.stream for recorded in page if recorded.type in wanted)
    return found


async def _successful_views(engine: Engine, subject: Subject, ids: Sequence[str]) -> int:
    """How many views say that the request succeeded."""
    flow, success = subject.flow.name, subject.flow.lifecycle.success
    views, waiting, found = engine.pipeline.environment.stores.read_model, iter(ids), 0
    while chunk := list(islice(waiting, PAGE)):
        page = await views.get([(flow, TENANT, request_id) for request_id in chunk])
        found += sum(view.state.status in success for view in page.values())
    return found
