"""Views in Redis. Implements gesta.ports.read_model and gesta.ports.view_positions.

A snapshot, its marks and the indexes of its tenant share the slot of the tenant; the sweeper's
indexes are spread over the shards. Each shard keeps the position up to which its views are
written, and the last write of a batch moves it: whatever a failover loses, the position on that
shard is older than what was lost, and the projector folds again from there. The views of a batch
end with a mark, which is written only where that of the batch before is, as far as the position has
not moved since. The position moves only where the last mark is: a server that lost views in
between, and answers again, has not got it.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgspec

from gesta.domain.codec import decode_state
from gesta.domain.ids import id_end, id_floor
from gesta.domain.lifecycles import STATUSES, lifecycle_of
from gesta.domain.state import State
from gesta.errors import StoreError
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
from gesta.runtime.clock import Runtime
from gesta.runtime.group_commit import GroupCommit
from gesta.stores.recent_views import RecentViews, Saved
from gesta.stores.redis.connection import Arg, Call, Redis, script
from gesta.stores.redis.keys import SLOTS, IndexKeys, RequestKeys, slot_of

#: How long a dispatched mark outlives the end of its request.
DISPATCHED_KEPT_MS = 7 * 24 * 3600 * 1000
#: Views, indexes and positions of a cluster are spread over so many tags, one for each 1,024 slots.
SHARDS = 16
#: A status with so many requests at most is listed by sorting them; a page of a larger one is found
#: by walking through all requests.
SORTED = 5_000
PAGE = 500
#: Views in one script: the server takes longer for each in a script with thousands of writes.
BATCH = 100
#: An answer of save_views.lua.
OTHER_BASE = 2

_encode = msgspec.json.Encoder().encode
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text_of = msgspec.json.Decoder(str).decode
_pack = msgspec.msgpack.Encoder().encode

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
    written: str
    shadow: str

    @classmethod
    def of(cls, tag: str) -> "Shard":
        return cls(*(f"gesta:v1:{{{tag}}}:{name}" for name in cls._fields))


@cache
def shards(count: int) -> tuple[Shard, ...]:
    """One tag for each range of slots, so that every node of a cluster has at least one."""
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < count:
        tags.setdefault(slot_of(f"views-{number}") * count // SLOTS, f"views-{number}")
        number += 1
    return tuple(Shard.of(tags[n]) for n in range(count))


Marks = dict[tuple[str, Shard], str]


class RedisReadModel:
    def __init__(self, redis: Redis, runtime: Runtime) -> None:
        self._redis, self._runtime = redis, runtime
        self._shards = shards(SHARDS if redis.address.is_cluster else 1)
        #: Many callers wait for one request each: their reads are one call.
        self._reads: GroupCommit[Key, View | None] = GroupCommit(self._read, "gesta-redis-reads")
        self._recent = RecentViews()
        #: Projection and shard → the mark of the last views that were written there, since the
        #: position moved.
        self._marks: Marks = {}

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        found, missing = self._recent.get(keys)
        if len(missing) > 1:
            found |= await self._get(missing)
        elif missing and (view := await self._reads.add(missing[0])) is not None:
            found[missing[0]] = view
        return found

    async def _read(self, keys: list[Key]) -> list[View | None]:
        found = await self._get(keys)
        return [found.get(key) for key in keys]

    async def _get(self, keys: Sequence[Key]) -> dict[Key, View]:
        tenants: dict[str, list[Key]] = defaultdict(list)
        for key in keys:
            tenants[key[1]].append(key)
        calls = [
            Call(script("get_views"), [RequestKeys(*key).snapshot for key in group], ())
            for group in tenants.values()
        ]
        answers = chain.from_iterable(await self._redis.calls(calls))
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
        # An error leaves none: then all views since the position are written again.
        marks, self._marks = self._marks, {}
        all_newer = await self._save(views, [move.name for move in moves], marks)
        # Last, and only once every view is written: a position says that nothing is missing.
        if any(move.before < move.after for move in moves):
            moved = await self._move(moves, marks)
        else:
            moved, self._marks = True, marks
        self._recent.committed(views, Saved(moved, all_newer))
        return moved

    async def _move(self, moves: Sequence[Move], marks: Marks) -> bool:
        calls = []
        for shard in self._shards:
            args: list[Arg] = []
            for move in moves:
                args += (move.name, move.before, move.after, marks.get((move.name, shard), ""))
            calls.append(Call(script("move_positions"), [shard.positions, shard.written], args))
        return all(await self._redis.calls(calls))

    async def _save(self, views: Sequence[View], names: Sequence[str], marks: Marks) -> bool:
        """Whether each was newer than the stored one. `names`: of the projections whose marks
        follow them.
        """
        based_on, _ = self._recent.get([key_of(view.state) for view in views])
        all_newer, others = await self._write(
            views, based_on, self._index_calls(views, names, marks)
        )
        if others:
            # What this process wrote of them is lost or replaced: they are written whole.
            are_newer, _ = await self._write(others, {}, self._index_calls(others, names, marks))
            all_newer = all_newer and are_newer
        return all_newer

    async def _write(
        self, views: Sequence[View], based_on: Mapping[Key, View], more: Sequence[Call]
    ) -> tuple[bool, list[View]]:
        """Whether each was newer than the stored one; and the views whose stored version is not the
        one that they are based on.
        """
        groups: dict[tuple[str, str], list[View]] = defaultdict(list)
        for view in views:
            groups[view.state.flow, view.state.tenant].append(view)
        parts = [
            (names, group[at : at + BATCH])
            for names, group in groups.items()
            for at in range(0, len(group), BATCH)
        ]
        saves = [_save_call(*names, part, based_on) for names, part in parts]
        # The marks of `more` say that all views are there.
        answers = await self._redis.calls_in_order([*saves, *more])
        all_newer, others = True, []
        for ((flow, tenant), group), answer in zip(parts, answers, strict=False):
            for view, text in zip(group, answer, strict=True):
                if not isinstance(text, int):
                    raise StoreError(
                        f"a key of {flow}, tenant {tenant} in {self._redis.address.name} is not"
                        f" gesta's: {text}. Delete or rename the key; the view is written"
                        " again by itself"
                    )
                all_newer = all_newer and text != 0
                if text == OTHER_BASE:
                    others.append(view)
        return all_newer, others

    def _index_calls(self, views: Sequence[View], names: Sequence[str], marks: Marks) -> list[Call]:
        """With a new mark for each of these names, which `marks` has from then on."""
        by_shard: dict[Shard, list[State]] = defaultdict(list)
        for view in views:
            by_shard[self.shard_of(view.state.tenant)].append(view.state)
        mark, calls = self._runtime.random_bytes(8).hex(), []
        for shard, states in by_shard.items():
            flows = [_pair(*one) for one in {(state.tenant, state.flow) for state in states}]
            calls.append(
                Call(
                    script("index_views"),
                    [*shard[:5], shard.written],
                    [
                        _pack(flows),
                        _flat([_index_row(one) for one in states if not one.is_terminal]),
                        _flat([(_member(one), one.version) for one in states if one.is_terminal]),
                        _flat([(name, marks.get((name, shard), ""), mark) for name in names]),
                    ],
                )
            )
            marks.update(((name, shard), mark) for name in names)
        return calls

    async def replace(self, views: Sequence[View]) -> None:
        """Save views whatever is stored of them."""
        self._recent.forget()
        stored = await self.get([key_of(view.state) for view in views])
        await self.remove([view.state for view in stored.values()])
        await self._save(views, (), {})

    async def positions(self) -> dict[str, int]:
        """The position of each projection: the lowest of all shards."""
        self._recent.forget()
        found = await self._redis.commands(["HGETALL", shard.positions] for shard in self._shards)
        names = set().union(*found)
        return {name: min(int(one.get(name, 0)) for one in found) for name in names}

    async def remove(self, states: Sequence[State]) -> None:
        """Remove views that have not changed since."""
        self._recent.forget()
        groups: dict[tuple[str, str], list[State]] = defaultdict(list)
        members: dict[Shard, list[str]] = defaultdict(list)
        for state in states:
            groups[state.flow, state.tenant].append(state)
            members[self.shard_of(state.tenant)].append(_member(state))
        removals = []
        for (flow, tenant), group in groups.items():
            keys, head = _group_head(flow, tenant, [state.id for state in group])
            args = [value for state in group for value in (state.id, state.version)]
            removals.append(Call(script("remove_views"), keys, [*head, *args]))
        unindexed = [
            Call(script("unindex_views"), [one.sweep, one.open, one.undecided, one.versions], gone)
            for one, gone in members.items()
        ]
        await self._redis.calls([*removals, *unindexed])

    async def find(self, chosen: Filter) -> list[View]:
        flows = [chosen.flow] if chosen.flow else await self._flows_of(chosen.tenant)
        found: list[View] = []
        for flow in flows:
            found += await self._find_in(IndexKeys(flow, chosen.tenant), chosen)
        found.sort(key=lambda view: view.state.id, reverse=True)
        return found[: chosen.limit]

    async def _find_in(self, keys: IndexKeys, chosen: Filter) -> list[View]:
        """A page of one flow, newest first."""
        if chosen.status is None:
            ids = await self._ids_before(keys, chosen.before_id, chosen.limit)
            return await self._views_of(keys, ids)
        by_status = keys.by_status(chosen.status)
        [count] = await self._redis.commands([["SCARD", by_status]])
        if count <= SORTED:
            [members] = await self._redis.commands([["SMEMBERS", by_status]])
            before = chosen.before_id or id_end()
            ids = sorted((one for one in members if one < before), reverse=True)
            found = await self._views_of(keys, ids[: chosen.limit])
            return [view for view in found if view.state.status == chosen.status]
        found, before_id = [], chosen.before_id
        while len(found) < chosen.limit and (ids := await self._ids_before(keys, before_id, PAGE)):
            before_id = ids[-1]
            page = await self._views_of(keys, ids)
            found += [view for view in page if view.state.status == chosen.status]
        return found[: chosen.limit]

    async def _ids_before(self, keys: IndexKeys, before_id: str | None, limit: int) -> list[str]:
        newest = "+" if before_id is None else f"({before_id}"
        command = ["ZRANGE", keys.by_id, newest, "-", "BYLEX", "REV", "LIMIT", "0", str(limit)]
        ids: list[str]
        [ids] = await self._redis.commands([command])
        return ids

    async def _views_of(self, keys: IndexKeys, ids: Sequence[str]) -> list[View]:
        found = await self.get([(keys.flow, keys.tenant, one) for one in ids]) if ids else {}
        return list(found.values())

    async def _flows_of(self, tenant: str) -> list[str]:
        first = f"[{_pair(tenant, '')}"
        [pairs] = await self._redis.commands(
            [["ZRANGE", self.shard_of(tenant).flows, first, f"{first}\xff", "BYLEX"]]
        )
        return [pair.partition("\0")[2] for pair in pairs]

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        shards = self._shards if tenant is None else (self.shard_of(tenant),)
        answers = await self._redis.commands(["ZRANGE", shard.flows, "0", "-1"] for shard in shards)
        asked = [
            (flow, status, IndexKeys(flow, owner).by_status(status))
            for owner, flow in (one.split("\0") for one in chain.from_iterable(answers))
            if tenant in (None, owner)
            for status in _statuses_of(flow)
        ]
        numbers = await self._redis.commands(["SCARD", key] for _, _, key in asked)
        found: dict[tuple[str, str], int] = defaultdict(int)
        for (flow, status, _), number in zip(asked, numbers, strict=True):
            if number:
                found[flow, status] += number
        return dict(found)

    async def undecided(self) -> tuple[int, int | None]:
        commands = []
        for shard in self._shards:
            commands += [
                ["ZCARD", shard.undecided],
                ["ZRANGE", shard.undecided, "0", "0", "WITHSCORES"],
            ]
        answers = await self._redis.commands(commands)
        oldest = [_scored(first)[0][1] for first in answers[1::2] if first]
        return sum(answers[::2]), min(oldest, default=None)

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        found = {key: count for key, count in (await self.counts()).items() if key[1] == "unknown"}
        async for state in self._in_status("failed"):
            if not state.purged and state.updated_at >= failed_since_ms:
                found[state.flow, "failed"] = found.get((state.flow, "failed"), 0) + 1
        return found

    async def unknown(self, flow: str, limit: int) -> list[State]:
        found = [state async for state in self._in_status("unknown", flow)]
        return sorted(found, key=lambda one: one.updated_at)[:limit]

    async def _in_status(self, status: str, only: str | None = None) -> AsyncIterator[State]:
        """The requests of all tenants in a status, of one flow or of all."""
        answers = await self._redis.commands(
            ["ZRANGE", shard.flows, "0", "-1"] for shard in self._shards
        )
        for owner, flow in (one.split("\0") for one in chain.from_iterable(answers)):
            if only not in (None, flow):
                continue
            keys = IndexKeys(flow, owner)
            [ids] = await self._redis.commands([["SMEMBERS", keys.by_status(status)]])
            for start in range(0, len(ids), PAGE):
                for view in await self._views_of(keys, list(ids)[start : start + PAGE]):
                    if view.state.status == status:
                        yield view.state

    async def quarantined(self, tenant: str | None, limit: int) -> NoReturn:
        raise StoreError("quarantined events are kept in the durable store, not beside views")

    async def shadow(self) -> "RedisShadow":
        shadow = RedisShadow(self._redis, self, self._shards)
        await shadow.clear()
        return shadow

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        commands = []
        for shard in self._shards:
            due = ["ZRANGE", shard.sweep, "-inf", str(now_ms), "BYSCORE", "LIMIT", "0", str(limit)]
            later = ["ZRANGE", shard.sweep, f"({now_ms}", "+inf", "BYSCORE", "LIMIT", "0", "1"]
            commands += [[*due, "WITHSCORES"], [*later, "WITHSCORES"]]
        answers = await self._redis.commands(commands)
        found = sorted((at, member) for page in answers[::2] for member, at in _scored(page))[
            :limit
        ]
        keys = [_key_of_member(member) for _, member in found]
        views = await self.get(keys) if keys else {}
        later_at = [_scored(first)[0][1] for first in answers[1::2] if first]
        return [views[key] for key in keys if key in views], min(later_at, default=None)

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        by_shard: dict[Shard, list[Any]] = defaultdict(list)
        for state, sweep_at in looked_at:
            by_shard[self.shard_of(state.tenant)] += (
                _member(state),
                state.version,
                "" if sweep_at is None else sweep_at,
            )
        await self._redis.calls(
            [
                Call(script("postpone_views"), [shard.sweep, shard.versions], args)
                for shard, args in by_shard.items()
            ]
        )

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """At most one shard at a time: the next call goes on with the next."""
        number, score, member = after or (0, 0, "")
        shard = self._shards[number]
        call = Call(
            script("open_views"), [shard.open, shard.sweep], [score, member, before_ms, limit]
        )
        [page] = await self._redis.calls([call])
        keys = [_key_of_member(one[0]) for one in page]
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
            return found, (number, round(float(last_score)), last_member)
        return found, (number + 1, 0, "") if number + 1 < len(self._shards) else None

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """At most one tenant and flow at a time: the next call goes on with the next."""
        tenant, flow, after_id = after
        states: list[State] = []
        if tenant:
            keys = IndexKeys(flow, tenant)
            before_id = id_end() if flow in foreign else id_floor(before_ms)
            bounds = [f"({after_id}" if after_id else "-", f"({before_id}"]
            [ids] = await self._redis.commands(
                [["ZRANGE", keys.by_id, *bounds, "BYLEX", "LIMIT", "0", str(limit)]]
            )
            states = [view.state for view in await self._views_of(keys, ids)]
            if len(ids) == limit:
                found = [one for one in states if one.is_terminal and one.updated_at < before_ms]
                return found, (tenant, flow, ids[-1])
        found = [one for one in states if one.is_terminal and one.updated_at < before_ms]
        behind = f"({_pair(tenant, flow)}" if tenant else "-"
        answers = await self._redis.commands(
            ["ZRANGE", shard.flows, behind, "+", "BYLEX", "LIMIT", "0", "1"]
            for shard in self._shards
        )
        following = min(chain.from_iterable(answers), default=None)
        if following is None:
            return found, None
        next_tenant, _, next_flow = following.partition("\0")
        return found, (next_tenant, next_flow, "")

    def shard_of(self, tenant: str) -> Shard:
        return self._shards[_shard_number(tenant, len(self._shards))]


class RedisShadow:
    """Views beside the ones in use: hashes of their own in the slots of their tenants, and a list
    of them on each shard. The swap replaces the views in use one tenant after the other; a crash
    in between leaves some of both, and the rebuild is repeated.
    """

    def __init__(self, redis: Redis, views: RedisReadModel, shards: Sequence[Shard]) -> None:
        self._redis, self._views, self._shards = redis, views, shards

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        answers = await self._redis.commands(
            ["HMGET", _shadow_key(key), "state", "payload"] for key in keys
        )
        found = zip(keys, answers, strict=True)
        return {key: _view_of(*values) for key, values in found if values[0] is not None}

    async def save(self, views: Sequence[View]) -> None:
        lists: dict[str, list[str]] = defaultdict(list)
        writes: list[list[Any]] = []
        for view in views:
            lists[self._views.shard_of(view.state.tenant).shadow].append(_member(view.state))
            key = _shadow_key(key_of(view.state))
            writes.append(["HSET", key, "state", _encode(view.state), "payload", view.payload])
        # The list first: what it names and does not exist is passed over.
        await self._redis.commands(["SADD", key, *members] for key, members in lists.items())
        await self._redis.commands(writes)

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        # Lower first: views that are half replaced must never look complete.
        await self._redis.commands(
            ["HSET", shard.positions, *chain.from_iterable((name, "0") for name in names)]
            for shard in self._shards
        )
        for shard in self._shards:
            await self._remove_missing(shard)
            async for members in self._pages(shard):
                keys = [_key_of_member(one) for one in members]
                found = await self.get(keys)
                await self._views.replace(list(found.values()))
        await self._redis.commands(
            ["HSET", shard.positions, *chain.from_iterable((name, str(position)) for name in names)]
            for shard in self._shards
        )
        await self.clear()
        return True

    async def clear(self) -> None:
        """Delete what a shadow left."""
        for shard in self._shards:
            async for members in self._pages(shard):
                await self._redis.commands(
                    ["DEL", _shadow_key(_key_of_member(one))] for one in members
                )
            await self._redis.commands([["DEL", shard.shadow]])

    async def _remove_missing(self, shard: Shard) -> None:
        """Remove the views of this shard's tenants that the shadow does not have."""
        [pairs] = await self._redis.commands([["ZRANGE", shard.flows, "0", "-1"]])
        for pair in pairs:
            tenant, _, flow = pair.partition("\0")
            by_id, after = IndexKeys(flow, tenant).by_id, "-"
            while True:
                [ids] = await self._redis.commands(
                    [["ZRANGE", by_id, after, "+", "BYLEX", "LIMIT", "0", str(PAGE)]]
                )
                if not ids:
                    break
                after = f"({ids[-1]}"
                keys = [(flow, tenant, one) for one in ids]
                kept = await self.get(keys)
                gone = await self._views.get([key for key in keys if key not in kept])
                if gone:
                    await self._views.remove([view.state for view in gone.values()])

    async def _pages(self, shard: Shard) -> AsyncIterator[list[str]]:
        cursor = "0"
        while True:
            [(cursor, members)] = await self._redis.commands(
                [["SSCAN", shard.shadow, str(cursor), "COUNT", str(PAGE)]]
            )
            if members:
                yield members
            if str(cursor) == "0":
                return


