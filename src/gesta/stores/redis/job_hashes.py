"""Jobs of slow endpoints as Redis hashes. Implements gesta.ports.job_store.JobTable.

Layout `shared` has the names and the form that .NET services with AsyncEndpoints read and write, on
one server. Layout `cluster` is for services of gesta alone, on a server or a Cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from gesta.domain.stored_job import (
    IN_A_ROW,
    TRANSITIONS,
    Fields,
    StoredJob,
    error_text,
    fields_of,
    job_of_json,
)
from gesta.errors import BadSettings
from gesta.ports.job_store import (
    KEEP_SECONDS,
    Claim,
    Completion,
    Failing,
    Held,
    JobCounts,
    Postponement,
    Pulse,
    Reaped,
)
from gesta.stores.job_codes import CONFISCATED_SECONDS, WORKER_LOST
from gesta.stores.redis.connection import Address, Arg, Call, Redis, address_of, script
from gesta.stores.redis.keys import JOB_PREFIX, JobKeys

Layout = Literal["shared", "cluster"]
#: The fields that may be null. Layout `shared` has '' in their place.
NULLABLE = ("Result", "Error", "RetryDelayUntil", "WorkerId", "StartedAt", "CompletedAt")
#: Members of the queue that one claim looks at. Those of other services' names are passed over.
LOOK = 5_000
#: Which status may follow which, for the script.
FOLLOWS = f" {' '.join(f'{a:d}>{b:d}' for a, after in TRANSITIONS.items() for b in sorted(after))} "


def jobs_address(url: str) -> tuple[Address, Layout, str]:
    """The server, the layout and the prefix of the keys. Raises BadSettings."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    default = "cluster" if parts.scheme.endswith("+cluster") else "shared"
    layout, prefix = options.pop("layout", default), options.pop("prefix", JOB_PREFIX)
    if layout not in ("shared", "cluster"):
        raise BadSettings(f"url: layout={layout!r} is unknown; write layout=shared or cluster")
    if not prefix.isalnum():
        raise BadSettings(f"url: prefix={prefix!r} cannot be used; write letters and digits")
    address = address_of(parts._replace(query=urlencode(options)).geturl())
    return address, cast("Layout", layout), prefix


