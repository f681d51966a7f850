"""Views in Redis. Implements gesta.ports.read_model and gesta.ports.view_positions.

A snapshot, its marks and the indexes of its tenant share the slot of the tenant; the sweeper's
indexes are spread over the shards. Each shard keeps the position up to which its views are
written, and the last write of a batch moves it: whatever a failover loses, the position on that
shard is older than what was lost, and the projector folds again from there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgspec

from gesta.domain.ids import id_end, id_floor
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.errors import BadSettings, StoreError
from gesta.ports.checkpoints import Move
from gesta.ports.read_model import (
    Cursor,
    Filter,
    Key,
    Quarantined,
    View,
    ViewPosition,
    key_of,
    should_have_a_job,
)
from gesta.stores.redis.connection import Call, Connection
from gesta.stores.redis.keys import RequestKeys, crc16

#: How long a dispatched mark outlives the end of its request.
DISPATCHED_KEPT_MS = 7 * 24 * 3600 * 1000
#: Views, indexes and positions of a cluster are spread over so many tags, one for each 1,024 slots.
SHARDS = 16
#: A status with so many requests at most is listed by sorting them; a page of a larger one is found
#: by walking through all requests.
SORTED = 5_000
PAGE = 500

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(State).decode
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text_of = msgspec.json.Decoder(str).decode

#: The fields of seed documents' snapshots that are part of the payload.
PAYLOAD_FIELDS = ("workspaceCode", "templateCode", "channelCode", "recipient")


class Shard(NamedTuple):
    """The keys of one shard's indexes. Tenants are spread over the shards by their names."""

    sweep: str
    open: str
    undecided: str
    versions: str
    flows: str
    positions: str

    @classmethod
    def of(cls, tag: str) -> "Shard":
        return cls(*(f"gesta:v1:{{{tag}}}:{name}" for name in cls._fields))


