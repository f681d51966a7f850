"""Personal data is in no file of the store, whatever happened to the request and before and after
its person was erased.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gesta import Engine
from gesta.flows.flow import Flow
from gesta.runtime.clock import run
from tests.cli.conftest import cli, folder
from tests.searches.forms import files_of, places
from tests.searches.walk import PEOPLE, SECRETS, VARIABLE, Heard, Walk, letter, letter_flow

__all__ = ["cli", "folder"]

APP = "tests.searches.test_secrets:engine"
ADDRESS = PEOPLE["e-mail"]


async def with_names_of_people(folder: Path) -> None:
    """Keys and ids of callers that hold a person's address."""
    flow: Flow = letter_flow(Heard(), "http://127.0.0.1:9/http")
    async with Engine(f"sqlite:///{folder / 'gesta.db'}", flows=[flow]) as engine:
        request = await engine.submit(
            letter("unknown"), key=f"letter to {ADDRESS}", correlation_id=f"order of {ADDRESS}"
        )
        await request.outcome()
        again = await engine.submit(letter("unknown"), key=f"letter to {ADDRESS}")
        assert (again.verdict, again.id) == ("duplicate", request.id)


@pytest.mark.slow
def test_no_person_is_in_any_file_before_and_after_an_erasure(folder, cli, monkeypatch):
    monkeypatch.setenv(VARIABLE, SECRETS["referred secret"])
    logging.getLogger("gesta").setLevel(logging.DEBUG)
    walk = Walk(folder)
    run(walk.run())
    run(with_names_of_people(folder))
    assert {*PEOPLE.values()} <= walk.heard.texts
    assert {"gesta.db", "gesta.key"} <= files_of(folder).keys()
    # R1-43
    assert places(PEOPLE, files_of(folder)) == []
    for person in PEOPLE.values():
        erased = cli("erase", person, "--app", APP)
        assert erased.code == 0, erased
        assert places(PEOPLE, {"what erase says": (erased.out + erased.err).encode()}) == []
    assert places(PEOPLE, files_of(folder)) == []
