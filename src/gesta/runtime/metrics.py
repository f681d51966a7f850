"""Every metric: counted in plain integers, made into Prometheus families when it is read.

Counting happens per attempt and must be cheap; reading does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from gesta.ports.job_queue import Backlog

LATENCY_BUCKETS_MS = (
    1,
    2,
    5,
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    30_000,
    60_000,
)


class FlowCounts:
    __slots__ = (
        "adopted",
        "attempts",
        "buckets",
        "enriched",
        "failed",
        "jobs_refused",
        "lag_ms",
        "late",
        "latency_sum_ms",
        "postponed",
        "refused",
        "reported",
        "success",
    )

    def __init__(self) -> None:
        self.attempts = self.success = self.late = self.postponed = self.refused = self.reported = 0
        self.adopted = self.enriched = self.jobs_refused = 0
        self.failed: dict[str, int] = {}
        self.buckets = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self.latency_sum_ms = 0.0
        #: Time from due to leased, of the job that was leased last.
        self.lag_ms = 0

    def ended(self, latency_ms: float) -> None:
        self.attempts += 1
        self.latency_sum_ms += latency_ms
        self.buckets[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1


class _CountsOfFlows(dict[str, FlowCounts]):
    def __missing__(self, flow: str) -> FlowCounts:
        counts = self[flow] = FlowCounts()
        return counts


class SubscriptionCounts:
    __slots__ = ("failed", "handled", "in_a_row")

    def __init__(self) -> None:
        self.handled = self.failed = self.in_a_row = 0


#: Counters of each flow: name, help, field of FlowCounts. The first two are named by the contract
#: (R1-46) and call the flow `namespace`.
_CONTRACT_COUNTERS = (
    ("executor_attempts", "Attempts that ended", "attempts"),
    ("executor_success", "Attempts that succeeded", "success"),
    ("enriched_jobs", "Jobs that contained more than a pointer", "enriched"),
)
_FLOW_COUNTERS = (
    (
        "gesta_late_outcomes",
        "Outcomes that arrived after the end and changed nothing",
        "late",
    ),
    (
        "gesta_attempts_postponed",
        "Attempts postponed before a call; they do not count",
        "postponed",
    ),
    ("gesta_credentials_refused", "Credentials held until they change", "refused"),
    ("gesta_delivery_receipts", "New delivery receipts of providers", "reported"),
    ("gesta_jobs_adopted", "Requests that were made from jobs of other programs", "adopted"),
    ("gesta_jobs_refused", "Jobs of other programs that were refused", "jobs_refused"),
)


class UnknownMoney(msgspec.Struct, frozen=True, gc=False):
    """Transactions of one flow and currency whose outcome is unknown."""

    count: int = 0
    #: In the currency's own unit, e.g. euros.
    amount: Decimal = Decimal(0)
    #: Time since the first call of the oldest one.
    oldest_seconds: float = 0.0


class StoreGauges(msgspec.Struct, frozen=True, gc=False):
    """The store as the sweeper saw it last, which one process does once a minute."""

    backlog: Mapping[str, Backlog] = {}
    #: (flow, status) → requests that are unknown, or failed and not purged.
    unsettled: Mapping[tuple[str, str], int] = {}
    #: Role → live processes that run it.
    processes: Mapping[str, int] = {}
    #: (flow, currency) → transactions whose outcome is unknown.
    unknown_money: Mapping[tuple[str, str], UnknownMoney] = {}
    #: How long the oldest refused credential has held jobs.
    refused_seconds: float = 0.0
    now_ms: int = 0


class Metrics(Collector):
    """Every metric of an engine. No tenant and no request in a label."""

    def __init__(self) -> None:
        self._flows = _CountsOfFlows()
        #: The counts of a flow; asked for each attempt, so it is the look-up itself.
        self.of = self._flows.__getitem__
        self._subscriptions: dict[str, SubscriptionCounts] = {}
        #: (flow, status, reason) → requests that came into the status.
        self.transitions: dict[tuple[str, str, str], int] = {}
        self.quarantined: dict[str, int] = {}
        #: (name of the counter, flow) → movements of money.
        self.moved: dict[tuple[str, str], int] = {}
        #: (source, verdict) → inbound events, refused ones included.
        self.inbound: dict[tuple[str, str], int] = {}
        #: (chore of the sweeper,) → how often it failed.
        self.chores_failed: dict[tuple[str], int] = {}
        #: Requests that retention has removed.
        self.removed = 0
        #: (flow, alarm) → 1 while it is raised.
        self.queue_alarms: dict[tuple[str, str], int] = {}
        #: None in a process that does not run the sweeper.
        self.store: StoreGauges | None = None

    def subscription(self, name: str) -> SubscriptionCounts:
        return self._subscriptions.setdefault(name, SubscriptionCounts())

    def collect(self) -> Iterator[Metric]:
        yield from self._contract()
        for name, text, field in _FLOW_COUNTERS:
            counts = {(flow,): getattr(one, field) for flow, one in self._flows.items()}
            yield _family(CounterMetricFamily, name, text, ["flow"], counts)
        yield _family(
            CounterMetricFamily,
            "gesta_requests",
            "Requests that reached a status other than success",
            ["flow", "status", "reason"],
            self.transitions,
        )
        yield _family(
            CounterMetricFamily,
            "gesta_quarantined",
            "Events and jobs that could not be processed",
            ["what"],
            {(what,): count for what, count in self.quarantined.items()},
        )
        yield _family(
            CounterMetricFamily,
            "gesta_inbound_events",
            "Inbound events by result",
            ["source", "verdict"],
            self.inbound,
        )
        yield _family(
            CounterMetricFamily,
            "gesta_chores_failed",
            "Chores of the sweeper that failed and are tried again",
            ["chore"],
            self.chores_failed,
        )
        yield CounterMetricFamily(
            "gesta_requests_removed", "Old requests that retention removed", value=self.removed
        )
        yield _family(
            GaugeMetricFamily,
            "gesta_queue_alarm",
            "1 while the queue of a flow needs a person",
            ["flow", "alarm"],
            self.queue_alarms,
        )
        if self.store is not None:
            yield from _of_store(self.store)
        yield from self._of_subscriptions()

    def _contract(self) -> Iterator[Metric]:
        """The metrics whose names and units are fixed: R1-46."""
        for name, text, field in _CONTRACT_COUNTERS:
            counts = {(flow,): getattr(one, field) for flow, one in self._flows.items()}
            yield _family(CounterMetricFamily, name, text, ["namespace"], counts)
        yield _family(
            CounterMetricFamily,
            "executor_failed",
            "Attempts that failed or have an unknown outcome, by reason",
            ["namespace", "reason"],
            {
                (flow, reason): count
                for flow, counts in self._flows.items()
                for reason, count in counts.failed.items()
            },
        )
        for name in ("authorized", "captured", "reversed"):
            yield _family(
                CounterMetricFamily,
                name,
                f"Movements of money: {name}",
                ["namespace"],
                {(flow,): count for (of, flow), count in self.moved.items() if of == name},
            )
        latency = HistogramMetricFamily(
            "executor_latency_ms", "Time in the executor", labels=["namespace"]
        )
        for flow, one in self._flows.items():
            latency.add_metric([flow], _cumulative(one.buckets), one.latency_sum_ms)
        yield latency
        yield _family(
            GaugeMetricFamily,
            "queue_lag_ms",
            "Time from due to leased, of the job that was leased last",
            ["queue"],
            {(flow,): counts.lag_ms for flow, counts in self._flows.items()},
        )

    def _of_subscriptions(self) -> Iterator[Metric]:
        for kind, name, text, field in (
            (CounterMetricFamily, "events", "Events that a handler has processed", "handled"),
            (CounterMetricFamily, "failures", "Times that a handler raised", "failed"),
            (
                GaugeMetricFamily,
                "failing",
                "Consecutive times that a handler raised for one event",
                "in_a_row",
            ),
        ):
            counts = {(one,): getattr(of, field) for one, of in self._subscriptions.items()}
            yield _family(kind, f"gesta_subscription_{name}", text, ["subscription"], counts)


def _of_store(store: StoreGauges) -> Iterator[Metric]:
    depth: dict[tuple[str, str], float] = {}
    oldest: dict[tuple[str], float] = {}
    for flow, one in store.backlog.items():
        # A flow without jobs shows 0, so that an alert ends.
        depth |= {
            (flow, "waiting"): one.waiting,
            (flow, "ready"): one.ready,
            (flow, "leased"): one.leased,
            (flow, "held"): one.held,
        }
        oldest[(flow,)] = (store.now_ms - (one.oldest_ready_ms or store.now_ms)) / 1000
    flows = {*store.backlog, *(flow for flow, _ in store.unsettled)}
    for name, text, labels, values in (
        ("gesta_queue_depth", "Live jobs", ["flow", "status"], depth),
        (
            "gesta_queue_oldest_ready_seconds",
            "How long the oldest ready job has waited",
            ["flow"],
            oldest,
        ),
        (
            "gesta_held",
            "Jobs held by a pause, a credential or missing config",
            ["flow"],
            {(flow,): one.held for flow, one in store.backlog.items()},
        ),
        (
            "gesta_unknown",
            "Requests whose outcome is unknown",
            ["flow"],
            {(flow,): store.unsettled.get((flow, "unknown"), 0) for flow in flows},
        ),
        (
            "gesta_dead_letters",
            "Requests that failed permanently and were not purged",
            ["flow"],
            {(flow,): store.unsettled.get((flow, "failed"), 0) for flow in flows},
        ),
        (
            "gesta_processes",
            "Live processes",
            ["role"],
            {(role,): count for role, count in store.processes.items()},
        ),
        (
            "gesta_credential_refused_seconds",
            "How long the oldest refused credential has held jobs",
            [],
            {(): store.refused_seconds},
        ),
    ):
        yield _family(GaugeMetricFamily, name, text, labels, values)
    yield from _of_unknown_money(store.unknown_money)


def _of_unknown_money(found: Mapping[tuple[str, str], UnknownMoney]) -> Iterator[Metric]:
    for name, text, field in (
        ("transactions", "Transactions whose outcome is unknown", "count"),
        (
            "amount",
            "Money that they may have moved, in units of the currency",
            "amount",
        ),
        (
            "oldest_seconds",
            "Time since the first call of the oldest one",
            "oldest_seconds",
        ),
    ):
        values = {labels: float(getattr(one, field)) for labels, one in found.items()}
        yield _family(
            GaugeMetricFamily, f"gesta_unknown_{name}", text, ["flow", "currency"], values
        )


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[Any, float],
) -> Metric:
    family = kind(name, text, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total, rows = 0, []
    for edge, count in zip(
        [*(f"{edge:.1f}" for edge in LATENCY_BUCKETS_MS), "+Inf"], buckets, strict=True
    ):
        total += count
        rows.append((edge, float(total)))
    return rows
