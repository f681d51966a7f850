"""The bench measures what it says and counts what it did. How fast the machine is, no test asks."""

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from benchmarks import machine
from benchmarks.command import run_bench
from benchmarks.figures import Plan
from benchmarks.run import held_against
from benchmarks.subjects import Note, Subject, plain
from gesta import Attempt, Outcome, Retry, flow
from gesta.errors import BadSettings
from gesta.testing.scratch_store import ChosenStore

MEASURED = """requests seconds requests_per_second raw_requests_per_second ratio p50_ms p99_ms
    rss_mb rss_idle_mb idle_cpu_percent fsync_ms""".split()
DESCRIBED = (
    "runs flow history batch keyed light_samples raw_runs plain_runs of_plain file_system python"
    " cores store raw_store peer gc_threshold switch_interval_ms errors".split()
)


def small_run(tmp_path, **options):
    plan: dict[str, Any] = {"requests": 500, "rounds": 1, "light_samples": 20, "idle_seconds": 0.2}
    usual: dict[str, Any] = {"json": True, "folder": str(tmp_path)}
    usual |= {name: options.pop(name) for name in ("flow", "json", "folder") if name in options}
    return run_bench(Plan(**plan | options), **usual)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"batch": True, "keyed": True}, {"keyed": True, "history": 1_500}]
)
def test_it_prints_every_figure_and_removes_its_files(tmp_path, capsys, options):
    assert small_run(tmp_path, **options) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert set(figures) == {*MEASURED, *DESCRIBED}
    assert all(figures[name] > 0 for name in MEASURED)
    assert (figures["requests"], figures["errors"], len(figures["raw_runs"])) == (500, [], 2)
    assert {name: figures[name] for name in options} == options
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_keyed_requests_are_held_against_those_without_keys_in_the_same_run(tmp_path, capsys):
    assert small_run(tmp_path, keyed=True) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert figures["of_plain"] == pytest.approx(
        held_against(figures["runs"], figures["plain_runs"]), abs=0.001
    )
    assert small_run(tmp_path, keyed=True, json=False) == 0
    assert "without keys" in capsys.readouterr().out


@pytest.mark.slow
def test_people_get_a_table(tmp_path, capsys):
    assert small_run(tmp_path, json=False) == 0
    printed = capsys.readouterr().out
    assert "requests per second" in printed
    assert "every request done once" in printed


@pytest.mark.slow
def test_webhooks_go_to_a_sandbox_that_counts_them(tmp_path, capsys):
    assert small_run(tmp_path, flow="webhook", requests=50) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert (figures["flow"], figures["requests"], figures["errors"]) == (
        "notification.webhook",
        50,
        [],
    )


@pytest.mark.slow
def test_slack_is_held_against_the_plain_flow_in_the_same_run(tmp_path, capsys):
    assert small_run(tmp_path, flow="notification.slack", requests=200, rounds=2) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert (figures["flow"], figures["errors"]) == ("notification.slack", [])
    assert [len(figures[name]) for name in ("runs", "raw_runs", "plain_runs")] == [2, 3, 3]
    assert figures["of_plain"] == pytest.approx(
        held_against(figures["runs"], figures["plain_runs"]), abs=0.001
    )


def test_a_round_is_held_against_its_neighbours_and_the_median_round_counts():
    # The machine is slower and slower, which no round's ratio shows; one round stood still for a
    # while.
    assert held_against([500, 400, 50, 200, 200], [1_000, 1_000, 600, 400, 400, 400]) == 0.5
    assert held_against([300], [900, 1_100]) == pytest.approx(0.3)


@pytest.mark.slow
def test_a_lost_request_is_printed_and_fails_the_run(tmp_path, capsys, monkeypatch):
    @flow("bench.forgetful", on_unknown="resend", concurrency=1_000)
    async def forgetful(note: Note, attempt: Attempt) -> Outcome:
        return (
            Retry("lost", after_seconds=3_600)
            if note.number == 499
            else await plain.execute(note, attempt)
        )

    subject = Subject(forgetful, lambda number: Note(number, "x"))
    monkeypatch.setattr("benchmarks.command.subject_of", lambda _: nullcontext(subject))
    assert small_run(tmp_path, stall_seconds=0.5) == 1
    printed = capsys.readouterr()
    assert msgspec.json.decode(printed.out)["errors"] == [
        "1 of 500 requests have no event of success",
        "1 of 500 requests have a view without success",
    ]
    assert "wrong count: 1 of 500 requests have no event of success" in printed.err


def test_it_does_not_measure_a_file_system_in_memory_by_accident(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "file_system", lambda _: "tmpfs")
    with pytest.raises(BadSettings, match="tmpfs, which never reaches a disk"):
        machine.bench_folder(None)
    assert machine.bench_folder(str(tmp_path)) == tmp_path.resolve()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"flow": "pigeon"},
            "bench knows 'plain', 'webhook', 'notification.slack' and 'payment.card', not 'pigeon'",
        ),
        ({"requests": 0}, "must be positive"),
        ({"store": ChosenStore("memory://")}, "keeps nothing that could be counted"),
        ({"store": ChosenStore("sqlite:///x.db"), "history": 1}, "into a fresh store only"),
        ({"folder": "/no/such/folder"}, "does not exist"),
    ],
)
def test_options_that_cannot_be_measured_are_refused_with_the_reason(tmp_path, options, text):
    with pytest.raises(BadSettings, match=text):
        small_run(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
