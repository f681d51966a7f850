"""The numbers, counted in plain integers and made into Prometheus families when somebody asks:
counting is per attempt, asking is not.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

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
    """What one flow did in this process."""

    __slots__ = (
        "attempts",
        "buckets",
        "failed",
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
        self.failed: dict[str, int] = {}
        self.buckets = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self.latency_sum_ms = 0.0
        #: From available to taken, of the job taken last.
        self.lag_ms = 0

    def ended(self, latency_ms: float) -> None:
        self.attempts += 1
        self.latency_sum_ms += latency_ms
        self.buckets[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1


class SubscriptionCounts:
    """What one subscription's handler did in this process."""

    __slots__ = ("failed", "in_a_row", "told")

    def __init__(self) -> None:
        self.told = self.failed = self.in_a_row = 0


#: Counters of each flow: name, help, field of FlowCounts.
_FLOW_COUNTERS = (
    ("executor_attempts", "Attempts that ended", "attempts"),
    ("executor_success", "Attempts that had their effect", "success"),
    ("late_outcomes", "Outcomes that came after the end and changed nothing", "late"),
    ("executor_postponed", "Attempts put off before a call, none spent", "postponed"),
    ("credentials_refused", "Credentials held until they change", "refused"),
    ("provider_reports", "Reports of providers that were new", "reported"),
)


class Metrics(Collector):
    """Every metric of an engine. No tenant and no request in a label."""

    def __init__(self) -> None:
        self._flows: dict[str, FlowCounts] = {}
        self.quarantined: dict[str, int] = {}
        #: Flow, status and reason → requests that became unknown, failed, expired or held. Of
        #: `disabled`, the config kind stands for the flow.
        self.transitions: dict[tuple[str, str, str], int] = {}
        #: Requests that retention has removed.
        self.removed = 0
        #: Flow → how long its oldest ready job had waited when the sweep looked last, which one
        #: process does once a minute.
        self.oldest_ready_ms: dict[str, int] = {}
        #: Flow → its held jobs, as the sweep found them; and since when the oldest refused
        #: credential holds some.
        self.held: dict[str, int] = {}
        self.oldest_refusal_ms = 0
        self._subscriptions: dict[str, SubscriptionCounts] = {}

    def of(self, flow: str) -> FlowCounts:
        counts = self._flows.get(flow)
        if counts is None:
            counts = self._flows[flow] = FlowCounts()
        return counts

    def subscription(self, name: str) -> SubscriptionCounts:
        return self._subscriptions.setdefault(name, SubscriptionCounts())

    def collect(self) -> Iterator[Metric]:
        yield from self._of_flows()
        oldest = GaugeMetricFamily(
            "queue_oldest_ready_ms", "How long the oldest ready job has waited", labels=["queue"]
        )
        for flow, age_ms in self.oldest_ready_ms.items():
            oldest.add_metric([flow], age_ms)
        held = GaugeMetricFamily(
            "queue_held", "Jobs held by a pause or a refused credential", labels=["queue"]
        )
        for flow, count in self.held.items():
            held.add_metric([flow], count)
        quarantined = CounterMetricFamily("parked", "Events and jobs set aside", labels=["what"])
        for what, count in self.quarantined.items():
            quarantined.add_metric([what], count)
        transitions = CounterMetricFamily(
            "gesta_transitions",
            "Requests that became unknown, failed, expired or held; config that was disabled",
            labels=["flow", "status", "reason"],
        )
        for labels, count in self.transitions.items():
            transitions.add_metric(list(labels), count)
        yield transitions
        yield from (oldest, held, quarantined)
        yield GaugeMetricFamily(
            "credential_refused_ms",
            "How long the oldest refused credential has held jobs",
            value=self.oldest_refusal_ms,
        )
        yield CounterMetricFamily(
            "requests_removed", "Old requests that retention has removed", value=self.removed
        )
        yield from self._of_subscriptions()

    def _of_flows(self) -> Iterator[Metric]:
        for name, text, field in _FLOW_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["namespace"])
            for flow, counts in self._flows.items():
                counter.add_metric([flow], getattr(counts, field))
            yield counter
        failed = CounterMetricFamily(
            "executor_failed", "Attempts that did not, by reason", labels=["namespace", "reason"]
        )
        latency = HistogramMetricFamily(
            "executor_latency_ms", "Time in the executor", labels=["namespace"]
        )
        lag = GaugeMetricFamily(
            "queue_lag_ms", "From available to taken, of the job taken last", labels=["queue"]
        )
        for flow, counts in self._flows.items():
            lag.add_metric([flow], counts.lag_ms)
            latency.add_metric([flow], _cumulative(counts.buckets), counts.latency_sum_ms)
            for reason, count in counts.failed.items():
                failed.add_metric([flow, reason], count)
        yield from (failed, latency, lag)

    def _of_subscriptions(self) -> Iterator[Metric]:
        told = CounterMetricFamily(
            "subscription_events", "Events that a handler has taken", labels=["name"]
        )
        failed = CounterMetricFamily(
            "subscription_failures", "Times that a handler raised", labels=["name"]
        )
        stuck = GaugeMetricFamily(
            "subscription_failing",
            "Times in a row that a handler raised for one event",
            labels=["name"],
        )
        for name, counts in self._subscriptions.items():
            told.add_metric([name], counts.told)
            failed.add_metric([name], counts.failed)
            stuck.add_metric([name], counts.in_a_row)
        yield from (told, failed, stuck)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total, rows = 0, []
    for edge, count in zip(
        [*(f"{edge:.1f}" for edge in LATENCY_BUCKETS_MS), "+Inf"], buckets, strict=True
    ):
        total += count
        rows.append((edge, float(total)))
    return rows
