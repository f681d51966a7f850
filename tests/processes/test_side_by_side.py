"""A server, web workers, submitters and commands on one file, all at once; then the one that does
the work for all is killed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from gesta.domain.state import State
from tests.processes.member import engine_on
from tests.processes.members import PATIENCE_SECONDS, ROOT, Lines, members

#: What the issue promises: another process takes over this soon.
TAKEOVER_SECONDS = 5.0
EACH = 150
FORGOTTEN_SECONDS = 10.0


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-m", "gesta", *arguments, "--app", "tests.processes.member:engine"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def effects(lines: Lines) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = {}
    for line in lines.of("effect"):
        found.setdefault(line["n"], Counter())[line["key"]] += 1
    return found


def waits_for_another_process(lines: Lines) -> list[float]:
    """Seconds from submit in one process until another one calls the executor, sorted."""
    asked = {line["n"]: line for line in lines.of("accepted")}
    return sorted(
        line["at"] - asked[line["n"]]["begun"]
        for line in lines.of("effect")
        if line["n"] in asked and line["pid"] != asked[line["n"]]["pid"]
    )


@pytest.mark.slow
def test_writes_coordinate_and_every_request_has_one_effect(tmp_path):
    lines = Lines(tmp_path)
    with members(tmp_path) as start:
        crowd = [
            start("--work"),
            start("--work", "--submit", "0", str(EACH)),
            start("--work", "--submit", str(EACH), str(EACH)),
            start("--submit", str(2 * EACH), str(EACH)),
        ]
        assert {one.hear() for one in crowd} == {"ready"}
        sent = command(
            tmp_path, "submit", "shop.order", '{"n": -1}', "--key", "by hand", "--wait", "20s"
        )
        answers = [
            sent,
            command(tmp_path, "list", "--json"),
            command(tmp_path, "show", sent.stdout.strip()),
        ]
        lines.wait_for(lambda: len(lines.of("submitted")) == 3, "all to be submitted")
        wanted = {*range(3 * EACH)} - {line["n"] for line in lines.of("error")} | {-1}
        lines.wait_for(lambda: len(effects(lines)) >= len(wanted), "all to be executed")
        assert [one.end() for one in crowd] == [0] * len(crowd)
    # No caller notices that another process holds the file.
    assert lines.of("error") == []
    assert [(one.returncode, "error" in one.stderr) for one in answers] == [(0, False)] * 3, answers
    assert {n: sum(keys.values()) for n, keys in effects(lines).items()} == dict.fromkeys(wanted, 1)
    waits = waits_for_another_process(lines)
    print(
        f"{len(waits)} started in another process: p50 {waits[len(waits) // 2] * 1000:.0f} ms, p99"
        f" {waits[int(len(waits) * 0.99)] * 1000:.0f} ms"
    )
    # How fast, the bench says; here none may be forgotten until some timer finds it.
    assert waits[-1] < FORGOTTEN_SECONDS
    # One process projects and one sweeps; each gave its role up once, at its end, to the process
    # that still lived.
    for what in ("projected", "swept"):
        assert len(lines.players(what)) == len(set(lines.players(what))), what


async def at_rest(folder: Path, accepted: dict[int, str]) -> dict[int, State]:
    """Every accepted request once nothing more happens by itself."""
    async with engine_on(folder, work=False) as engine:
        states: dict[int, State] = {}
        until = time.monotonic() + PATIENCE_SECONDS
        while len(states) < len(accepted):
            for n in accepted.keys() - states.keys():
                state = (await engine.get(accepted[n])).state
                if state.is_terminal or (state.status == "unknown" and state.due_at is None):
                    states[n] = state
            assert time.monotonic() < until, (
                f"{len(accepted) - len(states)} requests came to no end"
            )
            await asyncio.sleep(0.05)
        return states


@pytest.mark.slow
async def test_when_the_process_that_does_it_for_all_is_killed_another_takes_over(tmp_path):
    lines = Lines(tmp_path)
    with members(tmp_path) as start:
        first = start("--work", "--submit", "0", "100000", "--pause", "0.01")
        lines.wait_for(
            lambda: lines.of("projected") and lines.of("swept"), "the first to have both roles"
        )
        second, submitter = (
            start("--work"),
            start("--submit", "100000", "100000", "--pause", "0.01"),
        )
        assert {second.hear(), submitter.hear()} == {"ready"}
        lines.wait_for(
            lambda: len({line["pid"] for line in lines.of("effect")}) == 2, "both to work"
        )
        assert {*lines.players("projected"), *lines.players("swept")} == {first.pid}
        killed_at = first.kill()
        for what in ("projected", "swept"):
            lines.wait_for(partial(lines.is_done_by, second.pid, what), f"{what} by another")
            after = (
                min(line["at"] for line in lines.of(what) if line["pid"] != first.pid) - killed_at
            )
            print(f"{what} by another {after:.2f} s after the kill")
            assert 0 < after < TAKEOVER_SECONDS
            assert lines.players(what) == [first.pid, second.pid]
        submitter.kill()
        accepted = {line["n"]: line["id"] for line in lines.of("accepted")}
        states = await at_rest(tmp_path, accepted)
        assert second.end() == 0
    assert lines.of("error") == []
    done = effects(lines)
    # G3: each under one key; where that key does not protect, at most once, and what is unknown
    # is visibly unknown.
    assert max(len(keys) for keys in done.values()) == 1
    assert {state.status for n, state in states.items() if n % 2} == {"completed"}
    for n, state in states.items():
        calls = sum(done.get(n, Counter()).values())
        assert (state.status, calls) in {("completed", 1), ("unknown", 0), ("unknown", 1)} or (
            n % 2 and calls > 1
        )
