"""Turns facts about a store into findings: what is the status of each part, what to do. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gesta.admin.doctor.explain import (
    OTHER_WORDS,
    how_to_change,
    how_to_put,
    how_to_resume,
    no_worker_executes,
)
from gesta.admin.wording import (
    HERE,
    Target,
    ago,
    count_of,
    moment,
    options,
    owner_name,
    process_name,
    size,
    span,
    verb,
)
from gesta.domain.hold_words import hold_words
from gesta.domain.ids import (
    FLOW,
    TENANT,
    external_queue_of,
    flow_of_external_queue,
    job_id,
    own_job_id,
)
from gesta.domain.state import State
from gesta.domain.stream_names import checkpoint_of
from gesta.flows.deferrals import SECRET_MISSING
from gesta.maintenance.queue_alarms import UNSERVED_MS, Standing, inbound_standings
from gesta.maintenance.schedules import CHECKPOINT as SCHEDULE
from gesta.maintenance.schedules import ROLE as SCHEDULES
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.boundary_queue import BoundaryCounts
from gesta.ports.checkpoints import Checkpoint
from gesta.ports.job_queue import Backlog, Job, QueueStanding, by_flow
from gesta.ports.leases import LiveProcess, RoleLease
from gesta.ports.outbox import OutboxStanding
from gesta.ports.read_model import Quarantined
from gesta.ports.stores import Health
from gesta.projector.partitions import CHECKPOINT, checkpoints_of
from gesta.runtime.metrics import UnknownMoney
from gesta.runtime.redaction import scrub
from gesta.subscriptions.log_consumer import OWN
from gesta.tenants.pauses import Pause

Level = Literal["ok", "warn", "bad"]

SUBSCRIPTION = checkpoint_of("")
#: Alerts wait in the log while they cannot be sent.
ALERTS = checkpoint_of(f"{OWN}alerts")
MIB = 1024 * 1024
#: Something that should happen immediately is a warning after the first, an error after the second.
SLOW_MS, STUCK_MS = 60_000, 600_000
LAG_MS = 10_000
FREE_LOW, FREE_OUT = 1024 * MIB, 100 * MIB
#: A write-ahead log grows to this size when a process reads for hours.
LOG_LARGE = 1024 * MIB
BEHIND = 10_000
#: Milliseconds. A transaction that is unknown for longer was not found by the first look-ups.
UNKNOWN_OLD_MS = 3_600_000


_ADD_WORKERS = "all slots are busy: add slots or start more processes"
_CHECK_EXTERNAL_WORKERS = (
    "external workers execute this flow and have not leased it: check that they run, with a key of"
    " the right tenant"
)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    level: Level
    about: str
    status: str
    action: str = ""


class Facts(msgspec.Struct, frozen=True):
    """The store as it is now."""

    now_ms: int
    store: str
    #: Part of the store → its database; empty: all are in the store itself.
    databases: Mapping[str, str]
    key_from: str
    health: Health | None
    roles: Sequence[RoleLease]
    checkpoints: Sequence[Checkpoint]
    #: The newest position; how many events are not projected (up to a limit), and since when.
    end: int
    unseen: int
    unseen_since_ms: int | None
    backlog: Mapping[str, Backlog]
    quarantined: Sequence[Quarantined]
    undecided: int
    undecided_since_ms: int | None
    dead_letters: int
    #: Settings that look wrong.
    odd_settings: Sequence[str]
    #: Flow → requests that are due later than the queue holds jobs, up to a limit.
    later: Mapping[str, int] = {}
    #: Requests of callers' transactions that are not in the event store yet.
    outbox: Sequence[OutboxStanding] = ()
    #: The pauses of all tenants together, of this tenant and of tenants with held jobs.
    pauses: Sequence[Pause] = ()
    #: Flow → jobs that the broker has moved to its dead-letter queue.
    moved_jobs: Mapping[str, int] = {}
    #: The queue that inbound events pass through, if there is one.
    boundary: BoundaryCounts | None = None
    #: Dead letters and event webhooks are those of this tenant; the rest is about all tenants.
    tenant: str = "default"
    #: Partitions of the log for projectors.
    partitions: int = 1
    #: Where alerts go, and why they cannot be sent.
    alerts_to: str = ""
    alerts_error: str = ""
    #: What to change in the program or its settings; empty: store what is missing.
    alerts_remedy: str = ""
    #: The newest alert that failed or expired; None: later ones were sent.
    failed_alert: State | None = None
    #: Code of a `webhook.subscription` → why it sends nothing; empty: it works.
    event_webhooks: Mapping[str, str] = {}
    #: The flows that this program declares.
    declared: frozenset[str] = frozenset()
    #: The options that a suggested command repeats.
    place: Target = HERE
    #: Every live process of the store.
    processes: Sequence[LiveProcess] = ()
    #: Flows with alarms of their own.
    queue_alarms: Sequence[Standing] = ()
    #: The schedules that this program declares → when each is due next.
    schedules: Mapping[str, int] = {}
    #: Transaction of this tenant → what is wrong with its postings; and how many were checked.
    unbalanced: Mapping[str, Sequence[str]] = {}
    transactions: int = 0
    #: (flow, currency) → unknown transactions of all tenants.
    unknown_money: Mapping[tuple[str, str], UnknownMoney] = {}


def diagnose(facts: Facts) -> list[Finding]:
    return [
        *_store(facts),
        Finding("ok", "master key", f"opens the vault (from {facts.key_from})"),
        *_processes(facts),
        *_roles(facts),
        *_views(facts),
        *_outbox(facts),
        *_queue(facts),
        *_alarms(facts),
        *_pauses(facts),
        *_left_to_people(facts),
        *_brokers(facts),
        *_subscriptions(facts),
        *_schedules(facts),
        *_ledger(facts),
        *_unknown_money(facts),
        *_notifications(facts),
        *(Finding("warn", "settings", odd, "correct or unset it") for odd in facts.odd_settings),
    ]


def _ledger(facts: Facts) -> Iterator[Finding]:
    """The newest transactions of the tenant: their postings sum to zero and match the amounts."""
    checked = count_of(facts.transactions, "transaction")
    if facts.unbalanced:
        request_id, errors = next(iter(facts.unbalanced.items()))
        yield Finding(
            "bad",
            "ledger",
            f"{len(facts.unbalanced)} of {checked} do not balance; {request_id}: {errors[0]}",
            "pause the payment flows, compare with the gateway, and report the events of this"
            " transaction",
        )
    elif facts.transactions:
        yield Finding("ok", "ledger", f"the postings of {checked} sum to zero")


def _unknown_money(facts: Facts) -> Iterator[Finding]:
    """Unknown transactions: a lost answer is found within minutes, unless something is wrong."""
    for (flow, currency), one in sorted(facts.unknown_money.items()):
        is_old = one.oldest_seconds * 1_000 > UNKNOWN_OLD_MS
        yield Finding(
            "warn" if is_old else "ok",
            f"unknown in {flow}",
            f"{count_of(one.count, 'transaction')} of {one.amount} {currency} in total, the"
            f" oldest for {span(int(one.oldest_seconds * 1_000))}; no further operation starts in"
            f" {verb(one.count, 'it', 'them')}",
            "check the gateway's records, then "
            + facts.place.command("resolve ID --succeeded --evidence TEXT")
            + f"; {facts.place.command('tx unknown')} lists those that wait for a person"
            if is_old
            else "",
        )


_MORE_WORKERS = "start more workers, or find out why they are slow"
_INBOUND_ALARMS: Mapping[str, tuple[str, str]] = {
    "depth": ("{value} events wait, more than {limit}", _MORE_WORKERS),
    "age": ("the oldest event has waited for {value} s, longer than {limit} s", _MORE_WORKERS),
    "dead_letters": (
        "dead letters: {value}",
        "read them, remove the cause and redrive them: `gesta dlq inbound`; see docs/sqs.md",
    ),
}


def _brokers(facts: Facts) -> Iterator[Finding]:
    """Queues that a broker keeps: jobs it has given up, and the events that pass through one."""
    for flow, count in sorted(facts.moved_jobs.items()):
        yield Finding(
            "warn",
            f"queue of {flow}",
            f"the broker has moved {count_of(count, 'job')} to the dead-letter queue: three"
            " workers received each of them and none finished it",
            "find out why the workers died; the sweeper puts new jobs for open requests, so you"
            " may delete these messages",
        )
    counts = facts.boundary
    if counts is None:
        return
    events = Backlog(ready=counts.waiting, oldest_ready_ms=counts.oldest_ms)
    alarms = inbound_standings(events, counts.dead, facts.now_ms)
    raised = [one for one in alarms if one.is_raised]
    for one in raised:
        status, action = _INBOUND_ALARMS[one.alarm]
        text = status.format(value=round(one.value), limit=round(one.limit))
        yield Finding("warn", "inbound queue", text, action)
    if not raised:
        waiting = count_of(counts.waiting, "event")
        yield Finding("ok", "inbound queue", f"{waiting} waiting, no dead letter")


def _store(facts: Facts) -> Iterator[Finding]:
    health = facts.health
    if facts.databases:
        parts = "; ".join(f"{part} in {place}" for part, place in facts.databases.items())
        yield Finding("ok", "store", parts)
    if health is None:
        yield Finding("ok", "store", f"{facts.store} answers")
        return
    if health.errors:
        yield Finding(
            "bad",
            "store",
            f"{facts.store} is damaged: {'; '.join(health.errors)}",
            "stop every process that uses it, move the file away and restore a backup",
        )
    else:
        part = "intact" if health.is_whole else "no damage found in the part that was checked"
        yield Finding(
            "ok",
            "store",
            f"{facts.store} answers, schema {health.schema}, {size(health.size)}, {part}",
        )
    if health.open_to_others:
        yield Finding(
            "warn",
            "store",
            f"other users may read {', '.join(health.open_to_others)}",
            "run chmod 600 on them",
        )
    if health.log_size > LOG_LARGE:
        yield Finding(
            "warn",
            "store",
            f"its write-ahead log has {size(health.log_size)}",
            "find the process that has had a read transaction open for hours",
        )
    if health.free is None:
        return
    level: Level = "bad" if health.free < FREE_OUT else "warn" if health.free < FREE_LOW else "ok"
    yield Finding(
        level,
        "disk",
        f"{size(health.free)} free",
        "" if level == "ok" else "free disk space: on a full disk gesta refuses requests",
    )


def _processes(facts: Facts) -> Iterator[Finding]:
    """One line for each live process: its roles, and the leader roles that it holds now."""
    held: dict[str, set[str]] = {}
    for role in facts.roles:
        if role.is_held(facts.now_ms):
            held.setdefault(role.owner, set()).add(role.name.partition("/")[0])
    for one in facts.processes:
        leads = f"; leads {', '.join(sorted(held[one.id]))}" if one.id in held else ""
        yield Finding(
            "ok",
            "process",
            f"{process_name(one)} runs {', '.join(one.roles)}{leads};"
            f" gesta {one.version}, up for {span(facts.now_ms - one.since_ms)}",
        )


def _roles(facts: Facts) -> Iterator[Finding]:
    known = {role.name: role for role in facts.roles}
    is_busy = bool(facts.backlog or facts.unseen)
    for about, names, agent in (
        (CHECKPOINT, checkpoints_of(facts.partitions), "projector"),
        (SWEEP, [SWEEP], "sweeper"),
    ):
        held = Counter(
            known[name].owner
            for name in names
            if name in known and known[name].is_held(facts.now_ms)
        )
        for owner, count in sorted(held.items()):
            part = "" if count == len(names) else f" for {count} of {len(names)} partitions"
            yield Finding("ok", about, f"{owner_name(owner)} is the {agent}{part}")
        if held.total() < len(names):
            ended = [
                known[name].until_ms
                for name in names
                if name in known and not known[name].is_held(facts.now_ms)
            ]
            since = (
                f"the last lease ended {ago(max(ended), facts.now_ms)}"
                if any(ended)
                else "no process has ever held this role"
            )
            part = f" for {len(names) - held.total()} of {len(names)} partitions" if held else ""
            serve = facts.place.process("serve")
            advice = (
                f"start `{facts.place.process('worker')}` (or `{serve}`, which also serves the API)"
            )
            status = f"no {agent} is running{part}; {since}"
            yield Finding("bad" if is_busy else "warn", about, status, advice)


def _views(facts: Facts) -> Iterator[Finding]:
    if not facts.unseen:
        yield Finding("ok", "views", "up to date")
        return
    age = facts.now_ms - (facts.unseen_since_ms or facts.now_ms)
    level: Level = "bad" if age > SLOW_MS else "warn" if age > LAG_MS else "ok"
    yield Finding(
        level,
        "views",
        f"{count_of(facts.unseen, 'event')} behind, {span(age)}",
        "" if level == "ok" else "look at the log of the process with the projector role",
    )


def _outbox(facts: Facts) -> Iterator[Finding]:
    for one in facts.outbox:
        age = facts.now_ms - one.oldest_ms
        if age > LAG_MS:
            serve, worker = facts.place.process("serve"), facts.place.process("worker")
            start = f"start a `{serve}` or `{worker}` that declares this flow"
            look = "look at the log of the process with the projector role"
            action = start if one.is_raw else look
            status = (
                f"{count_of(one.count, 'request')} of callers' transactions"
                f" {verb(one.count, 'waits', 'wait')} to be accepted, the oldest for {span(age)}"
            )
            yield Finding("bad" if age > SLOW_MS else "warn", f"outbox {one.flow}", status, action)


def _queue(facts: Facts) -> Iterator[Finding]:
    if not facts.backlog and not facts.later:
        yield Finding("ok", "queue", "empty")
    external_queues = {
        flow_of_external_queue(name)
        for name in facts.backlog
        if flow_of_external_queue(name) != name
    }
    backlog = dict.fromkeys(facts.later, Backlog()) | by_flow(facts.backlog)
    for flow, jobs in sorted(backlog.items()):
        age = 0 if jobs.oldest_ready_ms is None else facts.now_ms - jobs.oldest_ready_ms
        level: Level = "bad" if age > STUCK_MS else "warn" if age > SLOW_MS else "ok"
        advice = (
            ""
            if level == "ok"
            else _CHECK_EXTERNAL_WORKERS
            if flow in external_queues
            else _ADD_WORKERS
        )
        if (
            flow not in external_queues
            and not jobs.at_work
            and (age > UNSERVED_MS or jobs.abandoned)
        ):
            # A running worker would have taken abandoned jobs. Right after a death that is only a
            # warning.
            level = "bad" if age > UNSERVED_MS else "warn"
            advice = no_worker_executes(flow, facts.place, is_declared=flow in facts.declared)
        later = jobs.waiting + facts.later.get(flow, 0)
        pauses = [one for one in facts.pauses if one.scope.flow in (None, flow)]
        yield Finding(level, f"queue {flow}", _counts(jobs, later, age, pauses), advice)


_ALARMS: Mapping[str, tuple[str, str]] = {
    "depth": ("{value} requests wait, more than {limit}", "add workers, or find out why they wait"),
    "age": ("the oldest request has waited for {value} s, longer than {limit} s", _ADD_WORKERS),
    "dead_letters": ("{value} requests failed permanently", "inspect them: {dlq}"),
}


def _alarms(facts: Facts) -> Iterator[Finding]:
    for one in facts.queue_alarms:
        if one.is_raised:
            status, action = _ALARMS[one.alarm]
            dlq = facts.place.command(f"dlq list --flow {one.flow}")
            text = status.format(value=round(one.value), limit=round(one.limit))
            yield Finding("warn", f"alarm {one.flow}", text, action.format(dlq=dlq))


def _counts(jobs: Backlog, later: int, age_ms: int, pauses: Sequence[Pause]) -> str:
    """`later`: requests that are due later, with or without a job. `pauses` may hold them."""
    parts = [f"{jobs.ready} ready, {later} later, {jobs.at_work} running"]
    if jobs.abandoned:
        parts.append(f"{jobs.abandoned} left by a worker that died")
    if jobs.held:
        below = " and ".join(sorted({_kind_of(one) for one in pauses}))
        parts.append(f"{jobs.held} held" + (f" (see {below} below)" if below else ""))
    return ", ".join(parts) + (
        f"; the oldest has been ready for {span(age_ms)}" if jobs.ready else ""
    )


def _kind_of(pause: Pause) -> str:
    if pause.refusal is None:
        return "paused"
    is_missing = pause.refusal.missing or pause.reason.startswith(SECRET_MISSING)
    return "missing" if is_missing else "refused"


def _pauses(facts: Facts) -> Iterator[Finding]:
    for one in facts.pauses:
        reason = f": {one.reason}" if one.reason else ""
        lasted = span(facts.now_ms - one.since_ms)
        about, status = _kind_of(one), f"{hold_words(str(one.scope))}, for {lasted}{reason}"
        advice = f"to resume: {how_to_resume(one.scope, facts.place)}"
        named = f"{one.scope.credential} of tenant {one.scope.tenant}"
        if one.kind == "config":
            status = f"{named} is not stored; requests have waited for it for {lasted}"
            advice = f"store it: {how_to_put(one.scope, facts.place)}"
        elif about == "missing":
            status = f"{named} has had no secret for {lasted}{reason}"
            advice = (
                "set the variable and restart the program, or store the secret:"
                f" {how_to_put(one.scope, facts.place)}"
            )
        elif about == "refused":
            status = f"the provider has refused {named} for {lasted}{reason}"
            advice = how_to_change(one.scope, facts.place)
        yield Finding("warn", about, status, advice)


def _left_to_people(facts: Facts) -> Iterator[Finding]:
    place = facts.place
    if facts.undecided:
        lasted = span(facts.now_ms - (facts.undecided_since_ms or facts.now_ms))
        yield Finding(
            "warn",
            "unknown",
            f"{count_of(facts.undecided, 'request')} of all tenants"
            f" {verb(facts.undecided, 'waits', 'wait')} for a person to resolve"
            f" {verb(facts.undecided, 'it', 'them')}, the oldest for {lasted}",
            f"{place.command('list --status unknown')}; "
            + place.command("resolve ID --succeeded --evidence TEXT")
            + OTHER_WORDS,
        )
    else:
        yield Finding("ok", "unknown", "no request waits for a person")
    if facts.dead_letters:
        yield Finding(
            "warn",
            "dead letters",
            f"tenant {facts.tenant} has {count_of(facts.dead_letters, 'dead letter')}",
            place.command("dlq list"),
        )
    else:
        yield Finding("ok", "dead letters", f"tenant {facts.tenant} has none")
    if facts.quarantined:
        newest, count = facts.quarantined[0], len(facts.quarantined)
        yield Finding(
            "bad",
            "quarantined",
            f"{count} {verb(count, 'event or job', 'events or jobs')} could not be processed, the"
            " newest"
            f" {ago(newest.at_ms, facts.now_ms)}: {newest.what} {newest.stream} version"
            f" {newest.version} ({newest.error})",
            f"{place.command('list --quarantined')}; after the cause is fixed,"
            f" {place.process('rebuild')}",
        )
    else:
        yield Finding("ok", "quarantined", "nothing")


def _subscriptions(facts: Facts) -> Iterator[Finding]:
    held = {role.name for role in facts.roles if role.is_held(facts.now_ms)}
    for one in facts.checkpoints:
        if not one.name.startswith(SUBSCRIPTION):
            continue
        about = one.name.replace("/", " ", 1)
        behind = facts.end - one.position
        lag = f"{count_of(behind, 'event')} behind" if behind else "up to date"
        if one.error:
            lasted = span(facts.now_ms - (one.failed_at_ms or facts.now_ms))
            yield Finding(
                "bad",
                about,
                f"its handler has failed for {lasted}, {lag}: {one.error}",
                "fix the handler; gesta keeps calling it",
            )
        elif one.name not in held and behind:
            yield Finding(
                "warn",
                about,
                f"no live process has this handler, {lag}",
                "start the program that declares it",
            )
        else:
            waits = one.name == ALERTS and facts.alerts_error
            is_slow = behind > BEHIND and not waits
            yield Finding(
                "warn" if is_slow else "ok", about, lag, "the handler is slow" if is_slow else ""
            )


def _schedules(facts: Facts) -> Iterator[Finding]:
    held = any(role.name == SCHEDULES and role.is_held(facts.now_ms) for role in facts.roles)
    for one in facts.checkpoints:
        if not one.name.startswith(SCHEDULE):
            continue
        about = one.name.replace("/", " ", 1)
        due = facts.schedules.get(one.name.removeprefix(SCHEDULE))
        last = f"last run at {moment(one.position)}"
        then = "" if due is None else f", next at {moment(due)}"
        if one.error:
            lasted = span(facts.now_ms - (one.failed_at_ms or facts.now_ms))
            yield Finding(
                "bad",
                about,
                f"its function has failed for {lasted}, {last}: {one.error}",
                "fix the function; gesta keeps calling it until the next due time",
            )
        elif not held:
            start = facts.place.process("worker")
            yield Finding(
                "warn", about, f"no live process runs schedules, {last}{then}", f"start `{start}`"
            )
        elif due is not None and facts.now_ms - due > SLOW_MS:
            yield Finding("warn", about, f"{last}, late since {moment(due)}", "see the log")
        else:
            yield Finding("ok", about, f"{last}{then}")


def _notifications(facts: Facts) -> Iterator[Finding]:
    """Alerts and event webhooks."""
    if facts.alerts_error:
        yield Finding(
            "bad",
            "alerts",
            f"cannot be sent to {facts.alerts_to}: {facts.alerts_error}",
            facts.alerts_remedy or f"store it with {facts.place.command('config put')}",
        )
    elif facts.failed_alert is not None:
        yield _failed_alert(facts, facts.failed_alert)
    elif facts.alerts_to:
        yield Finding("ok", "alerts", f"go to {facts.alerts_to}")
    for code, error in sorted(facts.event_webhooks.items()):
        if error:
            yield Finding(
                "warn",
                f"webhook.subscription {code}",
                f"sends nothing: {error}",
                "store the endpoint:"
                f" {facts.place.command('config put webhook.endpoint CODE url=…')}; or delete it:"
                f" {facts.place.command(f'config delete webhook.subscription {code}')}",
            )


def _failed_alert(facts: Facts, alert: State) -> Finding:
    show, redrive = (
        facts.place.command(f"{words} {alert.id}")
        if alert.tenant == facts.tenant
        else facts.place.process(f"{words} {alert.id}{options(tenant=alert.tenant)}")
        for words in ("show", "redrive")
    )
    ended = f"{alert.status} {ago(alert.updated_at, facts.now_ms)}"
    return Finding(
        "warn",
        "alerts",
        f"go to {facts.alerts_to}; the last one {ended}"
        + (f" ({alert.reason})" if alert.reason else ""),
        f"{show}; after the cause is fixed: {redrive}",
    )


def suspicious_fields(standing: QueueStanding) -> list[str]:
    """Fields of a job that contain something else than a reference, for instance a secret."""
    job = standing.job
    right: dict[str, bool] = {
        "tenant": bool(TENANT.fullmatch(job.tenant)),
        "flow": (
            bool(FLOW.fullmatch(flow_of_external_queue(job.flow)))
            and job.flow
            in (
                flow_of_external_queue(job.flow),
                external_queue_of(flow_of_external_queue(job.flow), job.tenant),
            )
        ),
        "id": job.id in _ids_of(job),
        "kind": job.kind.partition("-")[0] in ("execute", "reconcile"),
    }
    texts = {
        name: getattr(job, name)
        for name in Job.__struct_fields__
        if isinstance(getattr(job, name), str)
    }
    return sorted(
        {name for name, fits in right.items() if not fits}
        | {name for name, text in texts.items() if scrub(text) != text}
    )


def _ids_of(job: Job) -> tuple[str, str]:
    """The two ids that the job of a request may have: for gesta's ids and for callers' ids."""
    own = own_job_id(
        job.tenant, flow_of_external_queue(job.flow), job.request_id, job.dispatch_version
    )
    return job_id(job.request_id, job.dispatch_version), own
