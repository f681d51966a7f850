"""Every metric and log event of an engine.

No label names a tenant or a request; no log line has a secret or an address.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from traceback import extract_tb, format_list
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from gesta.domain.hold_words import hold_words
from gesta.domain.outcome import Done, Outcome, clear_text
from gesta.domain.state import State
from gesta.errors import MissingExtra
from gesta.runtime.metrics import Metrics, StoreGauges, UnknownMoney
from gesta.runtime.redaction import hide, scrub

if TYPE_CHECKING:
    from gesta.flows.flow import Flow
    from gesta.maintenance.queue_alarms import Standing
    from gesta.ports.job_queue import Backlog, Job, LeasedJob
    from gesta.ports.leases import LiveProcess
    from gesta.tenants.pauses import Pause

#: Reasons that may be labels. Free words of providers would create a series each.
REASONS = frozenset(
    {
        "max_attempts_exceeded",
        "timeout",
        "lease_lost",
        "unexpected_error",
        "bad_payload",
        "throttled",
        "refused",
        "dns",
        "tls",
        "reset",
        "connect_timeout",
        "private_address",
        "endpoint_missing",
        "endpoint_disabled",
        "endpoint_gone",
        "secret_missing",
        "redirect_refused",
        "request_not_found",
        "bad_answer",
        "expired",
        "cancelled",
        "stopping",
        "unreachable",
        "unsendable",
        "plain_http",
        "too_large",
        "secret_invalid",
        "subject_erased",
        "key_missing",
        "vault_unavailable",
        "no_report",
        "template_missing",
        "template_render_failed",
        "renderer_unavailable",
    }
)


#: Names that log lines use themselves. A flow's tag of the same name would be an argument given
#: twice, so it is left out.
OWN_NAMES = frozenset(
    {
        "event",
        "level",
        "timestamp",
        "exc_info",
        "stack_info",
        "gateway",
        "target",
        "attempts",
        "latencyMs",
        "outcome",
        "reason",
        "detail",
        "error",
        "credential",
        "traceback",
    }
)
#: Innermost calls of a traceback that are logged.
FRAMES_MAX = 20


def reason_label(reason: str, own: frozenset[str] = frozenset()) -> str:
    """A known reason or one of the flow's own; else the class of an HTTP status, or `other`."""
    if reason in REASONS or reason in own:
        return reason
    return f"{reason[:6]}xx" if reason.startswith("http_") and reason[5:6].isdigit() else "other"


