"""A queue that delivers at least once: what a worker does with a job, given the journal."""

from __future__ import annotations

import pytest

from gesta.domain.commands import Rules
from gesta.domain.state import State
from gesta.ports.job_queue import Job, LeasedJob
from gesta.worker.preflight import examine


@pytest.mark.parametrize(
    ("started", "takes", "may_be_copy", "finding"),
    [
        (None, 1, True, "execute"),
        # Every call is journalled first: nothing was called.
        (None, 2, True, "execute"),
        (None, 2, False, "lose"),
        # The copy under which the attempt began comes back if its worker died.
        (1, 1, True, "copy"),
        (1, 2, True, "lose"),
        (1, 1, False, "lose"),
    ],
)
def test_the_journal_shows_how_a_copy_ended(started, takes, may_be_copy, finding):
    state = State(
        "r", "default", "test.note", "queued", 1, 0, 0, dispatch_version=1, started=started
    )
    job = Job(state.job_id, state.tenant, state.flow, state.id, state.dispatch_version)
    leased = LeasedJob(job, "token", takes, 0, may_be_copy=may_be_copy)
    assert examine(state, leased, 10, Rules()) == finding
