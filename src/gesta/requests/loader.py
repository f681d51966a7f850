"""Loads requests as they are now: their views with the newer events of their streams applied.

A view may lag; the stream does not.
"""

from collections.abc import Iterable, Sequence

from gesta.domain.codec import decode_meta, event_types
from gesta.domain.events import Created, Event, Meta
from gesta.domain.ids import REQUEST_ID
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.stream_names import request_stream
from gesta.errors import AmbiguousId, PoisonEvent
from gesta.ports.event_store import EventStore, Recorded
from gesta.ports.read_model import Key, ReadModel, View, key_of

#: Expected requests that are kept at most: what is not loaded at once is of no use.
EXPECTED = 20_000


def apply_event(view: View | None, recorded: Recorded, flow: str) -> View:
    """A view after one more event of its stream."""
    known = recorded.known
    if known is not None and known.after is not None and view is not None:
        # The appending process has folded the same events already.
        return View(known.after, view.payload)
    try:
        event = (
            event_types(flow).decode(recorded.type, recorded.data) if known is None else known.event
        )
        meta = decode_meta(recorded.meta) if known is None else known.meta
        state = lifecycle_of(flow).evolve(None if view is None else view.state, event, meta)
    except ValueError as error:
        raise PoisonEvent(recorded.stream, recorded.version, str(error)) from error
    if isinstance(event, Created):
        return View(state, bytes(event.payload))
    assert view is not None
    return View(state, view.payload)


class Loader:
    """Reads views, then newer events, with one call each for a whole batch."""

    def __init__(self, events: EventStore, views: ReadModel) -> None:
        self._events, self._views = events, views
        #: Requests that this process has just folded from the log, each until it is loaded.
        self._expected: dict[Key, View] = {}

    def expect(self, views: Sequence[View]) -> None:
        """These requests are loaded next, perhaps before their views are saved."""
        if len(self._expected) > EXPECTED:
            self._expected.clear()
        for view in views:
            self._expected[key_of(view.state)] = view

    async def _views_of(self, keys: Sequence[Key]) -> dict[Key, View]:
        """A view that was folded from the log is as good as a saved one: newer events follow."""
        if not self._expected:
            return await self._views.get(keys)
        found: dict[Key, View] = {}
        missing: list[Key] = []
        for key in keys:
            view = self._expected.pop(key, None)
            if view is None:
                missing.append(key)
            else:
                found[key] = view
        if missing:
            found |= await self._views.get(missing)
        return found

    async def load(
        self, keys: Sequence[Key], also: Sequence[tuple[str, int]] = ()
    ) -> tuple[dict[Key, View], list[Recorded]]:
        """The current view of each request that exists, and the events of the `also` streams read
        in the same call.
        """
        found = await self._views_of(keys)
        heads: list[tuple[str, int]] = []
        key_of: dict[str, Key] = {}
        # Once each: two jobs may point to one request, and its events must not be applied twice.
        for key in dict.fromkeys(keys):
            stream = request_stream(*key)
            view = found.get(key)
            heads.append((stream, 0 if view is None else view.state.version))
            key_of[stream] = key
        others: list[Recorded] = []
        for recorded in await self._events.read([*heads, *also]):
            owner = key_of.get(recorded.stream)
            if owner is None:
                others.append(recorded)
            else:
                found[owner] = apply_event(found.get(owner), recorded, owner[0])
        return found, others

    async def history(self, key: Key) -> list[Recorded]:
        """Every event of a request, oldest first."""
        return await self._events.read([(request_stream(*key), 0)])

    async def histories(
        self, keys: Sequence[Key]
    ) -> dict[Key, list[tuple[str, Event | None, Meta]]]:
        """Every event of each request: type, event, metadata. Personal texts stay encrypted."""
        key_of = {request_stream(*key): key for key in keys}
        found: dict[Key, list[tuple[str, Event | None, Meta]]] = {key: [] for key in keys}
        for one in await self._events.read([(stream, 0) for stream in key_of]):
            key = key_of[one.stream]
            event = event_types(key[0]).decode(one.type, one.data)
            found[key].append((one.type, event, decode_meta(one.meta)))
        return found

    async def one(self, key: Key) -> View | None:
        flow, tenant, request_id = key
        return await self.find([flow], tenant, request_id)

    async def find(self, flows: Iterable[str], tenant: str, request_id: str) -> View | None:
        """A tenant's request by its id. Raises AmbiguousId when several of these flows have one."""
        if not REQUEST_ID.fullmatch(request_id):
            # Tenant `acme` and id `b-…` would name a stream of tenant `acme-b`.
            return None
        keys = [(flow, tenant, request_id) for flow in flows]
        found, _ = await self.load(keys)
        if len(found) > 1:
            raise AmbiguousId(request_id, [flow for flow, _, _ in found])
        return next(iter(found.values()), None)
