"""Bulk decisions: resolve, retry, cancel, redrive or purge every request that fits a filter.

The entry in the audit log is written first and is the durable record of the run. Resuming reads
it back and continues with the requests that still fit, so a crash needs no other bookkeeping.
Another entry says that the run has finished; a finished run is not resumed. A run that is stopped
records how many requests it changed, so that the end can tell the total. Several processes may run
the rest of one run: a request that another one changed is refused.
"""

from asyncio import Task
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from gesta.api_types.bulk import Bulk, BulkAction, BulkProgress, BulkRefusal, BulkSample
from gesta.domain.codec import decode_meta
from gesta.domain.durations import iso
from gesta.domain.events import Actor
from gesta.domain.state import State
from gesta.domain.stream_names import config_stream
from gesta.engine.pipeline import Pipeline
from gesta.engine.request import Request
from gesta.errors import (
    BulkFinished,
    GestaError,
    InvalidRequest,
    NotFound,
    Refused,
    StoreError,
    UnknownFlow,
)
from gesta.flows.personal_fields import decode_object
from gesta.flows.validation import actor_errors, tenant_errors, value_errors
from gesta.intake.submit import Accepted
from gesta.ports.read_model import Filter, Key, View, key_of
from gesta.requests.dead_letters import failure_of, has_reason
from gesta.runtime.clock import all_ended, sleep, spawn
from gesta.runtime.redaction import scrub
from gesta.tenants.config import (
    BULK_ENDED,
    BULK_STARTED,
    BULK_STOPPED,
    BulkEnded,
    BulkStarted,
    BulkStopped,
)

SAMPLES = 10
PAGE = 200
#: Refusals that a dry run lists; all are counted.
DRY_REFUSALS_MAX = 1_000
#: Requests that are changed at the same time; the group commit of the store writes them together.
TOGETHER_MAX = 50
#: Action → the statuses it applies to; the first is chosen where none is given.
STATUSES: Mapping[BulkAction, tuple[str, ...]] = {
    "resolve": ("unknown", "failed"),
    "retry": ("queued", "unknown"),
    "cancel": ("queued",),
    "redrive": ("failed", "expired", "cancelled", "unknown"),
    "purge": ("failed",),
}
CONDITIONS = ("flow", "status", "reason", "target", "template", "dead_letters", "since", "until")
#: Field → the one action that it belongs to.
_BELONGS_TO: Mapping[str, BulkAction] = {
    "outcome": "resolve",
    "evidence": "resolve",
    "ttl_seconds": "redrive",
    "again": "redrive",
}
_RESULTS: Mapping[str, Literal["executed", "not_executed", "rejected"]] = {
    "succeeded": "executed",
    "not_executed": "not_executed",
    "failed": "rejected",
}


