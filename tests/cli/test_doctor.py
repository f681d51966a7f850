"""The command `gesta doctor` on a real file."""

import base64
import time

import apsw
import pytest

from tests.cli.shop import APP


def put_job() -> None:
    """A job that waits for an hour."""
    db = apsw.Connection("gesta.db")
    names = (
        "id, tenant, flow, request_id, dispatch_version, kind, state, due_ms, priority, score,"
        " possibly_executed"
    )
    db.execute(
        f"insert into jobs ({names}) values ('r-1', 'default', 'shop.note', 'r', 1, 'execute', 0,"
        " 9e15, 5, 0, 0)"
    )
    db.close()


def levels(answer) -> dict[str, str]:
    return {one["about"]: one["level"] for one in answer.items}


def test_an_idle_store_is_warned_about_and_ends_with_0(cli, shop):
    shop("done")
    answer = cli("doctor", "--json")
    assert answer.code == 0
    assert levels(answer) == dict.fromkeys(
        ("store", "disk", "master key", "views", "queue", "unknown", "dead letters", "quarantined"),
        "ok",
    ) | dict.fromkeys(("projector", "sweep"), "warn")
    shown = cli("doctor")
    assert "no projector is running" in shown.out
    assert "0 bad, 2 warnings" in shown.err


def test_doctor_lists_what_waits_for_people_and_jobs_without_a_worker_are_a_problem(cli, shop):
    for comes_to in ("rejected", "unknown"):
        shop(comes_to)
    put_job()
    answer = cli("doctor", "--json")
    assert answer.code == 1
    report = levels(answer)
    assert (
        report["unknown"],
        report["dead letters"],
        report["projector"],
        report["queue shop.note"],
    ) == (
        "warn",
        "warn",
        "bad",
        "ok",
    )


@pytest.mark.parametrize(
    ("comes_to", "says"),
    [
        ("done", "completed: it was completed at "),
        ("rejected", "failed: it failed at "),
        ("unknown", "unknown: its outcome has been unknown since "),
        ("retry", "queued: no process runs on this store (and it is not due before "),
    ],
)
def test_one_sentence_answers_why_a_request_has_not_been_sent(cli, shop, comes_to, says):
    request_id = shop(comes_to)
    assert cli("doctor", request_id).out.startswith(says)
    answer = cli("doctor", request_id, "--json").json
    assert answer["id"] == request_id
    assert says.endswith(answer["why"][: len(says.partition(": ")[2])])


def test_the_worker_of_a_request_that_is_gone_is_not_said_to_be_at_it(cli, shop):
    """Its lease is over, and a projector alone takes nothing over."""
    request_id = shop("retry")
    put_job()
    db = apsw.Connection("gesta.db")
    now = int(time.time() * 1000)
    # A retry is the same opening of the request, so its job has the same name.
    db.execute(
        "update jobs set id = ?1 || '-1', request_id = ?1, dispatch_version = 1, state = 2, token ="
        " 'gone'",
        (request_id,),
    )
    db.execute("insert into leases (token, until_ms) values ('gone', ?)", (now - 33_000,))
    db.execute(
        "insert or replace into roles (name, owner, until_ms) values ('projector', 'host:7:x', ?)",
        (now + 60_000,),
    )
    db.close()
    assert cli("doctor", request_id).out.startswith("queued: its worker died (the lease ended 3")
    report = {one["about"]: one for one in cli("doctor", "--json").items}["queue shop.note"]
    assert (report["level"], report["status"]) == (
        "warn",
        # It is due again in an hour; only its job was made up.
        "0 ready, 1 later, 0 running, 1 left by a worker that died",
    )
    assert "no worker executes shop.note" in report.get("action", "")


def test_a_request_that_is_not_there_is_not_found(cli, shop):
    shop("done")
    assert cli("doctor", "nothing").code == 3


def test_a_store_that_is_not_there_or_not_ours_is_a_line_and_an_exit_code(cli, folder):
    missing = cli("doctor", "--json")
    assert (missing.code, levels(missing)) == (6, {"store": "bad"})
    (folder / "gesta.db").write_text(
        "no database at all, but long enough to be taken for one" * 100
    )
    assert cli("doctor", "--json").code == 6


