"""The synchronous engine: in threads, in scripts, across forks and under gunicorn."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gesta import (
    Attempt,
    Conflict,
    Done,
    GestaError,
    NotFound,
    Outcome,
    OutcomeTimeout,
    Payload,
    Rejected,
    flow,
)
from gesta.flows import slack
from gesta.runtime.settings import Settings
from gesta.sandbox.server import SandboxServer
from gesta.sync import Engine
from tests.http_api.served import MASTER

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sync.md"
WORKERS = 3


class Note(Payload, frozen=True):
    n: int = 0


@flow("test.note", on_unknown="manual")
async def note(payload: Note, attempt: Attempt) -> Outcome:
    return Done(id=str(payload.n)) if payload.n >= 0 else Rejected("negative")


def settings(folder: Path) -> Settings:
    return Settings(url=f"sqlite:///{folder / 'gesta.db'}", master_key=MASTER)


@pytest.fixture
def engine(tmp_path) -> Iterator[Engine]:
    with Engine(settings=settings(tmp_path), flows=[note]) as one:
        yield one


def test_submit_outcome_and_find(engine):
    request = engine.submit(Note(7), key="order-7")
    assert (request.verdict, request.flow, request.tenant) == ("created", "test.note", "default")
    assert request.outcome(timeout=60) == Done(id="7")
    assert engine.submit(Note(7), key="order-7").verdict == "duplicate"
    assert (request.status(), engine.outcome(request.id)) == ("completed", Done(id="7"))
    assert [view.state.id for view in engine.find(key="order-7")] == [request.id]
    assert engine.submit(Note(-1)).outcome(timeout=60) == Rejected("negative")


def test_errors_are_raised_in_the_calling_thread(engine):
    engine.submit(Note(7), key="order-7")
    with pytest.raises(Conflict):
        engine.submit(Note(8), key="order-7")
    with pytest.raises(NotFound):
        engine.cancel("01a1ebfd-5d26-7000-a444-cf0749b1e8c9")


def test_a_waiting_request_is_cancelled(tmp_path):
    with Engine(settings=settings(tmp_path), flows=[note], work=False) as engine:
        request = engine.submit(Note())
        with pytest.raises(OutcomeTimeout):
            request.outcome(timeout=0.05)
        assert (request.cancel(), request.status()) == ("cancelled", "cancelled")


def test_any_thread_may_use_it(engine: Engine):
    def send(n: int) -> Outcome:
        return engine.submit(Note(n), key=f"order-{n % 20}-{n // 40}").outcome(timeout=30)

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(send, range(20)))
    assert outcomes == [Done(id=str(n)) for n in range(20)]


def test_a_closed_engine_starts_again_with_the_next_call(engine):
    request = engine.submit(Note(1))
    engine.close()
    assert engine.outcome(request.id, timeout=20) == Done(id="1")


def test_start_executes_what_waits_without_a_call(tmp_path):
    with Engine(settings=settings(tmp_path), flows=[note], work=False) as submitting:
        submitting.submit(Note(3), key="waits")
    executed = threading.Event()

    @flow("test.note", on_unknown="manual")
    async def noting(payload: Note, attempt: Attempt) -> Outcome:
        executed.set()
        return Done(id=str(payload.n))

    engine = Engine(settings=settings(tmp_path), flows=[noting])
    engine.start()
    engine.start()
    try:
        assert executed.wait(30)
    finally:
        engine.close()


def test_closing_ends_a_call_that_waits(tmp_path):
    engine = Engine(settings=settings(tmp_path), flows=[note], work=False)
    request = engine.submit(Note())
    errors: list[Exception] = []

    def wait() -> None:
        try:
            request.outcome(timeout=60)
        except GestaError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: bool(engine._runner.started().waiting))
    engine.close()
    waiting.join(20)
    assert [str(error) for error in errors] == ["the engine was closed while a call waited"]


def test_an_executor_that_calls_it_is_refused_instead_of_blocked(tmp_path):
    errors: list[str] = []

    @flow("test.nested", on_unknown="manual")
    async def nested(payload: Note, attempt: Attempt) -> Outcome:
        try:
            opened.submit(payload)
        except GestaError as error:
            errors.append(str(error))
        return Done()

    opened = Engine(settings=settings(tmp_path), flows=[nested])
    with opened:
        assert opened.submit(Note()).outcome(timeout=60) == Done()
    assert errors == ["this thread runs the event loop of gesta; use gesta.Engine here"]


def eventually(holds) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


FORKING = """
import os, sys, threading
from gesta import Attempt, Done, Outcome, Payload, flow
from gesta.sync import Engine

