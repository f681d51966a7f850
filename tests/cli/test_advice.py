"""What a command advises is typed as it stands: it has to be about the same tenant, program and
store.
"""

from __future__ import annotations

import re
import shlex

import pytest

from gesta.admin.doctor.explain import how_to_resume, no_worker_executes
from gesta.admin.wording import HERE, Target, options
from gesta.cli.invocation import Invocation
from gesta.tenants.pauses import EVERYTHING, Scope
from tests.cli.running import work
from tests.cli.shop import APP

ACME = ("--tenant", "acme", "--app", APP)


def advised(text: str, verb: str) -> tuple[str, ...]:
    """The command of this verb that a text names, without `gesta` itself."""
    found = re.search(rf"gesta ({verb}[^;`\n]*)", text)
    assert found is not None, text
    return tuple(shlex.split(found[1]))


def test_the_advice_of_submit_finds_the_request_of_another_tenant(cli):
    """It was `gesta show ID`, which answered that there is no such request for this tenant."""
    sent = cli("submit", "shop.note", "{}", *ACME)
    request_id = sent.out.strip()
    assert advised(sent.err, "show") == ("show", request_id, *ACME)
    assert request_id in cli(*advised(sent.err, "show")).out
    # A process works for every tenant, so it needs the program alone.
    assert advised(sent.err, "serve") == ("serve", "--app", APP)


def test_advice_does_not_repeat_options_from_the_environment(cli, monkeypatch):
    monkeypatch.setenv("GESTA_TENANT", "acme")
    monkeypatch.setenv("GESTA_APP", APP)
    sent = cli("submit", "shop.note", "{}")
    assert advised(sent.err, "show") == ("show", sent.out.strip())
    assert advised(sent.err, "serve") == ("serve",)


def test_show_and_doctor_advise_commands_that_work(cli):
    request_id = cli(
        "submit", "shop.note", "{}", "--deliver-at", "2030-01-01T09:00:00Z", *ACME
    ).out.strip()
    shown = cli("show", request_id, *ACME)
    assert advised(shown.err, "retry") == ("retry", request_id, *ACME)
    assert cli(*advised(shown.err, "retry")).code == 0
    assert f"start `gesta serve --app {APP}`" in cli("doctor", request_id, *ACME).out
    report = {one["about"]: one.get("action", "") for one in cli("doctor", *ACME, "--json").items}
    assert advised(report["projector"], "worker")[:3] == ("worker", "--app", APP)
    late = cli("submit", "shop.note", "{}", "--wait", "0s", *ACME)
    assert late.code == 5
    assert advised(late.err, "doctor") == ("doctor", late.out.strip(), *ACME)


def test_advice_about_dead_letters_and_unknown_outcomes_names_the_store(cli, shop):
    """A store that was named with --url is not found without it."""
    store = ("--app", APP, "--url", "sqlite:///gesta.db")
    failed, unknown = shop("rejected"), shop("unknown")
    letter = cli("dlq", "show", failed, *store)
    assert advised(letter.err, "redrive") == ("redrive", failed, *store)
    assert advised(letter.err, "show") == ("show", failed, *store)
    assert f"gesta redrive {failed} {' '.join(store)}" in cli("doctor", failed, *store).out
    assert f"--evidence TEXT {' '.join(store)}" in cli("show", unknown, *store).err
    report = {one["about"]: one.get("action", "") for one in cli("doctor", *store, "--json").items}
    assert advised(report["dead letters"], "dlq") == ("dlq", "list", *store)
    assert advised(report["unknown"], "list") == ("list", "--status", "unknown", *store)


def test_a_key_is_ended_by_what_its_making_advises(cli):
    made = cli("key", "create", "--tenant", "acme")
    revoked = cli(*advised(made.err, "key revoke"))
    assert revoked.code == 0, revoked.err
    assert advised(cli("key", "list", "--tenant", "b").err, "key create") == (
        "key",
        "create",
        "--tenant",
        "b",
    )


def test_a_password_on_the_command_line_is_not_repeated():
    assert Invocation(url="postgresql://ada:secret@db/shop").place == HERE
    assert (
        Invocation(url="sqlite:///my shop.db", file="a.toml").place.store
        == " --file a.toml --url 'sqlite:///my shop.db'"
    )
    assert (
        Invocation(server="http://127.0.0.1:8420").place.command("list")
        == "gesta list --server http://127.0.0.1:8420"
    )


@pytest.mark.parametrize(
    ("scope", "command"),
    [
        (EVERYTHING, "gesta resume --everything"),
        (Scope("a.b"), "gesta resume --flow a.b"),
        (Scope("a.b", "acme"), "gesta resume --tenant acme --flow a.b"),
        (Scope(None, "acme"), "gesta resume --tenant acme"),
        (
            Scope(None, "acme", "webhook.endpoint/my shop"),
            "gesta resume --tenant acme --credential 'webhook.endpoint/my shop'",
        ),
    ],
)
def test_a_pause_is_ended_by_a_command_that_names_it_whole(scope, command):
    assert how_to_resume(scope, HERE) == command
    # Whose it is stands in it already.
    place = Target(options(tenant="other"), options(app="shop:engine"))
    assert how_to_resume(scope, place) == f"{command} --app shop:engine"


def test_the_program_that_was_asked_is_the_one_to_start_if_it_declares_the_flow():
    place = Target(app=options(app="shop:engine"), store=options(url="sqlite:///s.db"))
    assert "`gesta worker --app shop:engine --url sqlite:///s.db`" in no_worker_executes(
        "a.b", place, is_declared=True
    )
    assert "`gesta worker --app MODULE:NAME --url sqlite:///s.db`" in no_worker_executes(
        "a.b", place, is_declared=False
    )


def test_a_channel_that_the_program_does_not_declare_needs_no_program():
    place = Target(app=options(app="shop:engine"))
    assert "`gesta worker` or `gesta serve`" in no_worker_executes(
        "notification.webhook", place, is_declared=False
    )


def test_doctor_and_doctor_of_a_request_end_a_pause_by_the_same_command(cli):
    """`gesta doctor` only said `gesta resume, when it may go on`."""
    request_id = cli("submit", "shop.note", "{}", *ACME).out.strip()
    work()
    cli("pause", "--flow", "shop.note", *ACME)
    report = {one["about"]: one.get("action", "") for one in cli("doctor", *ACME, "--json").items}[
        "paused"
    ]
    assert advised(report, "resume") == (
        "resume",
        "--tenant",
        "acme",
        "--flow",
        "shop.note",
        "--app",
        APP,
    )
    assert cli(*advised(report, "resume")).code == 0
    assert "paused" not in {one["about"] for one in cli("doctor", *ACME, "--json").items}
    assert request_id
