"""The findings of `gesta doctor`, from the facts alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gesta import Rejected, Retry
from gesta.admin.doctor.checks import Facts, Finding, diagnose, suspicious_fields
from gesta.admin.doctor.collect import examine, examine_request
from gesta.admin.doctor.explain import RequestFacts, why_not_sent
from gesta.domain.ids import external_queue_of
from gesta.domain.state import State
from gesta.flows.deferrals import SECRET_MISSING
from gesta.ports.checkpoints import Checkpoint
from gesta.ports.job_queue import Backlog, Job, QueueStanding
from gesta.ports.leases import LiveProcess, RoleLease
from gesta.ports.outbox import OutboxStanding
from gesta.ports.read_model import Quarantined
from gesta.ports.stores import Health
from gesta.tenants.pauses import EVERYTHING, Pause, Refusal, Scope
from gesta.testing.contracts.samples import phase_of
from tests.world import FLOW, Note, Provider, engine_of, let_run, pass_time

NOW = 1_800_000_000_000
SOUND = Health(
    schema=2, errors=(), is_whole=True, size=5 * 2**20, log_size=0, free=2**40, open_to_others=()
)
HELD = (
    RoleLease("projector", "host:7:x", NOW + 3_000),
    RoleLease("sweep", "host:7:x", NOW + 3_000),
)
WELL = Facts(
    now_ms=NOW,
    store="gesta.db",
    databases={},
    key_from="gesta.key",
    health=SOUND,
    roles=HELD,
    checkpoints=(Checkpoint("projector", 9),),
    end=9,
    unseen=0,
    unseen_since_ms=None,
    backlog={},
    quarantined=(),
    undecided=0,
    undecided_since_ms=None,
    dead_letters=0,
    odd_settings=(),
)


def found(**changes: Any) -> list[Finding]:
    return [one for one in diagnose(msgspec.structs.replace(WELL, **changes)) if one.level != "ok"]


def test_a_healthy_store_has_no_problems():
    assert found() == []
    lines = {one.about: one.status for one in diagnose(WELL)}
    assert lines["store"] == "gesta.db answers, schema 2, 5.0 MiB, intact"
    assert lines["projector"] == "process 7 on host is the projector"
    assert found(health=None) == []


@pytest.mark.parametrize(
    ("changes", "level", "about", "words"),
    [
        (
            {
                "health": (
                    msgspec.structs.replace(SOUND, errors=("page 7 is lost",))
                    if False
                    else Health(2, ("page 7 is lost",), True, 1, 0, 2**40, ())
                )
            },
            "bad",
            "store",
            "damaged: page 7",
        ),
        (
            {"health": Health(2, (), True, 1, 2**31, 2**40, ())},
            "warn",
            "store",
            "write-ahead log has 2.0 GiB",
        ),
        ({"health": Health(2, (), True, 1, 0, 500 * 2**20, ())}, "warn", "disk", "500.0 MiB free"),
        ({"health": Health(2, (), True, 1, 0, 5 * 2**20, ())}, "bad", "disk", "5.0 MiB free"),
        (
            {"health": Health(2, (), True, 1, 0, 2**40, ("gesta.db",))},
            "warn",
            "store",
            "other users may read gesta.db",
        ),
        (
            {"unseen": 3, "unseen_since_ms": NOW - 30_000},
            "warn",
            "views",
            "3 events behind, 30 s",
        ),
        ({"unseen": 3, "unseen_since_ms": NOW - 90_000}, "bad", "views", "behind"),
        (
            {"backlog": {"a.b": Backlog(1, 2, 3, NOW - 70_000)}},
            "warn",
            "queue a.b",
            "2 ready, 1 later, 3 running; the oldest has been ready for 1.2 min",
        ),
        ({"backlog": {"a.b": Backlog(0, 1, 0, NOW - 700_000)}}, "bad", "queue a.b", "1 ready"),
        (
            {"outbox": (OutboxStanding("a.b", True, 2, NOW - 30_000),)},
            "warn",
            "outbox a.b",
            "2 requests of callers' transactions wait to be accepted, the oldest for 30 s",
        ),
        (
            {"outbox": (OutboxStanding("a.b", False, 1, NOW - 90_000),)},
            "bad",
            "outbox a.b",
            "1 request of callers' transactions waits to be accepted",
        ),
        (
            {
                "quarantined": (
                    Quarantined("event", "t", "a.b.request-t-1", 3, "DecodeError", NOW - 5_000),
                )
            },
            "bad",
            "quarantined",
            (
                "1 event or job could not be processed, the newest 5 s ago: event a.b.request-t-1"
                " version 3 (DecodeError)"
            ),
        ),
        (
            {"undecided": 2, "undecided_since_ms": NOW - 7_200_000},
            "warn",
            "unknown",
            "2 requests of all tenants wait for a person to resolve them, the oldest for 2 h",
        ),
        (
            {"undecided": 1, "undecided_since_ms": NOW - 7_200_000},
            "warn",
            "unknown",
            "1 request of all tenants waits for a person to resolve it",
        ),
        (
            {"pauses": (Pause(EVERYTHING, "copied from gesta.db", NOW - 7_200_000, "ann"),)},
            "warn",
            "paused",
            "everything, for 2 h: copied from gesta.db",
        ),
        (
            {"dead_letters": 1},
            "warn",
            "dead letters",
            "tenant default has 1 dead letter",
        ),
        (
            {
                "checkpoints": (
                    Checkpoint(
                        "subscription/ledger", 4, "position 5: ValueError: no", NOW - 60_000
                    ),
                )
            },
            "bad",
            "subscription ledger",
            "its handler has failed for 1 min, 5 events behind: position 5: ValueError: no",
        ),
        (
            {"checkpoints": (Checkpoint("subscription/ledger", 4),)},
            "warn",
            "subscription ledger",
            "no live process has this handler",
        ),
        (
            {
                "checkpoints": (Checkpoint("subscription/ledger", 4),),
                "end": 90_000,
                "roles": (*HELD, RoleLease("subscription/ledger", "x", NOW + 1)),
            },
            "warn",
            "subscription ledger",
            "behind",
        ),
        ({"odd_settings": ("GESTA_ULR is no setting",)}, "warn", "settings", "GESTA_ULR"),
    ],
)
def test_every_problem_is_reported_with_an_action(changes, level, about, words):
    (finding,) = found(**changes)
    assert (finding.level, finding.about) == (level, about)
    assert words in finding.status
    assert finding.action


def test_missing_leaders_are_an_error_only_when_there_is_work():
    gone = (RoleLease("projector", "host:7:x", NOW - 60_000),)
    projector, sweep = found(roles=gone)
    assert (projector.level, projector.status) == (
        "warn",
        "no projector is running; the last lease ended 1 min ago",
    )
    assert (sweep.level, sweep.status) == (
        "warn",
        "no sweeper is running; no process has ever held this role",
    )
    assert [one.level for one in found(roles=gone, backlog={"a.b": Backlog(waiting=1)})] == [
        "bad",
        "bad",
    ]
    # A lease made before the clock was set back holds nothing.
    assert len(found(roles=(RoleLease("projector", "x", NOW + 10**9), HELD[1]))) == 1


def test_the_action_for_a_missing_leader_is_to_start_a_worker():
    (projector,) = found(roles=HELD[1:])
    assert projector.action.startswith("start `gesta worker` (or `gesta serve`")
    (sweep,) = found(roles=HELD[:1])
    assert sweep.action.startswith("start `gesta worker` (or `gesta serve`")


def test_a_flow_without_a_worker_is_an_error_before_its_queue_is_slow():
    waited = NOW - 55_000
    (queue,) = found(backlog={"a.b": Backlog(0, 2, 4, waited, abandoned=4)})
    assert (queue.level, queue.about) == ("bad", "queue a.b")
    assert (
        queue.status
        == "2 ready, 0 later, 0 running, 4 left by a worker that died; the oldest has been ready"
        " for 55 s"
    )
    assert (
        queue.action
        == "no worker executes a.b; start a process that declares it: `gesta worker --app"
        " MODULE:NAME` or `gesta serve --app MODULE:NAME`"
    )
    assert [
        one.level for one in found(backlog={"a.b": Backlog(ready=1, oldest_ready_ms=waited)})
    ] == ["bad"]
    # A worker runs one, or may take one any moment.
    assert found(backlog={"a.b": Backlog(0, 2, 4, waited, abandoned=3)}) == []
    assert found(backlog={"a.b": Backlog(ready=1, oldest_ready_ms=NOW - 20_000)}) == []
    # A worker died, and no other has taken its job.
    assert [
        (one.level, one.action[:22])
        for one in found(backlog={"a.b": Backlog(leased=1, abandoned=1)})
    ] == [("warn", "no worker executes a.b")]
    # External workers execute this one.
    assert (
        found(backlog={external_queue_of("a.b", "acme"): Backlog(ready=1, oldest_ready_ms=waited)})
        == []
    )


async def test_the_facts_of_a_request_count_the_running_jobs_of_its_flow(gesta):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        request = await engine.submit(Note())
        await let_run(gesta)
        queue, view = engine.pipeline.environment.stores.queue, await request.view()
        await queue.put([Job("x-1", "default", "other.flow", "x", 1)])
        view = msgspec.structs.replace(
            view, state=msgspec.structs.replace(view.state, flow="other.flow")
        )
        assert (await examine_request(engine.pipeline, view)).at_work == 0
        await queue.take("dies", {"other.flow": 1}, 0.5, durable=False)
        facts = await examine_request(engine.pipeline, view)
        assert (facts.at_work, facts.is_swept, facts.is_projected) == (1, True, True)


def test_the_projector_of_every_partition_is_listed_and_missing_ones_reported():
    def held(*owners: str) -> tuple[RoleLease, ...]:
        parts = (
            RoleLease(f"projector/{n}", owner, NOW + 3_000 if owner else 0)
            for n, owner in enumerate(owners)
        )
        return (*parts, HELD[1])

    shared = diagnose(
        msgspec.structs.replace(
            WELL, partitions=4, roles=held("host:7:x", "host:9:y", "host:7:x", "host:9:y")
        )
    )
    reported = [one.status for one in shared if one.about == "projector"]
    assert reported == [
        "process 7 on host is the projector for 2 of 4 partitions",
        "process 9 on host is the projector for 2 of 4 partitions",
    ]
    assert found(partitions=4, roles=held(*["host:7:x"] * 4)) == []
    (finding,) = found(
        partitions=4, roles=held("host:7:x", "", "host:7:x", ""), unseen=1, unseen_since_ms=NOW
    )
    assert (finding.level, finding.status) == (
        "bad",
        "no projector is running for 2 of 4 partitions; no process has ever held this role",
    )


def _in_phase(state: State) -> State:
    return msgspec.structs.replace(state, phase=phase_of(state.status))


STATE = State("r-1", "default", FLOW, "queued", 2, NOW - 60_000, NOW - 10_000, dispatch_version=1)
PAUSE = Pause(Scope(FLOW), "audit", NOW - 60_000, "ann")
JOB = QueueStanding(Job("r-1-1", "default", FLOW, "r-1", 1, due_ms=NOW - 5_000), "ready", 0)


@pytest.mark.parametrize(
    ("state", "facts", "words"),
    [
        (
            {"status": "completed", "provider_id": "p-1"},
            {},
            "completed at 2027-01-15 07:59:50.000Z (10 s ago); its id at the provider is p-1",
        ),
        (
            {"status": "failed", "reason": "subject_erased"},
            {},
            "a data subject was erased, and it cannot be executed any more",
        ),
        (
            {"status": "failed", "reason": "no", "attempts": 3},
            {},
            (
                "it failed at 2027-01-15 07:59:50.000Z (10 s ago) after 3 attempts: no;"
                " to execute it again: gesta redrive r-1"
            ),
        ),
        ({"status": "expired"}, {}, "its time to live ended"),
        ({"status": "cancelled"}, {}, "it was cancelled"),
        (
            {"status": "unknown", "reason": "timeout", "policy": "manual"},
            {"is_projected": False},
            "a person has to resolve it: gesta resolve r-1 --succeeded",
        ),
        (
            {},
            {"is_projected": False, "is_swept": False},
            "no process runs on this store; start `gesta serve --app MODULE:NAME`",
        ),
        (
            {"due_at": NOW + 60_000},
            {"is_projected": False, "is_swept": False},
            "(and it is not due before 2027-01-15 08:01:00.000Z)",
        ),
        (
            {},
            {"job": QueueStanding(JOB.job, "leased", 1, NOW + 1), "at_work": 1},
            "a worker is executing it, attempt 1",
        ),
        (
            {},
            {
                "job": QueueStanding(JOB.job, "leased", 1, NOW + 1),
                "at_work": 1,
                "is_projected": False,
                "is_swept": False,
            },
            "a worker is executing it",
        ),
        (
            {},
            {"job": QueueStanding(JOB.job, "leased", 1, NOW - 33_000)},
            (
                "its worker died (the lease ended 33 s ago), and no other worker has taken"
                " it; start one: `gesta worker` (or `gesta serve`)"
            ),
        ),
        (
            {},
            {"job": QueueStanding(JOB.job, "leased", 1, NOW + 10**9)},
            "(the lease is from before the clock was set back)",
        ),
        (
            {"external": True},
            {"job": QueueStanding(JOB.job, "leased", 1, NOW - 33_000)},
            "has not reported (the lease ended 33 s ago); the sweeper will record that",
        ),
        (
            {"external": True},
            {"job": QueueStanding(JOB.job, "leased", 1, NOW - 33_000), "is_swept": False},
            "start `gesta worker` (or `gesta serve`)",
        ),
        (
            {
                "due_at": NOW + 30_000,
                "attempts": 1,
                "reason": "throttled",
                "detail": "429 from hooks.example.com",
            },
            {},
            (
                "its next attempt is at 2027-01-15 08:00:30.000Z (in 30 s): throttled, 429 from"
                " hooks.example.com, after 1 attempt"
            ),
        ),
        ({"due_at": NOW + 30_000}, {}, "it is scheduled for 2027-01-15 08:00:30.000Z (in 30 s)"),
        (
            {
                "status": "unknown",
                "policy": "reconcile",
                "due_at": NOW + 30_000,
                "reason": "timeout",
            },
            {},
            "its outcome is unknown (timeout); gesta asks the provider",
        ),
        (
            {
                "status": "unknown",
                "policy": "resend",
                "due_at": NOW + 30_000,
                "reason": "timeout",
            },
            {},
            "gesta resends it with the same key",
        ),
        (
            {"due_at": NOW + 60_000},
            {"pause": PAUSE},
            (
                f"flow {FLOW} of all tenants has been paused since 2027-01-15 07:59:00.000Z"
                " (audit) (and it is not due"
                " before 2027-01-15 08:01:00.000Z); to resume: gesta resume"
            ),
        ),
        (
            {},
            {"is_erased": True},
            (
                "a data subject was erased: it cannot be executed any more and will fail"
                " (subject_erased) when a worker takes it"
            ),
        ),
        (
            {"due_at": NOW + 60_000},
            {"is_erased": True},
            "fail (subject_erased) when it is due, at 2027-01-15 08:01:00.000Z (in 1 min)",
        ),
        (
            {},
            {"is_erased": True, "pause": PAUSE},
            f"when a worker takes it; flow {FLOW} of all tenants has been paused since",
        ),
        (
            {},
            {"is_erased": True, "is_projected": False, "is_swept": False},
            "when a worker takes it; no process runs on this store; start `gesta serve --app",
        ),
        (
            {},
            {"is_erased": True, "job": QueueStanding(JOB.job, "leased", 1, NOW + 1), "at_work": 1},
            "a worker is executing it",
        ),
        (
            {
                "status": "unknown",
                "policy": "reconcile",
                "due_at": NOW + 30_000,
                "reason": "timeout",
            },
            {"is_erased": True},
            (
                "gesta can neither reconcile nor resend it, so a person has to resolve it: gesta"
                " resolve r-1 --succeeded"
            ),
        ),
        ({}, {"job": None}, "the sweeper puts it back"),
        (
            {},
            {"job": None, "is_swept": False},
            "no sweeper is running to put it back; start `gesta worker` (or `gesta serve`)",
        ),
        (
            {},
            {"job": None, "is_projected": False},
            "no projector is running to put it there; start `gesta worker` (or `gesta serve`)",
        ),
        (
            {},
            {
                "job": QueueStanding(
                    Job("r-1-1", "default", FLOW, "r-1", 1, due_ms=NOW + 90_000), "waiting", 0
                )
            },
            "(in 1.5 min), because a rate limit of the provider was reached; this uses up no",
        ),
        (
            {},
            {"at_work": 4},
            (
                "it has been ready for 5 s and no worker has taken it yet: every slot is busy, 4 of"
                f" {FLOW} are running"
            ),
        ),
        (
            {},
            {},
            (
                f"ready for 5 s and no worker has taken it yet: no worker executes {FLOW};"
                " start a process that declares it: `gesta worker --app MODULE:NAME` or"
            ),
        ),
        (
            {},
            {
                "job": QueueStanding(
                    Job("r-1-1", "default", FLOW, "r-1", 1, due_ms=NOW - 20), "ready", 0
                )
            },
            f"the next free worker that declares {FLOW} will take it",
        ),
    ],
)
def test_one_sentence_explains_why_a_request_was_not_executed(state, facts, words):
    asked = {"is_projected": True, "job": JOB} | facts
    assert words in why_not_sent(
        RequestFacts(_in_phase(msgspec.structs.replace(STATE, **state)), NOW, **asked)
    )


def test_a_redrive_is_advised_with_app_where_the_flow_is_not_declared():
    state = _in_phase(msgspec.structs.replace(STATE, status="failed", flow="billing.receipt"))
    elsewhere = why_not_sent(RequestFacts(state, NOW, is_projected=True, job=None))
    assert elsewhere.endswith("to execute it again: gesta redrive r-1 --app MODULE:NAME")
    here = why_not_sent(RequestFacts(state, NOW, is_projected=True, job=None, is_external=False))
    assert here.endswith("to execute it again: gesta redrive r-1")


@pytest.mark.parametrize("due_at", [None, NOW + 60_000])
def test_retry_is_not_suggested_after_an_erasure(due_at):
    state = msgspec.structs.replace(STATE, due_at=due_at)
    assert "gesta retry" not in why_not_sent(RequestFacts(state, NOW, True, JOB, is_erased=True))


def test_a_job_with_references_only_is_not_suspicious():
    assert suspicious_fields(JOB) == []
    request_id = "01a1e19e-03cd-7000-aeb4-eaf4e483a646"
    assert (
        suspicious_fields(
            QueueStanding(
                Job(f"{request_id}-12", "acme", FLOW, request_id, 12, "reconcile"), "ready", 0
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"tenant": "xoxb-1234567890-abcdef"}, ["tenant"]),
        ({"tenant": "ada@example.com"}, ["tenant"]),
        ({"flow": "Bearer abc123def456ghi789"}, ["flow"]),
        ({"id": "sk_live_abcdefghijkl"}, ["id"]),
        ({"kind": "whsec_QUJDQUJDQUJD"}, ["kind"]),
        ({"request_id": "https://u:p@example.com/x?token=1"}, ["id", "request_id"]),
    ],
)
def test_a_job_with_a_secret_or_an_address_is_found(changes, fields):
    assert (
        suspicious_fields(QueueStanding(msgspec.structs.replace(JOB.job, **changes), "ready", 0))
        == fields
    )  # S1-28


async def test_the_facts_describe_the_running_engine(gesta):
    provider = Provider(Rejected("no"), Retry("busy", after_seconds=100))
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        waiting = await engine.submit(Note())
        await let_run(gesta)
        facts = await examine(engine.pipeline, "default")
        assert {role.name for role in facts.roles if role.is_held(facts.now_ms)} >= {
            "projector",
            "sweep",
        }
        assert (facts.unseen, facts.end, facts.dead_letters, facts.undecided) == (0, 4, 1, 0)
        assert facts.backlog == {FLOW: Backlog(waiting=1)}
        assert [one for one in diagnose(facts) if one.level == "bad"] == []
        view = await waiting.view()
        assert ": busy, after 1 attempt" in why_not_sent(
            await examine_request(engine.pipeline, view)
        )
        await engine.admin.pause(flow=FLOW, reason="they are down")
        explanation = why_not_sent(await examine_request(engine.pipeline, view))
        assert explanation.startswith(
            f"flow {FLOW} of all tenants has been paused since 2027-01-15 08:00"
        )
        assert "(they are down) (and it is not due before " in explanation
        assert explanation.endswith(f"; to resume: gesta resume --flow {FLOW}")


async def test_the_age_of_the_oldest_ready_job_is_a_gauge(gesta):
    """Also while no worker takes any job."""
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        await engine.pipeline.environment.stores.queue.put(
            [Job("x-1", "default", "other.flow", "x", 1)]
        )
        await pass_time(gesta, 125, step_seconds=1)
        sample = engine.pipeline.telemetry.registry.get_sample_value
        age = sample("gesta_queue_oldest_ready_seconds", {"flow": "other.flow"})
        assert age is not None  # S1-22
        assert 55 <= age <= 125  # S1-22


SERVER = LiveProcess("host:7:x", "host", 7, ("api", "worker"), "0.1.0", NOW - 60_000)
IDLE = LiveProcess("web:9:y", "web", 9, ("api",), "0.1.0", NOW - 7_200_000)


def test_every_live_process_is_listed_with_its_roles():
    lines = [
        one.status
        for one in diagnose(msgspec.structs.replace(WELL, processes=(IDLE, SERVER)))
        if one.about == "process"
    ]
    assert lines == [
        "process 9 on web runs api; gesta 0.1.0, up for 2 h",
        "process 7 on host runs api, worker; leads projector, sweep; gesta 0.1.0, up for 1 min",
    ]


def test_no_sentence_claims_that_nothing_runs_while_a_process_is_live():
    facts = RequestFacts(STATE, NOW, is_projected=False, job=None, is_swept=False)
    assert "no process runs on this store" in why_not_sent(facts)
    live = msgspec.structs.replace(facts, processes=(IDLE,))
    assert "no process runs" not in why_not_sent(live)
    assert "no projector is running" in why_not_sent(live)


def test_a_pause_that_would_hold_a_request_is_named_although_no_process_runs():
    """A process that is started next holds it again."""
    facts = RequestFacts(
        STATE,
        NOW,
        is_projected=False,
        job=None,
        is_swept=False,
        pause=PAUSE,
        is_external=False,
    )
    text = why_not_sent(facts)
    assert text.startswith(f"no process runs on this store; start `gesta serve`; flow {FLOW} ")
    assert f"gesta resume --flow {FLOW}" in text


def test_live_workers_that_do_not_take_the_flow_are_named():
    facts = RequestFacts(STATE, NOW, is_projected=True, job=JOB, processes=(IDLE, SERVER))
    assert (
        "no worker has taken it yet: process 7 on host runs a worker, but none takes test.note"
        in why_not_sent(facts)
    )


def test_a_flow_that_this_program_does_not_declare_is_started_by_its_own_program():
    """`gesta doctor` without --app once said `gesta serve`, which does not execute the flow."""
    facts = RequestFacts(STATE, NOW, is_projected=False, job=None, is_swept=False)
    assert why_not_sent(facts).endswith("start `gesta serve --app MODULE:NAME`")
    declared = msgspec.structs.replace(facts, is_external=False)
    assert why_not_sent(declared).endswith("start `gesta serve`")
    others = RequestFacts(STATE, NOW, is_projected=True, job=JOB, processes=(SERVER,))
    assert "start a worker that declares it: `gesta worker --app MODULE:NAME`" in why_not_sent(
        others
    )


async def test_requests_that_are_due_later_are_counted_with_and_without_a_job(gesta):
    async with engine_of(Provider(Retry("busy", after_seconds=86_400))) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        assert _queue_lines(await examine(engine.pipeline, "default")) == [
            (f"queue {FLOW}", "0 ready, 1 later, 0 running")
        ]
        for minutes in (3, 120):
            due = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + minutes * 60, UTC)
            await engine.submit(Note(), deliver_at=due)
        await let_run(gesta)
        assert _queue_lines(await examine(engine.pipeline, "default")) == [
            (f"queue {FLOW}", "0 ready, 3 later, 0 running")
        ]
        # 110 minutes later one has been executed, and the next is due in ten minutes.
        await pass_time(gesta, 110 * 60, step_seconds=60)
        assert _queue_lines(await examine(engine.pipeline, "default")) == [
            (f"queue {FLOW}", "0 ready, 2 later, 0 running")
        ]


def _queue_lines(facts: Facts) -> list[tuple[str, str]]:
    return [(one.about, one.status) for one in diagnose(facts) if one.about.startswith("queue")]


async def test_waiting_jobs_of_a_flow_that_no_worker_executes_are_logged_once(gesta, caplog):
    said = "no worker executes their flow"
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        queue = engine.pipeline.environment.stores.queue
        await queue.put([Job("x-1", "default", "other.flow", "x", 1)])
        await pass_time(gesta, 200, step_seconds=1)
    (line,) = [one.getMessage() for one in caplog.records if said in one.getMessage()]
    assert '"namespace":"other.flow","jobs":1' in line
    assert "gesta worker --app MODULE:NAME" in line


def test_alerts_that_wait_are_not_called_slow():
    checkpoint = Checkpoint("subscription/gesta/alerts", 1)
    facts = msgspec.structs.replace(
        WELL,
        end=20_000,
        checkpoints=[*WELL.checkpoints, checkpoint],
        roles=[*WELL.roles, RoleLease(checkpoint.name, "host:1:a", NOW + 2_000)],
    )

    def line(facts: Facts) -> Finding:
        (found,) = [one for one in diagnose(facts) if one.about == "subscription gesta/alerts"]
        return found

    assert line(facts).action == "the handler is slow"
    waiting = msgspec.structs.replace(facts, alerts_error="there is no webhook.endpoint ops")
    assert (line(waiting).level, line(waiting).action) == ("ok", "")


def test_held_jobs_refer_to_the_lines_about_what_holds_them():
    """A request held only by its missing token was sent to `gesta pause --list`."""
    credential = Scope(None, "default", "slack.account/default")
    missing = Pause(credential, SECRET_MISSING, NOW, "gesta", Refusal(missing=True))
    paused = Pause(Scope("a.b"), "", NOW, "ann")
    backlog = {"a.b": Backlog(held=1)}

    def status(*pauses: Pause) -> str:
        (queue,) = [
            one.status
            for one in diagnose(msgspec.structs.replace(WELL, backlog=backlog, pauses=pauses))
            if one.about == "queue a.b"
        ]
        return queue

    assert status(missing).endswith(", 1 held (see missing below)")
    assert status(missing, paused).endswith(", 1 held (see missing and paused below)")
    assert status(msgspec.structs.replace(paused, scope=Scope("c.d"))).endswith(", 1 held")


async def test_the_facts_list_other_live_processes_and_not_the_doctor_itself(gesta):
    async with engine_of(Provider()) as engine:
        leases = engine.pipeline.environment.stores.leases
        await leases.report(IDLE, 30)
        await leases.report(msgspec.structs.replace(SERVER, id=engine.pipeline.owner), 30)
        assert [one.id for one in (await examine(engine.pipeline, "default")).processes] == [
            IDLE.id
        ]
        request = await engine.submit(Note())
        facts = await examine_request(engine.pipeline, await request.view())
        assert [one.id for one in facts.processes] == [IDLE.id]


def test_schedules_are_shown_with_their_last_and_next_run():
    def findings(**changed):
        checkpoints = [
            *WELL.checkpoints,
            Checkpoint("schedule/daily", NOW - 60_000, **changed.pop("failing", {})),
        ]
        roles = [*WELL.roles, RoleLease("schedules", "host:1:a", NOW + 2_000)]
        facts = msgspec.structs.replace(
            WELL, **{"checkpoints": checkpoints, "roles": roles, **changed}
        )
        (found,) = [one for one in diagnose(facts) if one.about == "schedule daily"]
        return found

    fine = findings(schedules={"daily": NOW + 60_000})
    assert fine.level == "ok"
    assert "last run at" in fine.status
    assert "next at" in fine.status
    assert findings(roles=WELL.roles).status.startswith("no live process runs schedules")
    assert "late since" in findings(schedules={"daily": NOW - 120_000}).status
    failing = findings(failing={"error": "RuntimeError: no", "failed_at_ms": NOW - 1_000})
    assert (failing.level, "RuntimeError: no" in failing.status) == ("bad", True)


def test_the_databases_of_a_store_are_listed_where_there_are_several():
    parts = {"events": "kurrentdb://k:2113", "views": "gesta.db"}
    findings = diagnose(msgspec.structs.replace(WELL, databases=parts))
    assert Finding("ok", "store", "events in kurrentdb://k:2113; views in gesta.db") in findings
