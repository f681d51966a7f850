"""Station 2 of 7: validate, ask whether there is room, deduplicate, decide, append.

Receives a payload from engine.py; hands Created to the event store and returns once it is on disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from gesta.domain.codec import encode, event_types
from gesta.domain.commands import Create
from gesta.domain.events import Meta
from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID, TENANT, event_id, id_bytes, id_text
from gesta.domain.stream_names import request_stream
from gesta.errors import Conflict, InvalidRequest, PartlyAccepted, StoreError, UnknownFlow
from gesta.flows.flow import Flow, Payload
from gesta.flows.payload_codec import decoder_of, encoder_of
from gesta.flows.personal_fields import Plan, places_apart, plan_of, subject_name
from gesta.flows.validation import (
    TOO_DEEP,
    comes_back,
    decode_fields,
    holds_times,
    is_too_deep,
    naive_times,
    open_names,
    value_errors,
)
from gesta.intake.admission import Admission
from gesta.intake.batch_throttle import PART, BatchThrottle
from gesta.intake.flow_checks import FlowChecks
from gesta.intake.submit_options import NO_OPTIONS, Options, is_plain, is_text, option_errors
from gesta.ports.event_store import (
    Append,
    Appended,
    AppendVerdict,
    Claim,
    Claimed,
    Known,
    NewEvent,
    Stale,
)
from gesta.ports.outbox import Outbox, Prepared, Raw
from gesta.requests.recorder import RequestLog
from gesta.runtime.clock import turn
from gesta.runtime.component import Process
from gesta.runtime.group_commit import GroupCommit
from gesta.runtime.redaction import scrubbed_name
from gesta.security.field_encryption import MARK, forged
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import Clear, SubjectKeys

PAYLOAD_BYTES_MAX = 256 * 1024
#: Payloads sealed in one go, which is a matter of milliseconds in which nothing else runs.
SEALED_MAX = 250
NO_TESTS = (
    "this flow takes no test requests: a test may reach only the sandbox. If the executor acts only"
    " through attempt.http and attempt.mail, declare the flow with @flow(…, effects='attempt')"
)
#: Requests of a batch that are prepared before everybody else gets their turn.
TURN = 300


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """On disk: newly, or already before; or, deferred, part of the caller's own transaction."""

    flow: str
    tenant: str
    request_id: str
    verdict: Literal["created", "duplicate", "deferred"]


class Invalid(msgspec.Struct, frozen=True, gc=False):
    """A request that was accepted unseen and does not fit its flow."""

    append: Append
    errors: Mapping[str, str]


