"""Events in PostgreSQL. Implements gesta.ports.event_store."""

from collections.abc import Sequence

from gesta.domain.ids import id_bytes
from gesta.ports.event_store import FOLLOW_BYTES, Append, AppendVerdict, Claim, Recorded, Share
from gesta.ports.transactions import Entry
from gesta.runtime.clock import Runtime
from gesta.stores.first_claims import append_with_claims, have_claims
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.notifications import Notifications
from gesta.stores.postgresql.recording import record
from gesta.stores.sql_queries import SqlEventStore


class PostgresqlEventStore(SqlEventStore):
    def __init__(self, database: Database, notifications: Notifications, runtime: Runtime) -> None:
        super().__init__(database, runtime)
        self._database, self._notifications = database, notifications
        notifications.on_commit(self._appended.set)

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        if not appends:
            return []
        if have_claims(appends):
            return await append_with_claims(appends, self.put_claims, self._append)
        return await self._append(appends)

    async def _append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        recordings, first = await record(
            self._database, [Entry(append, None) for append in appends], {}, 0, durable=True
        )
        self.committed(appends, first)
        return [recording.verdict for recording in recordings]  # type: ignore[misc]

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        if not streams:
            return []
        rows = await self._database.ask(
            "read_streams", [stream for stream, _ in streams], [after for _, after in streams]
        )
        return [Recorded(*row) for row in rows]

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        if own := self._own.after(after, limit):
            return own
        rows = await self._sized("follow", after, limit)
        return self._own.known([Recorded(*row) for row in rows])

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        if own := self._own.after(after, limit):
            return share.part_of(own, after)
        rows = await self._sized(
            "follow_partitions", after, limit, share.count, list(share.numbers)
        )
        (reached,) = [row["position"] for row in rows if row["stream"] is None]
        found = [Recorded(*row) for row in rows if row["stream"] is not None]
        # If the bytes were the limit, the rest of the range was not read.
        is_full = sum(len(one.data) for one in found) >= FOLLOW_BYTES
        return self._own.known(found), found[-1].position if is_full else max(after, reached)

    async def _sized(self, name: str, after: int, limit: int, *values: object) -> list[Row]:
        """Reads with a size limit per event. Only if an event is larger, the bytes are counted."""
        rows = await self._database.ask(name, after, limit, *values, FOLLOW_BYTES // max(1, limit))
        if any(row["data"] is None and row["stream"] is not None for row in rows):
            rows = await self._database.ask(f"{name}_large", after, limit, *values, FOLLOW_BYTES)
        return rows

    async def end(self) -> int:
        ((position,),) = await self._database.ask("end_of_log")
        return int(position)

    async def behind(self, after: int) -> int:
        # Positions have no gaps.
        return max(0, await self.end() - after)

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        names, ids = [one.name for one in claims], [id_bytes(one.request_id) for one in claims]

        async def put(connection: Connection) -> list[Row]:
            await connection.fetch(
                self._database.sql("put_claims"), names, ids, [one.content for one in claims]
            )
            # A second statement: it sees what others claimed while the first one waited for them.
            return await connection.fetch(self._database.sql("claim_holders"), names)

        holders = {
            row["name"]: row["request_id"]
            for row in await self._database.transact(put, durable=True)
        }
        return [holders[name] == request_id for name, request_id in zip(names, ids, strict=True)]

    def committed(
        self, appends: Sequence[Append], first: int | None, *, projected_to: int | None = None
    ) -> None:
        """Call after the commit: keeps the events for followers and wakes them.

        `first`: the position of the first event; None: some appends were refused. `projected_to`:
        the position of the last event, if they are projected already.
        """
        if first is None:
            self._own.forget()
        elif projected_to is not None:
            self._own.add_projected(appends, first, projected_to)
        else:
            self._own.add(appends, first)
        self._appended.set()
        self._notifications.committed()