@cache
def shards(count: int) -> tuple[Shard, ...]:
    """One tag for each range of slots, so that every node of a cluster has at least one."""
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < count:
        tags.setdefault(crc16(f"views-{number}".encode()) % 16384 * count // 16384, f"views-{number}")
        number += 1
    return tuple(Shard.of(tags[n]) for n in range(count))


class RedisReadModel:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._shards = shards(SHARDS if connection.is_cluster else 1)

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        tenants: dict[str, list[Key]] = defaultdict(list)
        for key in keys:
            tenants[key[1]].append(key)
        calls = [
            Call("get_views", [RequestKeys(flow, tenant).snapshot(id) for flow, tenant, id in group])
            for group in tenants.values()
        ]
        answers = chain.from_iterable(await self._connection.run(calls))
        wanted = chain.from_iterable(tenants.values())
        return {key: _view_of(*found) for key, found in zip(wanted, answers, strict=True) if found}

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined] = (),
        moves: Sequence[Move] = (),
    ) -> bool:
        if quarantined:
            raise StoreError("quarantined events are kept in the durable store, not beside views")
        await self._save(views)
        if not moves:
            return True
        # Last, and only once every view is written: a position says that nothing is missing.
        args = [value for move in moves for value in (move.name, move.before, move.after)]
        moved = await self._connection.run(
            [Call("move_positions", [shard.positions], args) for shard in self._shards]
        )
        return all(moved)

    async def _save(self, views: Sequence[View]) -> None:
        groups: dict[tuple[str, str], list[View]] = defaultdict(list)
        for view in views:
            groups[view.state.flow, view.state.tenant].append(view)
        saves = [_save_call(flow, tenant, group) for (flow, tenant), group in groups.items()]
        answers = await self._connection.run([*saves, *self._index_calls(views)])
        for (flow, tenant), answer in zip(groups, answers, strict=False):
            for text in answer:
                if not isinstance(text, int):
                    raise StoreError(
                        f"a key of {flow}, tenant {tenant} in {self._connection.name} is not"
                        f" gesta's: {_text(text)}. Delete or rename the key; the view is written"
                        " again by itself"
                    )

    def _index_calls(self, views: Sequence[View]) -> list[Call]:
        by_shard: dict[Shard, list[State]] = defaultdict(list)
        for view in views:
            by_shard[self._shard_of(view.state.tenant)].append(view.state)
        calls = []
        for shard, states in by_shard.items():
            flows = {_pair(state.tenant, state.flow) for state in states}
            calls.append(
                Call(
                    "index_views",
                    [shard.sweep, shard.open, shard.undecided, shard.versions, shard.flows],
                    [len(flows), *flows, *chain.from_iterable(map(_index_args, states))],
                )
            )
        return calls

    async def positions(self) -> dict[str, int]:
        """The position of each projection: the lowest of all shards."""
        answers = await self._connection.commands(
            ["HGETALL", shard.positions] for shard in self._shards
        )
        found = [_pairs(answer) for answer in answers]
        names = set().union(*found)
        return {name: min(int(one.get(name, 0)) for one in found) for name in names}

    async def remove(self, states: Sequence[State]) -> None:
        """Remove views that have not changed since."""
        groups: dict[tuple[str, str], list[State]] = defaultdict(list)
        members: dict[Shard, list[str]] = defaultdict(list)
        for state in states:
            groups[state.flow, state.tenant].append(state)
            members[self._shard_of(state.tenant)].append(_member(state))
        removals = []
        for (flow, tenant), group in groups.items():
            keys, head = _group_head(flow, tenant, [state.id for state in group])
            args = [value for state in group for value in (state.id, state.version)]
            removals.append(Call("remove_views", keys, [*head, *args]))
        unindexed = [
            Call("unindex_views", [one.sweep, one.open, one.undecided, one.versions], gone)
            for one, gone in members.items()
        ]
        await self._connection.run([*removals, *unindexed])

    async def find(self, chosen: Filter) -> list[View]:
        flows = [chosen.flow] if chosen.flow else await self._flows_of(chosen.tenant)
        found: list[View] = []
        for flow in flows:
            found += await self._find_in(RequestKeys(flow, chosen.tenant), chosen)
        found.sort(key=lambda view: view.state.id, reverse=True)
        return found[: chosen.limit]

    async def _find_in(self, keys: RequestKeys, chosen: Filter) -> list[View]:
        """A page of one flow, newest first."""
        if chosen.status is None:
            ids = await self._ids_before(keys, chosen.before_id, chosen.limit)
            return await self._views_of(keys, ids)
        by_status = keys.by_status(chosen.status)
        [count] = await self._connection.commands([["SCARD", by_status]])
        if count <= SORTED:
            [members] = await self._connection.commands([["SMEMBERS", by_status]])
            before = chosen.before_id or id_end()
            ids = sorted((one for one in map(_text, members) if one < before), reverse=True)
            found = await self._views_of(keys, ids[: chosen.limit])
            return [view for view in found if view.state.status == chosen.status]
        found, before_id = [], chosen.before_id
        while len(found) < chosen.limit and (ids := await self._ids_before(keys, before_id, PAGE)):
            before_id = ids[-1]
            page = await self._views_of(keys, ids)
            found += [view for view in page if view.state.status == chosen.status]
        return found[: chosen.limit]

    async def _ids_before(self, keys: RequestKeys, before_id: str | None, limit: int) -> list[str]:
        newest = "+" if before_id is None else f"({before_id}"
        command = ["ZRANGE", keys.by_id, newest, "-", "BYLEX", "REV", "LIMIT", "0", str(limit)]
        [ids] = await self._connection.commands([command])
        return [_text(one) for one in ids]

    async def _views_of(self, keys: RequestKeys, ids: Sequence[str]) -> list[View]:
        found = await self.get([(keys.flow, keys.tenant, one) for one in ids]) if ids else {}
        return list(found.values())

    async def _flows_of(self, tenant: str) -> list[str]:
        first = f"[{_pair(tenant, '')}"
        [pairs] = await self._connection.commands(
            [["ZRANGE", self._shard_of(tenant).flows, first, f"{first}\xff", "BYLEX"]]
        )
        return [_text(pair).partition("\0")[2] for pair in pairs]

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        shards = self._shards if tenant is None else (self._shard_of(tenant),)
        answers = await self._connection.commands(
            ["ZRANGE", shard.flows, "0", "-1"] for shard in shards
        )
        asked = [
            (flow, status, RequestKeys(flow, owner).by_status(status))
            for owner, flow in (_text(one).split("\0") for one in chain.from_iterable(answers))
            if tenant in (None, owner)
            for status in lifecycle_of(flow).statuses
        ]
        numbers = await self._connection.commands(["SCARD", key] for _, _, key in asked)
        found: dict[tuple[str, str], int] = defaultdict(int)
        for (flow, status, _), number in zip(asked, numbers, strict=True):
            if number:
                found[flow, status] += number
        return dict(found)

    async def undecided(self) -> tuple[int, int | None]:
        commands = []
        for shard in self._shards:
            commands += [["ZCARD", shard.undecided], ["ZRANGE", shard.undecided, "0", "0", "WITHSCORES"]]
        answers = await self._connection.commands(commands)
        oldest = [_scored(first)[0][1] for first in answers[1::2] if first]
        return sum(answers[::2]), min(oldest, default=None)

    async def quarantined(self, tenant: str | None, limit: int) -> NoReturn:
        raise StoreError("quarantined events are kept in the durable store, not beside views")

    async def shadow(self) -> NoReturn:
        raise BadSettings(
            f"views in {self._connection.name} are rebuilt by deleting them (FLUSHDB): the"
            " projector folds them again by itself, and dispatches nothing twice"
        )

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        commands = []
        for shard in self._shards:
            due = ["ZRANGE", shard.sweep, "-inf", str(now_ms), "BYSCORE", "LIMIT", "0", str(limit)]
            later = ["ZRANGE", shard.sweep, f"({now_ms}", "+inf", "BYSCORE", "LIMIT", "0", "1"]
            commands += [[*due, "WITHSCORES"], [*later, "WITHSCORES"]]
        answers = await self._connection.commands(commands)
        found = sorted((at, member) for page in answers[::2] for member, at in _scored(page))[:limit]
        keys = [_key_of_member(member) for _, member in found]
        views = await self.get(keys) if keys else {}
        later_at = [_scored(first)[0][1] for first in answers[1::2] if first]
        return [views[key] for key in keys if key in views], min(later_at, default=None)

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        by_shard: dict[Shard, list[Any]] = defaultdict(list)
        for state, sweep_at in looked_at:
            by_shard[self._shard_of(state.tenant)] += (
                _member(state),
                state.version,
                "" if sweep_at is None else sweep_at,
            )
        await self._connection.run(
            [
                Call("postpone_views", [shard.sweep, shard.versions], args)
                for shard, args in by_shard.items()
            ]
        )

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """At most one shard at a time: the next call goes on with the next."""
        number, score, member = after or (0, 0, "")
        shard = self._shards[number]
        call = Call("open_views", [shard.open, shard.sweep], [score, member, before_ms, limit])
        [page] = await self._connection.run([call])
        keys = [_key_of_member(_text(one[0])) for one in page]
        views = await self.get(keys) if keys else {}
        found = []
        for key, (_, _, sweep_at) in zip(keys, page, strict=True):
            # An entry without its view, or of an older version, is left from a write that was cut.
            view = views.get(key)
            if view is not None and view.state.updated_at < before_ms:
                at_ms = None if sweep_at is None else round(float(sweep_at))
                if should_have_a_job(view.state, at_ms, before_ms):
                    found.append(view.state)
        if len(page) == limit:
            last_member, last_score, _ = page[-1]
            return found, (number, round(float(last_score)), _text(last_member))
        return found, (number + 1, 0, "") if number + 1 < len(self._shards) else None

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """At most one tenant and flow at a time: the next call goes on with the next."""
        tenant, flow, after_id = after
        states: list[State] = []
        if tenant:
            keys = RequestKeys(flow, tenant)
            before_id = id_end() if flow in foreign else id_floor(before_ms)
            bounds = [f"({after_id}" if after_id else "-", f"({before_id}"]
            [ids] = await self._connection.commands(
                [["ZRANGE", keys.by_id, *bounds, "BYLEX", "LIMIT", "0", str(limit)]]
            )
            states = [view.state for view in await self._views_of(keys, [*map(_text, ids)])]
            if len(ids) == limit:
                found = [one for one in states if one.is_terminal and one.updated_at < before_ms]
                return found, (tenant, flow, _text(ids[-1]))
        found = [one for one in states if one.is_terminal and one.updated_at < before_ms]
        behind = f"({_pair(tenant, flow)}" if tenant else "-"
        answers = await self._connection.commands(
            ["ZRANGE", shard.flows, behind, "+", "BYLEX", "LIMIT", "0", "1"]
            for shard in self._shards
        )
        following = min(map(_text, chain.from_iterable(answers)), default=None)
        if following is None:
            return found, None
        next_tenant, _, next_flow = following.partition("\0")
        return found, (next_tenant, next_flow, "")

    def _shard_of(self, tenant: str) -> Shard:
        return self._shards[crc16(tenant.encode()) % 16384 * len(self._shards) // 16384]


def _save_call(flow: str, tenant: str, views: Sequence[View]) -> Call:
    keys, head = _group_head(flow, tenant, [view.state.id for view in views])
    return Call(
        "save_views",
        keys,
        [*head, DISPATCHED_KEPT_MS, *chain.from_iterable(map(_save_args, views))],
    )


def _group_head(flow: str, tenant: str, ids: Iterable[str]) -> tuple[list[str], list[Any]]:
    """The keys of requests of one flow and tenant, and the arguments that name the statuses."""
    keys, statuses = RequestKeys(flow, tenant), lifecycle_of(flow).statuses
    names = [keys.updated, keys.by_id, *map(keys.by_status, statuses)]
    for one in ids:
        names += (keys.snapshot(one), keys.dispatched(one))
    return names, [len(statuses), *statuses]


def _save_args(view: View) -> list[Any]:
    state = view.state
    fields = _snapshot(view)
    return [
        state.id,
        state.version,
        state.status,
        state.updated_at,
        state.dispatch_version if state.wants else "",
        int(state.is_terminal),
        len(fields),
        *chain.from_iterable(fields.items()),
    ]


def _snapshot(view: View) -> dict[str, Any]:
    """The fields that other services read, and ours: `state` and `payload` in full."""
    state = view.state
    fields: dict[str, Any] = {"id": state.id, "tenant": state.tenant}
    given = _fields_of(view.payload) if view.payload[:1] == b"{" else {}
    for name in PAYLOAD_FIELDS:
        raw = given.get(name)
        if raw is not None and bytes(raw)[:1] == b'"':
            fields[name] = _text_of(raw)
    return fields | {
        "data": bytes(given.get("data", b"{}")),
        "status": state.status,
        "version": state.version,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        "lastStreamRevision": state.version - 1,
        "state": _encode(state),
        "payload": view.payload,
    }


def _index_args(state: State) -> list[Any]:
    return [
        _member(state),
        state.version,
        "" if state.sweep_at is None else state.sweep_at,
        state.updated_at if state.wants else "",
        state.updated_at if state.waits_for_a_person else "",
        int(state.is_terminal),
    ]


def _view_of(state: bytes, payload: bytes) -> View:
    return View(_decode(state), payload)


def _pair(tenant: str, flow: str) -> str:
    return f"{tenant}\0{flow}"


def _member(state: State) -> str:
    return f"{state.tenant}\0{state.flow}\0{state.id}"


def _key_of_member(member: str) -> Key:
    tenant, flow, request_id = member.split("\0")
    return flow, tenant, request_id


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _pairs(answer: Any) -> dict[str, Any]:
    """A hash, as RESP2 and RESP3 answer it."""
    items = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {_text(name): value for name, value in items}


def _scored(page: Any) -> list[tuple[str, int]]:
    """Members and scores, as RESP2 and RESP3 answer them."""
    if page and isinstance(page[0], list | tuple):
        return [(_text(member), round(float(score))) for member, score in page]
    return [
        (_text(member), round(float(score)))
        for member, score in zip(page[::2], page[1::2], strict=True)
    ]