def _shadow_key(key: Key) -> str:
    flow, tenant, request_id = key
    return f"gesta:v1:{{{tenant}}}:shadow:{flow}:{request_id}"


@lru_cache(10_000)
def _shard_number(tenant: str, count: int) -> int:
    return slot_of(tenant) * count // SLOTS


@cache
def _statuses_of(flow: str) -> tuple[str, ...]:
    """Every status that a view of this flow may have."""
    return tuple(dict.fromkeys((*lifecycle_of(flow).statuses, *STATUSES)))


def _save_call(flow: str, tenant: str, views: Sequence[View], based_on: Mapping[Key, View]) -> Call:
    keys, head = _group_head(flow, tenant, [view.state.id for view in views])
    packed = _flat([_row(view, based_on.get(key_of(view.state))) for view in views])
    return Call(script("save_views"), keys, [*head, DISPATCHED_KEPT_MS, tenant, packed])


def _flat(rows: Iterable[Sequence[Any]]) -> bytes:
    """One argument, and one list: client and server take longer for each than for its content."""
    return _pack(list(chain.from_iterable(rows)))


def _group_head(flow: str, tenant: str, ids: Iterable[str]) -> tuple[list[str], list[Any]]:
    """The keys of requests of one flow and tenant, and the arguments that name the statuses."""
    keys, statuses = IndexKeys(flow, tenant), _statuses_of(flow)
    names = [keys.updated, keys.by_id, *map(keys.by_status, statuses)]
    for one in ids:
        request = RequestKeys(flow, tenant, one)
        names += (request.snapshot, request.dispatched)
    return names, [len(statuses), *statuses]


