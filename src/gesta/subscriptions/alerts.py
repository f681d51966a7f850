"""Alerts: notifies operators of everything that needs a person, once for each reason and time
window.

Sources are the log and this process. Reasons are dead letters, unknown outcomes that a person has
to resolve, refused credentials, quarantined events and jobs, and crashed components. An alert is a
request of the flow in the setting `alerts_to`. Its key contains reason and window, so several
processes, or one that restarts, send it once. A failed alert causes no alert; it is logged.

An overload or a full disk refuses alerts as it refuses requests. Readiness and metrics cover that.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from gesta.api_types.config_commands import put_command
from gesta.domain import events as e
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.status_events import ALERTING, is_reply
from gesta.errors import Conflict, GestaError, Overloaded, StoreError
from gesta.flows.deferrals import SECRET_MISSING
from gesta.flows.flow import Flow, Notice, Payload
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.ports.event_store import Recorded
from gesta.projector.batch_fold import CONFIG
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat
from gesta.runtime.telemetry import reason_label
from gesta.subscriptions.log_consumer import BATCH, OWN, Log, LogConsumer
from gesta.tenants.config import ConfigCache
from gesta.tenants.pauses import PAUSED, Paused

#: One message for each reason in this time.
WINDOW_MS = 300_000
#: An alert that is older than a day is not sent.
TTL = timedelta(days=1)
FLUSH_SECONDS = 1.0
#: Kinds are few and reasons a closed set, so only a bug reaches this.
GROUPS_MAX = 1_000

#: Kind → what happened, and what to do.
SENTENCES: Mapping[str, tuple[str, str]] = {
    "dead_letter": (
        "{count} requests of {flow} failed: {reason}",
        "gesta dlq show {example}",
    ),
    "undecided": (
        "{count} requests of {flow} have an unknown outcome that a person has to resolve: {reason}",
        "gesta resolve {example}",
    ),
    "credential_refused": (
        "a provider refuses {count} of {reason}; requests that use them are held",
        "store it again: gesta {put}",
    ),
    "config_missing": (
        "{count} of {reason} are missing; requests that use them are held",
        "store it: gesta {put}",
    ),
    "queue_depth": (
        "too many requests of {reason} are waiting",
        "gesta doctor; {example}",
    ),
    "queue_age": (
        "a request of {reason} has been waiting for too long, in seconds",
        "gesta doctor; {example}",
    ),
    "queue_dead_letters": (
        "the {reason} queue has dead letters",
        "gesta dlq inbound; {example}",
    ),
    "quarantined": (
        "{count} events or jobs could not be processed ({reason}) and are quarantined",
        "gesta list --quarantined; {example}",
    ),
    "crashed": (
        "the component {reason} crashed {count} times and was restarted",
        "see the log of {example}",
    ),
}


class Group(msgspec.Struct):
    """Occurrences of one reason."""

    kind: str
    flow: str
    reason: str
    tenant: str
    example: str
    #: The position of the first one in the log.
    first: int = 0
    count: int = 0

    def notice(self, key: str) -> Notice:
        so, advice = SENTENCES[self.kind]
        data = msgspec.to_builtins(self)
        del data["first"]
        title = so.format(**data)
        kind, _, code = self.example.partition("/")
        put = put_command(kind, code)
        whose = f" Tenant {self.tenant}." if self.tenant else ""
        return Notice(
            key,
            title,
            f"gesta: {title}.{whose} For instance {self.example}: {advice.format(**data, put=put)}",
            data,
        )


#: Kind, flow, reason.
Name = tuple[str, str, str]


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
        self.to, self._tenant, self._process = destination.to, destination.tenant, process
        flow, _, self._destination = destination.to.partition(":")
        self._flow, self._flow_name = flows.get(flow), flow
        self._flows, self._intake, self._config = flows, intake, config
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._sent: dict[Name, int] = {}
        #: Occurrences in this process that are not events.
        self._own: dict[Name, Group] = {}

    @property
    def is_possible(self) -> bool:
        return self._flow is not None and self._flow.notices is not None

    @property
    def impossible(self) -> str:
        """Why this process sends no alerts, whatever tenants have stored; empty: it does."""
        able = f"flows that can: {', '.join(carriers(self._flows)) or 'none'}"
        if self._flow is None:
            return f"this process has no flow {self._flow_name}; {able}"
        return f"{self._flow_name} cannot carry alerts; {able}" if not self.is_possible else ""

    async def error(self) -> str:
        """Why alerts cannot be sent; empty: they can."""
        if self.impossible or self._flow is None or self._flow.notices is None:
            return self.impossible
        await self._config.refresh(self._tenant)
        return self._flow.notices.error(self._destination, self._config.of(self._tenant))

    def window(self) -> int:
        return self._runtime.now_ms() // WINDOW_MS

    def label(self, flow: str, reason: str) -> str:
        """A reason from a closed set, so that free texts do not cause a message each."""
        declared = self._flows.get(flow)
        return reason_label(reason, frozenset() if declared is None else declared.reasons)

    def count(self, kind: str, reason: str, example: str) -> None:
        """Count an occurrence in this process that is not an event."""
        add(self._own, Group(kind, "", reason, "", example or self._process.owner))

    async def run(self) -> None:
        """Send alerts about this process until cancelled."""
        await repeat(self._flush, "alerts", self._process)

    async def _flush(self) -> None:
        await self.send(self._own)
        await sleep(self._runtime, FLUSH_SECONDS)

    async def send(self, groups: dict[Name, Group]) -> None:
        """Send what may be sent in this window and remove it from the groups."""
        window = self.window()
        for name, group in list(groups.items()):
            if self._sent.get(name) == window:
                continue
            if await self._send(name, group, window):
                groups.pop(name, None)
        self._sent = {name: said for name, said in self._sent.items() if said == window}

    async def _send(self, name: Name, group: Group, window: int) -> bool:
        assert self._flow is not None
        assert self._flow.notices is not None
        key = f"alert/{'/'.join(name)}/{window}"
        try:
            payload = self._flow.notices.write(self._destination, group.notice(key))
            return await self._submit(payload, key, name, window)
        except (StoreError, Overloaded) as error:
            # It stays in the group and is sent later.
            self._telemetry.store_failed("alerts", error)
            return False
        except GestaError as error:
            self._telemetry.alert_failed(self._flow_name, group.reason, error)
            self._sent[name] = window
            return True

    async def _submit(self, payload: Payload, key: str, name: Name, window: int) -> bool:
        options = Options(key, self._tenant, ttl=TTL, source=ALERTING)
        try:
            await self._intake.submit(payload, options)
        except Conflict:
            # Another process has sent it, or this one before a restart, with other occurrences.
            self._sent[name] = window
            return False
        self._sent[name] = window
        return True


def add(groups: dict[Name, Group], one: Group) -> None:
    name = (one.kind, one.flow, one.reason)
    known = groups.get(name)
    if known is None:
        if len(groups) >= GROUPS_MAX:
            return
        known = groups[name] = one
    known.count += 1


def carriers(flows: Mapping[str, Flow]) -> Iterable[str]:
    return sorted(name for name, flow in flows.items() if flow.notices is not None)


class Alerting(LogConsumer):
    """Finds the reasons for alerts in the log. Its checkpoint stays before what was not sent."""

    def __init__(self, alerts: Alerts, log: Log) -> None:
        super().__init__(f"{OWN}alerts", "now", log)
        self._alerts = alerts
        self._groups: dict[Name, Group] = {}
        self._read = 0

    @property
    def next_due_ms(self) -> int | None:
        """When the next window begins, for tests with a manual clock."""
        return (self._alerts.window() + 1) * WINDOW_MS if self._groups else None

    async def step(self) -> int:
        is_fresh = self._position is None
        position = await self._begin()
        if is_fresh:
            self._groups, self._read = {}, position
        batch = await self._events.follow(self._read, BATCH)
        found = [
            (recorded.stream, group)
            for recorded in batch
            if (group := self._look(recorded)) is not None
        ]
        tests = await self._tests({stream for stream, group in found if group.flow})
        for stream, group in found:
            if stream not in tests:
                add(self._groups, group)
        self._read = batch[-1].position if batch else self._read
        await self._alerts.send(self._groups)
        self._delivered = min(
            (group.first - 1 for group in self._groups.values()), default=self._read
        )
        await self._move()
        return len(batch)

    def _look(self, recorded: Recorded) -> Group | None:
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

    async def _tests(self, streams: Collection[str]) -> set[str]:
        """The streams of test requests: they cause no alerts."""
        stored = (
            await self._events.read([(stream, 0) for stream in sorted(streams)]) if streams else []
        )
        return {one.stream for one in stored if one.version == 1 and _is_test(one)}

    def _needs_person(self, recorded: Recorded, meta: e.Meta) -> Group | None:
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
        return Group(
            kind,
            meta.flow,
            self._alerts.label(meta.flow, event.reason),
            meta.tenant,
            meta.request_id,
            recorded.position,
        )

    def _refused(self, recorded: Recorded, meta: e.Meta) -> Group | None:
        if recorded.type != PAUSED:
            return None
        paused = msgspec.json.decode(recorded.data, type=Paused)
        if paused.refusal is None or paused.credential is None:
            return None
        is_missing = paused.refusal.missing or paused.reason.startswith(SECRET_MISSING)
        return Group(
            "config_missing" if is_missing else "credential_refused",
            "",
            paused.credential.partition("/")[0],
            meta.tenant,
            paused.credential,
            recorded.position,
        )


def _is_test(first: Recorded) -> bool:
    try:
        created = event_types(decode_meta(first.meta).flow).decode(first.type, first.data)
    except ValueError:
        return False
    return isinstance(created, e.Created) and created.test
