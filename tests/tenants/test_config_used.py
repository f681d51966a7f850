"""The events that end an attempt tell the versions of the config it went by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gesta import Attempt, Done, Engine, Outcome, Rejected, Retry, Unknown
from gesta.admin.representations import attempt_representations
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows.flow import ConfigBody
from tests.world import URL, Deaf, Note, Provider, events_of, fields, let_run, note_flow, pass_time

ROOM = "chat.room"


class Room(ConfigBody, frozen=True):
    name: str


def looks_up(*outcomes: Outcome) -> Provider:
    async def play(_payload: Note, attempt: Attempt) -> Outcome:
        for code in ("ops", "missing"):
            attempt.config.get(ROOM, code)
        return outcomes[min(attempt.number, len(outcomes)) - 1]

    return Provider(*[play] * len(outcomes))


async def last_event(engine: Engine, request_id: str) -> tuple[str, dict[str, Any]]:
    last = (await events_of(engine, request_id))[-1]
    return last.type.split(".")[-2], fields(last.data)


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (Done("1"), "Completed"),
        (Rejected("no"), "Failed"),
        (Retry("busy", after_seconds=60), "AttemptFailed"),
        (Unknown("timeout"), "OutcomeUnknown"),
    ],
)
async def test_every_end_of_an_attempt_records_the_config_versions(gesta, outcome, event):
    async with Engine(
        URL, flows=[note_flow(looks_up(outcome), on_unknown="manual", config={ROOM: Room})]
    ) as engine:
        await engine.admin.put_config(ROOM, "other", {"name": "o"})
        await engine.admin.put_config(ROOM, "ops", {"name": "a"})
        await engine.admin.put_config(ROOM, "ops", {"name": "b"})
        request = await engine.submit(Note())
        await let_run(gesta)
        name, stored = await last_event(engine, request.id)
        assert (name, stored["used"]) == (event, {"chat.room/ops": 2})
        (attempt,) = msgspec.to_builtins(attempt_representations(await engine.history(request.id)))
        assert attempt["used"] == {"chat.room/ops": 2}


async def test_the_last_attempt_records_the_config_versions_on_both_events(gesta):
    provider = looks_up(Retry("busy"), Retry("busy"))
    flow = note_flow(provider, retry=RetryPolicy(attempts=2, base_seconds=1), config={ROOM: Room})
    async with Engine(URL, flows=[flow]) as engine:
        await engine.admin.put_config(ROOM, "ops", {"name": "a"})
        request = await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.put_config(ROOM, "ops", {"name": "b"})
        await pass_time(gesta, 30)
        reported = [
            (event.type.split(".")[-2], fields(event.data).get("used"))
            for event in await events_of(engine, request.id)
        ]
        assert reported[1:] == [
            ("AttemptFailed", {"chat.room/ops": 1}),
            ("AttemptFailed", {"chat.room/ops": 2}),
            ("Failed", {"chat.room/ops": 2}),
        ]


async def test_an_attempt_cut_off_by_its_limit_records_the_config_versions(gesta):
    deaf = Deaf()

    async def stuck(payload: Note, attempt: Attempt) -> Outcome:
        attempt.config.get(ROOM, "ops")
        return await deaf(payload, attempt)

    async with Engine(
        URL, flows=[note_flow(Provider(stuck), on_unknown="manual", config={ROOM: Room})]
    ) as engine:
        await engine.admin.put_config(ROOM, "ops", {"name": "a"})
        request = await engine.submit(Note())
        await pass_time(gesta, 40)
        assert await last_event(engine, request.id) == (
            "OutcomeUnknown",
            {
                "attempt": 1,
                "reason": "timeout",
                "policy": "manual",
                "detail": "the executor was cancelled and does not end",
                "used": {"chat.room/ops": 1},
            },
        )
        deaf.opened.set()
        await let_run(gesta)


async def test_an_attempt_without_config_records_no_versions(gesta):
    async with Engine(URL, flows=[note_flow(Provider(Done("1")), config={ROOM: Room})]) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        recorded = msgspec.json.decode((await events_of(engine, request.id))[-1].data)
        assert recorded.keys() == {"attempts", "providerTxnId", "startedAt", "worker", "host"}
