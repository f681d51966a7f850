"""pause and resume on the command line, one process after another on one file."""

import pytest

from tests.cli.running import events_in, work
from tests.cli.shop import APP, Note

#: Pauses for everybody are for the store, and so is a limit of this process.
ON_THE_STORE_ONLY = {
    "test_a_flow_is_paused_and_resumed_with_or_without_the_option",
    "test_the_list_of_pauses_names_each_scope_in_words",
    "test_a_pause_says_whose_requests_it_holds",
    "test_a_decision_about_a_held_request_names_the_pause_and_how_to_resume",
    "test_a_bulk_run_into_a_pause_says_what_holds_its_requests",
    "test_pause_without_arguments_lists_what_is_paused",
    "test_a_paused_tenant_without_held_jobs_is_shown_by_list_and_not_paused_by_looking",
    "test_held_requests_can_be_listed",
    "test_list_and_show_say_that_a_request_is_held_and_why",
    "test_resume_lets_go_what_was_held",
    "test_a_flow_is_everybodys_unless_a_tenant_is_chosen",
    "test_a_scope_that_is_not_paused_cannot_be_resumed",
    "test_resuming_what_is_not_paused_names_what_is",
    "test_a_misspelt_flow_is_refused_and_one_that_only_the_store_knows_is_not",
    "test_doctor_reports_a_tenants_pause_before_anything_is_held",
    "test_send_is_refused_when_too_much_is_waiting",
}


def test_a_pause_says_whose_requests_it_holds(cli):
    """The help says that the tenant is `default` by default, but a flow is everybody's."""
    of_all = cli("pause", "--flow", "shop.note", "--app", APP)
    assert "flow shop.note of all tenants is paused: running attempts continue" in of_all.err
    of_one = cli("pause", "--flow", "shop.note", "--tenant", "acme", "--app", APP)
    assert "flow shop.note of tenant acme is paused: running" in of_one.err
    text = " ".join(cli("pause", "--help").out.split())
    assert "--flow alone pauses the flow of all tenants; with --tenant NAME, that of one" in text


def test_a_decision_about_a_held_request_names_the_pause_and_how_to_resume(cli, request_id):
    dead = work(Note("rejected"))[0]
    cli("pause", "--flow", "shop.note", "--reason", "stocktaking", "--app", APP)
    resume = f"`gesta resume --flow shop.note --app {APP}`"
    held = f"it is held: flow shop.note of all tenants is paused (stocktaking); to resume: {resume}"
    refused = cli("retry", cli("submit", "shop.note", "{}", "--app", APP).out.strip(), "--app", APP)
    assert (refused.code, refused.out) == (1, "")
    assert f"its next attempt is already due or running; {held}\n" in refused.err
    redriven = cli("dlq", "redrive", dead, "--app", APP)
    assert (redriven.code, redriven.out) == (0, "queued\n")
    assert f"it is due now; {held}\n" in redriven.err
    late = cli("submit", "shop.note", "{}", "--wait", "0.1s", "--app", APP)
    assert (late.code, f"{held}. gesta continues with it" in late.err) == (5, True), late.err


def test_a_bulk_run_into_a_pause_says_what_holds_its_requests(cli, request_id):
    dead = work(Note("rejected"))[0]
    cli("pause", "--flow", "shop.note", "--app", APP)
    answer = cli("dlq", "redrive", "--all", "--app", APP)
    assert (answer.code, answer.out.strip()) == (0, "1")
    resume = f"gesta resume --flow shop.note --app {APP}"
    assert f"held, for instance {dead}: flow shop.note of all tenants is paused; to resume:" in (
        answer.err
    )
    assert answer.err.count(resume) == 1


@pytest.fixture
def request_id(cli):
    return cli("submit", "shop.note", "{}", "--app", APP).out.strip()


def test_pause_without_arguments_lists_what_is_paused(cli, request_id):
    assert "nothing is paused" in cli("pause", "--app", APP).err
    made = cli(
        "pause", "--flow", "shop.note", "--reason", "stocktaking", "--by", "ada", "--app", APP
    )
    assert (made.code, made.out.strip()) == (0, "flow:shop.note")
    (listed,) = cli("pause", "--app", APP, "--json").items
    assert list(listed) == [
        "scope",
        "flow",
        "tenant",
        "credential",
        "reason",
        "since",
        "refused",
        "by",
        "held",
    ]
    assert (listed["scope"], listed["tenant"], listed["reason"], listed["by"]) == (
        "flow:shop.note",
        None,
        "stocktaking",
        "ada",
    )
    assert "stocktaking" in cli("pause", "--app", APP).out


