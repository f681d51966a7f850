"""The parameters and the answer of the function `record` (migrations/0008_record.sql)."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, assert_never

from gesta.domain.ids import id_bytes, id_text
from gesta.ports.event_store import Append, Appended, AppendVerdict, Claimed, Stale
from gesta.ports.job_queue import Ack, Drop, Hold, Release, Settlement
from gesta.ports.transactions import Entry, Recording
from gesta.stores.postgresql.connections import Row

#: Job id → its score after a release that makes it ready.
Scores = Mapping[str, int]


class Asking(Protocol):
    """A database, or a transaction on it."""

    async def ask(self, name: str, *values: object) -> list[Row]: ...


async def record(
    database: Asking, entries: Sequence[Entry], scores: Scores, now_ms: int, *, durable: bool
) -> tuple[list[Recording], int | None]:
    """A recording for each entry, and the position of the first event if no entry was refused."""
    (row,) = await database.ask("record", *record_values(entries, scores, now_ms, durable=durable))
    return recordings_of(entries, row), row["first_position"]


def record_values(
    entries: Sequence[Entry], scores: Scores, now_ms: int, *, durable: bool
) -> list[Any]:
    return [durable, *_events(entries), *_claims(entries), *_settlements(entries, scores, now_ms)]


def recordings_of(entries: Sequence[Entry], row: Row) -> list[Recording]:
    recordings = [
        Recording(
            (
                None
                if entry.append is None
                else Appended(entry.append.expected + len(entry.append.events))
            ),
            None if entry.settlement is None else "done",
        )
        for entry in entries
    ]
    for place, number in enumerate(row["entries"] or ()):
        recordings[number - 1] = _recording(row, place)
    return recordings


def _recording(row: Row, place: int) -> Recording:
    verdict: AppendVerdict | None
    match row["verdicts"][place]:
        case "appended":
            verdict = Appended(row["numbers"][place])
        case "stale":
            verdict = Stale(row["numbers"][place])
        case "claimed":
            verdict = Claimed(id_text(row["holders"][place]), row["contents"][place])
        case _:
            verdict = None
    return Recording(verdict, row["became"][place])


def _events(entries: Sequence[Entry]) -> list[list[Any]]:
    """Events as `event_row`s; and the first event and the number of events of each entry, unless
    each entry has one.
    """
    rows: list[tuple[Any, ...]] = []
    firsts: list[int] = []
    for entry in entries:
        append: Append | None = entry.append
        firsts.append(len(rows) + 1)
        if append is None:
            continue
        assert append.events, f"an append to {append.stream} without events"
        stream, version, before = append.stream, append.expected, append.expected
        for event in append.events:
            version += 1
            rows.append((stream, version, before, event.id, event.type, event.data, event.meta))
            # The others follow the first event.
            before = 0
    ends = [*firsts[1:], len(rows) + 1]
    counts = [end - first for first, end in zip(firsts, ends, strict=True)]
    return [rows, [], []] if all(count == 1 for count in counts) else [rows, firsts, counts]


def _claims(entries: Sequence[Entry]) -> list[list[Any]]:
    claims = [None if entry.append is None else entry.append.claim for entry in entries]
    if not any(claims):
        return [[], [], []]
    return [
        [None if claim is None else claim.name for claim in claims],
        [None if claim is None else id_bytes(claim.request_id) for claim in claims],
        [None if claim is None else claim.content for claim in claims],
    ]


def _settlements(entries: Sequence[Entry], scores: Scores, now_ms: int) -> list[Any]:
    """The token if all are acks of one worker; otherwise the settlement of each entry."""
    settlements = [entry.settlement for entry in entries]
    if not any(settlements):
        return [None, [], [], [], [], [], [], []]
    tokens = {one.token if type(one) is Ack else None for one in settlements}
    if len(tokens) == 1 and (token := tokens.pop()) is not None:
        return [
            token,
            [],
            [one.job_id for one in settlements if one is not None],
            [],
            [],
            [],
            [],
            [],
        ]
    rows = [_settlement(settlement, scores, now_ms) for settlement in settlements]
    return [None, *(list(column) for column in zip(*rows, strict=True))]


def _settlement(settlement: Settlement | None, scores: Scores, now_ms: int) -> tuple[Any, ...]:
    """Kind, job id, token, state, due_ms, score, scope."""
    match settlement:
        case None:
            return None, None, None, 0, 0, 0, None
        case Ack(job_id, token):
            return "ack", job_id, token, 0, 0, 0, None
        case Release(job_id, token, due_ms):
            is_due = due_ms <= now_ms
            return (
                "release",
                job_id,
                token,
                int(is_due),
                max(due_ms, now_ms),
                scores.get(job_id, 0),
                None,
            )
        case Hold(job_id, token, scope):
            return "hold", job_id, token, 0, 0, 0, scope
        case Drop(job_id):
            return "drop", job_id, None, 0, 0, 0, None
        case _:
            assert_never(settlement)
