"""Submit: validate a request, check it against the tenant's config, ask for room, encrypt what is
personal, append.

When a method here returns, the request is on disk, or part of the caller's own transaction.
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec.structs import replace

from gesta.api_types.requests import SubmitWarning
from gesta.domain.commands import Ignore, Withdraw
from gesta.domain.ids import TENANT, id_bytes, id_text
from gesta.errors import Conflict, InvalidRequest, PartlyAccepted, StoreError, UnknownFlow
from gesta.flows.flow import Flow, Payload
from gesta.flows.personal_fields import places_apart
from gesta.flows.validation import TOO_DEEP, decode_fields
from gesta.intake.admission import Admission
from gesta.intake.batch_throttle import PART, BatchThrottle
from gesta.intake.first_event import Draft, ends_of, first_append, with_end
from gesta.intake.flow_checks import FlowChecks, may_warn
from gesta.intake.payload_type import PAYLOAD_BYTES_MAX, PayloadType
from gesta.intake.submit_options import NO_OPTIONS, Options
from gesta.ports.event_store import (
    Append,
    Appended,
    AppendVerdict,
    Claim,
    Claimed,
    LeadsElsewhere,
    Stale,
)
from gesta.ports.outbox import Outbox, Prepared, Raw
from gesta.requests.recorder import RequestLog
from gesta.runtime.clock import turn
from gesta.runtime.component import Process
from gesta.runtime.group_commit import GroupCommit
from gesta.runtime.redaction import scrubbed_name
from gesta.security.field_encryption import MARK
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import Clear, SubjectKeys

#: Above this number of requests, half of them share a commit, and the others are prepared while it
#: is written. Below, a commit costs more than its requests.
HALVED_ABOVE = 16
#: How many payloads are encrypted in one step; nothing else runs for these milliseconds.
ENCRYPTED_MAX = 250
#: Requests of a batch that are prepared before other tasks run.
TURN = 300


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The request is on disk (`created` now, `duplicate` of an earlier one), or it is part of the
    caller's own transaction (`deferred`).
    """

    flow: str
    tenant: str
    request_id: str
    verdict: Literal["created", "duplicate", "deferred"]
    #: Why the request will be held, as far as this process knows.
    warnings: tuple[SubmitWarning, ...] = ()


class Submission(msgspec.Struct, frozen=True):
    """A request whose first event is being appended."""

    draft: Draft
    append: Append
    verdict: Awaitable[AppendVerdict]

    def accepted(self, verdict: AppendVerdict) -> Accepted:
        """The answer to the caller, once the verdict is there. Raises Conflict."""
        return _answer(verdict, self.append, self.draft)


