"""The benches of several processes: they print every figure, count what they did, and leave nothing
behind.
"""

from typing import Any

import msgspec
import pytest

from benchmarks import crash
from benchmarks.__main__ import main
from benchmarks.command import run_crash_bench, run_processes_bench
from benchmarks.crash import CrashFigures

RIGHT = CrashFigures(
    kills=1,
    interrupted=9,
    recovery_p50_seconds=4.2,
    recovery_p99_seconds=4.3,
    restarts=1,
    restart_interrupted=8,
    restart_p50_seconds=4.4,
    restart_p99_seconds=4.5,
    requests=100,
    lost=0,
    doubled=0,
    repeated=17,
    seconds=12.0,
)


@pytest.mark.slow
def test_processes_tell_how_soon_one_executes_what_another_sent(tmp_path, capfd):
    assert (
        run_processes_bench(json=True, folder=str(tmp_path), light_samples=10, idle_seconds=0.3)
        == 0
    )
    figures = msgspec.json.decode(capfd.readouterr().out)
    assert set(figures) == {
        "requests",
        "other_process_start_p50_ms",
        "other_process_start_p99_ms",
        "idle_cpu_percent",
    }
    assert 0 < figures["other_process_start_p50_ms"] <= figures["other_process_start_p99_ms"]
    assert len(figures["idle_cpu_percent"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_killed_workers_lose_and_double_nothing(tmp_path, capfd):
    assert run_crash_bench(kills=1, json=True, folder=str(tmp_path)) == 0
    figures = msgspec.json.decode(capfd.readouterr().out)
    assert set(figures) == set(msgspec.to_builtins(RIGHT))
    assert (figures["lost"], figures["doubled"]) == (0, 0)
    assert min(figures["interrupted"], figures["restart_interrupted"], figures["repeated"]) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, ""),
        ({"lost": 2}, "wrong count: 2 of 100 requests have no effect\n"),
        ({"doubled": 1}, "wrong count: 1 of 100 requests have more than one effect\n"),
    ],
)
def test_the_exit_code_says_whether_anything_was_lost_or_doubled(
    tmp_path, monkeypatch, capsys, wrong: dict[str, Any], message
):
    async def measured(*_: object) -> CrashFigures:
        return msgspec.structs.replace(RIGHT, **wrong)

    monkeypatch.setattr(crash, "measure_crashes", measured)
    assert run_crash_bench(folder=str(tmp_path)) == (1 if wrong else 0)
    printed = capsys.readouterr()
    assert "p50 4.20 s, p99 4.30 s" in " ".join(printed.out.replace("│", " ").split())
    assert printed.err.endswith(message)


def test_one_bench_at_a_time(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--crash", "--processes"])
    assert ended.value.code == 2
    assert "one at a time" in capsys.readouterr().err