def _scrub_values(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {
        name: (
            "\n".join(map(scrub, value.splitlines()))
            if name == "traceback"
            else scrub(value)
            if isinstance(value, str)
            else value
        )
        for name, value in event.items()
    }


def _render(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=repr).decode()
    except ValueError:
        # Half a surrogate pair, for instance. Logging must not fail the work.
        return json.dumps(event, default=repr)


def logger() -> Any:
    """JSON lines through the standard logger `gesta`, each value redacted."""
    return structlog.wrap_logger(
        logging.getLogger("gesta"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _scrub_values,
            _render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class LogContext:
    """What every log line about one attempt carries. Built only when a line is written.

    `personal`: the personal texts of the payload, which are hidden in what the flow says of it.
    """

    __slots__ = ("_correlation_id", "_leased", "_payload", "_personal", "flow")

    def __init__(
        self,
        flow: Flow,
        leased: LeasedJob,
        payload: object,
        *,
        correlation_id: str,
        personal: Sequence[str],
    ) -> None:
        self.flow, self._leased, self._payload = flow, leased, payload
        self._correlation_id, self._personal = correlation_id, personal

    @property
    def target(self) -> str:
        """The masked target.

        The flow's own function makes it and may raise; a log line is not worth an attempt.
        """
        if self.flow.target is None or self._payload is None:
            return ""
        try:
            return hide(str(self.flow.target(self._payload)), self._personal)
        except Exception as error:  # noqa: BLE001 -- see above
            return f"[{type(error).__name__}]"

    @property
    def gateway(self) -> str:
        """The code of what the request goes through: an endpoint or a payment gateway."""
        if not self.flow.config:
            return ""
        return getattr(self._payload, "gateway", "") or getattr(self._payload, "endpoint", "")

    def traceback(self, error: BaseException) -> str:
        """Where an executor raised, innermost call last.

        Messages of exceptions are left out where the payload is personal.
        """
        return traceback_of(error, messages=not self._personal)

    def tags(self) -> dict[str, str]:
        job = self._leased.job
        return {
            **self._own(),
            "tenant": job.tenant,
            "requestId": job.request_id,
            "jobId": job.id,
            "namespace": self.flow.name,
            "correlationId": self._correlation_id,
        }

    def _own(self) -> Mapping[str, str]:
        """Tags from the flow's own function. If that raises, the attempt goes on."""
        if self.flow.tags is None or self._payload is None:
            return {}
        try:
            own = self.flow.tags(self._payload, self._leased.job.request_id)
            return {
                name: hide(value, self._personal) if isinstance(value, str) else value
                for name, value in own.items()
                if name not in OWN_NAMES
            }
        except Exception as error:  # noqa: BLE001 -- see above
            return {"tags": f"[{type(error).__name__}]"}


class StructuredHandler(logging.Handler):
    """Writes the lines of another library's logger as lines of ours, redacted."""

    def __init__(self) -> None:
        super().__init__()
        self._log = logger()

    def emit(self, record: logging.LogRecord) -> None:
        values: dict[str, str] = {"logger": record.name}
        if record.exc_info is not None and record.exc_info[1] is not None:
            values["traceback"] = traceback_of(record.exc_info[1])
        self._log.log(record.levelno, record.getMessage(), **values)


def structure(*names: str) -> None:
    """Log what these libraries log as structured lines of our own."""
    for name in names:
        library = logging.getLogger(name)
        library.handlers[:] = [StructuredHandler()]
        library.propagate = False


def traceback_of(error: BaseException, *, messages: bool = True) -> str:
    """Where an error was raised, innermost call last, with the errors that led to it."""
    lines: list[str] = []
    for one in reversed(_chain(error)):
        lines += format_list(extract_tb(one.__traceback__)[-FRAMES_MAX:])
        lines.append(f"{type(one).__name__}{f': {one}' if messages else ''}\n")
    return "".join(lines)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and those that led to it, newest first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found and len(found) < 5:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def _given(**fields: str) -> dict[str, str]:
    """The fields that have a value: an empty one says nothing in a log."""
    return {name: value for name, value in fields.items() if value}


class Telemetry:
    """The metrics and the log of one engine."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)
        self.log = logger()
        #: Called for what needs a person and causes no event: kind, reason, example.
        self.alarm: Callable[[str, str, str], None] | None = None
        self._is_verbose = logging.getLogger("gesta").isEnabledFor

    def leased(self, leased: Iterable[LeasedJob], now_ms: int) -> None:
        """Jobs of one lease call, the last one last."""
        for flow, one in {one.job.flow: one for one in leased}.items():
            self.metrics.of(flow).lag_ms = max(0, now_ms - one.available_ms)

    def attempt_ended(self, flow: Flow, outcome: Outcome, latency_ms: float) -> bool:
        """Count an attempt; returns whether to log it.

        A success is logged at level debug only: the line would cost more than the work.
        """
        counts = self.metrics.of(flow.name)
        counts.ended(latency_ms)
        if isinstance(outcome, Done):
            counts.success += 1
            return self._is_verbose(logging.DEBUG)
        label = reason_label(outcome.reason, flow.reasons)
        counts.failed[label] = counts.failed.get(label, 0) + 1
        return True

    def log_attempt(
        self,
        line: LogContext,
        outcome: Outcome,
        *,
        attempts: int,
        latency_ms: float,
    ) -> None:
        reason = "" if isinstance(outcome, Done) else outcome.reason
        tell = (
            self.log.debug
            if isinstance(outcome, Done)
            else self.log.error
            if reason in line.flow.alarms
            else self.log.info
        )
        tell(
            "attempt",
            **line.tags(),
            gateway=line.gateway,
            target=line.target,
            attempts=attempts,
            latencyMs=round(latency_ms, 1),
            outcome=type(outcome).__name__,
            **_given(reason=reason, detail=clear_text(outcome.detail)),
        )

    def status_changed(
        self, before: State, after: State, tags: Callable[[], Mapping[str, str]] | None
    ) -> None:
        """Count and log a request that is held, that came into a status other than success, or that
        only a person can move on now. `tags`: those of the attempt, if there was one.
        """
        what, status, reason = f"request {after.status}", after.status, after.reason
        if after.held != before.held:
            if not after.held:
                return
            what, status, reason = "request held", "held", after.held
        if status != before.status:
            self._count(after.flow, status, reason)
        elif after.waits_for_a_person == before.waits_for_a_person:
            return
        if status == "unknown":
            what = "a person has to decide" if after.waits_for_a_person else "outcome unknown"
        if what == "request held":
            reason = hold_words(reason)
        own = {
            "tenant": after.tenant,
            "requestId": after.id,
            "namespace": after.flow,
            "correlationId": after.correlation_id,
        }
        self.log.warning(
            what,
            **own | ({} if tags is None else dict(tags())),
            attempts=after.attempts,
            **_given(reason=reason, detail=clear_text(after.detail)),
        )

    def disabled(self, tenant: str, kind: str, code: str, reason: str) -> None:
        """The engine has disabled an entity of a tenant's config."""
        self._count(kind, "disabled", "")
        self.log.warning("config disabled", tenant=tenant, config=f"{kind}/{code}", reason=reason)

    def _count(self, flow: str, status: str, reason: str) -> None:
        label = (flow, status, reason_label(reason))
        self.metrics.transitions[label] = self.metrics.transitions.get(label, 0) + 1

    def executor_raised(self, line: LogContext, detail: str, error: BaseException | None) -> None:
        """`error`: what it raised; None where it returned something that is not an outcome."""
        raised = {} if error is None else {"traceback": line.traceback(error)}
        name = "" if error is None else type(error).__name__
        self.log.error("executor raised", **line.tags(), error=detail or name, **raised)

    def executor_does_not_end(self, line: LogContext) -> None:
        self.log.error("executor does not end", **line.tags())

    def late_outcome(self, line: LogContext, flow: str) -> None:
        self.metrics.of(flow).late += 1
        self.log.warning("late outcome ignored", **line.tags())

    def not_reported(self, flow: str, job: Job) -> None:
        """The lease of an external worker ended without a report."""
        counts = self.metrics.of(flow)
        counts.failed["no_report"] = counts.failed.get("no_report", 0) + 1
        self.log.warning(
            "no report", tenant=job.tenant, requestId=job.request_id, jobId=job.id, namespace=flow
        )

    def quarantined(self, what: str, name: str, version: int, error: Exception) -> None:
        self.metrics.quarantined[what] = self.metrics.quarantined.get(what, 0) + 1
        if self.alarm is not None:
            self.alarm("quarantined", what, name)
        self.log.error(
            "quarantined",
            what=what,
            name=name,
            version=version,
            error=f"{type(error).__name__}: {error}",
        )

    def postponed(self, flow: str) -> None:
        self.metrics.of(flow).postponed += 1

    def credential_refused(self, line: LogContext, flow: str, credential: str, reason: str) -> None:
        self.metrics.of(flow).refused += 1
        self.log.warning(
            "credential refused; requests that use it are held until it changes",
            **line.tags(),
            credential=credential,
            reason=reason,
        )

    def config_missing(self, line: LogContext, flow: str, config: str, reason: str) -> None:
        self.metrics.of(flow).refused += 1
        self.log.warning(
            "config missing; requests that use it are held until it is stored",
            **line.tags(),
            config=config,
            reason=reason,
        )

    def store_seen(
        self,
        *,
        backlog: Mapping[str, Backlog],
        unsettled: Mapping[tuple[str, str], int],
        processes: Iterable[LiveProcess],
        pauses: Iterable[Pause],
        unknown_money: Mapping[tuple[str, str], UnknownMoney],
        now_ms: int,
    ) -> None:
        """The store as the sweeper sees it. A value that is gone shows 0, so that an alert ends."""
        before = self.metrics.store or StoreGauges()
        refused_since = [pause.since_ms for pause in pauses if pause.refusal is not None]
        self.metrics.store = StoreGauges(
            {flow: type(one)() for flow, one in before.backlog.items()} | dict(backlog),
            dict.fromkeys(before.unsettled, 0) | dict(unsettled),
            dict.fromkeys(before.processes, 0)
            | Counter(role for process in processes for role in process.roles),
            dict.fromkeys(before.unknown_money, UnknownMoney()) | dict(unknown_money),
            (now_ms - min(refused_since, default=now_ms)) / 1000,
            now_ms,
        )

    def store_unseen(self) -> None:
        """Another process sweeps: old values here would keep an alert from ending."""
        self.metrics.store = None
        self.metrics.queue_alarms.clear()

    def queues_seen(self, alarms: Iterable[Standing]) -> None:
        """The alarms about queues as the sweeper sees them."""
        for one in alarms:
            self.metrics.queue_alarms[one.flow, one.alarm] = int(one.is_raised)
            if one.is_raised and one.alerts and self.alarm is not None:
                value, limit = round(one.value), round(one.limit)
                self.alarm(f"queue_{one.alarm}", one.flow, f"{value} (limit {limit})")

    def not_executed(self, flow: str, jobs: int) -> None:
        """No worker executes a flow that this process does not declare."""
        self.log.warning(
            "jobs wait: no worker executes their flow, and this process does not declare it",
            namespace=flow,
            jobs=jobs,
            remedy="gesta worker --app MODULE:NAME, with the program that declares it",
        )

    def alert_failed(self, flow: str, reason: str, error: Exception) -> None:
        self.log.error("alert cannot be sent", namespace=flow, reason=reason, error=str(error))

    def moved(self, flow: str, counter: str) -> None:
        """Money moved, and it is on record."""
        counts = self.metrics.moved
        counts[counter, flow] = counts.get((counter, flow), 0) + 1

    def reported(self, flow: str, count: int) -> None:
        self.metrics.of(flow).reported += count

    def job_adopted(self, flow: str, verdict: str) -> None:
        """A job of another program led to a request: `created` now, or a `duplicate`."""
        if verdict == "created":
            self.metrics.of(flow).adopted += 1

    def enriched_job(self, flow: str) -> None:
        self.metrics.of(flow).enriched += 1

    def job_refused(self, flow: str, job_id: str, error: str) -> None:
        self.metrics.of(flow).jobs_refused += 1
        self.log.warning(
            "job of another program refused", jobId=job_id, namespace=flow, error=error
        )

    def job_not_adopted(self, flow: str, job_id: str, error: Exception) -> None:
        self.log.error(
            "job of another program put back",
            jobId=job_id,
            namespace=flow,
            error=f"{type(error).__name__}: {error}",
        )

    def inbound(self, source: str, verdict: str) -> None:
        """Count an inbound event by what became of it: a word of a closed set."""
        counts, name = self.metrics.inbound, (source.removeprefix("inbound."), verdict)
        counts[name] = counts.get(name, 0) + 1

    def removed(self, count: int) -> None:
        self.metrics.removed += count
        if count:
            self.log.info("old requests removed", count=count)

    def not_drained(self, request_id: str, flow: str, error: Exception) -> None:
        self.log.error(
            "request stays in the outbox",
            requestId=request_id,
            namespace=flow,
            error=f"{type(error).__name__}: {error}",
        )

    def handled(self, name: str, count: int = 1) -> None:
        counts = self.metrics.subscription(name)
        counts.handled, counts.in_a_row = counts.handled + count, 0

    def not_delivered(self, name: str, stream: str, version: int, error: Exception) -> None:
        self.log.error(
            "event cannot be delivered",
            subscription=name,
            name=stream,
            version=version,
            error=f"{type(error).__name__}: {error}",
        )

    def handler_failed(
        self, name: str, request_id: str, error: str, in_a_row: int, pause_seconds: float
    ) -> None:
        counts = self.metrics.subscription(name)
        counts.failed, counts.in_a_row = counts.failed + 1, in_a_row
        self.log.error(
            "handler raised; the same event is delivered again",
            subscription=name,
            requestId=request_id,
            error=error,
            failures=in_a_row,
            pauseSeconds=pause_seconds,
        )

    def store_failed(self, component: str, error: Exception) -> None:
        self.log.error("store failed, trying again", component=component, error=str(error))

    def chore_failed(self, chore: str, error: Exception) -> None:
        counts = self.metrics.chores_failed
        counts[chore,] = counts.get((chore,), 0) + 1
        text = f"{type(error).__name__}: {error}"
        self.log.error("chore failed, trying again", chore=chore, error=text)

    def channel_left_out(self, missing: MissingExtra) -> None:
        self.log.info("channel left out", namespace=missing.name, error=str(missing))

    def crashed(self, component: str, error: BaseException) -> None:
        if self.alarm is not None:
            self.alarm("crashed", component, "")
        self.log.critical(
            "component crashed, starting it again",
            component=component,
            error=f"{type(error).__name__}: {error}",
        )