class Invalid(msgspec.Struct, frozen=True, gc=False):
    """A request from the outbox that does not fit its flow, and what may be stored of it."""

    append: Append
    errors: Mapping[str, str]


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A job or row that asked for a request but cannot become one."""

    flow: str
    tenant: str
    #: The id of its dead letter; the same each time.
    request_id: str
    reason: Literal["conflict", "invalid_request"]
    #: Without content and credentials.
    detail: str
    correlation_id: str | None = None


class AboutAnother(Exception):
    """An inbound event with this id was about another thing: nothing follows from this one."""


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
        self._runtime, self._ids, self._telemetry = process.runtime, process.ids, process.telemetry
        self._log, self._admission, self._batch_throttle = log, admission, batch_throttle
        self._checks = checks
        self._kinds = {flow.payload: PayloadType.of(flow) for flow in flows.values()}
        #: Of the flows for which only a pause is a warning.
        self._unchecked = {
            flow.payload for flow in flows.values() if flow.check is None and not may_warn(flow)
        }
        self._plans = {
            kind.flow.name: kind.plan for kind in self._kinds.values() if kind.plan is not None
        }
        #: Those of them without personal fields.
        self._in_clear = {
            payload for payload in self._unchecked if self._kinds[payload].plan is None
        }
        self._commit: GroupCommit[Append, AppendVerdict] = GroupCommit(
            log.append, "gesta-intake", log.commit_size, halved_above=HALVED_ABOVE
        )
        self._encrypted_commit: GroupCommit[Draft, tuple[Append, AppendVerdict]] = GroupCommit(
            self._encrypt_and_append, "gesta-encryption", ENCRYPTED_MAX
        )

    async def submit(
        self, payload: Payload, options: Options = NO_OPTIONS, event: Claim | None = None
    ) -> Accepted:
        """Accept a request. When this returns, it survives power loss.

        `event`: the claim on the id of the inbound event that leads to it. Raises AboutAnother if
        an event with this id was about another thing.
        """
        if event is None and (submission := self.begin(payload, options)) is not None:
            return submission.accepted(await submission.verdict)
        draft = (
            await self._checked(payload, options, event)
            if self._has_checks(payload)
            else self._draft(payload, options, event)
        )
        if not self._admission.is_open:
            await self._admission.ask()
        if self._plans and draft.flow.name in self._plans:
            append, verdict = await self._encrypted_commit.add(draft, len(draft.body))
        else:
            append = first_append(draft, draft.body, self._identity)
            verdict = await self._commit.add(append, len(draft.body))
        return _answer(verdict, append, draft)

    def begin(self, payload: Payload, options: Options) -> Submission | None:
        """The first half of `submit`, for callers that await the verdict themselves: most requests
        then need one coroutine less. None: something has to be awaited before the append.
        """
        if (
            type(payload) not in self._in_clear
            or not self._checks.pauses.is_empty
            or not self._admission.is_open
        ):
            return None
        draft = self._draft(payload, options)
        append = first_append(draft, draft.body, self._identity)
        return Submission(draft, append, self._commit.add(append, len(draft.body)))

    async def ignore(self, payload: Payload, options: Options, verdict: Ignore) -> Accepted:
        """Record an inbound event that leads to nothing. It has no job."""
        draft = self._draft(payload, options)
        if not self._admission.is_open:
            await self._admission.ask()
        append = with_end(self._append(draft, draft.body), verdict, draft.at)
        answer = await self._commit.add(append, len(draft.body))
        return _answer(answer, append, draft)

    async def defer(
        self, payload: Payload, options: Options, outbox: Outbox, within: object
    ) -> Accepted:
        """Accept a request as part of the transaction on `within`: it exists if and only if that
        commits.
        """
        draft = await self._checked(payload, options)
        if not self._admission.is_open:
            await self._admission.ask()
        # A rollback, like a crash, leaves keys that encrypt nothing.
        (append,) = await self._appends([draft])
        prepared = Prepared(draft.request_id, draft.flow.name, options.tenant, append)
        claimed = await outbox.write(within, prepared)
        if claimed is not None:
            return _answer(claimed, append, draft)
        return _accepted(draft, draft.request_id, "deferred")

    async def submit_many(
        self, requests: list[tuple[Payload, Options]]
    ) -> list[Accepted | Conflict]:
        """Accept many at once, with a verdict for each.

        An invalid one refuses the whole call before anything is written. While other tenants are
        active, a large batch is written in parts: PartlyAccepted when the store fails between two.
        """
        drafts = []
        for number, (payload, options) in enumerate(requests, start=1):
            drafts.append(
                await self._checked(payload, options)
                if self._has_checks(payload)
                else self._draft(payload, options)
            )
            if number % TURN == 0:
                await turn()
        return await self._accept_all(drafts)

    async def submit_each(
        self, requests: list[tuple[Payload, Options]]
    ) -> list[Accepted | Conflict | InvalidRequest]:
        """As `submit_many`, but an invalid request does not prevent the others from being
        accepted.
        """
        drafts: list[Draft] = []
        refused: dict[int, InvalidRequest] = {}
        for number, (payload, options) in enumerate(requests):
            try:
                drafts.append(await self._checked(payload, options))
            except InvalidRequest as error:
                refused[number] = error
            if number % TURN == TURN - 1:
                await turn()
        accepted = iter(await self._accept_all(drafts) if drafts else [])
        return [
            refused[number] if number in refused else next(accepted)
            for number in range(len(requests))
        ]

    async def prepare(self, rows: Sequence[Raw]) -> list[Append | Invalid]:
        """The first events of requests that other programs wrote to the outbox, or their errors."""
        found = [await self._draft_of(row) for row in rows]
        appends = iter(await self._appends([one for one in found if isinstance(one, Draft)]))
        return [next(appends) if isinstance(one, Draft) else one for one in found]

    async def refuse(self, refusals: Sequence[Refused]) -> None:
        """Record dead letters for jobs that are not valid requests. Recording the same one again
        does nothing.

        The content is not kept, because data that does not fit its type cannot be encrypted.
        """
        now, appends = self._runtime.now_ms(), []
        for one in refusals:
            options = Options(tenant=one.tenant, correlation_id=one.correlation_id)
            flow, raw_id = self._flows[one.flow], id_bytes(one.request_id)
            draft = Draft(flow, b"{}", options, now, raw_id, one.request_id)
            appends.append(
                with_end(self._append(draft, b"{}"), Withdraw(one.reason, one.detail), now)
            )
        for append, verdict in zip(appends, await self._log.append(appends), strict=True):
            if isinstance(verdict, Appended):
                self._telemetry.status_changed(*ends_of(append), None)

    async def errors(self, payload: Payload, tenant: str) -> dict[str, str]:
        """The errors that the flow's own check finds.

        None while the payload is invalid in itself, or the store cannot be read.
        """
        kind = self._kind_of(payload)
        if kind.flow.check is None or not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            return {}
        try:
            kind.validated(payload, NO_OPTIONS)
            return await self._checks.errors(kind.flow, payload, tenant)
        except (InvalidRequest, StoreError):
            return {}

    def _kind_of(self, payload: Payload) -> PayloadType:
        kind = self._kinds.get(type(payload))
        if kind is None:
            name = type(payload).__name__
            what = f"that takes a {name} as its payload"
            raise UnknownFlow(what, name=name, known=self._flows)
        return kind

    def _has_checks(self, payload: Payload) -> bool:
        """Whether `_checked` looks for more than `_draft`, which is no coroutine."""
        return type(payload) not in self._unchecked or not self._checks.pauses.is_empty

    async def _checked(
        self, payload: Payload, options: Options, event: Claim | None = None
    ) -> Draft:
        """A draft that has passed the flow's own check, with its warnings."""
        try:
            draft = self._draft(payload, options, event)
        except InvalidRequest as refused:
            # The caller learns of all errors at once, also those that the flow's check finds.
            errors = await self.errors(payload, options.tenant)
            raise InvalidRequest(refused.flow, errors | refused.fields) from None
        flow, tenant = draft.flow, options.tenant
        if flow.check is not None and (errors := await self._checks.errors(flow, payload, tenant)):
            raise InvalidRequest(flow.name, errors)
        if may_warn(flow) or not self._checks.pauses.is_empty:
            warnings = await self._checks.warnings(flow, payload, tenant, test=options.test)
            return replace(draft, warnings=warnings) if warnings else draft
        return draft

    def _draft(self, payload: Payload, options: Options, event: Claim | None = None) -> Draft:
        kind = self._kind_of(payload)
        if options.tenant != self._batch_throttle.tenant:
            self._batch_throttle.saw(options.tenant)
        body, about = kind.validated(payload, options)
        raw_id, at = self._ids.new_bytes(), self._runtime.now_ms()
        flow, own = kind.flow, None
        if flow.request_id is not None:
            own, options = kind.own_id(payload, options)
        opening = None if flow.opens is None else flow.opens(payload)
        if own is None or options.test:
            # The own id of a test is only its key: it must not take the id of the live request.
            own, is_own = id_text(raw_id), False
        else:
            is_own = True
        # By position, as for all values that every request needs: keywords would cost more than
        # the value itself.
        return Draft(flow, body, options, at, raw_id, own, about, is_own, (), opening, event)

    async def _draft_of(self, row: Raw) -> Draft | Invalid:
        """As `_checked`, of a row of the outbox."""
        flow = self._flows[row.flow]
        kind, body = self._kinds[flow.payload], row.payload.encode()
        options = Options(
            row.key,
            row.tenant,
            deliver_at=_time(row.deliver_at_ms),
            ttl=None if row.ttl_ms is None else timedelta(milliseconds=row.ttl_ms),
            priority=row.priority,
            correlation_id=row.correlation_id,
        )
        raw_id = id_bytes(row.request_id)
        draft = Draft(flow, b"{}", options, row.created_ms, raw_id, row.request_id)
        try:
            payload, errors = decode_fields(flow.payload, msgspec.json.decode(body))
            if payload is None:
                raise InvalidRequest(flow.name, errors)
            # Its id is fixed already: the writer was given it before any payload was read.
            own, options = kind.own_id(payload, options)
            draft = replace(draft, options=options, is_own=own is not None)
            stored, about = kind.validated(payload, options)
            if flow.check is not None and (
                errors := await self._checks.errors(flow, payload, row.tenant)
            ):
                raise InvalidRequest(flow.name, errors)
            opening = None if flow.opens is None else flow.opens(payload)
            return replace(draft, body=stored, about=about, opening=opening)
        except msgspec.DecodeError as error:
            errors = {"payload": f"cannot be read: {error}"}
        except InvalidRequest as error:
            errors = error.fields
        except RecursionError:
            # No later reader could parse it either: nothing of it is kept.
            return Invalid(self._append(draft, b"{}"), {"payload": TOO_DEEP})
        # A payload that does not fit its type cannot be encrypted: of a flow with personal fields
        # nothing is kept.
        if kind.plan is None and MARK not in body and len(body) <= PAYLOAD_BYTES_MAX:
            draft = replace(draft, body=body)
        return Invalid(self._append(draft, draft.body), errors)

    async def _accept_all(self, drafts: list[Draft]) -> list[Accepted | Conflict]:
        if not self._admission.is_open:
            await self._admission.ask()
        # In one append and not through the group commit, which may split a batch: a full disk
        # takes all of them or none.
        size = PART if self._batch_throttle.is_mixed else len(drafts)
        answers: list[Accepted | Conflict] = []
        for start in range(0, len(drafts), size or 1):
            part, began = drafts[start : start + size], self._runtime.monotonic()
            try:
                appended = await self._encrypt_and_append(part)
            except StoreError as error:
                if not answers:
                    raise
                raise PartlyAccepted(answers, len(drafts), error) from error
            answers += [
                _verdict_or_conflict(verdict, append, draft)
                for draft, (append, verdict) in zip(part, appended, strict=True)
            ]
            if len(part) >= PART and self._batch_throttle.is_mixed:
                await self._batch_throttle.give_way(began)
        return answers

    async def _encrypt_and_append(self, drafts: list[Draft]) -> list[tuple[Append, AppendVerdict]]:
        appends = await self._appends(drafts)
        return list(zip(appends, await self._log.append(appends), strict=True))

    async def _appends(self, drafts: list[Draft]) -> list[Append]:
        """The first events of drafts, with their personal fields encrypted.

        A crash before they are appended leaves keys that encrypt nothing.
        """
        bodies: Iterable[bytes] = (draft.body for draft in drafts)
        if self._plans:
            personal = [
                Clear(
                    draft.options.tenant,
                    draft.flow.name,
                    draft.request_id,
                    plan,
                    draft.body,
                    draft.about,
                    places_apart(draft.flow.payload),
                )
                for draft in drafts
                if (plan := self._plans.get(draft.flow.name)) is not None
            ]
            # Matched by order and not by id: callers may bring one id twice.
            encrypted = iter(await self._subject_keys.encrypt(personal))
            bodies = (
                next(encrypted) if draft.flow.name in self._plans else draft.body
                for draft in drafts
            )
        appends = []
        for number, (draft, body) in enumerate(zip(drafts, bodies, strict=True), start=1):
            appends.append(first_append(draft, body, self._identity))
            if number % TURN == 0:
                await turn()
        return appends

    def _append(self, draft: Draft, stored: bytes) -> Append:
        return first_append(draft, stored, self._identity)


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)