def test_a_misspelt_variable_is_found(cli, shop, monkeypatch):
    shop("done")
    monkeypatch.setenv("GESTA_LOGLEVEL", "debug")
    (odd,) = [one for one in cli("doctor", "--json").items if one["about"] == "settings"]
    assert (
        odd["status"]
        == "GESTA_LOGLEVEL is not a setting and is ignored; did you mean GESTA_LOG_LEVEL?"
    )


def test_a_file_that_others_may_read_is_found(cli, shop, folder):
    shop("done")
    (folder / "gesta.db").chmod(0o644)
    assert next(
        one["status"] for one in cli("doctor", "--json").items if one["level"] == "warn"
    ).startswith("other users may read gesta.db")


def test_a_damaged_file_is_bad(cli, shop, folder):
    for _ in range(3):
        shop("done")
    db = apsw.Connection("gesta.db")
    page = db.execute("select rootpage from sqlite_schema where name = 'events_by_stream'").get
    size = db.execute("pragma page_size").get
    db.close()
    with (folder / "gesta.db").open("r+b") as file:
        file.seek(int(str(page)) * int(str(size)) - 200)
        file.write(b"\xff" * 200)
    answer = cli("doctor", "--json")
    assert answer.code != 0
    assert levels(answer)["store"] == "bad"


def test_jobs_are_searched_for_secrets(cli, shop):
    shop("done")
    put_job()
    clean = cli("doctor", "--jobs", "--json")
    assert (clean.code, clean.items[0]["status"]) == (0, "1 live, all of them pointers")
    db = apsw.Connection("gesta.db")
    db.execute("update jobs set tenant = 'xoxb-1234567890-secret'")
    db.close()
    found = cli("doctor", "--jobs", "--json")
    # S1-28: it shows where, never what.
    assert found.code == 1
    assert "contains more than a pointer, in: tenant" in found.items[0]["status"]
    assert "xoxb" not in found.out + found.err  # S1-28


def test_a_server_that_works_makes_all_well(start, cli):
    server = start("serve", "--app", APP)
    server.wait_for("ready")
    report = cli("doctor", "--json")
    assert report.code == 0
    assert set(levels(report).values()) == {"ok"}
    assert "process" in next(one["status"] for one in report.items if one["about"] == "projector")


def test_a_request_of_an_erased_person_is_said_to_end_and_not_to_be_retried(cli):
    request = (
        "submit",
        "shop.note",
        '{"email": "ada@example.com"}',
        "--deliver-at",
        "2030-01-01T09:00:00Z",
        "--app",
        APP,
    )
    request_id = cli(*request).out.strip()
    cli("erase", "ada@example.com", "--app", APP)
    report = cli("doctor", request_id, "--app", APP).out
    assert "will fail (subject_erased) when it is due, at 2030-01-01 09:00:00.000Z" in report
    assert "gesta retry" not in report
    assert "gesta retry" not in (shown := cli("show", request_id, "--app", APP).err)
    assert f"why it waits: gesta doctor {request_id}" in shown


def test_a_pause_does_not_hide_that_a_request_is_not_due(cli, start):
    request_id = cli(
        "submit", "shop.note", "{}", "--deliver-at", "2030-01-01T09:00:00Z", "--app", APP
    ).out.strip()
    cli("pause", "--tenant", "default", "--app", APP)
    start("serve", "--app", APP).wait_for("ready")
    report = cli("doctor", request_id, "--app", APP).out
    assert (
        "(and it is not due before 2030-01-01 09:00:00.000Z); to resume: gesta resume"
        " --tenant default" in report
    )


def test_the_help_says_that_a_store_that_cannot_be_opened_exits_with_6(cli):
    help_text = " ".join(cli("doctor", "--help").out.split())
    assert "Exits with 1 if there is an error" in help_text
    assert (
        "Exits with 6 if the store cannot be opened: it does not exist, the file is not a store, or"
        " the master key does not open it." in help_text
    )


def test_a_missing_store_exits_with_6_and_a_malformed_master_key_with_2(
    cli, shop, folder, monkeypatch
):
    shop("done")
    monkeypatch.setenv("GESTA_MASTER_KEY", base64.b64encode(bytes(32)).decode())
    assert cli("doctor").code == 6
    monkeypatch.delenv("GESTA_MASTER_KEY")
    (folder / "gesta.key").write_text("half of it")
    assert cli("doctor").code == 2
    assert "Exits with 2 for an invalid setting, such as a malformed master key" in " ".join(
        cli("doctor", "--help").out.split()
    )
