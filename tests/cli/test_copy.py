"""copy, by a command: what it says, what it refuses, and what to do next."""

import shutil

import pytest

from gesta.ports.fences import Fence
from gesta.runtime import clock as runtime
from gesta.stores import open_stores
from tests.cli.running import events_in
from tests.cli.shop import APP

FROM, TO = ("--from", "sqlite:///gesta.db"), ("--to", "sqlite:///new.db")


def test_copy_says_what_was_copied_and_what_is_next(cli, shop):
    request_id = shop("done", key="k")
    answer = cli("copy", *FROM, *TO)
    assert (answer.code, answer.out) == (0, f"{events_in()}\n")
    assert events_in("new.db") == events_in()
    said = " ".join(answer.err.split())
    for text in (
        "gesta.key",
        "new.key",
        "export GESTA_URL=sqlite:////",
        "gesta resume --everything",
    ):
        assert text in said
    shutil.copy("gesta.key", "new.key")
    url = ("--url", "sqlite:///new.db", "--app", APP)
    assert cli("show", request_id, *url, "--json").json["status"] == "completed"
    again = cli(
        "submit",
        "shop.note",
        '{"comes_to": "done", "email": "ada@example.com"}',
        "--key",
        "k",
        *url,
        "--json",
    )
    assert (again.json["verdict"], again.json["id"]) == ("duplicate", request_id)
    paused = cli("pause", "--url", "sqlite:///new.db", "--json").items
    assert [one["scope"] for one in paused] == ["everything"]
    assert cli("resume", "--everything", *url[:2]).out == "0\n"
    assert cli("resume", "--everything", *url[:2]).code == 3


def test_copy_speaks_json_and_a_repetition_says_that_nothing_was_done(cli, shop):
    shop("retry")
    first = cli("copy", *FROM, *TO, "--json").json
    assert (first["new"], first["jobs"], first["possiblyExecuted"], first["tenant"]) == (
        True,
        0,
        0,
        None,
    )
    again = cli("copy", *FROM, *TO, "--json")
    assert (again.code, again.json["new"]) == (0, False)


def test_the_source_refuses_writes_and_can_be_taken_back(cli, shop):
    shop("done")
    cli("copy", *FROM, *TO)
    refused = cli("submit", "shop.note", "{}", "--app", APP)
    assert refused.code == 6
    assert "was copied to" in refused.err
    assert cli("list", "--app", APP).code == 0
    back = cli("copy", "--unfence", *FROM)
    assert back.code == 0
    assert "Delete the copy before you resume" in " ".join(back.err.split())
    assert cli("submit", "shop.note", "{}", "--app", APP).code == 0
    assert cli("copy", "--unfence", *FROM).code == 3


def test_copy_of_a_tenant_pauses_and_fences_that_tenant_only(cli, shop):
    shop("done")
    cli("submit", "shop.note", "{}", "--app", APP, "--tenant", "acme")
    answer = cli("copy", *FROM, *TO, "--tenant", "acme", "--json")
    assert (answer.json["events"], answer.json["tenant"]) == (2, "acme")
    assert "gesta resume --tenant acme" in answer.err
    assert cli("submit", "shop.note", "{}", "--app", APP).code == 0
    assert cli("submit", "shop.note", "{}", "--app", APP, "--tenant", "acme").code == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((*FROM,), 2, "name the target"),
        ((*FROM, "--to", "sqlite:///gesta.db"), 2, "the same store"),
        ((*FROM, "--to", "sqlite:///./gesta.db"), 2, "the same store"),
        (("--from", "sqlite:///nowhere.db", *TO), 6, "does not exist"),
        ((*FROM, "--to", "sqlite:///no/folder.db"), 6, "does not exist"),
        ((*FROM, "--to", "nothing:///x"), 2, "there is no store"),
        ((*FROM, *TO, "--tenant", "_"), 2, "tenant"),
        ((*FROM, *TO, "--wait", "soon"), 2, "not a duration"),
    ],
)
def test_a_copy_that_cannot_work_is_refused_before_anything_is_written(
    cli, shop, arguments, code, text
):
    shop("done")
    before = events_in()
    answer = cli("copy", *arguments)
    assert answer.code == code
    assert text in " ".join(answer.err.replace("│", " ").split())
    assert events_in() == before


def test_the_wrong_master_key_is_reported(cli, shop, monkeypatch):
    shop("done")
    monkeypatch.setenv("GESTA_MASTER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    answer = cli("copy", *FROM, *TO)
    assert (answer.code, "GESTA_MASTER_KEY" in answer.err, events_in("new.db")) == (6, True, 0)


def test_a_target_with_another_key_file_is_refused(cli, shop, folder):
    shop("done")
    (folder / "new.key").write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    answer = cli("copy", *FROM, *TO)
    assert (answer.code, "new.key" in answer.err, events_in("new.db")) == (6, True, 0)


def test_a_target_that_is_being_filled_from_elsewhere_is_refused(cli, shop):
    shop("done")

    async def fence():
        stores = await open_stores("sqlite:///new.db", runtime.SystemRuntime())
        await stores.fences.put_up(Fence("filling", "sqlite:///elsewhere.db"))
        await stores.close()

    runtime.run(fence())
    answer = cli("copy", *FROM, *TO)
    assert (answer.code, "elsewhere.db" in answer.err) == (6, True)


def test_a_store_that_was_never_used_has_nothing_to_copy(cli, folder):
    async def make():
        await (await open_stores("sqlite:///gesta.db", runtime.SystemRuntime())).close()

    runtime.run(make())
    answer = cli("copy", *FROM, *TO)
    assert (answer.code, "never been used" in answer.err) == (2, True)
    assert not (folder / "gesta.key").exists()


def test_everything_is_not_named_together_with_a_part(cli, shop):
    shop("done")
    assert cli("pause", "--everything", "--flow", "shop.note").code == 2
    assert cli("pause", "--everything", "--tenant", "acme").code == 2
    assert cli("pause", "--everything", "--reason", "storm").out == "everything\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--to-set", "colour=red"), "write NAME=URL, where NAME"),
        (("--to-set", "events_url="), "write NAME=URL"),
        (("--to-set", "queue_url=sqlite:///gesta.db"), "share a database"),
    ],
)
def test_copy_refuses_a_target_whose_databases_are_wrong(cli, shop, options, text):
    shop("done")
    answer = cli("copy", *FROM, *TO, *options)
    assert answer.code == 2
    assert text in " ".join(answer.err.split())


def test_copy_names_the_databases_of_the_target(cli, shop):
    shop("done")
    answer = cli("copy", *FROM, *TO, "--to-set", "events_url=sqlite:///events.db")
    assert answer.code == 0
    assert "GESTA_EVENTS_URL=sqlite:///events.db" in " ".join(answer.err.split())
    assert events_in("events.db") == events_in()