def _accepted(
    draft: Draft, request_id: str, verdict: Literal["created", "duplicate", "deferred"]
) -> Accepted:
    return Accepted(draft.flow.name, draft.options.tenant, request_id, verdict, draft.warnings)


def _answer(verdict: AppendVerdict, append: Append, draft: Draft) -> Accepted:
    if type(verdict) is Appended:
        return _accepted(draft, draft.request_id, "created")
    key = draft.options.key
    if isinstance(verdict, Claimed):
        assert append.claim is not None
        assert key is not None
        holder = draft.request_id if key == draft.request_id else verdict.request_id
        if verdict.content != append.claim.content:
            raise Conflict(key, holder, shown=scrubbed_name(key))
        return _accepted(draft, holder, "duplicate")
    if isinstance(verdict, LeadsElsewhere):
        raise AboutAnother
    # Our own ids are new by construction: the caller's own id is already the id of a request that
    # was created without it.
    assert isinstance(verdict, Stale), verdict
    raise Conflict(draft.request_id, draft.request_id, shown=draft.request_id)


def _verdict_or_conflict(
    verdict: AppendVerdict, append: Append, draft: Draft
) -> Accepted | Conflict:
    try:
        return _answer(verdict, append, draft)
    except Conflict as conflict:
        return conflict
