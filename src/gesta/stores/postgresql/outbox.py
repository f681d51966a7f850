"""The outbox in PostgreSQL. Implements gesta.ports.outbox."""

from collections.abc import Sequence

from gesta.domain.ids import event_id, id_bytes
from gesta.ports.event_store import Append, Appended, AppendVerdict, Claim, Claimed, NewEvent
from gesta.ports.outbox import OutboxStanding, Prepared, Raw
from gesta.ports.transactions import Entry
from gesta.runtime.clock import Runtime
from gesta.stores.postgresql.callers import caller_of, raise_of_caller
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.event_store import PostgresqlEventStore
from gesta.stores.postgresql.recording import record
from gesta.stores.postgresql.statements import Statements


class Transaction:
    """Statements of this adapter on one connection."""

    def __init__(self, connection: Connection, sql: Statements) -> None:
        self._connection, self._sql = connection, sql

    async def ask(self, name: str, *values: object) -> list[Row]:
        return await self._connection.fetch(self._sql(name), *values)


class PostgresqlOutbox:
    def __init__(self, database: Database, events: PostgresqlEventStore, runtime: Runtime) -> None:
        self._database, self._events, self._runtime = database, events, runtime

    async def write(self, within: object, request: Prepared) -> Claimed | None:
        caller = caller_of(within)
        append = request.append
        claim = append.claim
        # A request begins with one event, and a row holds one.
        (first,) = append.events
        try:
            await caller.begin()
            ((holder, content),) = await caller.ask(
                self._database.sql("defer"),
                (
                    request.request_id,
                    request.flow,
                    request.tenant,
                    append.stream,
                    first.type,
                    first.data,
                    first.meta,
                    None if claim is None else claim.name,
                    None if claim is None else claim.content,
                ),
            )
        except Exception as error:  # noqa: BLE001 -- raised again as ours
            raise_of_caller(self._database.name, error)
        return None if holder is None else Claimed(holder, bytes(content))

    async def waiting(
        self, flows: Sequence[str], age_ms: int, without: Sequence[str], limit: int
    ) -> list[Prepared | Raw]:
        if not await self._database.has_row("outbox_any"):
            return []
        until = self._runtime.now_ms() - age_ms if age_ms else 2**62
        rows = await self._database.ask("outbox_waiting", list(flows), until, list(without), limit)
        return [_waiting(row) for row in rows]

    async def drain(self, appends: Sequence[tuple[str, Append]]) -> list[AppendVerdict | None]:
        ids = [request_id for request_id, _ in appends]

        async def step(
            connection: Connection,
        ) -> tuple[dict[str, Append], dict[str, AppendVerdict], int | None]:
            transaction = Transaction(connection, self._database.sql)
            free = {row[0] for row in await transaction.ask("outbox_lock", ids)}
            ours = {request_id: append for request_id, append in appends if request_id in free}
            if not ours:
                return {}, {}, None
            entries = [Entry(append, None) for append in ours.values()]
            recordings, first = await record(transaction, entries, {}, 0, durable=True)
            verdicts: dict[str, AppendVerdict] = {}
            for request_id, recording in zip(ours, recordings, strict=True):
                assert recording.verdict is not None
                verdicts[request_id] = recording.verdict
            await transaction.ask(
                "outbox_remove",
                [name for name, verdict in verdicts.items() if isinstance(verdict, Appended)],
            )
            return ours, verdicts, first

        ours, verdicts, first = await self._database.transact(step, durable=True)
        if ours:
            self._events.committed([*ours.values()], first)
        return [verdicts.get(request_id) for request_id in ids]

    async def standing(self) -> list[OutboxStanding]:
        return [OutboxStanding(*row) for row in await self._database.ask("outbox_standing")]

    async def count(self, limit: int) -> int:
        ((count,),) = await self._database.ask("outbox_count", limit)
        return int(count)


def _waiting(row: Row) -> Prepared | Raw:
    (
        request_id,
        flow,
        tenant,
        created,
        stream,
        type_name,
        data,
        meta,
        claim_name,
        claim_content,
        payload,
        *options,
    ) = row
    if payload is not None:
        return Raw(request_id, flow, tenant, created, payload, *options)
    event = NewEvent(event_id(id_bytes(request_id), 0), type_name, data, meta)
    claim = None if claim_name is None else Claim(claim_name, request_id, claim_content)
    return Prepared(request_id, flow, tenant, Append(stream, 0, (event,), claim))