class PayloadType(msgspec.Struct, frozen=True):
    """What is known of a flow's payloads before any comes."""

    flow: Flow
    encode: Callable[[Payload], bytes]
    decode: Callable[[bytes], object]
    #: Whether it can hold a time: by its type, or where its type takes anything.
    has_times: bool
    #: See validation.open_names.
    open_names: Sequence[str] | None
    #: Where it tells something about a person.
    plan: Plan | None


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A request on its way into the store, checked; what is personal in it is still in clear."""

    flow: Flow
    body: bytes
    options: Options
    at: int
    raw_id: bytes
    request_id: str
    #: Whom it is about, where the payload says so.
    about: str | None
    #: Its key is the caller's own id of it.
    is_own: bool = False


class Intake:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        log: RequestLog,
        admission: Admission,
        batch_throttle: BatchThrottle,
        identity: KeyedDigests,
        subjects: SubjectKeys,
        checks: FlowChecks,
        process: Process,
    ) -> None:
        self._flows, self._identity, self._subject_keys = flows, identity, subjects
        self._runtime, self._ids = process.runtime, process.ids
        self._kinds = {
            flow.payload: PayloadType(
                flow,
                encoder_of(flow.payload),
                decoder_of(flow.payload),
                holds_times(flow.payload),
                open_names(flow.payload),
                plan_of(flow.payload),
            )
            for flow in flows.values()
        }
        self._plans = {
            kind.flow.name: kind.plan for kind in self._kinds.values() if kind.plan is not None
        }
        self._log, self._admission, self._batch_throttle = log, admission, batch_throttle
        self._checks = checks
        self._commit: GroupCommit[Append, AppendVerdict] = GroupCommit(
            log.append, "gesta-intake", log.commit_size
        )
        self._sealed_commit: GroupCommit[Draft, tuple[Append, AppendVerdict]] = GroupCommit(
            self._encrypt_and_append, "gesta-sealing", SEALED_MAX
        )

    async def submit(self, payload: Payload, options: Options = NO_OPTIONS) -> Accepted:
        """Accept a request. When this returns, it survives power loss."""
        try:
            # As `_drafted`, without one more coroutine for each request.
            draft = self._draft(payload, options)
        except InvalidRequest as refused:
            raise await self._refusal(refused, payload, options) from None
        if (check := draft.flow.check) is not None:
            at_hand = self._checks.at_hand(options.tenant)
            if at_hand is None:
                await self._check(draft, payload)
            # Most have no error by what is at hand. Nobody is refused by that alone.
            elif await check(payload, *at_hand) and (
                errors := await self._checks.again(draft.flow, payload, options.tenant)
            ):
                raise InvalidRequest(draft.flow.name, errors)
        if not self._admission.is_open:
            await self._admission.ask()
        if self._plans and draft.flow.name in self._plans:
            append, verdict = await self._sealed_commit.add(draft, len(draft.body))
        else:
            append = self._append(draft, draft.body)
            verdict = await self._commit.add(append, len(draft.body))
        return _answer(verdict, append, draft)

    async def defer(
        self, payload: Payload, options: Options, outbox: Outbox, within: object
    ) -> Accepted:
        """Accept a request as part of the transaction on `within`: it exists if and only if that
        commits.
        """
        draft = await self._drafted(payload, options)
        if not self._admission.is_open:
            await self._admission.ask()
        # A rollback, like a crash, then leaves keys that seal nothing.
        (append,) = await self._appends([draft])
        claimed = await outbox.write(
            within, Prepared(draft.request_id, draft.flow.name, options.tenant, append)
        )
        if claimed is not None:
            return _answer(claimed, append, draft)
        return Accepted(draft.flow.name, options.tenant, draft.request_id, "deferred")

    async def prepare(self, rows: Sequence[Raw]) -> list[Append | Invalid]:
        """The first events of what another language asked, with what is personal sealed; or what is
        wrong with it, and the most that may be stored of it.
        """
        found = [await self._draft_of(row) for row in rows]
        appends = iter(await self._appends([one for one in found if isinstance(one, Draft)]))
        return [next(appends) if isinstance(one, Draft) else one for one in found]

    async def submit_many(
        self, requests: list[tuple[Payload, Options]]
    ) -> list[Accepted | Conflict]:
        """Accept many at once, a verdict each.

        An invalid one refuses the whole call before anything is written.

        While other tenants are at work, a large batch goes in parts: PartlyAccepted when the store
        fails between two of them.
        """
        drafts = []
        for number, (payload, options) in enumerate(requests, start=1):
            drafts.append(await self._drafted(payload, options))
            if number % TURN == 0:
                # A large batch leaves the others their turns.
                await turn()
        return await self._accept_all(drafts)

    async def submit_each(
        self, requests: list[tuple[Payload, Options]]
    ) -> list[Accepted | Conflict | InvalidRequest]:
        """As `submit_many`, where an invalid one keeps no other from being accepted."""
        drafts: list[Draft] = []
        refused: dict[int, InvalidRequest] = {}
        for number, (payload, options) in enumerate(requests):
            try:
                drafts.append(await self._drafted(payload, options))
            except InvalidRequest as error:
                refused[number] = error
            if number % TURN == TURN - 1:
                await turn()
        accepted = iter(await self._accept_all(drafts) if drafts else [])
        return [
            refused[number] if number in refused else next(accepted)
            for number in range(len(requests))
        ]

    async def _accept_all(self, drafts: list[Draft]) -> list[Accepted | Conflict]:
        if not self._admission.is_open:
            await self._admission.ask()
        # In one append and not by the group commit, which may cut a batch in two: a full disk takes
        # all of them or none.
        parts = batched(drafts, PART) if self._batch_throttle.is_mixed else [drafts]
        answers: list[Accepted | Conflict] = []
        for part in parts:
            began = self._runtime.monotonic()
            try:
                answers += await self._accept(part)
            except StoreError as error:
                if not answers:
                    raise
                raise PartlyAccepted(answers, len(drafts), error) from error
            if len(part) >= PART and self._batch_throttle.is_mixed:
                await self._batch_throttle.give_way(began)
        return answers

    async def _accept(self, drafts: list[Draft]) -> list[Accepted | Conflict]:
        answers: list[Accepted | Conflict] = []
        for draft, (append, verdict) in zip(
            drafts, await self._encrypt_and_append(drafts), strict=True
        ):
            try:
                answers.append(_answer(verdict, append, draft))
            except Conflict as conflict:
                answers.append(conflict)
        return answers

    def _kind_of(self, payload: Payload) -> PayloadType:
        kind = self._kinds.get(type(payload))
        if kind is None:
            name = type(payload).__name__
            what = f"that takes a {name} as its payload"
            raise UnknownFlow(what, name=name, known=self._flows)
        return kind

    async def errors(self, payload: Payload, tenant: str) -> dict[str, str]:
        """What the flow's own check says of a payload; nothing of one that cannot be checked now:
        it is at fault itself, or the store is away.
        """
        kind = self._kind_of(payload)
        if kind.flow.check is None or not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            return {}
        try:
            self._validated(
                kind, payload, NO_OPTIONS, {} if kind.plan is None else _about_of(payload)[1]
            )
            return await self._checks.errors(kind.flow, payload, tenant)
        except (InvalidRequest, StoreError):
            return {}

    async def _drafted(self, payload: Payload, options: Options) -> Draft:
        """A draft that has passed the flow's own check."""
        try:
            draft = self._draft(payload, options)
        except InvalidRequest as refused:
            raise await self._refusal(refused, payload, options) from None
        if draft.flow.check is not None:
            await self._check(draft, payload)
        return draft

    async def _refusal(
        self, refused: InvalidRequest, payload: Payload, options: Options
    ) -> InvalidRequest:
        """Where the options alone are at fault, the payload is checked all the same: nobody has to
        mend one after the other.
        """
        return InvalidRequest(
            refused.flow, await self.errors(payload, options.tenant) | refused.fields
        )

    def _draft(self, payload: Payload, options: Options) -> Draft:
        kind = self._kind_of(payload)
        if options.tenant != self._batch_throttle.tenant:
            self._batch_throttle.saw(options.tenant)
        about, errors = (None, {}) if kind.plan is None else _about_of(payload)
        body = self._validated(kind, payload, options, errors)
        raw_id, at = self._ids.new_bytes(), self._runtime.now_ms()
        own = None if kind.flow.request_id is None else kind.flow.request_id(payload)
        if own is not None and options.test:
            # As the key alone: a test must not take the id of the live one.
            return Draft(
                kind.flow,
                body,
                _keyed_by(own, kind.flow, options),
                at,
                raw_id,
                id_text(raw_id),
                about,
            )
        if own is not None:
            return Draft(
                kind.flow,
                body,
                _keyed_by(own, kind.flow, options),
                at,
                raw_id,
                own,
                about,
                is_own=True,
            )
        return Draft(kind.flow, body, options, at, raw_id, id_text(raw_id), about)

    async def _check(self, draft: Draft, payload: Payload) -> None:
        if errors := await self._checks.errors(draft.flow, payload, draft.options.tenant):
            raise InvalidRequest(draft.flow.name, errors)

    async def _draft_of(self, row: Raw) -> Draft | Invalid:
        """As `_draft`, of a row whose form the store has looked at."""
        flow, raw_id = self._flows[row.flow], id_bytes(row.request_id)
        kind = self._kinds[flow.payload]
        options = Options(
            row.key,
            row.tenant,
            (
                None
                if row.deliver_at_ms is None
                else datetime.fromtimestamp(row.deliver_at_ms / 1000, UTC)
            ),
            None if row.ttl_ms is None else timedelta(milliseconds=row.ttl_ms),
            row.priority,
            row.correlation_id,
        )
        body, draft = (
            row.payload.encode(),
            Draft(flow, b"{}", options, row.created_ms, raw_id, row.request_id, None),
        )
        try:
            payload, errors = decode_fields(flow.payload, msgspec.json.decode(body))
            if payload is None:
                raise InvalidRequest(flow.name, errors)
            about, errors = (None, {}) if kind.plan is None else _about_of(payload)
            own = None if flow.request_id is None else flow.request_id(payload)
            if own is not None:
                # Its id was told already, before anybody had read the payload.
                draft = replace(draft, options=_keyed_by(own, flow, options), is_own=True)
            checked = replace(
                draft, body=self._validated(kind, payload, draft.options, errors), about=about
            )
            if flow.check is not None:
                await self._check(checked, payload)
            return checked
        except msgspec.DecodeError as error:
            errors = {"payload": f"cannot be read: {error}"}
        except InvalidRequest as error:
            errors = error.fields
        except RecursionError:
            # Whoever looked at it later would not come to its end either: nothing of it is kept.
            return Invalid(self._append(draft, b"{}"), {"payload": TOO_DEEP})
        # What does not fit its type cannot be sealed either, and what looks sealed is not: then
        # nothing of it is kept.
        if kind.plan is None and MARK not in body and len(body) <= PAYLOAD_BYTES_MAX:
            draft = replace(draft, body=body)
        return Invalid(self._append(draft, draft.body), errors)

    async def _encrypt_and_append(self, drafts: list[Draft]) -> list[tuple[Append, AppendVerdict]]:
        appends = await self._appends(drafts)
        return list(zip(appends, await self._log.append(appends), strict=True))

    async def _appends(self, drafts: list[Draft]) -> list[Append]:
        """The first events of drafts, what is personal in them sealed.

        A crash before they are appended leaves keys that seal nothing.
        """
        if not self._plans:
            return await self._appends_of(drafts, [draft.body for draft in drafts])
        personal = [
            _clear_of(draft, plan)
            for draft in drafts
            if (plan := self._plans.get(draft.flow.name)) is not None
        ]
        # Told by their order and not by their ids: callers may bring one id twice.
        encrypted = iter(await self._subject_keys.encrypt(personal))
        return await self._appends_of(
            drafts,
            [next(encrypted) if draft.flow.name in self._plans else draft.body for draft in drafts],
        )

    async def _appends_of(self, drafts: list[Draft], stored: Iterable[bytes]) -> list[Append]:
        appends = []
        for number, (draft, body) in enumerate(zip(drafts, stored, strict=True), start=1):
            appends.append(self._append(draft, body))
            if number % TURN == 0:
                await turn()
        return appends

    def _append(self, draft: Draft, stored: bytes) -> Append:
        """The first event, with the payload as it is `stored`.

        Identity is told from the body in clear: no two sealings are alike.
        """
        flow, options, at, raw_id, request_id = (
            draft.flow,
            draft.options,
            draft.at,
            draft.raw_id,
            draft.request_id,
        )
        tenant, key = options.tenant, options.key
        ttl_ms = (
            flow.ttl_seconds * 1000
            if options.ttl is None and flow.ttl_seconds is not None
            else None
        )
        if options.ttl is not None:
            ttl_ms = options.ttl.total_seconds() * 1000
        command = Create(
            request_id,
            flow.name,
            stored,
            at,
            None if key is None else scrubbed_name(key),
            None if options.deliver_at is None else round(options.deliver_at.timestamp() * 1000),
            None if ttl_ms is None else round(ttl_ms),
            options.priority,
            options.test,
            flow.is_external,
            draft.is_own and key == request_id,
        )
        correlation_id, causation_id = options.correlation_id, options.causation_id
        meta = Meta(
            tenant,
            flow.name,
            request_id,
            at,
            request_id if correlation_id is None else scrubbed_name(correlation_id),
            request_id if causation_id is None else scrubbed_name(causation_id),
            options.source,
            options.actor,
        )
        stored_meta, name_of = encode(meta), event_types(flow.name).name_of
        events = [
            NewEvent(
                event_id(raw_id, n),
                name_of[type(event)],
                encode(event),
                stored_meta,
                Known(event, meta),
            )
            for n, event in enumerate(flow.lifecycle.decide(None, command, flow.rules))
        ]
        claim = None
        if key is not None:
            name = self._identity.name_of(tenant, flow.name, key, test=options.test)
            claim = Claim(name, request_id, self._identity.content(draft.body))
        if key is not None and draft.is_own:
            # For all tenants and flows at once, as when jobs were told by the ids of requests
            # alone: what was claimed then must be found.
            # Each submit claims as somebody else: only an append that is sent again is no second
            # one.
            content = self._identity.content(f"{tenant}\0{flow.name}\0".encode() + draft.body)
            claim = Claim(self._identity.name("", "", key), id_text(raw_id), content)
        return Append(request_stream(flow.name, tenant, request_id), 0, tuple(events), claim)

    def _validated(
        self, kind: PayloadType, payload: Payload, options: Options, errors: dict[str, str]
    ) -> bytes:
        """The payload as stored; raises with every error of payload and options at once."""
        try:
            body = kind.encode(payload)
            # Built by a program, so never checked: decoding is the check, and cheaper than any
            # other.
            stored = kind.decode(body)
            if is_too_deep(body):
                errors |= {"payload": TOO_DEEP}
            elif kind.has_times and not comes_back(kind.open_names, payload, stored):
                errors |= naive_times(payload)
        except RecursionError:
            body = b""
            errors |= {"payload": TOO_DEEP}
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            body = b""
            errors |= value_errors(payload) or {"payload": f"cannot be stored: {error}"}
        if len(body) > PAYLOAD_BYTES_MAX:
            errors = {
                "payload": (
                    f"{len(body)} bytes; at most {PAYLOAD_BYTES_MAX} are taken. Store it elsewhere"
                    " and send a reference"
                )
            }
        if MARK in body:
            errors |= forged(body)
        if errors or not is_plain(options):
            errors |= option_errors(options)
        if options.test and kind.flow.effects != "attempt":
            errors["test"] = NO_TESTS
        if errors:
            raise InvalidRequest(kind.flow.name, errors)
        return body


