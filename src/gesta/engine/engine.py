"""The engine: declare flows, open a store, submit requests and read them.

Use it as `async with Engine("sqlite:///gesta.db", flows=[receipt]) as engine: await
engine.submit(Receipt(...), key="order-7")`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from prometheus_client import generate_latest

from gesta.domain.codec import decode_meta, event_types
from gesta.domain.events import Actor, Event, Meta
from gesta.domain.state import State
from gesta.engine.environment import Wiring, refuse_fenced
from gesta.engine.pipeline import Pipeline
from gesta.engine.process_roles import EVERYTHING, NOTHING, Work
from gesta.engine.request import Request
from gesta.errors import (
    BadFlow,
    BadSchedule,
    BadSubscription,
    BadTransaction,
    Conflict,
    Fenced,
    GestaError,
    InvalidRequest,
    PartlyAccepted,
)
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import Flow, Payload
from gesta.flows.validation import decode_fields
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import NO_OPTIONS, Options, filter_errors, option_errors
from gesta.maintenance.schedules import Due, Schedule
from gesta.ports.read_model import Filter, View
from gesta.projector.partitions import begin_checkpoints
from gesta.runtime import settings as process_settings
from gesta.runtime.settings import Settings
from gesta.subscriptions.handlers import Handler, Since, Subscription
from gesta.worker.external.external import External

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from gesta.admin.admin import Admin

HandlerT = TypeVar("HandlerT", bound=Handler)
DueT = TypeVar("DueT", bound=Due)


class SubmitOptions(TypedDict, total=False):
    key: str | None
    tenant: str
    deliver_at: datetime | None
    ttl: timedelta | None
    priority: int
    correlation_id: str | None
    actor: Actor | None
    test: bool


#: Callers may not set the other fields of Options.
TAKEN = frozenset(SubmitOptions.__annotations__)


class Engine:
    """The part of gesta in one process: flows, a store and the components that work on it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        flows: Iterable[Flow] = (),
        settings: Settings | None = None,
        work: bool | Work = True,
    ) -> None:
        """`work=False` submits and reads without running projector, worker and sweeper in this
        process.
        """
        self.settings = settings or process_settings.load({"url": url} if url is not None else {})
        self._flows: dict[str, Flow] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._schedules: dict[str, Schedule] = {}
        self._work = work if isinstance(work, Work) else EVERYTHING if work else NOTHING
        self._components: dict[str, Callable[[Engine], Awaitable[None]]] = {}
        self._pipeline: Pipeline | None = None
        for flow in flows:
            self.add(flow)

    def add(self, flow: Flow) -> None:
        """Declare a flow, before the engine starts."""
        if not isinstance(flow, Flow):
            raise BadFlow(
                getattr(flow, "__name__", repr(flow)),
                "not a flow; put @flow('kind.name') above the executor",
            )
        if flow.name in self._flows:
            raise BadFlow(
                flow.name,
                "a flow with this name is already declared; rename one of them",
            )
        same = next(
            (known.name for known in self._flows.values() if known.payload is flow.payload), None
        )
        if same is not None:
            kind = flow.payload.__name__
            text = (
                f"its payload type {kind} is that of {same!r}, which is declared already; take a"
                f" subclass: class Other({kind}, frozen=True)"
            )
            raise BadFlow(flow.name, text)
        if self._pipeline is not None:
            raise BadFlow(flow.name, "declare flows before the engine starts")
        self._flows[flow.name] = flow

    def on(
        self, flow: str, *statuses: str, name: str, since: Since = "now"
    ) -> Callable[[HandlerT], HandlerT]:
        """Call the function below for every change to one of these statuses: durably, in order, at
        least once.

        `flow` may be `kind.*` or `*`; without a status it is called for every one. Its position in
        the log is kept under `name`. It starts with the first start of the engine, or with the
        whole log if `since="beginning"`.

        A handler that raises is called again with the same event. Handlers run in processes that
        work: `gesta serve --app`, or an engine without `work=False`.
        """

        def subscribe(handler: HandlerT) -> HandlerT:
            self.subscribe(Subscription(name, flow, statuses, handler, since))
            return handler

        return subscribe

    def every(
        self, cron: str, *, zone: str = "UTC", name: str | None = None, tenant: str = "default"
    ) -> Callable[[DueT], DueT]:
        """Call the function below at the times of a cron expression in a named time zone.

        It receives the due time and returns the payloads to submit: one, a list, or None. They are
        submitted once for each due time, whatever crashes, under the key
        `schedule/NAME/DUE`. Its last run is stored under `name`, by default the name of the
        function. After downtime only the latest missed time is made up for.

        Schedules run in processes with the role sweeper, in one of them at a time.
        """

        def declare(function: DueT) -> DueT:
            named = getattr(function, "__name__", "") if name is None else name
            self.schedule(
                Schedule(name=named, cron=cron, zone=zone, function=function, tenant=tenant)
            )
            return function

        return declare

    def schedule(self, schedule: Schedule) -> None:
        """What `every` does, for a schedule made elsewhere; before the engine starts."""
        if schedule.name in self._schedules:
            raise BadSchedule(
                schedule.name, "a schedule with this name is already declared; pass another name="
            )
        if self._pipeline is not None:
            raise BadSchedule(schedule.name, "declare schedules before the engine starts")
        self._schedules[schedule.name] = schedule

    @property
    def schedules(self) -> dict[str, Schedule]:
        return dict(self._schedules)

    def subscribe(self, subscription: Subscription) -> None:
        """What `on` does, for a subscription made elsewhere; before the engine starts."""
        if subscription.name in self._subscriptions:
            raise BadSubscription(
                subscription.name, "a subscription with this name is already declared"
            )
        if self._pipeline is not None:
            raise BadSubscription(subscription.name, "declare handlers before the engine starts")
        self._subscriptions[subscription.name] = subscription

    def add_component(self, name: str, run: Callable[[Engine], Awaitable[None]]) -> None:
        """Run this beside the engine's own components while it works; before the engine starts."""
        self._components[name] = run

    @property
    def components(self) -> dict[str, Callable[[Engine], Awaitable[None]]]:
        return dict(self._components)

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        return dict(self._subscriptions)

    @property
    def flows(self) -> dict[str, Flow]:
        return dict(self._flows)

    @property
    def is_running(self) -> bool:
        return self._pipeline is not None

    @property
    def pipeline(self) -> Pipeline:
        if self._pipeline is None:
            raise GestaError(
                "the engine is not running; use it inside `async with engine:`, or"
                " `await engine.start()` first"
            )
        return self._pipeline

    @property
    def admin(self) -> Admin:
        """For operators: dead letters, config, rebuild, counts."""
        admin: Admin = _opened("gesta.admin.admin", "Admin")(self.pipeline)
        return admin

    @property
    def external(self) -> External:
        """For workers of external flows: lease work, extend leases, report."""
        return self.pipeline.external

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the person who starts the process, e.g. that a master key was created."""
        return (*self.pipeline.environment.notes, *self._idle())

    def _idle(self) -> Iterator[str]:
        """What was declared or set and does nothing in this process."""
        if not self._work.parts:
            return
        alerts = self.pipeline.alerts
        if alerts is not None and alerts.impossible:
            yield f"no alerts are sent to {alerts.to}: {alerts.impossible}; {alerts.remedy}"
        for one in self._subscriptions.values():
            if not any(map(one.covers, self._flows)):
                yield f"no flow of this process matches subscription {one.name}: {one.flow}"

    def metrics(self) -> bytes:
        """This process's metrics in Prometheus' text format."""
        return generate_latest(self.pipeline.telemetry.registry)

    async def start(self) -> None:
        if self._pipeline is not None:
            raise GestaError("the engine is already running")
        # Raises for a flow that is not declared, before anything is opened.
        self._work.taken_of(self._flows)
        environment = await Wiring.wire(self.settings)
        try:
            stores = environment.stores
            await refuse_fenced(stores, works=bool(self._work.parts))
            with suppress(Fenced):
                await begin_checkpoints(stores.events, stores.checkpoints, stores.partitions)
            pipeline = await Pipeline.build(
                self._flows,
                environment,
                self._work,
                list(self._subscriptions.values()),
                self.settings.retention,
            )
        except BaseException:
            await environment.transport.close()
            await environment.mail.close()
            await environment.stores.close()
            raise
        pipeline.run_schedules(list(self._schedules.values()))
        if self._work.parts:
            pipeline.components.runs |= {
                name: partial(run, self) for name, run in self._components.items()
            }
        self._pipeline = pipeline
        pipeline.components.start()
        for note in environment.notes:
            pipeline.telemetry.log.info(note)
            if not logging.getLogger("gesta").hasHandlers():
                # The program has set up no logging, which would drop the line.
                _say(f"gesta: {note}\n")
        for note in self._idle():
            pipeline.telemetry.log.warning(note)

    async def stop(self) -> None:
        """Let running attempts end, then close. Unfinished requests continue at the next start."""
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            await pipeline.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """For ASGI frameworks: `FastAPI(lifespan=engine.lifespan)`."""
        async with self:
            yield

    def web(self) -> ASGIApp:
        """The HTTP API as an ASGI application: `app.mount("/gesta", engine.web())`.

        It answers while the engine runs.
        """
        # Known before the start, the process reports that it serves the API.
        self._work = replace(self._work, serves_api=True)
        app: ASGIApp = _opened("gesta.http_api.app", "Mounted")(self)
        return app

    async def submit(
        self,
        payload: Payload,
        *,
        within: object | None = None,
        **given: Unpack[SubmitOptions],
    ) -> Request:
        """Accept a request; when this returns it is on disk.

        The same key with the same content answers `duplicate`.

        `within` is a connection or session of yours with an open transaction on the same PostgreSQL
        database. The request becomes part of that transaction: it is `deferred` and exists if and
        only if it commits. A `test` reaches only the sandbox, and its keys are separate from live
        ones.
        """
        options = NO_OPTIONS
        if given:
            if not TAKEN.issuperset(given):
                raise TypeError(f"submit() takes {', '.join(sorted(TAKEN))} and within")
            options = Options(**given)
        if within is not None:
            stores = self.pipeline.environment.stores
            if stores.outbox is None:
                raise BadTransaction(
                    f"{stores.name} cannot be part of your transaction: `within` needs PostgreSQL,"
                    " and the same database for both"
                )
            return Request(
                self.pipeline,
                await self.pipeline.intake.defer(payload, options, stores.outbox, within),
            )
        pipeline = self.pipeline
        # As intake.submit, without one more coroutine for each request.
        submission = pipeline.intake.begin(payload, options)
        accepted = (
            await pipeline.intake.submit(payload, options)
            if submission is None
            else submission.accepted(await submission.verdict)
        )
        return Request(pipeline, accepted)

    async def submit_many(
        self, requests: Sequence[Payload | tuple[Payload, Options]]
    ) -> list[Request | Conflict]:
        """Accept many at once, with a verdict for each. An invalid one refuses the whole call
        before anything is written.
        """
        pairs = [one if isinstance(one, tuple) else (one, NO_OPTIONS) for one in requests]
        try:
            answers = await self.pipeline.intake.submit_many(pairs)
        except PartlyAccepted as partly:
            partly.answers = [
                Request(self.pipeline, one) if isinstance(one, Accepted) else one
                for one in partly.answers
            ]
            raise
        return [
            Request(self.pipeline, answer) if isinstance(answer, Accepted) else answer
            for answer in answers
        ]

    def payload(self, flow: str, fields: object, options: Options = NO_OPTIONS) -> Payload:
        """A flow's payload from a JSON object. Raises InvalidRequest with every error of payload
        and options at once.
        """
        declared = self.flow(flow)
        payload, errors = decode_fields(declared.payload, fields)
        errors |= option_errors(options)
        if payload is None or errors:
            raise InvalidRequest(flow, errors)
        return payload

    def flow(self, name: str) -> Flow:
        if name not in self._flows:
            raise unknown_flow(name, self._flows)
        return self._flows[name]

    async def request(
        self, request_id: str, *, flow: str | None = None, tenant: str = "default"
    ) -> Request:
        """A handle on an earlier request of this tenant; raises NotFound."""
        view = await self._view(request_id, flow, tenant)
        return Request(self.pipeline, Accepted(view.state.flow, tenant, request_id, "duplicate"))

    async def get(
        self, request_id: str, *, flow: str | None = None, tenant: str = "default"
    ) -> View:
        """A request as it is now, without view lag; raises NotFound.

        Personal fields of its payload are encrypted: see Request.payload.
        """
        (view,) = await self.pipeline.subjects.open_views(
            [await self._view(request_id, flow, tenant)]
        )
        return view

    async def find(
        self,
        *,
        tenant: str = "default",
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        before_id: str | None = None,
        limit: int = 50,
    ) -> list[View]:
        """A tenant's requests, newest first.

        Changes made by other processes appear some milliseconds later, and only while a projector
        runs.

        With `key` the requests that this key led to, at most one for each flow, without lag.
        """
        if errors := filter_errors(status, limit):
            raise InvalidRequest("find", errors)
        if key is not None:
            found = await self.admin.by_key(key, tenant, flow)
            return [view for view in found if _fits(view.state, status, before_id)][:limit]
        return await self.pipeline.subjects.open_views(
            await self.pipeline.environment.stores.read_model.find(
                Filter(tenant, flow, status, before_id, limit)
            )
        )

    async def history(
        self, request_id: str, *, flow: str | None = None, tenant: str = "default"
    ) -> list[tuple[str, Event | None, Meta]]:
        """Every event of a request: type, event, metadata."""
        view = await self._view(request_id, flow, tenant)
        stored = await self.pipeline.loader.history((view.state.flow, tenant, request_id))
        types = event_types(view.state.flow)
        events = await self.pipeline.subjects.open_events(
            (view.state.flow, tenant, request_id),
            [types.decode(one.type, one.data) for one in stored],
        )
        return [
            (one.type, event, decode_meta(one.meta))
            for one, event in zip(stored, events, strict=True)
        ]

    async def erase(
        self, subject: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> int:
        """Erase a person: destroy the keys that encrypt their data in payloads. Returns how many
        keys there were.

        `subject` is the exact text of a Personal field, or of the payload's `subject`.
        """
        return await self.admin.erase(subject, tenant=tenant, actor=actor)

    async def _view(self, request_id: str, flow: str | None, tenant: str) -> View:
        names = [flow] if flow is not None else list(self._flows)
        view = await self.pipeline.loader.find(names, tenant, request_id)
        if view is None:
            raise self.pipeline.not_found(request_id)
        return view


def _say(text: str) -> None:
    """Write to stderr, where there is one: a service may run with it closed."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text)


@cache
def _opened(module: str, name: str) -> Any:
    """A class of a layer above the engine, for `admin` and `web()`.

    Both modules import the engine, so the engine imports them when a program first needs them.
    """
    return getattr(import_module(module), name)


def _fits(state: State, status: str | None, before_id: str | None) -> bool:
    return (status is None or state.status == status) and (
        before_id is None or state.id < before_id
    )
