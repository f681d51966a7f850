"""Every renamed command, option and exit code: the new name works, the old one is refused."""

from __future__ import annotations

import pytest

from gesta.cli.command import MEANINGS
from tests.cli.shop import APP

#: Old arguments → the new ones.
RENAMED = {
    "send": "submit",
    "projector": "worker --roles projector",
    "sweeper": "worker --roles sweeper",
    "resolve ID --executed --evidence x": "resolve ID --succeeded --evidence x",
    "resolve ID --rejected --evidence x": "resolve ID --failed --evidence x",
    "list --parked": "list --quarantined",
    "submit shop.note {} --ttl 90": "submit shop.note {} --ttl 90s",
    "submit shop.note {} --wait 1": "submit shop.note {} --wait 1s",
    "key create --expires 90": "key create --expires 90d",
}
NEW_OPTIONS = {
    (): ("--url", "--app", "--tenant", "--file", "--log-level", "--log-format", "--server"),
    ("worker",): ("--roles", "--flow", "--health-port"),
    ("redrive",): ("--status", "--since", "--until", "--dry-run", "--rate", "--resume"),
    ("resolve",): ("--succeeded", "--not-executed", "--failed", "--evidence", "--provider-id"),
    ("list",): ("--quarantined", "--cursor", "--limit"),
    ("template", "preview"): ("--html", "--source", "--part"),
}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_refused_as_wrong_usage(cli, old):
    answer = cli(*old.split(), "--app", APP)
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize("new", [new for new in RENAMED.values() if "--roles" not in new])
def test_a_new_name_is_known(cli, new):
    answer = cli(*new.split(), "--app", APP)
    assert "No such" not in answer.err
    assert "not a duration" not in answer.err


@pytest.mark.parametrize("command", NEW_OPTIONS, ids=" ".join)
def test_the_help_names_every_option(cli, command):
    help_text = cli(*command, "--help").out
    assert [option for option in NEW_OPTIONS[command] if option not in help_text] == []


def test_the_exit_codes_are_exactly_these():
    assert MEANINGS == {
        0: "done",
        1: "failed or refused",
        2: "wrong usage or bad input, nothing was written",
        3: "not found",
        4: "the key was used with different content",
        5: "no outcome before the timeout",
        6: "the store cannot be used",
        7: "backlog or disk is full, nothing was written; try again later",
        130: "interrupted",
    }
