"""A worker's clock and the queue's differ: the queue's decides what may have happened."""

from __future__ import annotations

from gesta.domain.commands import Rules
from gesta.domain.state import QUEUE_HORIZON_MS, State
from gesta.ports.job_queue import Ack, Job, LeasedJob, Release
from gesta.worker.preflight import _not_yet, examine, settled

DUE_MS = 1_800_000_000_000
FIVE_MINUTES_MS = 300_000


def possibly_executed(available_ms: int) -> LeasedJob:
    return LeasedJob(
        Job("r-1", "default", "test.note", "r", 1, due_ms=DUE_MS), "token", 2, available_ms
    )


def test_a_slow_clock_does_not_make_a_lost_attempt_look_clean():
    state = State("r", "default", "test.note", "queued", 1, 0, 0, dispatch_version=1, due_at=DUE_MS)
    # Ready for that time, taken and lost: the provider may have been called, however early it is by
    # our clock.
    assert (
        examine(state, possibly_executed(available_ms=DUE_MS), DUE_MS - FIVE_MINUTES_MS, Rules())
        == "lose"
    )


def test_a_job_lost_after_a_recorded_end_waits_for_the_time_that_this_end_set():
    state = State(
        "r",
        "default",
        "test.note",
        "queued",
        2,
        0,
        0,
        dispatch_version=1,
        attempts=1,
        due_at=DUE_MS,
    )
    assert (
        examine(state, possibly_executed(available_ms=DUE_MS - 60_000), DUE_MS - 1, Rules())
        == "wait"
    )  # K-17


def test_a_scheduled_job_that_comes_early_by_our_clock_is_kept_and_one_with_a_far_retry_is_not():
    # Made long ago for this time: the sweep has put its job when it was due, and does so once.
    state = State("r", "default", "test.note", "queued", 1, 0, 0, dispatch_version=1, due_at=DUE_MS)
    assert state.is_far
    job = Job("r-1", "default", "test.note", "r", 1, due_ms=DUE_MS)
    assert settled(LeasedJob(job, "token", 1, DUE_MS), state, state) == Release(
        "r-1", "token", DUE_MS
    )
    # Its attempt has just ended, and the sweep is still to put the job of the next one.
    assert settled(LeasedJob(job, "token", 1, DUE_MS - QUEUE_HORIZON_MS - 1), state, state) == Ack(
        "r-1", "token"
    )


def test_a_job_that_is_due_by_the_queues_clock_only_is_not_released_until_a_time_that_has_come():
    """It would be taken again at once, and again, until our clock says so, too."""
    state = State("r", "default", "test.note", "queued", 1, 0, 0, dispatch_version=1, due_at=DUE_MS)
    job = Job("r-1", "default", "test.note", "r", 1, due_ms=DUE_MS)
    leased = LeasedJob(job, "token", 1, DUE_MS)
    released = _not_yet(leased, state, now_ms=DUE_MS - FIVE_MINUTES_MS)
    assert isinstance(released, Release)
    assert released.due_ms > DUE_MS
    nearly = _not_yet(leased, state, now_ms=DUE_MS - 7)
    assert nearly == Release("r-1", "token", DUE_MS + 7)
