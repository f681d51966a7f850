"""Alerts: notifies operators of everything that needs a person, once for each reason and time
window.

Sources are the log and this process. Reasons are dead letters, unknown outcomes that a person has
to resolve, refused credentials, quarantined events and jobs, and crashed components. An alert is a
request of the flow in the setting `alerts_to`. Its key contains reason and window, so several
processes, or one that restarts, send it once. A failed alert causes no alert; it is logged.

An alert is about what still needs a person when it is sent. While it would be held, for instance
because its endpoint is missing, it is not submitted: its text would be outdated when it arrives.

An overload or a full disk refuses alerts as it refuses requests. Readiness and metrics cover that.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from gesta.domain import events as e
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.state import State
from gesta.domain.status_events import ALERTING, is_reply
from gesta.domain.stream_names import INSTALLATION
from gesta.errors import Conflict, GestaError, Overloaded, StoreError
from gesta.flows.channels import how_to_add
from gesta.flows.deferrals import SECRET_MISSING
from gesta.flows.flow import Flow, Payload
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.ports.event_store import Recorded
from gesta.ports.read_model import View
from gesta.projector.batch_fold import CONFIG
from gesta.requests.dead_letters import failure_of
from gesta.requests.loader import apply_event
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat
from gesta.runtime.telemetry import reason_label
from gesta.subscriptions.alert_groups import Group, Groups, Name, Occurrence, add
from gesta.subscriptions.log_consumer import BATCH, OWN, Log, LogConsumer
from gesta.tenants.config import ConfigCache
from gesta.tenants.pauses import PAUSED, Paused, Scope

#: One message for each reason in this time.
WINDOW_MS = 300_000
#: An alert that could not be sent for a day is not sent.
TTL = timedelta(days=1)
TTL_MS = round(TTL.total_seconds() * 1000)
FLUSH_SECONDS = 1.0
#: Forgets those occurrences of a group that are over.
Forget = Callable[[Group], Awaitable[None]]


@dataclass(frozen=True)
class AlertDestination:
    """`to` is `flow:address`; alerts use the config and templates of `tenant`."""

    to: str
    tenant: str


class Alerts:
    """Sends alerts and remembers in which window each was sent."""

    def __init__(
        self,
        destination: AlertDestination,
        *,
        flows: Mapping[str, Flow],
        intake: Intake,
        config: ConfigCache,
        process: Process,
    ) -> None:
        self.to, self.tenant, self._process = destination.to, destination.tenant, process
        flow, _, self._destination = destination.to.partition(":")
        self._flow, self.flow_name = flows.get(flow), flow
        self._flows, self._intake, self._config = flows, intake, config
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._sent: dict[Name, int] = {}
        #: Occurrences in this process that are not events.
        self._own: Groups = {}
        #: What alerts wait for now.
        self._held_by = ""

    @property
    def is_possible(self) -> bool:
        return self._flow is not None and self._flow.notices is not None

    @property
    def impossible(self) -> str:
        """Why this process sends no alerts, whatever tenants have stored; empty: it does."""
        carriers = sorted(name for name, flow in self._flows.items() if flow.notices is not None)
        able = f"flows that can: {', '.join(carriers) or 'none'}"
        if self._flow is None:
            return f"this process has no flow {self.flow_name}; {able}"
        return f"{self.flow_name} cannot carry alerts; {able}" if not self.is_possible else ""

    @property
    def remedy(self) -> str:
        """What to change in the program or its settings, so that alerts become possible."""
        if self.is_possible:
            return ""
        add = "" if self._flow is not None else how_to_add(self.flow_name).removeprefix("; ")
        return add or "set alerts_to to a flow that can"

    async def error(self) -> str:
        """Why alerts cannot be sent; empty: they can."""
        if self.impossible or self._flow is None or self._flow.notices is None:
            return self.impossible
        return self._flow.notices.error(self._destination, await self._config.fresh(self.tenant))

    def window(self) -> int:
        return self._runtime.now_ms() // WINDOW_MS

    def label(self, flow: str, reason: str) -> str:
        """A reason from a closed set, so that free texts do not cause a message each."""
        declared = self._flows.get(flow)
        return reason_label(reason, frozenset() if declared is None else declared.reasons)

    def count(self, kind: str, reason: str, example: str) -> None:
        """Count an occurrence in this process that is not an event."""
        now_ms = self._runtime.now_ms()
        example = example or self._process.owner
        add(self._own, Occurrence(kind, "", reason, "", example, at_ms=now_ms))

    async def run(self) -> None:
        """Send alerts about this process until cancelled."""
        await repeat(self._flush, "alerts", self._process)

    async def _flush(self) -> None:
        await self.send(self._own, _nothing)
        await sleep(self._runtime, FLUSH_SECONDS)

    async def send(self, groups: Groups, forget: Forget) -> None:
        """Send what may be sent in this window and remove it from the groups."""
        window = self.window()
        for name, group in list(groups.items()):
            if self._sent.get(name) == window:
                continue
            if await self._send(name, group, window, forget):
                groups.pop(name, None)
        self._sent = {name: said for name, said in self._sent.items() if said == window}

    async def _send(self, name: Name, group: Group, window: int, forget: Forget) -> bool:
        """False: the group waits."""
        assert self._flow is not None
        assert self._flow.notices is not None
        key = f"alert/{'/'.join(name)}/{window}"
        try:
            if await self._would_be_held(
                self._flow.notices.write(self._destination, group.notice(key))
            ):
                group.forget_before(self._runtime.now_ms() - TTL_MS)
                return not group.count
            await forget(group)
            if not group.count:
                return True
            payload = self._flow.notices.write(self._destination, group.notice(key))
            return await self._submit(payload, key, name, window)
        except (StoreError, Overloaded) as error:
            # It stays in the group and is sent later.
            self._telemetry.store_failed("alerts", error)
            return False
        except GestaError as error:
            self._telemetry.alert_failed(self.flow_name, name[2], error)
            self._sent[name] = window
            return True

    async def _would_be_held(self, payload: Payload) -> bool:
        """Whether this alert would wait for config, a credential or the end of a pause."""
        assert self._flow is not None
        await self._config.refresh(INSTALLATION)
        reason = await self.error()
        named = self._flow.credential
        pause = self._config.pauses.covering(
            self.tenant, self.flow_name, lambda: None if named is None else named(payload)
        )
        if pause is not None:
            reason = reason or pause.held_by.sentence
        if reason and not self._held_by:
            self._telemetry.log.warning("alerts wait", to=self.to, reason=reason)
        self._held_by = reason
        return bool(reason)

    async def _submit(self, payload: Payload, key: str, name: Name, window: int) -> bool:
        options = Options(key, self.tenant, ttl=TTL, source=ALERTING)
        try:
            await self._intake.submit(payload, options)
        except Conflict:
            # Another process has sent it, or this one before a restart, with other occurrences.
            self._sent[name] = window
            return False
        self._sent[name] = window
        return True


async def _nothing(_group: Group) -> None:
    """What happened in this process cannot be over."""


class Alerting(LogConsumer):
    """Finds the reasons for alerts in the log. Its checkpoint stays before what was not sent."""

    def __init__(
        self, alerts: Alerts, log: Log, *, flows: Mapping[str, Flow], config: ConfigCache
    ) -> None:
        super().__init__(f"{OWN}alerts", "now", log)
        self._alerts, self._flows, self._config = alerts, flows, config
        self._groups: Groups = {}
        self._read = 0

    @property
    def next_due_ms(self) -> int | None:
        """When the next window begins, for tests with a manual clock."""
        return (self._alerts.window() + 1) * WINDOW_MS if self._groups else None

    async def _begin(self) -> int:
        is_fresh = self._position is None
        position = await super()._begin()
        if is_fresh:
            self._groups, self._read = {}, position
        return position

    async def step(self) -> int:
        await self._begin()
        batch = await self._events.follow(self._read, BATCH)
        for one in await self._not_over(
            [one for recorded in batch if (one := self._look(recorded)) is not None]
        ):
            add(self._groups, one)
        self._read = batch[-1].position if batch else self._read
        await self._alerts.send(self._groups, self._forget)
        self._delivered = min(
            (group.position - 1 for group in self._groups.values()), default=self._read
        )
        await self._move()
        return len(batch)

    def _look(self, recorded: Recorded) -> Occurrence | None:
        try:
            meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
            return (
                self._refused(recorded, meta)
                if meta.flow == CONFIG
                else self._needs_person(recorded, meta)
            )
        except ValueError:
            # The projector quarantines it.
            return None

    async def _forget(self, group: Group) -> None:
        group.keep(await self._not_over(group.kept))

    async def _not_over(self, occurrences: Sequence[Occurrence]) -> list[Occurrence]:
        """Those that are as their event left them, without those of test requests."""
        credentials = [one for one in occurrences if not one.flow]
        if credentials:
            await self._config.refresh(*sorted({one.tenant for one in credentials}))
        streams: dict[str, list[Recorded]] = {one.stream: [] for one in occurrences if one.flow}
        if streams:
            for recorded in await self._events.read([(name, 0) for name in sorted(streams)]):
                streams[recorded.stream].append(recorded)
        return [
            one
            for one in occurrences
            if (self._is_open(one, streams[one.stream]) if one.flow else self._is_held(one))
        ]

    def _is_held(self, one: Occurrence) -> bool:
        scope = Scope(None, one.tenant, one.example, is_refused=True)
        return self._config.pauses.get(scope) is not None

    def _is_open(self, one: Occurrence, stream: Sequence[Recorded]) -> bool:
        """Whether the request is as this event left it: not redriven, resolved or purged."""
        view: View | None = None
        after: State | None = None
        for recorded in stream:
            try:
                view = apply_event(view, recorded, one.flow)
            except Exception:  # noqa: BLE001 -- quarantined: a person has to look at it, too
                return view is None or not view.state.test
            if recorded.version == one.version:
                after = view.state
        if view is None or after is None:
            # Retention has removed it.
            return False
        now = view.state
        is_kept = now.status != "failed" or (
            failure_of(now, self._flows.get(one.flow), self._runtime.now_ms()) is not None
        )
        return not now.test and is_kept and _progress(now) == _progress(after)

    def _needs_person(self, recorded: Recorded, meta: e.Meta) -> Occurrence | None:
        if meta.source == ALERTING:
            return None
        known = recorded.known
        event = (
            event_types(meta.flow).decode(recorded.type, recorded.data)
            if known is None
            else known.event
        )
        if isinstance(event, e.Failed):
            if is_reply(meta.source) and not event.retryable:
                # The issue exists; that Slack refused the reply is logged.
                return None
            kind = "dead_letter"
        elif isinstance(event, e.OutcomeUnknown) and event.next_at is None:
            kind = "undecided"
        else:
            return None
        return Occurrence(
            kind,
            meta.flow,
            self._alerts.label(meta.flow, event.reason),
            meta.tenant,
            meta.request_id,
            event.reason,
            recorded.stream,
            recorded.version,
            recorded.position,
            meta.occurred_at,
        )

    def _refused(self, recorded: Recorded, meta: e.Meta) -> Occurrence | None:
        if recorded.type != PAUSED:
            return None
        paused = msgspec.json.decode(recorded.data, type=Paused)
        if paused.refusal is None or paused.credential is None:
            return None
        is_missing = paused.refusal.missing or paused.reason.startswith(SECRET_MISSING)
        return Occurrence(
            "config_missing" if is_missing else "credential_refused",
            "",
            paused.credential.partition("/")[0],
            meta.tenant,
            paused.credential,
            "",
            recorded.stream,
            recorded.version,
            recorded.position,
            meta.occurred_at,
        )


def _progress(state: State) -> tuple[object, ...]:
    """What changes when a person or an operation deals with a failure."""
    return state.status, state.operation, state.reason, state.due_at, state.purged
