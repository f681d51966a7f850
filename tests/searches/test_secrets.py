"""Secrets and personal data are put wherever a user can put them; then every byte that was written
or said is searched for them.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

from gesta import Engine
from gesta.runtime.clock import run
from gesta.worker import attempt
from tests.cli.conftest import cli, folder
from tests.cli.running import Cli
from tests.searches.forms import files_of, places
from tests.searches.walk import (
    CODE,
    IN_URL,
    KIND,
    PEOPLE,
    SECRETS,
    VARIABLE,
    Heard,
    Walk,
    flows,
    log_into,
)

__all__ = ["cli", "folder"]

#: For commands. No server receives what it would send.
engine = Engine("sqlite:///gesta.db", flows=flows(Heard(), "http://127.0.0.1:9/http"))
APP = "tests.searches.test_secrets:engine"


@pytest.fixture
def walk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """The walk, done, with its log at the finest level beside the store."""
    monkeypatch.setenv(VARIABLE, SECRETS["referred secret"])
    logging.getLogger("gesta").setLevel(logging.DEBUG)
    (folder / "logs").mkdir()
    handler = log_into(folder / "logs" / "gesta.log")
    walk = Walk(folder)
    run(walk.run())
    handler.close()
    logging.getLogger("gesta").removeHandler(handler)
    return walk


def commands(cli: Cli, walk: Walk) -> dict[str, bytes]:
    """What the command line says about all of it."""
    asked = [
        [*command, *mode]
        for mode in ([], ["--json"])
        for command in (
            *(["show", one] for one in walk.ids),
            ["list"],
            ["list", "--quarantined"],
            ["dlq", "list"],
            ["dlq", "show", walk.ids[2]],
            ["config", "list"],
            ["config", "get", KIND, CODE],
            ["config", "get", "webhook.endpoint", "hook"],
            ["settings"],
            ["key", "list"],
        )
    ]
    said = {}
    for command in asked:
        answer = cli(*command, "--app", APP)
        assert answer.code == 0, (command, answer)
        said[" ".join(command)] = (answer.out + answer.err).encode()
    return said


def left_behind(walk: Walk) -> dict[str, bytes]:
    """Every file, except the key file: its reader may read the secrets."""
    return {
        name: content
        for name, content in files_of(walk.folder).items()
        if not name.endswith(".key")
    }


@pytest.mark.slow
def test_no_secret_is_in_any_file_and_in_anything_that_is_said(walk, cli):
    assert {*SECRETS.values(), *PEOPLE.values()} - walk.heard.texts == {SECRETS["webhook secret"]}
    said = {**walk.outputs, **commands(cli, walk), **left_behind(walk)}
    assert {"gesta.db", "gesta.log", "metrics", "dead letters", "conflict"} <= said.keys()
    assert b"shop.letter" in said["gesta.db"]
    assert b"attempt" in said["gesta.log"]
    # S0-27, S1-28
    assert places(SECRETS | walk.keys, said) == []


@pytest.mark.slow
def test_no_person_is_in_a_job_a_log_a_metric_a_dead_letter_or_an_error_text(walk, cli):
    jobs = jobs_in(walk.folder / "gesta.db")
    # Jobs about these people are there to be searched: one waits for its time, one for the end of a
    # pause.
    assert {one for one in walk.waiting if one.encode() in jobs} == walk.waiting != set()
    said = {**walk.outputs, **commands(cli, walk), **files_of(walk.folder / "logs"), "jobs": jobs}
    # S1-20
    assert places(PEOPLE, said) == []
    # A program that asks for its config gets it; no other program does.
    assert [found for found in places(IN_URL, said) if not found.endswith(" in config")] == []


def jobs_in(path: Path) -> bytes:
    db = apsw.Connection(str(path))
    try:
        return repr(
            db.execute("select * from jobs").fetchall()
            + db.execute("select * from quarantined").fetchall()
        ).encode()
    finally:
        db.close()


@pytest.mark.slow
def test_the_search_finds_an_attempt_that_says_what_it_was_given(folder, cli, monkeypatch):
    monkeypatch.setattr(attempt, "discreet", lambda outcome, *_: outcome)
    monkeypatch.setenv(VARIABLE, SECRETS["referred secret"])
    walk = Walk(folder)
    run(walk.run())
    said = {**walk.outputs, **commands(cli, walk), **left_behind(walk)}
    found = places({**SECRETS, **PEOPLE}, said)
    assert {
        f"name in show {walk.ids[1]} --json",
        "referred secret in dead letters",
        "token in outcome of rejected",
    } <= {*found}


@pytest.mark.parametrize(
    "hide",
    [
        str.encode,
        lambda text: json.dumps(text).encode(),
        lambda text: json.dumps(json.dumps(text)).encode(),
        lambda text: quote(text, safe="").encode(),
        lambda text: text.encode().hex().encode(),
        lambda text: base64.b64encode(b"x" + text.encode() + b"y"),
        lambda text: base64.b64encode(b"xy" + text.encode()),
        lambda text: base64.urlsafe_b64encode(b"xyz" + text.encode() + b"yz"),
    ],
)
def test_a_text_is_found_in_whatever_form(hide):
    texts = {**SECRETS, **PEOPLE}
    for name, text in texts.items():
        assert places(texts, {"here": b"..." + hide(text) + os.urandom(64)}) == [f"{name} in here"]
        assert places({name: text}, {"there": hide("something else altogether")}) == []
