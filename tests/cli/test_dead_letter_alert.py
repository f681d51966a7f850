"""From a failure to its alert and back: the gauge, the rule of docs/processes.md, the redrive."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gesta import Attempt, Done, Engine, Outcome, Payload, Rejected, flow
from gesta.runtime import clock as runtime
from tests.cli.running import DEADLINE_SECONDS

APP = "tests.cli.test_dead_letter_alert:engine"
PAGE = Path(__file__).parents[2] / "docs" / "processes.md"
GAUGE = 'gesta_dead_letters{flow="shop.receipt"}'


class Receipt(Payload, frozen=True):
    number: int


class Printer:
    """What the flow depends on; a person can repair it."""

    is_broken = True


@flow("shop.receipt", on_unknown="manual")
async def receipt(payload: Receipt, attempt: Attempt) -> Outcome:
    return Rejected("no_paper") if Printer.is_broken else Done(f"receipt-{payload.number}")


engine = Engine("sqlite:///gesta.db", flows=[receipt])


def run_until(is_over: Callable[[str, dict[tuple[str, str], int]], bool], *given: Receipt) -> None:
    """Submit receipts and run an engine until its metrics and its counts are as wanted."""

    async def run() -> None:
        async with Engine("sqlite:///gesta.db", flows=[receipt]) as running:
            await running.submit_many(given) if given else None
            clock = running.pipeline.runtime
            until = clock.monotonic() + DEADLINE_SECONDS
            while not is_over(running.metrics().decode(), await running.admin.counts()):
                assert clock.monotonic() < until, running.metrics().decode()
                await runtime.sleep(clock, 0.01)

    runtime.run(run())


def test_a_dead_letter_raises_the_gauge_until_a_redrive_succeeds(cli):
    Printer.is_broken = True
    # The gauge is there before anything fails: an alert needs a series.
    run_until(lambda metrics, _: f"{GAUGE} 0.0" in metrics)
    failed = [Receipt(1), Receipt(2)]
    run_until(lambda _, counts: counts == {("shop.receipt", "failed"): 2}, *failed)
    run_until(lambda metrics, _: f"{GAUGE} 2.0" in metrics)
    assert [one["failure"]["reason"] for one in cli("dlq", "list", "--json").items] == [
        "no_paper"
    ] * 2
    Printer.is_broken = False
    redrive = ("dlq", "redrive", "--flow", "shop.receipt", "--reason", "no_paper", "--app", APP)
    tried = cli(*redrive, "--dry-run")
    assert (tried.code, tried.out.split()[:1]) == (0, ["2"]), tried.err
    answer = cli(*redrive)
    assert (answer.code, answer.out.strip()) == (0, "2"), answer.err
    run_until(lambda _, counts: counts == {("shop.receipt", "completed"): 2})
    run_until(lambda metrics, _: f"{GAUGE} 0.0" in metrics)


def rules() -> list[dict[str, Any]]:
    """The alert rules that the page shows."""
    (text,) = re.findall(
        r"```yaml\n# Prometheus[^\n]*\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_every_metric_of_an_alert_rule_exists(folder):
    shown: list[str] = []

    def is_over(metrics: str, _: object) -> bool:
        shown[:] = re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE)
        return "gesta_dead_letters" in shown

    run_until(is_over)
    assert "GestaDeadLetters" in {rule["alert"] for rule in rules()}
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "annotations"}
        named = re.findall(r"\bgesta_\w+", rule["expr"])
        assert named, rule
        assert set(named) <= set(shown)
        assert "gesta " in rule["annotations"]["summary"]
