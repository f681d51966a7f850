"""Station 2 of 7: validate, ask whether there is room, deduplicate, decide, append.

Receives a payload from engine.py; hands Created to the event store and returns once it is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from gesta.addresses import request_stream
from gesta.admission import Admission
from gesta.domain.codec import encode, event_types
from gesta.domain.commands import Create
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import KEY_LENGTH_MAX, TENANT, event_id, id_text
from gesta.domain.notification import decide
from gesta.errors import Conflict, InvalidRequest, UnknownFlow
from gesta.event_store import Append, Appended, Claim, Claimed, EventStore, Known, NewEvent, Verdict
from gesta.flows.flow import Flow, Payload
from gesta.group_commit import GroupCommit
from gesta.identity import Identity, canonical
from gesta.pace import Pace
from gesta.runtime import Ids, Runtime, turn
from gesta.validation import holds_times, naive_times, value_errors

PAYLOAD_BYTES_MAX = 256 * 1024
#: Requests of a batch that are prepared before everybody else gets their turn.
TURN = 50


class Options(msgspec.Struct, frozen=True, gc=False):
    """How a request is to be treated, beside its payload."""

    key: str | None = None
    tenant: str = "default"
    deliver_at: datetime | None = None
    ttl: timedelta | None = None
    priority: int = 5
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: Actor | None = None


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """On disk: newly, or already before."""

    flow: str
    tenant: str
    request_id: str
    verdict: Literal["created", "duplicate"]


NO_OPTIONS = Options()


class Intake:
    def __init__(
        self, flows: Mapping[str, Flow], events: EventStore, admission: Admission, pace: Pace, identity: Identity, runtime: Runtime, ids: Ids
    ) -> None:  # fmt: skip
        self._flows, self._identity, self._runtime, self._ids = flows, identity, runtime, ids
        self._by_payload = {flow.payload: flow for flow in flows.values()}
        self._decoders = {flow.name: msgspec.json.Decoder(flow.payload) for flow in flows.values()}
        self._with_times = {flow.name for flow in flows.values() if holds_times(flow.payload)}
        self._events, self._admission, self._pace = events, admission, pace
        self._commit: GroupCommit[Append, Verdict] = GroupCommit(events.append, "gesta-intake", weigh=_weight)

    async def submit(self, payload: Payload, options: Options = NO_OPTIONS) -> Accepted:
        """Accept a request. When this returns, it survives power loss."""
        self._pace.saw(options.tenant)
        flow = self.flow_of(payload)
        append, request_id = self._append(flow, payload, options)
        if not self._admission.is_open:
            await self._admission.ask()
        return _answer(
            await self._commit.add(append), append, Accepted(flow.name, options.tenant, request_id, "created"), options
        )

    async def submit_many(self, requests: list[tuple[Payload, Options]]) -> list[Accepted | Conflict]:
        """Accept many at once, a verdict each. An invalid one refuses the whole call before anything is written."""
        began = self._runtime.monotonic()
        prepared = []
        for number, (payload, options) in enumerate(requests, start=1):
            if number % TURN == 0:
                # A large batch leaves the others their turns.
                await turn()
            self._pace.saw(options.tenant)
            flow = self.flow_of(payload)
            append, request_id = self._append(flow, payload, options)
            prepared.append((append, Accepted(flow.name, options.tenant, request_id, "created"), options))
        if not self._admission.is_open:
            await self._admission.ask()
        if len(prepared) >= TURN:
            await self._pace.give_way(began)
        # One append and not the group commit, which may cut a batch in two: a full disk takes all of them or none.
        verdicts = await self._events.append([append for append, _, _ in prepared])
        answers: list[Accepted | Conflict] = []
        for (append, created, options), verdict in zip(prepared, verdicts, strict=True):
            try:
                answers.append(_answer(verdict, append, created, options))
            except Conflict as conflict:
                answers.append(conflict)
        return answers

    def flow_of(self, payload: Payload) -> Flow:
        flow = self._by_payload.get(type(payload))
        if flow is None:
            raise UnknownFlow(type(payload).__name__, list(self._flows), "payload")
        return flow

    def _append(self, flow: Flow, payload: Payload, options: Options) -> tuple[Append, str]:
        body = self._validated(flow, payload, options)
        at, raw_id = self._runtime.now_ms(), self._ids.new_bytes()
        request_id, tenant, key = id_text(raw_id), options.tenant, options.key
        ttl_ms = flow.ttl_seconds * 1000 if options.ttl is None and flow.ttl_seconds is not None else None
        if options.ttl is not None:
            ttl_ms = options.ttl.total_seconds() * 1000
        command = Create(
            request_id, flow.name, body, at, key,
            None if options.deliver_at is None else round(options.deliver_at.timestamp() * 1000),
            None if ttl_ms is None else round(ttl_ms), options.priority,
        )  # fmt: skip
        meta = Meta(
            tenant, flow.name, request_id, at, options.correlation_id or request_id, options.causation_id or request_id, actor=options.actor
        )  # fmt: skip
        stored_meta, name_of = encode(meta), event_types(flow.name).name_of
        events = tuple(
            NewEvent(event_id(raw_id, n), name_of[type(event)], encode(event), stored_meta, Known(event, meta))
            for n, event in enumerate(decide(None, command, flow.rules))
        )
        claim = None
        if key is not None:
            claim = Claim(self._identity.name(tenant, flow.name, key), request_id, self._identity.content(body))
        return Append(request_stream(flow.name, tenant, request_id), 0, events, claim), request_id

    def _validated(self, flow: Flow, payload: Payload, options: Options) -> bytes:
        """The payload as stored; raises with every fault of payload and options at once."""
        try:
            body = canonical(payload)
            # Built by a program, so never checked: decoding is the check, and cheaper than any other.
            self._decoders[flow.name].decode(body)
            faults = naive_times(payload) if flow.name in self._with_times else {}
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            body, faults = b"", value_errors(payload) or {"payload": f"cannot be stored: {error}"}
        if len(body) > PAYLOAD_BYTES_MAX:
            faults = {
                "payload": f"{len(body)} bytes; at most {PAYLOAD_BYTES_MAX} are taken. Store it elsewhere and send a reference"
            }
        if faults or not _is_plain(options):
            faults |= option_errors(options)
        if faults:
            raise InvalidRequest(flow.name, faults)
        return body


def _weight(append: Append) -> int:
    return len(append.events[0].data)


def _is_plain(options: Options) -> bool:
    """Whether nothing was asked for but perhaps an ordinary key: most requests, told from the others in passing."""
    key = options.key
    if key is None:
        # 5.0 equals 5 and is none.
        return options == NO_OPTIONS and type(options.priority) is int
    if type(key) is not str or not key.isascii() or not 0 < len(key) <= KEY_LENGTH_MAX:
        return False
    return options == Options(key) and type(options.priority) is int


def option_errors(options: Options) -> dict[str, str]:
    """Option → what is wrong with it."""
    faults: dict[str, str] = {}
    # A program may pass anything, whatever the annotations say, and what is stored has to be readable for ever.
    deliver_at: Any = options.deliver_at
    ttl: Any = options.ttl
    if not isinstance(options.tenant, str) or not TENANT.fullmatch(options.tenant):
        faults["tenant"] = "1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
    for name in ("key", "correlation_id", "causation_id"):
        text = getattr(options, name)
        if text is not None and not _is_text(text):
            faults[name] = f"a string of 1 to {KEY_LENGTH_MAX} characters"
    if deliver_at is not None and (not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None):
        faults["deliver_at"] = "a datetime with a time zone, for instance datetime.now(UTC)"
    if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
        faults["ttl"] = "a positive timedelta"
    if type(options.priority) is not int or not 1 <= options.priority <= 10:
        faults["priority"] = "a whole number from 1 (most urgent) to 10"
    return faults | actor_errors(options.actor)


def actor_errors(actor: object) -> dict[str, str]:
    if actor is None or (isinstance(actor, Actor) and not value_errors(actor)):
        return {}
    return {"actor": "an Actor(user_id, roles) of strings"}


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LENGTH_MAX:
        return False
    try:
        # Half a surrogate pair is a str, but no text that could be stored.
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _answer(verdict: Verdict, append: Append, created: Accepted, options: Options) -> Accepted:
    if isinstance(verdict, Claimed):
        assert append.claim is not None
        assert options.key is not None
        if verdict.content != append.claim.content:
            raise Conflict(options.key, verdict.request_id)
        return Accepted(created.flow, created.tenant, verdict.request_id, "duplicate")
    # A new id is expected at version 0 by construction, so the only other verdict is Appended.
    assert isinstance(verdict, Appended), verdict
    return created
