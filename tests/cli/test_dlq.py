"""Dead letters: looked at, redriven and removed, one or many."""

import pytest

from tests.cli.shop import APP

PROGRAM = ("--app", APP)

#: A server does not warn that no projector is running.
ON_THE_STORE_ONLY = {
    "test_one_is_redriven_by_its_id",
}


def test_dead_letters_are_listed_with_the_record_an_operator_needs(cli, shop):
    shop("done")
    request_id = shop("rejected", key="k")
    (letter,) = cli("dlq", "list", "--json", "--app", APP).items
    assert letter == cli("dlq", "show", request_id, "--json", "--app", APP).json
    assert (letter["id"], letter["flow"]) == (request_id, "shop.note")
    assert letter["failure"]["detail"] == "nobody lives there"
    assert letter["failure"]["reason"] == "bad_address"
    shown = cli("dlq", "list").out
    assert shown.splitlines()[0].split() == ["id", "flow", "failed", "(UTC)", "key", "why"]
    assert "k bad_address, nobody lives there, 1 attempt" in " ".join(shown.split())
    assert "kept until" in cli("dlq", "show", request_id, "--app", APP).out


def test_a_request_that_did_not_fail_is_not_a_dead_letter(cli, shop):
    request_id = shop("done")
    assert cli("dlq", "list", "--app", APP).err == "no dead letters\n"
    assert cli("dlq", "show", request_id, "--app", APP).code == 3


def test_one_is_redriven_by_its_id(cli, shop):
    request_id = shop("rejected")
    answer = cli("dlq", "redrive", request_id, "--app", APP, "--json")
    assert answer.json == {"id": request_id, "status": "queued"}
    assert f"start `gesta serve --app {APP}`" in answer.err


def test_a_key_does_where_an_id_does(cli, shop):
    request_id = shop("rejected", key="order-7")
    assert cli("dlq", "show", "order-7", "--json", "--app", APP).json["id"] == request_id
    assert cli("dlq", "purge", "order-7", "--json", "--app", APP).json["id"] == request_id
    assert cli("dlq", "show", "order-8", "--app", APP).code == 3


def test_a_dry_run_counts_matches_and_changes_nothing(cli, shop):
    ids = [shop("rejected"), shop("rejected")]
    for verb in ("redrive", "purge"):
        answer = cli("dlq", verb, "--all", "--dry-run", "--app", APP, "--json").json
        assert sorted(one["id"] for one in answer["sample"]) == sorted(ids)
        assert (answer["matched"], answer["done"], answer["run"]) == (2, 0, None)
    assert len(cli("dlq", "list", "--app", APP, "--json").items) == 2


def test_a_list_of_dead_letters_that_goes_on_says_how_to_see_the_rest(cli, shop):
    ids = {shop("rejected"), shop("rejected")}
    first = cli("dlq", "list", "--limit", "1", "--app", APP)
    assert first.err.startswith("1 shown; more with --limit or --cursor ")
    cursor = first.err.split()[-1]
    rest = cli("dlq", "list", "--cursor", cursor, "--app", APP)
    assert rest.err == ""
    assert {one for one in ids if one in first.out + rest.out} == ids


def test_filters_choose_among_all_and_the_run_is_named(cli, shop):
    shop("rejected")
    other = cli("dlq", "purge", "--all", "--reason", "other", "--app", APP, "--json").json
    assert (other["matched"], other["done"]) == (0, 0)
    run = cli("dlq", "purge", "--all", "--reason", "bad_address", "--rate", "5", "--app", APP)
    assert run.out == "1\n"
    assert "if it is stopped, continue it with: gesta dlq purge --resume" in run.err
    number = run.err.partition("dlq purge --resume ")[2].split()[0]
    assert "start a new run" in cli("dlq", "purge", "--resume", number, "--app", APP).err


def test_a_reason_that_no_dead_letter_has_is_answered_with_those_that_are_there(cli, shop):
    """The alert said `other`; the list and the redrive answered only that there is nothing."""
    shop("rejected")
    shop("rejected")
    there = "there are: bad_address of shop.note (2)"
    listed = cli("dlq", "list", "--reason", "bad_adress", "--app", APP)
    assert (listed.code, listed.err) == (0, f"no dead letters that match; {there}\n")
    grouped = cli("dlq", "list", "--reason", "other", "--flow", "shop.note", "--app", APP)
    assert f"{there}; alerts and metrics call the reasons of your own flows `other`" in grouped.err
    for verb in ("redrive", "purge"):
        many = cli("dlq", verb, "--reason", "bad_adress", "--dry-run", "--app", APP)
        assert there in many.err
    assert there in cli("redrive", "--reason", "bad_adress", "--dry-run", "--app", APP).err
    requests = cli("list", "--reason", "bad_adress", "--app", APP)
    assert requests.err == f"no such requests; {there}\n"
    # Where the reason is there, another filter is the cause.
    other = cli(
        "dlq", "redrive", "--reason", "bad_address", "--target", "C1", "--dry-run", *PROGRAM
    )
    assert "there are" not in other.err


def test_a_flow_without_dead_letters_is_answered_with_those_that_have_some(cli, shop):
    shop("rejected")
    listed = cli("dlq", "list", "--flow", "shop.nope", "--app", APP)
    assert "no dead letters that match; there are: bad_address of shop.note (1)" in listed.err
    assert cli("dlq", "list", "--flow", "shop.note", "--app", APP).err == ""


def test_dead_letters_are_chosen_by_the_time_they_were_created(cli, shop):
    shop("rejected")
    for verb in ("redrive", "purge"):
        chosen = ("dlq", verb, "--dry-run", "--app", APP, "--json")
        assert cli(*chosen, "--since", "1h").json["matched"] == 1
        assert cli(*chosen, "--until", "1h").json["matched"] == 0
        assert cli(*chosen, "--target", "C1").json["matched"] == 0
        assert cli(*chosen, "--template", "welcome").json["matched"] == 0


def test_a_purged_dead_letter_is_gone_and_its_events_stay(cli, shop):
    request_id = shop("rejected")
    assert cli("dlq", "purge", request_id, "--app", APP).code == 0
    assert cli("dlq", "show", request_id, "--app", APP).code == 3
    assert cli("show", request_id, "--app", APP, "--json").json["status"] == "failed"


def test_one_that_is_refused_holds_back_no_other_and_fails_the_command(cli, shop):
    first, second = shop("rejected"), shop("rejected")
    assert cli("redrive", first, "--app", APP).code == 0
    answer = cli("dlq", "redrive", "--all", "--app", APP, "--json")
    assert answer.code == 1
    assert (answer.json["matched"], answer.json["done"], answer.json["refused"]) == (2, 1, 1)
    assert [one["id"] for one in answer.json["refusals"]] == [first]
    assert cli("show", second, "--app", APP, "--json").json["status"] == "queued"


@pytest.mark.parametrize("given", [(), ("some-id", "--all"), ("some-id", "--flow", "a.b")])
def test_it_is_one_or_all_with_filters(cli, shop, given):
    shop("done")
    for verb in ("redrive", "purge"):
        answer = cli("dlq", verb, *given, "--app", APP)
        assert answer.code == 2
        assert "--all" in answer.err