class Note(Payload):
    n: int

@flow("test.note", on_unknown="manual")
async def note(payload: Note, attempt: Attempt) -> Outcome:
    return Done(id=str(payload.n))

engine = Engine("sqlite:///gesta.db", flows=[note])
"""

#: The parent starts the engine before it forks; each child starts its own.
STARTED_BEFORE = """
engine.start()
children = []
for n in range(1, 4):
    child = os.fork()
    if not child:
        engine.start()
        engine.start()
        print(engine.submit(Note(n=n), key=f"child-{n}").outcome(timeout=60), flush=True)
        sys.exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
print(engine.submit(Note(n=9), key="parent").outcome(timeout=60))
"""

#: The engine runs while the process forks; another thread waits for an outcome across the fork.
WHILE_IT_RUNS = """
from datetime import UTC, datetime, timedelta
late = engine.submit(Note(n=1), deliver_at=datetime.now(UTC) + timedelta(seconds=3))
waited = []
waiting = threading.Thread(target=lambda: waited.append(late.outcome(timeout=60)))
waiting.start()
children = []
for n in range(2, 5):
    child = os.fork()
    if not child:
        print(engine.submit(Note(n=n), key=f"child-{n}").outcome(timeout=60))
        sys.exit(0)
    children.append(child)
print(engine.submit(Note(n=9), key="parent").outcome(timeout=60))
for child in children:
    assert os.waitpid(child, 0)[1] == 0
waiting.join()
print(waited[0])
print(sorted(view.state.status for view in engine.find()))
"""

BY_A_FLOW = """
class Other(Note):
    pass

@flow("test.fork", on_unknown="manual")
async def fork(payload: Other, attempt: Attempt) -> Outcome:
    child = os.fork()
    if not child:
        try:
            engine.find()
        except Exception as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    return Done(id="forked")

engine = Engine("sqlite:///gesta.db", flows=[note, fork])
print(engine.submit(Other(n=1)).outcome(timeout=60))
print(engine.submit(Note(n=2)).outcome(timeout=60))
"""


def run(program: str, folder: Path, *arguments: str) -> list[str]:
    (folder / "program.py").write_text(program)
    environment = {**os.environ, "GESTA_MASTER_KEY": MASTER, "GESTA_ALLOW_PRIVATE": "127.0.0.1/32"}
    done = subprocess.run(
        [sys.executable, "program.py", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_parent_and_children_go_on_after_a_fork(tmp_path):
    lines = run(FORKING + WHILE_IT_RUNS, tmp_path)
    assert sorted(lines[:-1]) == [f"Done(id='{n}')" for n in (1, 2, 3, 4, 9)]
    assert lines[-1] == str(["completed"] * 5)


@pytest.mark.slow
def test_a_start_before_a_fork_breaks_neither_parent_nor_children(tmp_path):
    lines = run(FORKING + STARTED_BEFORE, tmp_path)
    assert sorted(lines) == [f"Done(id='{n}')" for n in (1, 2, 3, 9)]


@pytest.mark.slow
def test_a_child_that_a_flow_forked_is_refused_and_the_parent_goes_on(tmp_path):
    assert run(FORKING + BY_A_FLOW, tmp_path) == [
        "a flow forked this process; start another program instead",
        "Done(id='forked')",
        "Done(id='2')",
    ]


@pytest.mark.slow
def test_a_program_that_does_not_close_it_ends(tmp_path):
    assert run(FORKING + "print(engine.submit(Note(n=1)).outcome(timeout=60))", tmp_path) == [
        "Done(id='1')"
    ]


#: A process of gunicorn says which it is; with --preload the master has used the engine before it
#: forks.
EXTRA = """
import os

@app.after_request
def say_which(response):
    response.headers["X-Process"] = str(os.getpid())
    return response