def _row(view: View, before: View | None) -> tuple[Any, ...]:
    """As save_views.lua has it. `before`: what this process wrote of the request last; then only
    what can have changed is written.
    """
    state = view.state
    is_whole = before is None or before.payload != view.payload
    return (
        state.id,
        state.version,
        state.status,
        state.updated_at,
        # Also where the operation opened and ended since the last write.
        state.dispatch_version if state.attempts or state.wants else 0,
        state.is_terminal,
        _encode(state).decode(),
        0 if before is None or is_whole else before.state.version,
        state.created_at,
        *(_content(view.payload) if is_whole else ("", False)),
    )


def _content(payload: bytes) -> tuple[str, list[str] | bool]:
    """The field `data`; and the other fields of a payload that has it, for other services, with
    the whole of it.
    """
    given = _fields_of(payload) if payload[:1] == b"{" else {}
    others: list[str] = []
    for name in PAYLOAD_FIELDS:
        raw = given.get(name)
        if raw is not None and bytes(raw)[:1] == b'"':
            others += (name, _text_of(raw))
    if "data" not in given:
        return payload.decode(), others or False
    return bytes(given["data"]).decode(), [*others, "payload", payload.decode()]


def _index_row(state: State) -> tuple[Any, ...]:
    """A request that has not ended, as index_views.lua has it."""
    return (
        _member(state),
        state.version,
        "" if state.sweep_at is None else state.sweep_at,
        state.updated_at if state.wants else "",
        state.updated_at if state.waits_for_a_person else "",
    )


def _view_of(state: str, payload: str) -> View:
    return View(decode_state(state), payload.encode())


def _pair(tenant: str, flow: str) -> str:
    return f"{tenant}\0{flow}"


def _member(state: State) -> str:
    return f"{state.tenant}\0{state.flow}\0{state.id}"


def _key_of_member(member: str) -> Key:
    tenant, flow, request_id = member.split("\0")
    return flow, tenant, request_id


def _scored(page: Sequence[str]) -> list[tuple[str, int]]:
    """Members and their scores."""
    return [(one, round(float(at))) for one, at in zip(page[::2], page[1::2], strict=True)]
