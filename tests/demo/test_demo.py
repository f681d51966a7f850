"""`gesta demo` as a newcomer runs it: in a process of its own, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gesta.demo.orders import OrderResult, Tally

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120
#: A receiver without a memory of keys: whatever arrives twice has two effects.
FORGETFUL = """
from gesta.demo import run_demo, stage

class Forgetful(stage.OrderReceiver):
    def _perform(self, call):
        self._known.clear()
        return super()._perform(call)

stage.OrderReceiver = Forgetful
raise SystemExit(run_demo(json=True))
"""


class Demo:
    """Processes with an empty current folder and a temporary folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.here, self.temporary = folder / "here", folder / "temporary"
        self.here.mkdir()
        self.temporary.mkdir()
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("GESTA_")
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.here,
            env=environment | {"TMPDIR": str(self.temporary), "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def put_away(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.put_away()


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match
    pytest.fail(f"it ended without a line like {pattern!r}")


def worker_of(process: subprocess.Popen[str]) -> int:
    return int(read_until(process, r"process of its own: (\d+)")[1])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    # A child of a killed process is a zombie until init has looked at it.
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@dataclass(frozen=True)
class Played:
    """A demo that has been started, and the folders of it alone."""

    demo: Demo
    process: subprocess.Popen[str]

    def result(self) -> tuple[int, dict[str, Any]]:
        output, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert output, errors
        return self.process.returncode, msgspec.json.decode(output)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Played]]:
    """Three at the same time: each waits for most of its own."""
    commands = {
        "json": ("-m", "gesta", "demo", "--json"),
        "forgetful": ("-c", FORGETFUL),
        "stay": ("-m", "gesta", "demo", "--stay"),
    }
    demos = {name: Demo(tmp_path_factory.mktemp(name)) for name in commands}
    yield {name: Played(demos[name], demos[name].start(*commands[name])) for name in commands}
    for demo in demos.values():
        demo.put_away()


def test_every_request_of_the_demo_has_exactly_one_effect_and_nothing_is_left_behind(
    played: dict[str, Played],
):
    demo = played["json"].demo
    code, result = played["json"].result()
    requests = result["requests"]
    assert code == 0
    assert result["ok"] is True
    assert result["seconds"] < PATIENCE_SECONDS
    # Two events of Slack that became issues; one of them was posted twice, one was a dead letter.
    tickets = [one for one in requests if one["order"].startswith("C-")]
    assert [(one["status"], one["effects"], one["received"]) for one in tickets] == [
        ("completed", 1, 1),
        ("completed", 1, 2),
    ]
    # A capture whose answer was lost and found by a look-up, a sale, and the settlement of both.
    payments = [one for one in requests if one["order"].startswith("D-")]
    assert [(one["status"], one["effects"], one["received"]) for one in payments] == [
        ("captured", 1, 1),
        ("completed", 1, 1),
        ("completed", 1, 1),
    ]
    requests = [one for one in requests if one not in (*tickets, *payments)]
    # Nine by webhook; Slack, e-mail and SMS; two whose token is revoked.
    assert [one["status"] for one in requests] == ["sent"] * 14
    assert [one["effects"] for one in requests] == [1] * 14
    # Refused, lost, dead and killed ones arrived twice; the duplicate did not.
    assert [one["received"] for one in requests[:12]] == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1]
    # What is held spends no attempt.
    assert [one["attempts"] for one in requests] == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]
    assert list(demo.here.iterdir()) == []
    assert list(demo.temporary.iterdir()) == []


def test_the_demo_fails_when_the_receiver_counts_a_second_effect(played: dict[str, Played]):
    code, result = played["forgetful"].result()
    assert code == 1
    assert result["ok"] is False
    # The lost answer and the killed worker: both arrived a second time, under a key that this
    # receiver forgets.
    assert [
        (one["order"], one["effects"]) for one in result["requests"] if one["effects"] != 1
    ] == [("A-6", 2), ("A-8", 2)]


def test_a_demo_that_stays_can_be_looked_at_and_ends_with_ctrl_c(played: dict[str, Played]):
    demo, process = played["stay"].demo, played["stay"].process
    worker = worker_of(process)
    url = read_until(process, r"export GESTA_URL=(\S+)")[1]
    request_id = read_until(process, r"gesta show (\S+)")[1]
    shown = demo.start("-m", "gesta", "show", request_id, "--json", "--url", url)
    out, err = shown.communicate(timeout=PATIENCE_SECONDS)
    assert shown.returncode == 0, err
    assert msgspec.json.decode(out)["status"] == "sent"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert wait_until(lambda: not is_alive(worker))
    (kept,) = demo.temporary.iterdir()
    assert str(kept) in output.replace("\n         ", "")
    assert (kept / "gesta.db").exists()


def test_a_terminated_demo_takes_its_worker_and_its_folder_with_it(demo: Demo):
    process = demo.start("-m", "gesta", "demo")
    worker = worker_of(process)
    process.terminate()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert not is_alive(worker)
    assert list(demo.temporary.iterdir()) == []


def test_a_killed_demo_takes_its_worker_with_it(demo: Demo):
    process = demo.start("-m", "gesta", "demo")
    worker = worker_of(process)
    process.kill()
    assert wait_until(lambda: not is_alive(worker))


def test_a_store_in_use_is_refused(demo: Demo):
    url = f"sqlite:///{demo.here}/shop.db"
    sent = demo.start(
        "-m",
        "gesta",
        "submit",
        "notification.webhook",
        '{"type": "order.paid", "data": {}}',
        "--url",
        url,
    )
    assert sent.wait(PATIENCE_SECONDS) == 0
    process = demo.start("-m", "gesta", "demo", "--url", url)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert "empty store" in errors


def test_a_server_without_answer_is_reported_and_nothing_is_left_behind(demo: Demo):
    process = demo.start("-m", "gesta", "demo", "--url", "postgresql://ada:secret@127.0.0.1:1/shop")
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 6
    assert "127.0.0.1:1/shop" in errors
    assert "is the server running" in errors
    assert "secret" not in output + errors
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "effects", "broken", "is_right"),
    [
        ("sent", 1, [], True),
        ("sent", 0, [], False),
        ("sent", 2, [], False),
        ("unknown", 1, [], False),
        ("sent", 1, ["waits"], False),
    ],
)
def test_the_result_is_right_only_with_one_effect_each_and_no_promise_broken(
    status, effects, broken, is_right
):
    assert (
        OrderResult([Tally("A-1", "", "", status, 1, 1, effects)], broken, 1.0).is_right is is_right
    )
