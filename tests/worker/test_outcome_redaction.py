"""What an attempt says is stored and logged: neither a secret nor a person may be in it."""

from __future__ import annotations

import logging

from gesta import Attempt, Engine, Outcome, Payload, Personal, Unknown
from gesta.domain.commands import Rules
from gesta.flows.flow import ConfigBody, Flow, Secret


class Letter(Payload, frozen=True):
    to: Personal[str]
    order: str = "A-7"


class Account(ConfigBody, frozen=True):
    token: Secret[str]


async def send(letter: Letter, attempt: Attempt) -> Outcome:
    [token] = await attempt.config.secrets("test.account", "main", "token")
    raise ValueError(f"{letter.to} was refused with {token} for {letter.order}")


async def test_an_exception_shows_its_location_and_neither_the_person_nor_the_secret(gesta, caplog):
    caplog.set_level(logging.DEBUG, "gesta")
    flow = Flow("test.letter", Letter, send, Rules(), config={"test.account": Account})
    async with Engine(flows=[flow]) as engine:
        await engine.admin.put_config("test.account", "main", {"token": "opensesame"})
        request = await engine.submit(Letter(to="Ada Lovelace"))
        outcome = await request.outcome()
        history = repr(await engine.history(request.id))[1:]
    assert isinstance(outcome, Unknown)
    assert outcome.detail.startswith(
        "ValueError: [hidden] was refused with [hidden] for A-7 (at test_outcome_redaction.py:"
    )
    assert "opensesame" not in caplog.text + history
    assert "Ada Lovelace" not in caplog.text
