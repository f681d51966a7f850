"""A request whose config is not stored is held, warns at submit, and is sent once it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from gesta import Attempt, Done, Engine, Flow, Outcome, Request
from gesta.domain.commands import Rules
from gesta.errors import OutcomeTimeout
from gesta.flows import email, slack, webhook
from gesta.flows.deferrals import ConfigMissing
from gesta.flows.flow import ConfigBody
from gesta.ports.job_queue import HeldJob
from gesta.runtime.settings import resolve_reference
from tests.world import FLOW, URL, Note, let_run, pass_time, result

ROOM = "shop.room"


class Room(ConfigBody, frozen=True):
    name: str


async def enter(note: Note, attempt: Attempt) -> Outcome:
    stored = attempt.config.get(ROOM, "main")
    if stored is None:
        raise ConfigMissing(ROOM, "main", "room_missing")
    assert isinstance(stored.body, Room)
    return Done(stored.body.name)


def room_flow(**options: Any) -> Flow:
    credential = f"{ROOM}/main"
    return Flow(
        FLOW,
        Note,
        enter,
        Rules(),
        config={ROOM: Room},
        credential=lambda _: credential,
        effects="attempt",
        **options,
    )


async def test_a_request_is_held_until_its_config_is_stored(gesta, caplog):
    async with Engine(URL, flows=[room_flow()]) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 30)
        assert await engine.admin.held() == [
            HeldJob("default", f"tenant:default refused:{ROOM}/main", 1)
        ]
        (pause,) = await engine.admin.pauses_of([await request.view()])
        assert pause is not None
        assert (pause.kind, pause.reason.partition(":")[0]) == ("config", "room_missing")
        assert (await request.view()).state.attempts == 0
        lines = [one.getMessage() for one in caplog.records]
        assert sum("config missing" in line for line in lines) == 1
        assert not any("credential refused" in line for line in lines)
        await engine.admin.put_config(ROOM, "main", {"name": "blue"})
        await let_run(gesta)
        assert await result(request) == Done("blue")


async def test_submit_warns_of_config_that_is_not_stored_and_not_once_it_is(gesta):
    async with Engine(URL, flows=[room_flow()]) as engine:
        (warning,) = (await engine.submit(Note())).warnings
        assert warning.code == "config_missing"
        assert f"gesta config put {ROOM} main" in warning.message
        assert (await engine.submit(Note(), test=True)).warnings == ()
        (batch,) = await engine.submit_many([Note("b")])
        assert isinstance(batch, Request)
        assert [one.code for one in batch.warnings] == ["config_missing"]
        await engine.admin.put_config(ROOM, "main", {"name": "blue"})
        assert (await engine.submit(Note("later"))).warnings == ()


async def test_submit_warns_of_a_pause_and_of_a_refused_credential(gesta):
    async with Engine(URL, flows=[room_flow()]) as engine:
        await engine.admin.put_config(ROOM, "main", {"name": "blue"})
        await engine.admin.pause(flow=FLOW, reason="maintenance")
        (warning,) = (await engine.submit(Note())).warnings
        assert (warning.code, "maintenance" in warning.message) == ("paused", True)


async def test_another_process_that_stores_the_config_releases_what_is_held(gesta):
    async with Engine(URL, flows=[room_flow()]) as here:
        request = await here.submit(Note())
        await let_run(gesta)
        async with Engine(URL, flows=[room_flow()], work=False) as there:
            await there.admin.put_config(ROOM, "main", {"name": "blue"})
        await pass_time(gesta, 11)
        assert await result(request) == Done("blue")


async def test_a_program_without_its_token_learns_the_variable_from_the_outcome_it_awaits(
    gesta, monkeypatch
):
    monkeypatch.setattr("gesta.testing.plugin._reference", resolve_reference)
    flow = slack.flow(token="env:NO_SUCH_TOKEN_IS_SET")
    async with Engine(URL, flows=[flow]) as engine:
        request = await engine.submit(slack.Message(channel="C012AB3CD", text="hello"))
        assert [one.code for one in request.warnings] == ["credential_missing"]
        assert "env:NO_SUCH_TOKEN_IS_SET" in request.warnings[0].message
        with pytest.raises(OutcomeTimeout) as late:
            await request.outcome(timeout=5)
        # A program without SLACK_TOKEN gets an error that names the variable.
        assert "env:NO_SUCH_TOKEN_IS_SET is not set" in str(late.value)
        assert "still queued" not in str(late.value)


async def test_an_unknown_endpoint_is_named_by_the_outcome_that_times_out(gesta):
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        request = await engine.submit(webhook.Message("order.paid", {}, endpoint="erp"))
        with pytest.raises(OutcomeTimeout, match=r"gesta config put webhook\.endpoint erp"):
            await request.outcome(timeout=5)


async def test_a_later_email_is_held_by_a_missing_sender_without_an_attempt(gesta):
    """Encrypted fields once kept the credential of an e-mail from being read."""
    async with Engine(URL, flows=[email.flow()]) as engine:
        ref = await email.store_body(engine, "<p>Hi</p>")
        await engine.submit(email.Message("ana@example.com", "a", ref))
        await let_run(gesta)
        later = await engine.submit(email.Message("bob@example.com", "b", ref))
        assert [one.code for one in later.warnings] == ["config_missing"]
        await let_run(gesta)
        (pause,) = await engine.admin.pauses_of([await later.view()])
        assert pause is not None
        assert pause.kind == "config"
        assert sum(one.count for one in await engine.admin.held()) == 2
