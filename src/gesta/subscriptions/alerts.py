"""Beside the road: whoever runs gesta is told what needs a person, at most once for each reason and
window, by a request on the road itself.

Receives events from the event store, and what this process meets itself; hands a message to intake
for the `alerts_to` of the settings:
requests that failed for good, doubts that only a person can end, refused credentials, events and
jobs set aside, stations that crash.
The key of a message is its reason and its window, so several processes, and one that was started
again, say it once. What becomes of
alerts makes no alert: it is logged, like every request that fails.

What refuses requests (too much waiting, a disk that is nearly full) refuses alerts, too: for that
there are readiness and metrics.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from gesta.domain import events as e
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.status_events import ALERTING
from gesta.errors import Conflict, GestaError, Overloaded, StoreError
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

#: One message for each reason in so long.
WINDOW_MS = 300_000
#: An alert that has waited for a day is no news any more.
TTL = timedelta(days=1)
FLUSH_SECONDS = 1.0
#: Kinds are few and reasons a closed set, so this is only ever reached by a fault of ours.
GROUPS_MAX = 1_000

#: Kind → what is so, and what to do.
SENTENCES: Mapping[str, tuple[str, str]] = {
    "dead_letter": (
        "{count} requests of {flow} failed for good: {reason}",
        "gesta dlq show {example}",
    ),
    "undecided": (
        "{count} requests of {flow} wait for a person's word: {reason}",
        "gesta resolve {example}",
    ),
    "credential_refused": (
        "a provider refuses {count} of {reason}; what uses them is held",
        "put {example} again: gesta config put",
    ),
    "parked": (
        "{count} things could not be processed ({reason}) and were set aside",
        "gesta list --quarantined; {example}",
    ),
    "crashed": (
        "the station {reason} crashed {count} times and is started again",
        "see the log of {example}",
    ),
}


class Group(msgspec.Struct):
    """What is to be said about one reason."""

    kind: str
    flow: str
    reason: str
    tenant: str
    example: str
    #: Where the first of them stands in the log.
    first: int = 0
    count: int = 0

    def notice(self, key: str) -> Notice:
        so, advice = SENTENCES[self.kind]
        data = msgspec.to_builtins(self)
        del data["first"]
        title = so.format(**data)
        whose = f" Tenant {self.tenant}." if self.tenant else ""
        return Notice(
            key,
            title,
            f"gesta: {title}.{whose} For instance {self.example}: {advice.format(**data)}",
            data,
        )


#: Kind, flow, reason.
Name = tuple[str, str, str]


@dataclass(frozen=True)
class AlertDestination:
    """Who hears of alerts: `flow:address`, and the tenant whose config and templates are used."""

    to: str
    tenant: str


class Alerts:
    """Says it, and remembers in which window it said what."""

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
        self._said: dict[Name, int] = {}
        #: What this process has met itself.
        self._own: dict[Name, Group] = {}

    @property
    def can_be_sent(self) -> bool:
        return self._flow is not None and self._flow.notices is not None

    async def fault(self) -> str:
        """Why nobody would hear of anything; empty when somebody would."""
        if self._flow is None:
            return f"this process has no flow {self._flow_name}"
        if self._flow.notices is None:
            return (
                f"{self._flow_name} cannot carry alerts; flows that can:"
                f" {', '.join(carriers(self._flows)) or 'none'}"
            )
        await self._config.refresh(self._tenant)
        return self._flow.notices.fault(self._destination, self._config.of(self._tenant))

    def window(self) -> int:
        return self._runtime.now_ms() // WINDOW_MS

    def label(self, flow: str, reason: str) -> str:
        """A reason from a closed set: others would be a message each."""
        declared = self._flows.get(flow)
        return reason_label(reason, frozenset() if declared is None else declared.reasons)

    def met(self, kind: str, reason: str, example: str) -> None:
        """Something in this process that no event tells of."""
        add(self._own, Group(kind, "", reason, "", example or self._process.owner))

    async def run(self) -> None:
        """Say what this process has met itself, for ever."""
        await repeat(self._flush, "alerts", self._process)

    async def _flush(self) -> None:
        await self.say(self._own)
        await sleep(self._runtime, FLUSH_SECONDS)

    async def say(self, groups: dict[Name, Group]) -> None:
        """Say what may be said in this window, and take it out of the groups.

        The rest is said in a later one.
        """
        window = self.window()
        for name, group in list(groups.items()):
            if self._said.get(name) == window:
                continue
            if await self._send(name, group, window):
                groups.pop(name, None)
        self._said = {name: said for name, said in self._said.items() if said == window}

    async def _send(self, name: Name, group: Group, window: int) -> bool:
        assert self._flow is not None
        assert self._flow.notices is not None
        key = f"alert/{'/'.join(name)}/{window}"
        try:
            payload = self._flow.notices.write(self._destination, group.notice(key))
            return await self._submit(payload, key, name, window)
        except (StoreError, Overloaded) as error:
            # Kept, and said as soon as it can be.
            self._telemetry.store_failed("alerts", error)
            return False
        except GestaError as error:
            self._telemetry.alert_failed(self._flow_name, group.reason, error)
            self._said[name] = window
            return True

    async def _submit(self, payload: Payload, key: str, name: Name, window: int) -> bool:
        options = Options(key, self._tenant, ttl=TTL, source=ALERTING)
        try:
            await self._intake.submit(payload, options)
        except Conflict:
            # Another process has said it, or this one before it was started again, of others.
            self._said[name] = window
            return False
        self._said[name] = window
        return True


def add(groups: dict[Name, Group], one: Group) -> None:
    """Count it among its like."""
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
    """Reads what needs a person from the log.

    Its checkpoint stays before what has not been said yet.
    """

    def __init__(self, alerts: Alerts, log: Log) -> None:
        super().__init__(f"{OWN}alerts", "now", log)
        self._alerts = alerts
        self._groups: dict[Name, Group] = {}
        self._read = 0

    @property
    def next_due_ms(self) -> int | None:
        """When what waits for the next window is said, for tests that own the clock."""
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
        await self._alerts.say(self._groups)
        self._told = min((group.first - 1 for group in self._groups.values()), default=self._read)
        await self._move()
        return len(batch)

    def _look(self, recorded: Recorded) -> Group | None:
        try:
            meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
            return (
                self._refused(recorded, meta)
                if meta.flow == CONFIG
                else self._given_up(recorded, meta)
            )
        except ValueError:
            # The projector meets it, too, and sets it aside.
            return None

    async def _tests(self, streams: Collection[str]) -> set[str]:
        """Those of tests: nobody out there is called because of what happened in the sandbox."""
        stored = (
            await self._events.read([(stream, 0) for stream in sorted(streams)]) if streams else []
        )
        return {one.stream for one in stored if one.version == 1 and _is_test(one)}

    def _given_up(self, recorded: Recorded, meta: e.Meta) -> Group | None:
        if meta.source == ALERTING:
            return None
        known = recorded.known
        event = (
            event_types(meta.flow).decode(recorded.type, recorded.data)
            if known is None
            else known.event
        )
        if isinstance(event, e.Failed):
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
        kind = paused.credential.partition("/")[0]
        return Group(
            "credential_refused", "", kind, meta.tenant, paused.credential, recorded.position
        )


def _is_test(first: Recorded) -> bool:
    try:
        created = event_types(decode_meta(first.meta).flow).decode(first.type, first.data)
    except ValueError:
        return False
    return isinstance(created, e.Created) and created.test
