"""What a look at the store says: pure over facts.

Each finding has a level, what is so, and what to do about it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gesta.admin.doctor.explain import OTHER_WORDS, how_to_change, how_to_resume, nobody_executes
from gesta.admin.wording import HERE, Target, ago, count_of, owner_name, size, span, verb
from gesta.domain.ids import (
    FLOW,
    TENANT,
    external_queue_of,
    flow_of_external_queue,
    job_id,
    own_job_id,
)
from gesta.domain.stream_names import checkpoint_of
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.checkpoints import Checkpoint
from gesta.ports.job_queue import Backlog, Job, QueueStanding, by_flow
from gesta.ports.leases import RoleLease
from gesta.ports.outbox import OutboxStanding
from gesta.ports.read_model import Quarantined
from gesta.ports.stores import Health
from gesta.projector.partitions import CHECKPOINT, checkpoints_of
from gesta.runtime.redaction import scrub
from gesta.tenants.pauses import Pause

Level = Literal["ok", "warn", "bad"]

SUBSCRIPTION = checkpoint_of("")
MIB = 1024 * 1024
#: From when on something that should move at once is worth a look, and a call in the night.
SLOW_MS, STUCK_MS = 60_000, 600_000
LAG_MS = 10_000
#: From when on a ready job of a flow that has nothing at work says that nobody executes it: a
#: worker looks every second.
DESERTED_MS = 30_000
FREE_LOW, FREE_OUT = 1024 * MIB, 100 * MIB
#: A write-ahead log of this size: some process has been reading for very long.
LOG_LARGE = 1024 * MIB
BEHIND = 10_000


_WAITED_FOR_US = "its slots are busy: more of them, or more processes"
_WAITED_FOR_OTHERS = (
    "others execute this flow and have not come for it: do its workers run, and with a key of the"
    " right tenant?"
)


class Finding(msgspec.Struct, frozen=True):
    level: Level
    about: str
    what: str
    advice: str = ""


class Facts(msgspec.Struct, frozen=True):
    """The store as it is now."""

    now_ms: int
    store: str
    key_from: str
    health: Health | None
    roles: Sequence[RoleLease]
    checkpoints: Sequence[Checkpoint]
    #: The newest position; how many events the views do not show (up to a limit), and when the
    #: oldest of those happened.
    end: int
    unseen: int
    unseen_since_ms: int | None
    backlog: Mapping[str, Backlog]
    quarantined: Sequence[Quarantined]
    undecided: int
    undecided_since_ms: int | None
    dead_letters: int
    #: Settings that look wrong, in words.
    odd_settings: Sequence[str]
    #: What callers' transactions have left to be appended.
    outbox: Sequence[OutboxStanding] = ()
    #: What concerns every tenant, and what holds jobs now.
    pauses: Sequence[Pause] = ()
    #: Whose dead letters and subscriptions of endpoints these are; everything else is of all
    #: tenants.
    tenant: str = "default"
    #: Into how many parts the log is divided for those who project.
    partitions: int = 1
    #: Where alerts go, and why nobody would hear of them; empty: nowhere, and nothing.
    alerts_to: str = ""
    alerts_fault: str = ""
    #: Tenant's `webhook.subscription` by code → why it tells nobody; empty: it does.
    told: Mapping[str, str] = {}
    #: The flows of the program that was asked.
    declared: frozenset[str] = frozenset()
    #: What a command that is advised has to repeat.
    place: Target = HERE


def diagnose(facts: Facts) -> list[Finding]:
    """Everything worth saying, the store first."""
    return [
        *_store(facts),
        Finding("ok", "master key", f"opens the vault (from {facts.key_from})"),
        *_roles(facts),
        *_projector(facts),
        *_outbox(facts),
        *_queue(facts),
        *_pauses(facts),
        *_left_to_people(facts),
        *_subscriptions(facts),
        *_told(facts),
        *(Finding("warn", "settings", odd, "correct or unset it") for odd in facts.odd_settings),
    ]


def _store(facts: Facts) -> Iterator[Finding]:
    health = facts.health
    if health is None:
        yield Finding("ok", "store", f"{facts.store} answers")
        return
    if health.faults:
        yield Finding(
            "bad",
            "store",
            f"{facts.store} is damaged: {'; '.join(health.faults)}",
            "stop everything that works on it, copy the file away, restore a backup",
        )
    else:
        part = "sound" if health.is_whole else "sound as far as it was looked at"
        yield Finding(
            "ok",
            "store",
            f"{facts.store} answers, schema {health.schema}, {size(health.size)}, {part}",
        )
    if health.open_to_others:
        yield Finding(
            "warn", "store", f"others may read {', '.join(health.open_to_others)}", "chmod 600 them"
        )
    if health.log_size > LOG_LARGE:
        yield Finding(
            "warn",
            "store",
            f"its write-ahead log has {size(health.log_size)}",
            "look for a process that reads for hours",
        )
    if health.free is None:
        return
    level: Level = "bad" if health.free < FREE_OUT else "warn" if health.free < FREE_LOW else "ok"
    yield Finding(
        level,
        "disk",
        f"{size(health.free)} free",
        "" if level == "ok" else "free space: a full disk refuses requests",
    )


def _roles(facts: Facts) -> Iterator[Finding]:
    known = {role.name: role for role in facts.roles}
    is_busy = bool(facts.backlog or facts.unseen)
    for about, names, does in (
        (CHECKPOINT, checkpoints_of(facts.partitions), "projects"),
        (SWEEP, [SWEEP], "sweeps"),
    ):
        held = Counter(
            known[name].owner
            for name in names
            if name in known and known[name].is_held(facts.now_ms)
        )
        for owner, count in sorted(held.items()):
            part = "" if count == len(names) else f" {count} of {len(names)} partitions"
            yield Finding("ok", about, f"{owner_name(owner)} {does}{part}")
        if held.total() < len(names):
            ended = [
                known[name].until_ms
                for name in names
                if name in known and not known[name].is_held(facts.now_ms)
            ]
            since = (
                f"the last lease ended {ago(max(ended), facts.now_ms)}"
                if any(ended)
                else "no process ever has"
            )
            part = f" {len(names) - held.total()} of {len(names)} partitions" if held else ""
            serve = facts.place.process("serve")
            advice = (
                f"start `{facts.place.process('worker')}` (or `{serve}`, which also serves the API)"
            )
            yield Finding(
                "bad" if is_busy else "warn", about, f"nobody {does}{part}; {since}", advice
            )


def _projector(facts: Facts) -> Iterator[Finding]:
    if not facts.unseen:
        yield Finding("ok", "views", "show every event")
        return
    age = facts.now_ms - (facts.unseen_since_ms or facts.now_ms)
    level: Level = "bad" if age > SLOW_MS else "warn" if age > LAG_MS else "ok"
    what = f"are {count_of(facts.unseen, 'event')} behind, {span(age)}"
    yield Finding(
        level,
        "views",
        what,
        "" if level == "ok" else "see who projects, above, and the log of that process",
    )


def _outbox(facts: Facts) -> Iterator[Finding]:
    for one in facts.outbox:
        age = facts.now_ms - one.oldest_ms
        if age > LAG_MS:
            serve, worker = facts.place.process("serve"), facts.place.process("worker")
            start = f"start a `{serve}` or `{worker}` that declares this flow"
            advice = start if one.is_raw else "see who projects, above"
            what = (
                f"{count_of(one.count, 'request')} of callers' transactions"
                f" {verb(one.count, 'is', 'are')} not taken in, the oldest for {span(age)}"
            )
            yield Finding("bad" if age > SLOW_MS else "warn", f"outbox {one.flow}", what, advice)


def _queue(facts: Facts) -> Iterator[Finding]:
    if not facts.backlog:
        yield Finding("ok", "queue", "empty")
    external_queues = {
        flow_of_external_queue(name)
        for name in facts.backlog
        if flow_of_external_queue(name) != name
    }
    for flow, jobs in sorted(by_flow(facts.backlog).items()):
        age = 0 if jobs.oldest_ready_ms is None else facts.now_ms - jobs.oldest_ready_ms
        level: Level = "bad" if age > STUCK_MS else "warn" if age > SLOW_MS else "ok"
        advice = (
            ""
            if level == "ok"
            else _WAITED_FOR_OTHERS
            if flow in external_queues
            else _WAITED_FOR_US
        )
        if (
            flow not in external_queues
            and not jobs.at_work
            and (age > DESERTED_MS or jobs.abandoned)
        ):
            # Whoever takes anything at all takes over what is abandoned, so nobody does; but a
            # death of just now is no news yet.
            level = "bad" if age > DESERTED_MS else "warn"
            advice = nobody_executes(flow, facts.place, is_declared=flow in facts.declared)
        yield Finding(level, f"queue {flow}", _counts(jobs, age, facts.place), advice)


def _counts(jobs: Backlog, age_ms: int, place: Target) -> str:
    parts = [f"{jobs.ready} ready, {jobs.waiting} waiting, {jobs.at_work} at work"]
    if jobs.abandoned:
        parts.append(f"{jobs.abandoned} left by a worker that is gone")
    if jobs.held:
        parts.append(
            f"{jobs.held} held by a pause or a credential ({place.command('pause --list')} shows"
            " them)"
        )
    return ", ".join(parts) + (f"; the oldest ready one for {span(age_ms)}" if jobs.ready else "")


def _pauses(facts: Facts) -> Iterator[Finding]:
    for one in facts.pauses:
        reason = f": {one.reason}" if one.reason else ""
        about, advice = "paused", f"when it may go on: {how_to_resume(one.scope, facts.place)}"
        if one.refusal is not None:
            about, advice = "refused", how_to_change(one.scope, facts.place)
        yield Finding(
            "warn", about, f"{one.scope}, {ago(one.since_ms, facts.now_ms)}{reason}", advice
        )


def _left_to_people(facts: Facts) -> Iterator[Finding]:
    place = facts.place
    if facts.undecided:
        since = ago(facts.undecided_since_ms or facts.now_ms, facts.now_ms)
        yield Finding(
            "warn",
            "in doubt",
            f"{count_of(facts.undecided, 'request')} {verb(facts.undecided, 'waits', 'wait')} for a"
            f" person's word, of all tenants, the oldest since {since}",
            f"{place.command('list --status unknown')}; "
            + place.command("resolve ID --succeeded --evidence TEXT")
            + OTHER_WORDS,
        )
    else:
        yield Finding("ok", "in doubt", "nothing waits for a person")
    if facts.dead_letters:
        yield Finding(
            "warn",
            "dead letters",
            f"{count_of(facts.dead_letters, 'request')} of tenant {facts.tenant} failed for good",
            place.command("dlq list"),
        )
    else:
        yield Finding("ok", "dead letters", f"none of tenant {facts.tenant}")
    if facts.quarantined:
        newest = facts.quarantined[0]
        yield Finding(
            "bad",
            "parked",
            f"{count_of(len(facts.quarantined), 'thing')} could not be processed, the newest"
            f" {ago(newest.at_ms, facts.now_ms)}: {newest.what} {newest.stream} version"
            f" {newest.version} ({newest.error})",
            f"{place.command('list --quarantined')}; after the cause is mended,"
            f" {place.process('rebuild')}",
        )
    else:
        yield Finding("ok", "parked", "nothing")


def _subscriptions(facts: Facts) -> Iterator[Finding]:
    held = {role.name for role in facts.roles if role.is_held(facts.now_ms)}
    for one in facts.checkpoints:
        if not one.name.startswith(SUBSCRIPTION):
            continue
        about = one.name.replace("/", " ", 1)
        behind = facts.end - one.position
        lag = f"{count_of(behind, 'event')} behind" if behind else "has seen everything"
        if one.error:
            since = ago(one.failed_at_ms or facts.now_ms, facts.now_ms)
            yield Finding(
                "bad",
                about,
                f"stuck since {since}, {lag}: {one.error}",
                "mend the handler; it is called again by itself",
            )
        elif one.name not in held and behind:
            yield Finding(
                "warn",
                about,
                f"no running process has this handler, {lag}",
                "start the program that declares it",
            )
        else:
            yield Finding(
                "warn" if behind > BEHIND else "ok",
                about,
                lag,
                "the handler is slow" if behind > BEHIND else "",
            )


def _told(facts: Facts) -> Iterator[Finding]:
    """Who is told of what happens, beside programs."""
    if facts.alerts_fault:
        yield Finding(
            "bad",
            "alerts",
            f"{facts.alerts_to} hears of nothing: {facts.alerts_fault}",
            f"store it by {facts.place.command('config put')}",
        )
    elif facts.alerts_to:
        yield Finding("ok", "alerts", f"go to {facts.alerts_to}")
    for code, fault in sorted(facts.told.items()):
        if fault:
            yield Finding(
                "warn",
                f"webhook.subscription {code}",
                f"tells nobody: {fault}",
                "store the endpoint:"
                f" {facts.place.command('config put webhook.endpoint CODE url=…')}; or end it:"
                f" {facts.place.command(f'config delete webhook.subscription {code}')}",
            )


def suspicious_fields(standing: QueueStanding) -> list[str]:
    """Fields of a job that hold something else than a pointer: a secret, or anything in a place
    where a name belongs.
    """
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
    """What the job of a request is called, be the request's id ours or its caller's own."""
    own = own_job_id(
        job.tenant, flow_of_external_queue(job.flow), job.request_id, job.dispatch_version
    )
    return job_id(job.request_id, job.dispatch_version), own