def batched(drafts: list[Draft], size: int) -> list[list[Draft]]:
    return [drafts[start : start + size] for start in range(0, len(drafts), size)]


def _answer(verdict: AppendVerdict, append: Append, draft: Draft) -> Accepted:
    options = draft.options
    if isinstance(verdict, Claimed):
        assert append.claim is not None
        assert options.key is not None
        holder = draft.request_id if options.key == draft.request_id else verdict.request_id
        if verdict.content != append.claim.content:
            raise Conflict(options.key, holder, shown=scrubbed_name(options.key))
        return Accepted(draft.flow.name, options.tenant, holder, "duplicate")
    if isinstance(verdict, Stale):
        # A caller's own id that is the id of a request already, made without it.
        raise Conflict(draft.request_id, draft.request_id, shown=draft.request_id)
    # An id of ours is new by construction, so the only other verdict is Appended.
    assert isinstance(verdict, Appended), verdict
    return Accepted(draft.flow.name, options.tenant, draft.request_id, "created")


def _keyed_by(own: str, flow: Flow, options: Options) -> Options:
    """The options with the caller's own id as the key: the same id with the same content is a
    duplicate then.
    """
    if not REQUEST_ID.fullmatch(own):
        raise InvalidRequest(
            flow.name, {"id": "the payload's own id must be a UUID: 36 characters, lower case"}
        )
    if options.key not in (None, own):
        raise InvalidRequest(
            flow.name,
            {"key": "the payload brings an id of its own, which is the key; leave this one out"},
        )
    return replace(options, key=own)


def _clear_of(draft: Draft, plan: Plan) -> Clear:
    apart = places_apart(draft.flow.payload)
    return Clear(
        draft.options.tenant,
        draft.flow.name,
        draft.request_id,
        plan,
        draft.body,
        draft.about,
        apart,
    )


def _about_of(payload: Payload) -> tuple[str | None, dict[str, str]]:
    """Whom the payload says it is about, and what is wrong with that.

    A property is a program's own, and may do anything.
    """
    name = subject_name(type(payload))
    if name is None:
        return None, {}
    try:
        about = getattr(payload, name)
    except Exception as error:  # noqa: BLE001 -- see above
        return None, {name: f"the property raised {type(error).__name__}"}
    if about is None or about == "":
        return None, {}
    return (
        (about, {})
        if is_text(about)
        else (None, {name: f"a string of at most {KEY_LENGTH_MAX} characters, or None"})
    )
