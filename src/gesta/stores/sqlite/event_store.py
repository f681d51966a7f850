"""Events in SQLite. Implements gesta.ports.event_store."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw

from gesta.domain.ids import id_bytes, id_text
from gesta.ports.event_store import (
    Append,
    Appended,
    AppendVerdict,
    Claim,
    Claimed,
    LeadsElsewhere,
    Recorded,
    Share,
    Stale,
    until_full,
)
from gesta.runtime.clock import Runtime
from gesta.stores.sql_queries import SqlEventStore
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql


class Written(NamedTuple):
    """What an append step did. `first` is the position of its first event, and `size` the number of
    its events; None: the events are not in one sequence.
    """

    verdicts: list[AppendVerdict]
    first: int | None
    size: int = 0


class SqliteEventStore(SqlEventStore):
    def __init__(self, database: Database, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database = database
        database.on_commit(self._appended.set)

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        written = await self._database.write(lambda db: append_step(db, appends), durable=True)
        self.committed(appends, written)
        return written.verdicts

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        flat: list[Any] = [value for pair in streams for value in pair]
        rows = await self._database.read(lambda db: ask_many(db, "read_streams", 2, flat))
        return [Recorded(*row) for row in rows]

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        return self._own.after(after, limit) or await self._database.read(
            lambda db: _follow(db, after, limit)
        )

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        # The file is on this machine: reading other partitions costs little.
        return share.part_of(await self.follow(after, limit), after)

    async def end(self) -> int:
        rows = await self._database.ask("end_of_log")
        return int(rows[0][0]) if rows else 0

    async def behind(self, after: int) -> int:
        ((count,),) = await self._database.ask("events_behind", after)
        return max(0, int(count))

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        return await self._database.write(lambda db: put_step(db, claims), durable=True)

    def committed(
        self, appends: Sequence[Append], written: Written, *, is_projected: bool = False
    ) -> None:
        """Call after the commit: keeps the events for followers and wakes them."""
        if written.first is None:
            self._own.forget()
        elif is_projected:
            self._own.add_projected(appends, written.first, written.first + written.size - 1)
        else:
            self._own.add(appends, written.first)
        self._appended.set()


def _follow(db: apsw.Connection, after: int, limit: int) -> list[Recorded]:
    rows = db.execute(sql("follow"), (after, limit))
    found = until_full(Recorded(*row) for row in rows)
    # Unread rows would keep the write-ahead log from being emptied.
    rows.close(force=True)
    return found


def put_step(db: apsw.Connection, claims: Sequence[Claim]) -> list[bool]:
    """Claim keys; whether each leads to the request of its claim. Of two claims to a key the first
    one counts.
    """
    firsts = {one.name: one for one in reversed(claims)}
    # Keys are random; in order, neighbours share a page.
    flat: list[Any] = []
    for name, one in sorted(firsts.items()):
        flat += (name, id_bytes(one.request_id), one.content)
    if run_many(db, "claim_keys", 3, flat) == len(claims):
        return [True] * len(claims)
    found = ask_many(db, "find_claims", 1, [*firsts])
    holders = {name: request_id for name, request_id, _ in found}
    return [holders[one.name] == id_bytes(one.request_id) for one in claims]


def append_step(db: apsw.Connection, appends: Sequence[Append]) -> Written:
    """All at once with their first claims. If that fails, the first claims and then the others."""
    firsts = {n: one.first for n, one in enumerate(appends) if one.first is not None}
    written = attempt_all(db, appends, firsts=[*firsts.values()])
    if written is not None:
        return written
    held = put_step(db, [*firsts.values()]) if firsts else []
    elsewhere = {n for n, is_held in zip(firsts, held, strict=True) if not is_held}
    rest = [append for n, append in enumerate(appends) if n not in elsewhere]
    verdicts = iter(_append_free(db, rest))
    return Written(
        [LeadsElsewhere() if n in elsewhere else next(verdicts) for n in range(len(appends))], None
    )


def _append_free(db: apsw.Connection, appends: Sequence[Append]) -> list[AppendVerdict]:
    """Those whose key is not claimed at once. If that fails, all of them one by one."""
    claimed = _claimed(db, appends)
    rest = [append for index, append in enumerate(appends) if index not in claimed]
    written = attempt_all(db, rest)
    if written is None:
        return [append_one(db, append) for append in appends]
    verdicts = iter(written.verdicts)
    return [claimed[index] if index in claimed else next(verdicts) for index in range(len(appends))]


def attempt_all(
    db: apsw.Connection,
    appends: Sequence[Append],
    also: Callable[[], bool] = lambda: True,
    firsts: Sequence[Claim] = (),
) -> Written | None:
    """Write all appends and their first claims, and run `also`, or nothing: None if an append or
    `also` is refused, or one of `firsts` is claimed already.
    """
    db.execute("savepoint attempting")
    written = _append_all(db, appends, firsts)
    if written is not None and not also():
        written = None
    if written is None:
        db.execute("rollback to attempting")
    db.execute("release attempting")
    return written


def _claimed(db: apsw.Connection, appends: Sequence[Append]) -> dict[int, AppendVerdict]:
    """The appends, by number, whose key leads to an earlier request, of this batch or before. A
    repeated append of the same request is not one of them.
    """
    names: list[Any] = [append.claim.name for append in appends if append.claim is not None]
    held = {
        name: Claimed(id_text(request_id), content)
        for name, request_id, content in ask_many(db, "find_claims", 1, names)
    }
    refused: dict[int, AppendVerdict] = {}
    for index, append in enumerate(appends):
        if append.claim is None:
            continue
        holder = held.setdefault(
            append.claim.name, Claimed(append.claim.request_id, append.claim.content)
        )
        if holder.request_id != append.claim.request_id:
            refused[index] = holder
    return refused


def _append_all(
    db: apsw.Connection, appends: Sequence[Append], firsts: Sequence[Claim]
) -> Written | None:
    """None if one is refused; some may have been written then."""
    claims = [(one.name, id_bytes(one.request_id), one.content) for one in firsts]
    opening: list[Any] = []
    continuing: list[Any] = []
    verdicts: list[AppendVerdict] = []
    for append in appends:
        claim, stream, version = append.claim, append.stream, append.expected
        if claim is not None:
            claims.append((claim.name, id_bytes(claim.request_id), claim.content))
        if version == 0:
            for event in append.events:
                version += 1
                opening += (stream, version, event.id, event.type, event.data, event.meta)
        else:
            expected = version
            for event in append.events:
                version += 1
                continuing += (
                    *(stream, version, event.id, event.type, event.data, event.meta),
                    expected,
                )
                expected = 0
        verdicts.append(Appended(version))
    if opening and continuing:
        # Positions must follow the order of the appends, which two statements would break.
        return None
    # Keys are random; in order, neighbours share a page.
    claims.sort()
    count = len(opening) // 6 + len(continuing) // 7
    if (
        run_many(db, "claim_keys", 3, [value for claim in claims for value in claim]) != len(claims)
        or run_many(db, "open_streams", 6, opening) * 6 != len(opening)
        or run_many(db, "continue_streams", 7, continuing) * 7 != len(continuing)
    ):
        return None
    return Written(verdicts, db.last_insert_rowid() - count + 1, count)


def append_one(db: apsw.Connection, append: Append) -> AppendVerdict:
    if append.claim is not None:
        for _, request_id, content in ask_many(db, "find_claims", 1, [append.claim.name]):
            if request_id != id_bytes(append.claim.request_id):
                return Claimed(id_text(request_id), content)
    actual = db.execute(sql("stream_version"), (append.stream,)).get
    if actual != append.expected:
        if _is_repeated(db, append):
            return Appended(append.expected + len(append.events))
        return Stale(actual)
    if append.claim is not None:
        run_many(
            db,
            "claim_keys",
            3,
            [append.claim.name, id_bytes(append.claim.request_id), append.claim.content],
        )
    for number, event in enumerate(append.events, start=append.expected + 1):
        run_many(
            db,
            "open_streams",
            6,
            [append.stream, number, event.id, event.type, event.data, event.meta],
        )
    return Appended(append.expected + len(append.events))


def _is_repeated(db: apsw.Connection, append: Append) -> bool:
    """Whether this append was committed before and its answer was lost."""
    ids = db.execute(
        sql("event_ids"), (append.stream, append.expected, len(append.events))
    ).fetchall()
    return [row[0] for row in ids] == [event.id for event in append.events]
