"""An attempt without a call does not resolve the one before it."""

from __future__ import annotations

import pytest

from gesta import Engine, Flow, Payload, Unknown
from gesta.domain.commands import Rules
from gesta.flows.deferrals import Postponed
from gesta.ports.job_queue import LeasedJob
from gesta.worker.pool import Pool
from tests.worker.test_refused_credentials import ACCOUNT, Account
from tests.world import FLOW, URL, Gate, Note, Provider, die, engine_of, let_run, pass_time


class Old(Payload, frozen=True):
    text: str


class New(Payload, frozen=True):
    words: str


async def test_an_unknown_outcome_is_not_resolved_by_a_payload_that_no_longer_fits(gesta):
    """The second attempt calls no provider; the first may have had its effect."""
    rules, first, second = Rules(on_unknown="resend"), Provider(Unknown("no_answer")), Provider()
    async with Engine(URL, flows=[Flow("test.p", Old, first.execute, rules)]) as engine:
        request = await engine.submit(Old("x"))
        await let_run(gesta)
    async with Engine(URL, flows=[Flow("test.p", New, second.execute, rules)]) as engine:
        await gesta.settle()
        state = (await (await engine.request(request.id)).view()).state
    assert (state.status, state.reason, state.due_at, second.calls) == (
        "unknown",
        "bad_payload",
        None,
        [],
    )


async def test_a_flow_that_names_its_credential_by_something_else_than_a_text_costs_no_slot(
    gesta,
):
    provider = Provider()

    def credential(note):
        return [ACCOUNT, "main"] if note.text == "bad" else f"{ACCOUNT}/main"

    declared = Flow(
        FLOW, Note, provider.execute, Rules(), config={ACCOUNT: Account}, credential=credential
    )
    async with Engine(URL, flows=[declared]) as engine:
        await let_run(gesta)
        await engine.admin.pause(tenant="default", credential=f"{ACCOUNT}/other")
        requests = [await engine.submit(Note(text)) for text in ("good", "bad")]
        await gesta.settle()
        assert [await request.status() for request in requests] == ["completed", "completed"]
        assert engine.pipeline.pool.lease.held == 0


async def test_whatever_goes_wrong_while_pauses_are_looked_up_quarantines_one_job_and_keeps_no_slot(
    gesta, monkeypatch
):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        look = engine.pipeline.pausing.holds_of

        def stumble(leased, found, flows):
            if any(view.payload == b'{"text":"bad"}' for view in found.values()):
                raise TypeError("no text")
            return look(leased, found, flows)

        monkeypatch.setattr(engine.pipeline.pausing, "holds_of", stumble)
        requests = [await engine.submit(Note(text)) for text in ("good", "bad")]
        await pass_time(gesta, 1)
        assert await requests[0].status() == "completed"
        assert [
            one.what
            for one in await engine.pipeline.environment.stores.read_model.quarantined(None, 10)
        ] == ["job"]
        assert engine.pipeline.pool.lease.held == 0


async def test_a_lost_job_left_to_the_end_of_its_lease_is_not_kept_by_other_work(
    gesta, monkeypatch
):
    """The process stands still for three and a half seconds right after it has taken the job, then
    goes on with much else.
    """
    gate = Gate()
    frozen: list[LeasedJob] = []
    engine = engine_of(Provider(gate))
    await engine.start()
    request = await engine.submit(Note("lost"))
    await gate.reached.wait()
    await die(engine)
    start = Pool._start_attempt

    def freeze(self, running):
        start(self, running)
        if running.leased.is_possibly_executed and not frozen:
            frozen.append(running.leased)
            gesta.runtime._now_ms += 3_500

    monkeypatch.setattr(Pool, "_start_attempt", freeze)
    async with engine_of(Provider()) as engine:
        while not frozen:
            gesta.advance(0.05)
            await let_run(gesta)
        for number in range(30):
            await engine.submit(Note(str(number)))
            await pass_time(gesta, 1, 0.5)
        assert await (await engine.request(request.id)).status() == "completed"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
async def test_a_job_that_is_put_off_for_no_number_of_seconds_comes_back(gesta, seconds):
    async def execute(note, attempt):
        raise Postponed(seconds)

    async with Engine(URL, flows=[Flow(FLOW, Note, execute)]) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        assert await request.status() == "queued"
        (job,) = await engine.pipeline.environment.stores.job_inspection.jobs("", 10)
        assert (job.state, job.job.due_ms > gesta.runtime.now_ms()) == ("waiting", True)
