"""A handle on one request: its outcome and the commands that apply to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from gesta.domain import commands
from gesta.domain.events import Actor
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.domain.lifecycles import Status, lifecycle_of
from gesta.domain.money import Money
from gesta.domain.outcome import Outcome
from gesta.domain.state import State
from gesta.domain.stream_names import INSTALLATION
from gesta.domain.transaction import commands as transactions
from gesta.errors import (
    Conflict,
    Erased,
    GestaError,
    InDoubt,
    InvalidRequest,
    NotFound,
    OutcomeTimeout,
    Refused,
    StoreError,
)
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import Payload
from gesta.flows.payload_codec import decoder_of
from gesta.flows.validation import actor_errors, value_errors
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import is_text, ttl_errors
from gesta.ports.job_queue import Settlement
from gesta.ports.read_model import Key, View
from gesta.requests.recorder import Origin, Settle, drop_job, no_job
from gesta.requests.waiters import outcome_of
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.redaction import scrubbed_name
from gesta.security.subject_keys import ERASED

if TYPE_CHECKING:
    from gesta.engine.pipeline import Pipeline

#: How often a view is read if another process projects.
POLL_SECONDS = 0.1
#: The same if this process projects and notifies waiters: a safety net.
PROJECTED_HERE_SECONDS = 5.0
#: How long to look for a deferred request. The outbox is drained within a fraction of a second.
DEFERRED_SECONDS = 5.0


class Request:
    """A request that was submitted, or found by its id.

    `verdict` is `created`, `duplicate` when the key led to an earlier request, or `deferred` when
    it is part of the caller's transaction. A deferred request exists soon after the commit, and
    never after a rollback.
    """

    __slots__ = (
        "_checked",
        "_pipeline",
        "_version",
        "flow",
        "id",
        "tenant",
        "verdict",
        "warnings",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        accepted: Accepted,
        *,
        version: int | None = None,
        checked: View | None = None,
    ) -> None:
        """`version`: commands are refused when the request is not at this version any more.

        `checked`: the stored request; commands are only checked against it and nothing is written.
        """
        self._pipeline, self._version, self._checked = pipeline, version, checked
        self.id, self.flow, self.tenant = accepted.request_id, accepted.flow, accepted.tenant
        self.verdict: Literal["created", "duplicate", "deferred"] = accepted.verdict
        #: Why the request will be held, as far as this process knows: code and message.
        self.warnings = accepted.warnings

    def __repr__(self) -> str:
        return f"Request({self.flow} {self.id} {self.verdict})"

    async def view(self) -> View:
        """The request as it is now. A deferred one is waited for, for some seconds: it may just
        have been committed.
        """
        (view,) = await self._pipeline.subjects.open_views([await self._stored()])
        return view

    async def _stored(self) -> View:
        """The same with encrypted texts as they are stored, for commands."""
        if self._checked is not None:
            return self._checked
        runtime = self._pipeline.runtime
        until = runtime.monotonic() + (DEFERRED_SECONDS if self.verdict == "deferred" else 0.0)
        while (view := await self._find()) is None:
            if runtime.monotonic() >= until:
                raise self._not_there()
            await sleep(runtime, POLL_SECONDS)
        return view

    async def _find(self) -> View | None:
        return await self._pipeline.loader.one(self._key)

    @property
    def _key(self) -> Key:
        return self.flow, self.tenant, self.id

    def _not_there(self) -> NotFound:
        if self.verdict != "deferred":
            # A key outlives its request, and this process need not know how long requests are kept.
            led_here = (
                "; it has ended and was removed by retention. Its key is still known, so it is not"
                " executed again"
            )
            return self._pipeline.not_found(
                self.id, led_here if self.verdict == "duplicate" else ""
            )
        more = (
            "; its transaction is not committed or was rolled back, or no process drains the"
            " outbox (start gesta serve)"
        )
        return NotFound("request", self.id, more)

    async def status(self) -> Status:
        return (await self._stored()).state.status

    async def payload(self) -> Payload:
        """The payload in clear. Raises Erased if a data subject was erased."""
        flow = self._pipeline.flows.get(self.flow)
        if flow is None:
            raise unknown_flow(self.flow, self._pipeline.flows)
        (opened,) = await self._pipeline.subjects.open([await self._stored()])
        if opened is ERASED:
            raise Erased(self.id)
        if not isinstance(opened, bytes):
            raise StoreError(f"request {self.id}: {opened.detail}")
        try:
            payload: Payload = decoder_of(flow.payload)(opened)
            return payload
        except msgspec.ValidationError:
            raise GestaError(
                f"request {self.id}: the stored payload no longer fits the type of flow {self.flow}"
            ) from None

    async def outcome(self, timeout: float = 30.0) -> Outcome:  # noqa: ASYNC109 -- the usual name
        """Wait until the request needs no more work. Raises OutcomeTimeout after `timeout` seconds;
        gesta continues with the request.
        """
        runtime, waiters = self._pipeline.runtime, self._pipeline.waiters
        until = runtime.monotonic() + timeout
        future = waiters.wait(self._key)
        waking = spawn(self._poll(future, until), "gesta-outcome")
        pass_time = self._pipeline.environment.pass_time
        passing = None if pass_time is None else spawn(pass_time(timeout), "gesta-clock")
        try:
            state = await future
        except TimeoutError:
            view = await self._find()
            if view is None:
                raise self._not_there() from None
            cause = await self._cause(view)
            (view,) = await self._pipeline.subjects.open_views([view])
            raise OutcomeTimeout(self.id, view.state, timeout, cause=cause) from None
        finally:
            waking.cancel()
            if passing is not None:
                passing.cancel()
            waiters.forget(self._key, future)
        (view,) = await self._pipeline.subjects.open_views([View(state, b"")])
        outcome = outcome_of(view.state)
        assert outcome is not None
        return outcome

    async def _cause(self, view: View) -> str:
        """Why there is no outcome; empty if the end of the last attempt explains it."""
        pipeline, state = self._pipeline, view.state
        if held := await self._held(view):
            return held
        if state.reason:
            return ""
        if state.due_at is not None and state.due_at > pipeline.runtime.now_ms():
            due = datetime.fromtimestamp(state.due_at / 1000, UTC).isoformat(timespec="seconds")
            return f"it is not due before {due.replace('+00:00', 'Z')}"
        stores = pipeline.environment.stores
        with suppress(StoreError):
            if "job_inspection" in stores.capabilities:
                found = await stores.job_inspection.jobs(state.job_id[:-1], 1)
                if any(one.job.id == state.job_id and one.state == "leased" for one in found):
                    return "its first attempt is running and has not ended"
            if not any("worker" in one.roles for one in await stores.leases.processes()):
                return "no process on this store runs a worker; start gesta serve or gesta worker"
        return ""

    async def _held(self, view: View) -> str:
        """What holds the request, and what ends that; empty: nothing does."""
        pipeline = self._pipeline
        with suppress(StoreError):
            await pipeline.config.refresh(INSTALLATION)
            await pipeline.config.refresh(self.tenant)
        pause = pipeline.pausing.pause_of(view, pipeline.flows.get(self.flow))
        if pause is not None:
            return f"it is held: {pause.held_by.advice}"
        elsewhere = pipeline.pausing.held_elsewhere(view, pipeline.flows.get(self.flow))
        if elsewhere is not None:
            return (
                f"another process of this store holds it: {elsewhere.held_by.sentence}. A process"
                " uses its own flows and credentials: start it with the --app of this program, or"
                " store the config"
            )
        return ""

    async def _poll(self, future: asyncio.Future[State], until: float) -> None:
        """Read the view now, because the request may have ended already, and then at intervals,
        because another process may project.
        """
        runtime = self._pipeline.runtime
        while not future.done():
            try:
                state = await self._state()
            except Exception as error:  # noqa: BLE001 -- raised where it is awaited
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done() and state is not None and outcome_of(state) is not None:
                future.set_result(state)
                return
            left = until - runtime.monotonic()
            if left <= 0 and not future.done():
                future.set_exception(TimeoutError())
                return
            pause = PROJECTED_HERE_SECONDS if self._pipeline.projector.is_here else POLL_SECONDS
            await sleep(runtime, min(pause, left))

    async def _state(self) -> State | None:
        """None while a deferred request does not exist yet."""
        view = await self._find()
        if view is None and self.verdict != "deferred":
            raise self._not_there()
        return None if view is None else view.state

    async def cancel(self, *, actor: Actor | None = None) -> Status:
        """Cancel it. A running attempt finishes first; if it succeeds, its result stays."""
        after, was_active = await self._apply(commands.Cancel(), drop_job, actor)
        if was_active:
            after, _ = await self._apply(commands.Cancel(active=True), no_job, actor)
            with suppress(Refused):
                # The holder of the job may have released it between the two. If the attempt ended
                # meanwhile, its outcome decides.
                after, _ = await self._apply(commands.Cancel(), drop_job, actor)
        return after.state.status

    async def retry(self, *, actor: Actor | None = None) -> Status:
        """Make the next attempt of the same intent now, with the same idempotency key.

        Raises Refused, which names what holds the request if its attempt is due already.
        """
        try:
            return await self._reopen(commands.RetryNow(self._pipeline.runtime.now_ms()), actor)
        except Refused as refused:
            held = await self._held(await self._stored()) if refused.code == "already_due" else ""
            if not held:
                raise
            text = f"its next attempt is already due or running; {held}"
            raise Refused(self.id, commands.CommandRefused(refused.code, text)) from None

    async def redrive(
        self, *, ttl: timedelta | None = None, again: bool = False, actor: Actor | None = None
    ) -> Status:
        """Run it again after a final failure, with a new budget of attempts.

        `again` forces a new intent although the outcome of an attempt is unknown.

        Raises Refused, also if a data subject was erased.
        """
        if errors := ttl_errors(ttl):
            raise InvalidRequest(self.flow, errors)
        ttl_ms = None if ttl is None else round(ttl.total_seconds() * 1000)
        return await self._reopen(
            commands.Redrive(self._pipeline.runtime.now_ms(), ttl_ms, again), actor
        )

    async def resolve(
        self,
        result: Literal["executed", "not_executed", "rejected"],
        *,
        by: str,
        evidence: str,
        provider_id: str = "",
        amount: Money | None = None,
        actor: Actor | None = None,
    ) -> Status:
        """Resolve an `unknown` request with a person's finding, on record.

        After `not_executed` it is executed again, with a new budget of attempts.

        `amount`: what a transaction has moved, if that is not what was asked for.
        """
        self._check_amount(amount)
        command = commands.Resolve(
            result,
            by,
            evidence,
            provider_id,
            self._pipeline.runtime.now_ms(),
            None if amount is None else amount.minor,
            "" if amount is None else amount.currency,
        )
        return await self._reopen(command, actor)

    def _check_amount(self, amount: object) -> None:
        """Programs may pass anything, despite the annotations."""
        if amount is not None and not isinstance(amount, Money):
            raise InvalidRequest(self.flow, {"amount": 'Money("49.90", "EUR")'})

    async def capture(
        self,
        amount: Money | None = None,
        *,
        key: str,
        final: bool = True,
        actor: Actor | None = None,
    ) -> Status:
        """Capture part or all of the authorized amount; None: the whole rest.

        `key` is your own: the same key with the same content changes nothing. The rest of the
        authorization is released; `final=False` keeps it for further captures, if the gateway
        supports that.

        Raises InDoubt while an outcome is unknown, Refused if the amounts do not allow it.
        """
        return await self._open(transactions.Capture, amount, key, actor, is_final=final)

    async def post(
        self,
        amount: Money | None = None,
        *,
        key: str,
        final: bool = True,
        actor: Actor | None = None,
    ) -> Status:
        """Post part or all of the reserved amount; like `capture`."""
        return await self._open(transactions.Post, amount, key, actor, is_final=final)

    async def void(self, *, key: str | None = None, actor: Actor | None = None) -> Status:
        """Release the amount that was authorized and not captured."""
        return await self._open(transactions.Void, None, key, actor)

    async def refund(
        self, amount: Money | None = None, *, key: str, actor: Actor | None = None
    ) -> Status:
        """Return part or all of the captured amount; None: the whole rest."""
        return await self._open(transactions.Refund, amount, key, actor)

    async def reverse(self, *, key: str | None = None, actor: Actor | None = None) -> Status:
        """Reverse the payment: void it, or refund it if it was captured."""
        return await self._open(transactions.Reverse, None, key, actor)

    async def _open(
        self,
        kind: type[transactions.OperationCommand],
        amount: Money | None,
        key: str | None,
        actor: Actor | None,
        **more: bool,
    ) -> Status:
        """Open a further operation of a transaction."""
        self._check_amount(amount)
        if key is not None and not is_text(key):
            error = f"a string of 1 to {KEY_LENGTH_MAX} characters"
            raise InvalidRequest(self.flow, {"key": error})
        state = (await self._stored()).state
        digest = ""
        if key is not None:
            digest = self._pipeline.identity.name_of(
                self.tenant, self.flow, key, test=state.test
            ).hex()
        command = kind(
            self._pipeline.runtime.now_ms(),
            None if amount is None else amount.minor,
            "" if amount is None else amount.currency,
            "" if key is None else scrubbed_name(key),
            digest,
            **more,
        )
        try:
            after, _ = await self._apply(command, no_job, actor)
        except Refused as refused:
            if refused.code == "key_conflict" and key is not None:
                raise Conflict(key, self.id, shown=scrubbed_name(key)) from None
            raise
        return after.state.status

    async def purge(self, *, actor: Actor | None = None) -> None:
        """Remove it from the dead letters; its events stay."""
        await self._apply(commands.Purge(), no_job, actor)

    async def _reopen(self, command: commands.Command, actor: Actor | None) -> Status:
        after, was_active = await self._apply(command, drop_job, actor)
        if was_active:
            raise Refused(
                self.id,
                commands.CommandRefused("active", "an attempt is running; wait for its outcome"),
            )
        return after.state.status

    async def _apply(
        self, command: commands.Command, settle: Settle, actor: Actor | None
    ) -> tuple[View, bool]:
        """The request after the command, and whether a running attempt prevented it."""
        # Values from programs are stored in events forever, so they are checked despite the
        # annotations.
        errors = value_errors(command) | actor_errors(actor)
        if errors:
            raise InvalidRequest(self.flow, errors)
        flow = self._pipeline.flows.get(self.flow)
        if flow is None:
            raise unknown_flow(self.flow, self._pipeline.flows)
        view = await self._stored()
        if isinstance(command, commands.Redrive) and await self._pipeline.subjects.is_erased(view):
            text = (
                "a data subject was erased and the payload cannot be read; it cannot be executed"
                " again"
            )
            raise Refused(self.id, commands.CommandRefused("subject_erased", text))

        def settle_unchanged(before: State, after: State) -> Settlement | None:
            # The recorder calls it with each state that the command is applied to.
            if self._version not in (None, before.version):
                raise commands.CommandRefused("changed", "it was changed meanwhile")
            return settle(before, after)

        try:
            if self._checked is not None:
                lifecycle_of(self.flow).decide(view.state, command, flow.rules)
                settle_unchanged(view.state, view.state)
                return view, False
            applied = await self._pipeline.recorder.apply(
                view,
                command,
                flow.rules,
                settle_unchanged,
                causation_id=self.id,
                origin=Origin(actor),
            )
        except commands.CommandRefused as refused:
            kind = InDoubt if refused.code == "in_doubt" else Refused
            raise kind(self.id, refused) from None
        return applied.view, applied.settled == "active"