class RedisJobHashes:
    def __init__(
        self,
        redis: Redis,
        *,
        layout: Layout = "shared",
        prefix: str = JOB_PREFIX,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """With `now_ms` the time is that one, else the server's."""
        if layout == "shared" and redis.address.is_cluster:
            raise BadSettings(
                "url: layout=shared spreads its keys over several slots of the cluster; use one"
                " server, or write layout=cluster"
            )
        self._redis, self.layout, self._now_ms = redis, layout, now_ms
        self.name, self.keys = redis.address.name, JobKeys(layout, prefix)

    async def create(self, rows: Sequence[Mapping[str, str]]) -> list[str]:
        args: list[Arg] = []
        for row in rows:
            args += [row["Id"], *self._flat(row)]
        return _texts(await self._call("job_create", [row["Id"] for row in rows], args))

    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]:
        return [self._read(one) for one in await self._call("job_get", ids, [])]

    async def update(self, rows: Sequence[tuple[Mapping[str, str], Held | None]]) -> list[str]:
        args: list[Arg] = [FOLLOWS, CONFISCATED_SECONDS * 1000]
        for row, held in rows:
            who = ("", "") if held is None else (held.worker_id, held.token)
            args += [row["Id"], row["LastUpdatedAt"], *who, *self._flat(row)]
        return _texts(await self._call("job_update", [row["Id"] for row, _ in rows], args))

    async def claim(self, claim: Claim, token: str) -> list[tuple[str, Mapping[str, str] | str]]:
        urgent = [name for name in claim.names if name in claim.urgent]
        rest = [name for name in claim.names if name not in claim.urgent]
        args = [*self._claim(claim, token), len(claim.names), len(urgent), *urgent, *rest]
        return [self._claimed(one) for one in await self._call("job_claim", [], args)]

    async def claim_by_id(
        self, ids: Sequence[str], claim: Claim, token: str
    ) -> list[tuple[str, Mapping[str, str] | str]]:
        args = [*self._claim(claim, token), 0, 0, *ids]
        return [self._claimed(one) for one in await self._call("job_claim", ids, args)]

    async def complete(self, ends: Sequence[Completion]) -> list[str]:
        more = [(int(one.result is not None), one.result or "") for one in ends]
        return await self._held("job_complete", [one.held for one in ends], more)

    async def fail(self, ends: Sequence[Failing]) -> list[str]:
        more = [(error_text(one.error.code, one.error.message),) for one in ends]
        return await self._held("job_fail", [one.held for one in ends], more)

    async def reschedule(self, ends: Sequence[Postponement]) -> list[str]:
        more = [
            (error_text(one.error.code, one.error.message), round(one.delay_seconds * 1000))
            for one in ends
        ]
        return await self._held("job_reschedule", [one.held for one in ends], more)

    async def release(self, held: Sequence[Held]) -> list[str]:
        return await self._held("job_release", held, [()] * len(held))

    async def heartbeat(self, held: Sequence[Held], lease_seconds: float) -> list[Pulse]:
        answers = await self._held(
            "job_heartbeat", held, [()] * len(held), [round(lease_seconds * 1000)]
        )
        return cast("list[Pulse]", answers)

    async def cancel(self, ids: Sequence[str]) -> list[str]:
        return _texts(await self._call("job_cancel", ids, ids))

    async def reap(self, limit: int) -> list[Reaped]:
        answer = await self._call("job_reap", [], [limit, error_text(*WORKER_LOST)])
        return [Reaped(*_texts(one)) for one in answer]  # type: ignore[arg-type]

    async def counts(self) -> JobCounts:
        found = await self._redis.command("HGETALL", self.keys["jobs:counts"])
        return JobCounts(**{name: int(count) for name, count in found.items()})

    async def texts(self, cursor: str, count: int) -> tuple[str, list[str]]:
        """Ids of jobs that are one JSON text, some at a time; the next cursor, '0' at the end."""
        start = self.keys.job("")
        cursor, keys = await self._redis.command(
            "SCAN", cursor, "MATCH", f"{start}*", "COUNT", count, "TYPE", "string"
        )
        return str(cursor), [key.removeprefix(start) for key in keys]

    async def to_hashes(self, ids: Sequence[str]) -> list[str]:
        """Turn JSON texts into hashes: OK, GONE, UNREADABLE, or STALE if it changed meanwhile."""
        answers = dict.fromkeys(ids, "GONE")
        args: list[Arg] = [CONFISCATED_SECONDS * 1000]
        ready: list[str] = []
        for job_id, found in zip(ids, await self._call("job_get", ids, []), strict=True):
            if found[0] != b"string":
                continue
            job = _job_of_text(found[1])
            if job is None or job.id != job_id:
                answers[job_id] = "UNREADABLE"
                continue
            ready.append(job_id)
            args += [job_id, found[1], *self._flat(fields_of(job))]
        if ready:
            codes = _texts(await self._call("job_migrate", ready, args))
            answers |= zip(ready, codes, strict=True)
        return list(answers.values())

    def _claim(self, claim: Claim, token: str) -> list[Arg]:
        lease_ms = round(claim.lease_seconds * 1000)
        return [claim.worker_id, token, lease_ms, claim.limit, IN_A_ROW, LOOK]

    async def _held(
        self,
        name: str,
        held: Sequence[Held],
        more: Iterable[Sequence[Arg]],
        first: Sequence[Arg] = (),
    ) -> list[str]:
        args = [*first]
        for one, rest in zip(held, more, strict=True):
            args += [one.id, one.worker_id, one.token, *rest]
        return _texts(await self._call(name, [one.id for one in held], args))

    async def _call(self, name: str, ids: Sequence[str], args: Sequence[Arg]) -> Any:
        keys = [*self.keys.fixed, *map(self.keys.job, ids)]
        now = self._now_ms() if self._now_ms else 0
        common: list[Arg] = [now, self.layout, KEEP_SECONDS]
        return await self._redis.call(Call(script(name), keys, [*common, *args], as_bytes=True))

    def _flat(self, row: Mapping[str, str]) -> list[Arg]:
        """The number of fields, then name and value of each."""
        fields = dict(row)
        if self.layout == "shared":
            fields = dict.fromkeys(NULLABLE, "") | fields
        return [len(fields), *(part for pair in fields.items() for part in pair)]

    def _fields(self, flat: Sequence[bytes]) -> Fields | str:
        try:
            texts = _texts(flat)
        except UnicodeDecodeError:
            return "UNREADABLE"
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        if self.layout == "shared":
            # An empty text is its null.
            return {key: one for key, one in fields.items() if one or key not in NULLABLE}
        return fields

    def _read(self, found: Sequence[bytes]) -> Mapping[str, str] | str:
        kind, *rest = found
        if kind == b"none":
            return "NOT_FOUND"
        if kind == b"hash":
            return self._fields(rest)
        job = _job_of_text(rest[0]) if kind == b"string" else None
        return "UNREADABLE" if job is None else fields_of(job)

    def _claimed(self, found: Sequence[bytes]) -> tuple[str, Mapping[str, str] | str]:
        job_id, *rest = found
        if len(rest) == 1:
            return job_id.decode(), rest[0].decode()
        return job_id.decode(errors="replace"), self._fields(rest)


def _texts(answers: Sequence[bytes]) -> list[str]:
    return [one.decode() for one in answers]


def _job_of_text(text: bytes) -> StoredJob | None:
    try:
        return job_of_json(text.decode())
    except ValueError:
        return None