"""
BEFORE_THE_FORK = """
print(engine.submit(slack.Message(channel="C012AB3CD", text="started"), key="started").outcome(30))
"""


@asynccontextmanager
async def gunicorn(folder: Path, *options: str) -> AsyncIterator[str]:
    """The application with three workers; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GESTA_")}
    environment = {
        **kept,
        "GESTA_MASTER_KEY": MASTER,
        "GESTA_ALLOW_PRIVATE": "127.0.0.1/32",
        "SLACK_TOKEN": "xoxb-1",
    }
    command = [sys.executable, "-m", "gunicorn", "--workers", str(WORKERS)]
    command += ["--bind", f"127.0.0.1:{port}", "--log-level", "warning", *options, "program:app"]
    with (folder / "gunicorn.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def post(address: str, n: int) -> tuple[str, str]:
    """The verdict, and the process that answered. A connection for each call."""
    until = time.monotonic() + 60
    while True:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{address}/orders/{n}/paid") as answer,
            ):
                assert answer.status == 202, await answer.text()
                return (await answer.json())["verdict"], answer.headers["X-Process"]
        except aiohttp.ClientConnectorError:
            assert time.monotonic() < until
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("is_preloaded", [True, False])
async def test_flask_under_gunicorn_sends_each_message_once(tmp_path, is_preloaded):
    (program, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "program.py").write_text(
        program + (BEFORE_THE_FORK if is_preloaded else "") + EXTRA
    )
    async with SandboxServer() as provider:
        await asyncio.to_thread(store_workspace, tmp_path, f"{provider.url}/slack/")
        options = ("--preload",) if is_preloaded else ()
        processes: set[str] = set()
        created, n = 0, 0
        async with gunicorn(tmp_path, *options) as address:
            until = time.monotonic() + 90
            # Each order from several connections at once, until every process has answered.
            while len(processes) < WORKERS or n < 10:
                assert time.monotonic() < until
                answers = await asyncio.gather(*(post(address, n) for _ in range(6)))
                processes |= {process for _, process in answers}
                created += [verdict for verdict, _ in answers].count("created")
                n += 1
            expected = {f"{one} paid" for one in range(n)} | (
                {"started"} if is_preloaded else set()
            )
            while len(provider.sandbox.slack.effects) < len(expected):
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
        texts = [effect.text for effect in provider.sandbox.slack.effects]
        assert (created, sorted(texts)) == (n, sorted(expected))
        assert {effect.receipts for effect in provider.sandbox.slack.effects} == {1}
    assert "Traceback" not in (tmp_path / "gunicorn.log").read_text()


def hook_of_the_page() -> str:
    """gunicorn.conf.py as the page shows it."""
    hook: str
    (hook,) = re.findall(r"```python\n(# gunicorn.conf.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    return hook.replace("from shop import", "from program import")


@pytest.mark.slow
@pytest.mark.parametrize("is_preloaded", [True, False])
async def test_a_started_worker_executes_what_waits_before_a_view_is_called(tmp_path, is_preloaded):
    (program, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # The master has used the engine, and closed it: only the workers can execute the request.
    used = "engine.find()\nengine.close()\n" if is_preloaded else ""
    (tmp_path / "program.py").write_text(program + used)
    (tmp_path / "gunicorn.conf.py").write_text(hook_of_the_page())
    async with SandboxServer() as provider:
        await asyncio.to_thread(store_workspace, tmp_path, f"{provider.url}/slack/")
        engine = Engine(settings=settings(tmp_path), flows=[slack.flow()], work=False)
        message = slack.Message(channel="C012AB3CD", text="waits")
        await asyncio.to_thread(engine.submit, message, key="waits")
        await asyncio.to_thread(engine.close)
        async with gunicorn(tmp_path, *(("--preload",) if is_preloaded else ())):
            until = time.monotonic() + 60
            while not provider.sandbox.slack.effects:
                assert time.monotonic() < until, (tmp_path / "gunicorn.log").read_text()
                await asyncio.sleep(0.05)
        assert [effect.text for effect in provider.sandbox.slack.effects] == ["waits"]
    assert "Traceback" not in (tmp_path / "gunicorn.log").read_text()


@pytest.mark.slow
async def test_the_script_of_the_page_sends_a_message(tmp_path):
    (*_, program) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    async with SandboxServer() as provider:
        await asyncio.to_thread(store_workspace, tmp_path, f"{provider.url}/slack/")
        (line,) = await asyncio.to_thread(run, program, tmp_path, "hello")
        assert line.startswith("Done(id=")
        assert [effect.text for effect in provider.sandbox.slack.effects] == ["hello"]


def store_workspace(folder: Path, url: str) -> None:
    async def store() -> None:
        from gesta import Engine as AsynchronousEngine

        async with AsynchronousEngine(
            settings=settings(folder), flows=[slack.flow()], work=False
        ) as engine:
            fields = {"token": "xoxb-1", "api_url": url, "channel_per_second": 1000.0}
            fields["per_second"] = 1000.0
            await engine.admin.put_config("slack.workspace", "default", fields)

    asyncio.run(store())