class BulkRun:
    """One run over the requests of one tenant."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        tenant: str,
        asked: Bulk,
        actor: Actor | None,
        id: int | None = None,  # noqa: A002 -- the field of BulkProgress
        started_ms: int | None = None,
        done_before: int = 0,
    ) -> None:
        """`id` and `started_ms`: those of the run that this one resumes. `done_before`: how many
        requests its earlier parts changed.
        """
        if isinstance(asked.evidence, str):
            asked = msgspec.structs.replace(asked, evidence=scrub(asked.evidence))
        self._pipeline, self._tenant, self._asked, self._actor = pipeline, tenant, asked, actor
        self._id, self._is_resumed = id, id is not None
        self._started_ms = pipeline.runtime.now_ms() if started_ms is None else started_ms
        self._done_before = self._matched = self._done = done_before
        self._refused = 0

    async def run(self) -> AsyncGenerator[BulkProgress, None]:
        """Report before the first change, after every few changes and at the end.

        Raises InvalidRequest with every error before anything is changed. Raises StoreError when
        the store fails in the middle; the run can be resumed then.
        """
        self._check()
        sample: list[BulkSample] = []
        async for views in self._matching():
            sample += [_sample(view.state) for view in views[: SAMPLES - len(sample)]]
            self._matched += len(views)
        if self._asked.dry_run:
            would_be: list[BulkRefusal] = []
            async for refusals in self._decide_about_all():
                would_be += refusals[: DRY_REFUSALS_MAX - len(would_be)]
            self._done = 0
            yield self._progress(finished=True, sample=sample, refusals=would_be)
            return
        if self._id is None:
            await self._record()
        log = self._pipeline.telemetry.log.bind(
            action=self._asked.action, tenant=self._tenant, run=self._id
        )
        log.info("bulk run started", matched=self._matched)
        yield self._progress(sample=sample)
        try:
            async for refusals in self._decide_about_all():
                yield self._progress(refusals=refusals)
        except BaseException:
            log.info("bulk run stopped", done=self._done)
            await self._record_stop()
            raise
        await self._record_end()
        log.info("bulk run finished", done=self._done, refused=self._refused)
        yield self._progress(finished=True)

    def _check(self) -> None:
        asked = self._asked
        errors = value_errors(asked) | actor_errors(self._actor) | tenant_errors(self._tenant)
        if all(getattr(asked, name) is None for name in CONDITIONS):
            names = ", ".join(map(_camel, CONDITIONS))
            errors["filter"] = f"give at least one of {names}"
        if asked.action == "purge" and not asked.dead_letters:
            errors.setdefault("deadLetters", "required for purge: only dead letters can be purged")
        if asked.flow is not None and asked.flow not in self._pipeline.flows:
            known = ", ".join(sorted(self._pipeline.flows)) or "none"
            errors.setdefault(
                "flow",
                f"this process declares no flow {asked.flow!r}; it has: {known}. Run it in, or"
                " start the server with, the program that declares the flow: --app MODULE:NAME",
            )
        allowed = STATUSES.get(asked.action, ())
        if allowed and asked.status not in (None, *allowed):
            errors.setdefault("status", f"{asked.action} applies to {', '.join(allowed)}")
        for name, action in _BELONGS_TO.items():
            if asked.action != action and getattr(asked, name) not in (None, False):
                errors.setdefault(_camel(name), f"only for {action}")
        if asked.action == "resolve":
            for name in ("outcome", "evidence"):
                if not getattr(asked, name):
                    errors.setdefault(name, "resolve needs it")
        if errors:
            raise InvalidRequest("bulk", errors)

    async def _record(self) -> None:
        conditions = {
            _camel(name): value.isoformat() if isinstance(value, datetime) else value
            for name in CONDITIONS
            if (value := getattr(self._asked, name)) is not None
        }
        writer, asked = self._pipeline.config_writer, msgspec.Raw(msgspec.json.encode(self._asked))

        async def decide() -> BulkStarted:
            self._id = writer.cache.version(self._tenant) + 1
            return BulkStarted(self._asked.action, conditions, self._matched, asked)

        await writer.change(self._tenant, decide, self._actor)

    async def _record_end(self) -> None:
        assert self._id is not None
        ended = BulkEnded(self._id, self._asked.action, self._done, self._refused)
        await self._pipeline.config_writer.note(self._tenant, ended, self._actor)

    async def _record_stop(self) -> None:
        assert self._id is not None
        if done := self._done - self._done_before:
            stopped = BulkStopped(self._id, self._asked.action, done)
            # The counts of this part are lost if the store fails; the run can be resumed.
            with suppress(StoreError):
                await self._pipeline.config_writer.note(self._tenant, stopped, self._actor)

    async def _matching(self) -> AsyncIterator[list[View]]:
        """The requests that fit, newest first, in pages."""
        asked, views = self._asked, self._pipeline.environment.stores.read_model
        chosen = Filter(
            self._tenant, asked.flow, asked.status or STATUSES[asked.action][0], limit=PAGE
        )
        while True:
            page = await views.find(chosen)
            if self._is_resumed:
                # The views may lag behind what the earlier parts changed.
                page = [*(await self._stored(page)).values()]
            page = await self._pipeline.subjects.open_views(page)
            yield [view for view in page if view.state.status == chosen.status and self._fits(view)]
            if len(page) < PAGE:
                return
            chosen = msgspec.structs.replace(chosen, before_id=page[-1].state.id)

    def _fits(self, view: View) -> bool:
        asked, state = self._asked, view.state
        # A request that was changed after the start was decided about by this run, or needs a new
        # decision. A cancellation applies whatever happened since.
        newest = state.created_at if asked.action == "cancel" else state.updated_at
        return (
            newest <= self._started_ms
            and has_reason(state.reason, asked.reason)
            and asked.target in (None, state.target_id)
            and (asked.since is None or state.created_at >= _ms(asked.since))
            and (asked.until is None or state.created_at < _ms(asked.until))
            and self._is_applicable(state)
            and (asked.template is None or _template_of(view.payload) == asked.template)
            and (not asked.dead_letters or self._is_dead_letter(state))
        )

    def _is_dead_letter(self, state: State) -> bool:
        flow, now = self._pipeline.flows.get(state.flow), self._pipeline.runtime.now_ms()
        return failure_of(state, flow, now) is not None

    def _is_applicable(self, state: State) -> bool:
        match self._asked.action:
            case "resolve":
                return state.in_doubt
            case "retry":
                now = self._pipeline.runtime.now_ms()
                return state.wants == "execute" and state.due_at is not None and state.due_at > now
            case "cancel":
                return not state.in_doubt and not state.cancel_requested
            case "redrive" | "purge":
                return not state.purged

    async def _decide_about_all(self) -> AsyncIterator[list[BulkRefusal]]:
        """The refusals of each group of requests that were decided about together.

        A dry run changes nothing, so its rate is not limited.
        """
        runtime, rate, is_dry = self._pipeline.runtime, self._asked.rate, self._asked.dry_run
        together = TOGETHER_MAX if is_dry else max(1, min(round(rate / 10), TOGETHER_MAX))
        due = runtime.monotonic()
        async for views in self._matching():
            for start in range(0, len(views), together):
                group = views[start : start + together]
                if not is_dry:
                    if (wait := due - runtime.monotonic()) > 0:
                        await sleep(runtime, wait)
                    due = max(due, runtime.monotonic()) + len(group) / rate
                checked = await self._stored(group) if is_dry else {}
                deciding = [
                    spawn(self._decide(view.state, checked.get(key_of(view.state))), "gesta-bulk")
                    for view in group
                ]
                try:
                    # Decisions that are being written when the run is stopped are counted, too.
                    await all_ended(deciding)
                finally:
                    self._count(deciding)
                yield [answer for one in deciding if (answer := one.result()) is not None]

    def _count(self, ended: list[Task[BulkRefusal | None]]) -> None:
        answers = [one.result() for one in ended if not one.cancelled() and not one.exception()]
        changed = answers.count(None)
        self._done += changed
        self._refused += len(answers) - changed

    async def _stored(self, views: list[View]) -> dict[Key, View]:
        """The requests as they are now; the views may lag."""
        keys = [key_of(view.state) for view in views]
        found, _ = await self._pipeline.loader.load(keys)
        return dict(zip(keys, views, strict=True)) | found

    async def _decide(self, state: State, checked: View | None = None) -> BulkRefusal | None:
        """`checked`: the stored request in a dry run, which only checks whether it is refused."""
        asked, actor = self._asked, self._actor
        if actor is not None:
            actor = Actor(actor.user_id, (*actor.roles, f"bulk:{self._id}"))
        # A cancellation applies whatever happened since. Any other decision was made about the
        # request as it was found: evidence about one attempt says nothing about the next one.
        version = None if asked.action == "cancel" else state.version
        accepted = Accepted(state.flow, self._tenant, state.id, "duplicate")
        request = Request(self._pipeline, accepted, version=version, checked=checked)
        try:
            match asked.action:
                case "cancel":
                    await request.cancel(actor=actor)
                case "retry":
                    await request.retry(actor=actor)
                case "redrive":
                    seconds = asked.ttl_seconds
                    ttl = None if seconds is None else timedelta(seconds=seconds)
                    await request.redrive(ttl=ttl, again=asked.again, actor=actor)
                case "purge":
                    await request.purge(actor=actor)
                case "resolve":
                    by = "bulk" if actor is None else actor.user_id
                    result, evidence = _RESULTS[asked.outcome or ""], asked.evidence or ""
                    await request.resolve(result, by=by, evidence=evidence, actor=actor)
        except StoreError:
            raise
        except Refused as refused:
            return BulkRefusal(state.id, state.flow, refused.code, str(refused))
        except GestaError as error:
            code = "unknown_flow" if isinstance(error, UnknownFlow) else "refused"
            return BulkRefusal(state.id, state.flow, code, str(error))
        return None

    def _progress(
        self,
        *,
        finished: bool = False,
        sample: list[BulkSample] | None = None,
        refusals: list[BulkRefusal] | None = None,
    ) -> BulkProgress:
        return BulkProgress(
            self._asked.action,
            self._id,
            self._matched,
            self._done,
            self._refused,
            finished,
            sample or [],
            refusals or [],
        )


async def resume(
    pipeline: Pipeline,
    *,
    tenant: str,
    run_id: int,
    action: BulkAction,
    dead_letters: bool,
    rate: float | None,
    actor: Actor | None,
) -> BulkRun:
    """The rest of an earlier run.

    Raises InvalidRequest unless it was started with this action and, with `dead_letters`, over dead
    letters only. Raises NotFound when the audit log has no such run, and BulkFinished.
    """
    if errors := tenant_errors(tenant):
        raise InvalidRequest("bulk", errors)
    started = await _started(pipeline, tenant, run_id)
    if started is None:
        raise NotFound("bulk run", str(run_id))
    at_ms, asked = started
    if asked.action != action:
        errors["action"] = f"run {run_id} is a {asked.action}; resume it as {asked.action}"
    if dead_letters and not asked.dead_letters:
        errors["deadLetters"] = f"run {run_id} is not limited to dead letters"
    if errors:
        raise InvalidRequest("bulk", errors)
    done_before = await _done_before(pipeline, tenant, run_id)
    if rate is not None:
        asked = msgspec.structs.replace(asked, rate=rate)
    return BulkRun(
        pipeline,
        tenant=tenant,
        asked=asked,
        actor=actor,
        id=run_id,
        started_ms=at_ms,
        done_before=done_before,
    )


async def _started(pipeline: Pipeline, tenant: str, run_id: int) -> tuple[int, Bulk] | None:
    """When the run was started and with what; None if the audit log has no such run."""
    events = pipeline.environment.stores.events
    stored = await events.read_back(config_stream(tenant), run_id + 1, 1)
    if not stored or stored[0].version != run_id or stored[0].type != BULK_STARTED:
        return None
    started = msgspec.json.decode(stored[0].data, type=BulkStarted)
    if started.action not in STATUSES:
        # A redrive of messages in the boundary queue: it has no filter over requests.
        return None
    asked = msgspec.json.decode(started.asked, type=Bulk)
    return decode_meta(stored[0].meta).occurred_at, asked


async def _done_before(pipeline: Pipeline, tenant: str, run_id: int) -> int:
    """How many requests the stopped parts of a run changed. Raises BulkFinished."""
    stream, done = config_stream(tenant), 0
    for recorded in await pipeline.environment.stores.events.read([(stream, run_id)]):
        if recorded.type == BULK_STOPPED:
            stopped = msgspec.json.decode(recorded.data, type=BulkStopped)
            done += stopped.done if stopped.run == run_id else 0
        if recorded.type != BULK_ENDED:
            continue
        ended = msgspec.json.decode(recorded.data, type=BulkEnded)
        if ended.run == run_id:
            at = iso(decode_meta(recorded.meta).occurred_at)
            raise BulkFinished(run_id, done=ended.done, refused=ended.refused, at=at)
    return done


def _sample(state: State) -> BulkSample:
    return BulkSample(
        state.id, state.flow, state.status, state.reason or None, iso(state.created_at)
    )


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _template_of(payload: bytes) -> str | None:
    """The code of the template that a message names, if it names one."""
    fields = decode_object(payload)
    raw = fields.get("template")
    code = None if raw is None else msgspec.json.decode(raw)
    return code if isinstance(code, str) else None


def _camel(name: str) -> str:
    return msgspec.structs.fields(Bulk)[Bulk.__struct_fields__.index(name)].encode_name