def test_a_paused_tenant_without_held_jobs_is_shown_by_list_and_not_paused_by_looking(cli, folder):
    """`gesta pause` did not show it, and `gesta pause --tenant acme` paused instead of looking."""
    assert cli("pause", "--list", "--tenant", "acme").code == 6
    assert not (folder / "gesta.db").exists()
    assert cli("pause", "--tenant", "globex", "--reason", "audit").code == 0
    before = events_in()
    looked = cli("pause", "--list", "--tenant", "acme")
    assert (looked.code, looked.out) == (0, "")
    assert (
        "nothing is paused for all tenants or for tenant acme, and no jobs are held; of another"
        " tenant: gesta pause" in looked.err
    )
    assert events_in() == before
    (listed,) = cli("pause", "--list", "--tenant", "globex", "--json").items
    assert (listed["scope"], listed["reason"]) == ("tenant:globex", "audit")
    assert cli("pause", "--list", "--json").items == []
    cli("pause", "--everything")
    assert [one["scope"] for one in cli("pause", "--list", "--tenant", "acme", "--json").items] == [
        "everything"
    ]
    assert cli("pause", "--list", "--everything").code == 2


def test_list_and_show_say_that_a_request_is_held_and_why(cli, request_id):
    cli("pause", "--tenant", "default", "--reason", "audit", "--app", APP)
    work()
    assert "tenant default is paused (audit)" in " ".join(cli("list", "--app", APP).out.split())
    assert "tenant default is paused (audit)" in cli("show", request_id, "--app", APP).out
    assert cli("show", request_id, "--app", APP, "--json").json["heldBy"] == {
        "kind": "pause",
        "tenant": "default",
        "reason": "audit",
    }
    cli("resume", "--tenant", "default", "--app", APP)
    assert cli("show", request_id, "--app", APP, "--json").json["heldBy"] is None


@pytest.mark.parametrize("named", [("shop.note",), ("--flow", "shop.note")], ids=" ".join)
def test_a_flow_is_paused_and_resumed_with_or_without_the_option(cli, request_id, named):
    made = cli("pause", *named, "--app", APP)
    assert (made.code, made.out.strip()) == (0, "flow:shop.note"), made.err
    assert cli("pause", *named, "--list", "--app", APP).code == 2
    resumed = cli("resume", *named, "--app", APP)
    assert (resumed.code, cli("pause", "--json", "--app", APP).items) == (0, []), resumed.err


def test_a_flow_that_is_named_twice_is_refused(cli, request_id):
    for verb in ("pause", "resume"):
        twice = cli(verb, "shop.note", "--flow", "shop.other", "--app", APP)
        assert (twice.code, "name the flow once" in twice.err) == (2, True), twice.err


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("tenant", "default"), "write --tenant default; "),
        (("credential", "webhook.endpoint/two"), "write --credential webhook.endpoint/two; "),
        (("tenant",), "write --tenant; "),
        (("shop.note", "shop.other"), "FLOW is one flow"),
    ],
)
def test_a_scope_that_is_written_as_words_is_refused_with_the_option(cli, command, words, meant):
    answer = cli(command, *words)
    shown = " ".join(answer.err.replace("│", " ").split())
    assert answer.code == 2
    assert meant in shown
    assert "--credential KIND/CODE" in shown


def test_the_list_of_pauses_names_each_scope_in_words(cli, request_id):
    cli("pause", "--tenant", "default", "--credential", "shop.account/a", "--app", APP)
    cli("pause", "shop.note", "--app", APP)
    shown = " ".join(cli("pause", "--list", "--app", APP).out.split())
    assert "flow shop.note of all tenants" in shown
    assert "tenant:" not in shown


def test_resume_lets_go_what_was_held(cli, request_id):
    cli("pause", "--flow", "shop.note", "--app", APP)
    ids = [request_id]
    assert [cli("show", one, "--app", APP, "--json").json["status"] for one in ids] == ["queued"]
    resumed = cli("resume", "--flow", "shop.note", "--app", APP)
    assert (resumed.code, resumed.out.strip()) == (0, "0")
    work(Note())
    assert cli("show", request_id, "--app", APP, "--json").json["status"] == "completed"


