"""Decisions about many requests: filters, dry run, rate, refusals, resume."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from gesta import Engine
from gesta.api_types.bulk import Bulk
from gesta.runtime import clock as runtime
from tests.cli.shop import APP, note

#: All of them also run through a server.
ON_THE_STORE_ONLY: frozenset[str] = frozenset(
    # A server has its own flows, and its own number of samples.
    {
        "test_a_dry_run_says_how_many_of_the_requests_it_shows",
        "test_a_dry_run_of_an_undeclared_flow_refuses_it_and_names_the_option",
        "test_a_filter_by_an_undeclared_flow_names_the_option_that_declares_it",
    }
)
PROGRAM = ("--app", APP)


@pytest.fixture
def failed(shop):
    return [shop("rejected") for _ in range(3)]


def header_of_refusals(out: str) -> str:
    return next(line for line in out.splitlines() if "refused" in line)


def test_a_dry_run_counts_and_changes_nothing(cli, failed):
    answer = cli("redrive", "--status", "failed", "--dry-run", *PROGRAM)
    assert (answer.code, answer.out.split()[0]) == (0, "3"), answer.err
    assert all(one in answer.out for one in failed)
    assert [cli("show", one, "--json", *PROGRAM).json["status"] for one in failed] == ["failed"] * 3


def test_a_dry_run_says_how_many_of_the_requests_it_shows(cli, failed, monkeypatch):
    assert "shown" not in cli("redrive", "--status", "failed", "--dry-run", *PROGRAM).err
    monkeypatch.setattr("gesta.admin.bulk.SAMPLES", 2)
    answer = cli("redrive", "--status", "failed", "--dry-run", *PROGRAM)
    assert "2 of 3 shown\n" in answer.err


def test_every_request_that_fits_is_redriven_and_the_run_is_audited(cli, failed, shop):
    other = shop("unknown")
    answer = cli("redrive", "--status", "failed", "--flow", "shop.note", "--rate", "500", *PROGRAM)
    assert (answer.code, answer.out.strip()) == (0, "3"), answer.err
    assert "redrove 3 of 3\n" in answer.err
    assert "gesta redrive --resume" in answer.err
    statuses = [cli("show", one, "--json", *PROGRAM).json["status"] for one in (*failed, other)]
    assert statuses == ["queued"] * 3 + ["unknown"]


def test_unknown_requests_are_resolved_by_filter(cli, shop):
    unknown = [shop("unknown") for _ in range(2)]
    answer = cli(
        "resolve",
        "--status",
        "unknown",
        "--since",
        "1h",
        "--succeeded",
        "--evidence",
        "their log",
        "--json",
        *PROGRAM,
    )
    assert answer.code == 0, answer.err
    reported = answer.json
    assert (reported["matched"], reported["done"], reported["refused"], reported["refusals"]) == (
        2,
        2,
        0,
        [],
    )
    assert [cli("show", one, "--json", *PROGRAM).json["status"] for one in unknown] == [
        "completed"
    ] * 2


def test_refused_requests_are_listed_and_the_exit_code_is_1(cli, failed):
    """No projector runs, so the views still show the requests as failed after the first run."""
    assert cli("redrive", "--status", "failed", *PROGRAM).code == 0
    answer = cli("redrive", "--status", "failed", *PROGRAM)
    assert (answer.code, answer.out.split()[0]) == (1, "0")
    assert "redrove 0 of 3; 3 refused: the request is queued; only" in answer.err
    assert all(one in answer.out for one in failed)
    assert "reason" not in header_of_refusals(answer.out)


def test_each_of_several_refusals_is_named_once_in_the_table(cli, failed):
    for one in failed[:2]:
        assert cli("redrive", one, *PROGRAM).code == 0
    assert cli("cancel", failed[0], *PROGRAM).code == 0
    answer = cli("redrive", "--status", "failed", *PROGRAM)
    # The cancelled one is redriven at the version that the list shows, and was changed since.
    assert (answer.code, answer.out.split()[0]) == (1, "1"), answer.err
    assert "reason" in header_of_refusals(answer.out)
    reasons = ("it was changed meanwhile", "the request is queued")
    assert [answer.out.count(one) for one in reasons] == [1, 1]
    assert all(one in answer.err for one in reasons)


@pytest.mark.parametrize(
    ("command", "first", "promise"),
    [
        (("redrive",), ("redrive",), "would redrive 1 of 3; 2 would be refused: "),
        (("dlq", "redrive", "--all"), ("redrive",), "would redrive 1 of 3; 2 would be refused: "),
        (("dlq", "purge", "--all"), ("dlq", "purge"), "would purge 1 of 3; 2 would be refused: "),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_dry_run_refuses_what_the_run_refuses(cli, failed, command, first, promise):
    """No projector runs, so the views still show the first requests as they were."""
    for one in failed[:2]:
        assert cli(*first, one, *PROGRAM).code == 0
    chosen = (*command, *(() if "--all" in command else ("--status", "failed")), *PROGRAM)
    dry = cli(*chosen, "--dry-run")
    assert (dry.code, dry.out.split()[0], promise in dry.err) == (1, "1", True), dry.err
    run = cli(*chosen)
    assert (run.code, run.out.split()[0]) == (1, "1"), run.err
    assert dry.err.partition("refused: ")[2].startswith(run.err.partition("refused: ")[2].strip())
    assert cli("show", failed[2], "--json", *PROGRAM).json["status"] in ("queued", "failed")


def test_a_dry_run_of_an_undeclared_flow_refuses_it_and_names_the_option(cli, shop):
    shop("rejected")
    for arguments in (("redrive", "--status", "failed"), ("dlq", "redrive", "--all")):
        for more in (("--dry-run",), ()):
            answer = cli(*arguments, *more)
            assert (answer.code, answer.out.split()[0]) == (1, "0"), answer.err
            assert "flow 'shop.note' is not declared here; name its program" in answer.err
            # The summary says it once for all of them.
            assert "reason" not in header_of_refusals(answer.out)
            assert "with --app MODULE:NAME" in answer.err


@pytest.mark.parametrize(
    "command",
    [
        ("retry",),
        ("cancel",),
        ("redrive",),
        ("resolve", "--succeeded", "--evidence", "log"),
        ("dlq", "redrive"),
        ("dlq", "purge"),
    ],
    ids=" ".join,
)
def test_a_filter_by_an_undeclared_flow_names_the_option_that_declares_it(cli, failed, command):
    answer = cli(*command, "--flow", "shop.note")
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert "name its program with --app MODULE:NAME" in answer.err


def stopped_run(**filters: Any) -> str:
    """The number of a redrive that was stopped before its first change."""

    async def start() -> str:
        asked = Bulk(action="redrive", **filters)
        async with (
            Engine("sqlite:///gesta.db", flows=[note], work=False) as engine,
            aclosing(engine.admin.bulk(asked)) as run,
        ):
            return str((await anext(run)).id)

    return runtime.run(start())


def test_a_run_is_continued_by_its_number(cli, failed):
    run = stopped_run(status="failed")
    again = cli("redrive", "--resume", run, "--json", *PROGRAM)
    assert (again.code, again.json["run"], again.json["done"]) == (0, int(run), 3), again.err
    assert cli("redrive", "--resume", "99", *PROGRAM).code == 3
    finished = cli("redrive", "--resume", run, *PROGRAM)
    assert (finished.code, "start a new run" in finished.err) == (1, True)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (("dlq", "purge"), "action"),
        (("cancel",), "action"),
        (("retry",), "action"),
        (("resolve",), "action"),
        (("dlq", "redrive"), "deadLetters"),
    ],
)
def test_a_redrive_that_is_resumed_by_another_command_changes_nothing(cli, failed, command, field):
    run = stopped_run(status="failed")
    answer = cli(*command, "--resume", run, *PROGRAM)
    assert (answer.code, f"{field}: run {run} is" in answer.err) == (2, True), answer.err
    assert [cli("show", one, "--json", *PROGRAM).json["status"] for one in failed] == ["failed"] * 3
    assert len(cli("dlq", "list", "--json", *PROGRAM).items) == 3


@pytest.mark.parametrize(
    "command",
    [
        ("redrive", "--again"),
        ("redrive", "--ttl", "5s"),
        ("resolve", "--failed", "--evidence", "log"),
    ],
    ids=" ".join,
)
def test_options_that_a_resumed_run_would_ignore_are_refused(cli, failed, command):
    answer = cli(*command, "--resume", stopped_run(status="failed"), *PROGRAM)
    assert (answer.code, command[1] in answer.err.partition("leave out")[2]) == (2, True), (
        answer.err
    )


def test_a_status_that_the_decision_does_not_apply_to_is_refused(cli, failed):
    answer = cli("cancel", "--status", "failed", *PROGRAM)
    assert (answer.code, "cancel applies to queued" in answer.err) == (2, True)


def test_the_option_flow_selects_one_of_the_requests_of_a_key(cli, shop):
    mine = shop("rejected", key="order-7")
    other = cli("redrive", "order-7", "--flow", "notification.webhook", *PROGRAM)
    assert other.code == 3
    answer = cli("redrive", "order-7", "--flow", "shop.note", "--json", *PROGRAM)
    assert (answer.code, answer.json["id"]) == (0, mine)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("some-id", "--status", "failed"),
        ("some-id", "--dry-run"),
        ("--dry-run",),
        ("--status", "failed", "--resume", "1"),
        ("--resume", "1", "--dry-run"),
        ("--status", "nonsense"),
        ("--since", "yesterday"),
        ("--since", "2030-01-01T00:00:00"),
        ("--status", "failed", "--rate", "0"),
    ],
    ids=" ".join,
)
def test_a_choice_that_is_not_clear_is_refused(cli, failed, arguments):
    assert cli("redrive", *arguments, *PROGRAM).code == 2