def test_held_requests_can_be_listed(cli, request_id):
    cli("pause", "--tenant", "default")
    work()
    assert [one["id"] for one in cli("list", "--held", "--json").items] == [request_id]
    assert cli("list", "--held", "--json", "--tenant", "acme").items == []
    cli("resume", "--tenant", "default")
    assert cli("list", "--held").err.endswith("no such requests\n")
    refused = cli("list", "--status", "held")
    assert refused.code == 2
    assert "--held" in refused.err


def test_a_flow_is_everybodys_unless_a_tenant_is_chosen(cli, request_id, monkeypatch):
    work()
    assert cli("pause", "--flow", "shop.note").out.strip() == "flow:shop.note"
    assert (
        cli("pause", "--flow", "shop.note", "--tenant", "acme").out.strip()
        == "tenant:acme flow:shop.note"
    )
    monkeypatch.setenv("GESTA_TENANT", "globex")
    assert cli("pause", "--flow", "shop.note").out.strip() == "tenant:globex flow:shop.note"
    assert (
        cli("pause", "--credential", "shop.account/a").out.strip()
        == "tenant:globex credential:shop.account/a"
    )
    # A tenant is paused only when it is named here; this one only asks.
    listed = [one["scope"] for one in cli("pause", "--json").items]
    assert listed == [
        "flow:shop.note",
        "tenant:globex credential:shop.account/a",
        "tenant:globex flow:shop.note",
    ]


def test_a_scope_that_is_not_paused_cannot_be_resumed(cli, request_id):
    missing = cli("resume", "--flow", "shop.note", "--app", APP)
    assert missing.code == 3
    assert (
        "no pause 'flow:shop.note' for this tenant; nothing is paused for all tenants or for tenant"
        " default" in missing.err
    )
    bad = cli("resume", "--app", APP)
    assert bad.code == 2
    # It said what to pause to a user who resumes.
    assert (
        "name what to resume: --flow, --tenant, --credential or --everything; `gesta pause --list"
        " --app" in bad.err
    )


def test_resuming_what_is_not_paused_names_what_is(cli, request_id):
    work()
    cli("pause", "--everything")
    cli("pause", "--flow", "shop.note", "--tenant", "acme")
    cli("pause", "--tenant", "globex")
    missing = cli("resume", "--flow", "shop.note", "--tenant", "default")
    assert missing.code == 3
    assert (
        "no pause 'tenant:default flow:shop.note' for this tenant; paused: everything (gesta resume"
        " --everything)" in missing.err
    )
    assert "acme" not in missing.err
    own = cli("resume", "--tenant", "acme")
    assert "tenant:acme flow:shop.note (gesta resume --tenant acme --flow shop.note)" in own.err
    assert "globex" not in own.err
    assert cli("resume", "--everything").code == 0
    assert "no pause 'everything'" in cli("resume", "--everything").err


def test_a_misspelt_flow_is_refused_and_one_that_only_the_store_knows_is_not(cli, request_id):
    work()
    refused = cli("pause", "--flow", "shop.nota", "--app", APP)
    assert refused.code == 2
    assert "no flow 'shop.nota'" in refused.err
    assert "shop.note" in refused.err
    assert cli("pause", "--app", APP, "--json").items == []
    # Its program is not named, as in a hurry: requests of it are stored.
    assert cli("pause", "--flow", "shop.note").code == 0


def test_doctor_reports_a_tenants_pause_before_anything_is_held(cli):
    cli("pause", "--tenant", "acme", "--app", APP)
    assert "tenant acme" in cli("doctor", "--tenant", "acme", "--app", APP).out
    assert "tenant acme" not in cli("doctor", "--app", APP).out


def test_send_is_refused_when_too_much_is_waiting(cli, monkeypatch):
    send = ("submit", "notification.webhook", '{"type": "order.paid", "data": {}}')
    assert cli(*send).code == 0
    monkeypatch.setenv("GESTA_BACKLOG_MAX", "1")
    refused = cli(*send)
    assert (refused.code, refused.out) == (7, "")
    assert "nothing was written" in refused.err
    assert "Try again in 10 s" in refused.err
    assert events_in() == 1
