"""send, show, list, and what a person decides, one process after another on one file."""

from datetime import datetime, timedelta
from typing import Any

import apsw
import pytest

from gesta.domain.lifecycles import STATUSES
from tests.cli.running import events_in, work
from tests.cli.shop import APP

#: A server knows its own flows and one tenant, and does not warn that no projector is running.
ON_THE_STORE_ONLY = {
    "test_a_request_of_a_flow_that_is_not_declared_here_can_be_seen_but_not_decided_about",
    "test_a_list_that_lags_behind_the_events_shows_by_how_many",
    "test_tenants_are_separate",
    "test_send_prints_the_id_alone_and_says_that_nothing_works_on_the_store",
    "test_the_same_key_is_a_duplicate_and_with_other_content_a_conflict",
    "test_submit_waits_no_longer_than_the_limit_when_no_worker_runs",
}


def test_send_prints_the_id_alone_and_says_that_nothing_works_on_the_store(cli):
    answer = cli("submit", "shop.note", "{}", "--app", APP)
    assert answer.code == 0
    assert len(answer.out.split()) == 1
    assert f"start `gesta serve --app {APP}`" in answer.err
    assert "created a master key in gesta.key" in answer.err


@pytest.mark.parametrize(("given", "stdin"), [("@note.json", ""), ("-", '{"count": 7}')])
def test_a_payload_may_come_from_a_file_or_from_stdin(cli, folder, given, stdin):
    (folder / "note.json").write_text('{"count": 7}')
    request_id = cli("submit", "shop.note", given, "--app", APP, stdin=stdin).out.strip()
    assert cli("show", request_id, "--app", APP, "--json").json["payload"]["count"] == 7


def test_the_same_key_is_a_duplicate_and_with_other_content_a_conflict(cli):
    first = cli("submit", "shop.note", '{"count": 1}', "--key", "k", "--app", APP, "--json").json
    second = cli("submit", "shop.note", '{"count": 1}', "--key", "k", "--app", APP, "--json").json
    assert (first["verdict"], second["verdict"]) == ("created", "duplicate")
    assert first["id"] == second["id"]
    conflict = cli("submit", "shop.note", '{"count": 2}', "--key", "k", "--app", APP)
    assert conflict.code == 4
    assert first["id"] in conflict.err
    assert events_in() == 1


def test_submit_waits_no_longer_than_the_limit_when_no_worker_runs(cli):
    answer = cli("submit", "shop.note", "{}", "--app", APP, "--wait", "0.05s")
    assert answer.code == 5
    # The cause was in a line of its own, and the error said that no attempt has ended.
    assert (
        "has no outcome after 0.05 s: no projector is running on this store; start `gesta serve"
        f" --app {APP}`. gesta continues" in answer.err
    )
    assert answer.out.strip() in answer.err


def test_a_duplicate_of_something_done_answers_its_outcome_at_once(cli, shop):
    request_id = shop("done", key="k")
    payload = '{"comes_to": "done", "email": "ada@example.com"}'
    again = cli(
        "submit", "shop.note", payload, "--key", "k", "--app", APP, "--wait", "5s", "--json"
    )
    assert again.code == 0
    assert list(again.json) == ["id", "flow", "tenant", "verdict", "outcome", "warnings"]
    assert again.json["warnings"] == []
    assert (again.json["id"], again.json["verdict"]) == (request_id, "duplicate")
    assert (again.json["outcome"]["type"], again.json["outcome"]["id"]) == ("done", "note-1")


def test_show_prints_status_history_and_attempts_and_masks_personal_data(cli, shop):
    answer = cli("show", shop("retry"), "--app", APP)
    assert answer.code == 0
    for text in (
        "queued",
        "RequestCreated",
        "AttemptFailed",
        "attempt 1, busy, come back later",
        "next in ",
        "retry",
        "[encrypted]",
    ):
        assert text in answer.out
    assert "ada@" not in answer.out
    assert "gesta retry" in answer.err


def test_the_json_of_a_request_has_stable_keys(cli, shop):
    shown = cli("show", shop("rejected"), "--app", APP, "--json").json
    assert list(shown) == [
        "id",
        "flow",
        "tenant",
        "status",
        "key",
        "attemptCount",
        "reason",
        "detail",
        "providerId",
        "targetId",
        "inDoubt",
        "cancelRequested",
        "operation",
        "intent",
        "priority",
        "createdAt",
        "updatedAt",
        "dueAt",
        "expiresAt",
        "correlationId",
        "version",
        "heldBy",
        "test",
        "deliveredAt",
        "bouncedAt",
        "bounce",
        "complainedAt",
        "complaint",
        "payload",
        "attempts",
        "history",
    ]
    attempt = shown["attempts"][0]
    measured = ("startedAt", "endedAt", "durationMs", "worker", "host")
    assert all(attempt.pop(name) is not None for name in measured)
    absent = ("answer", "httpStatus", "providerCode", "traceback")
    assert all(attempt.pop(name) is None for name in absent)
    assert attempt == {
        "number": 1,
        "outcome": "rejected",
        "reason": "bad_address",
        "detail": "nobody lives there",
        "nextAt": None,
        "used": {},
    }
    assert list(shown["history"][0]) == ["version", "type", "at", "actor", "data"]
    assert "payload" not in shown["history"][0]["data"]
    assert "ada@example.com" not in str(shown)


def test_a_request_of_a_flow_that_is_not_declared_here_can_be_seen_but_not_decided_about(cli, shop):
    request_id = shop("unknown")
    seen = cli("show", request_id)
    assert seen.code == 0
    assert "name its program with --app" in seen.out
    refused = cli("redrive", request_id)
    assert refused.code == 2
    assert "'shop.note'" in refused.err


def test_list_filters_requests_and_shows_their_reasons(cli, shop):
    done, rejected = shop("done"), shop("rejected", key="my-key")
    assert [one["id"] for one in cli("list", "--json").items] == [rejected, done]
    assert [one["id"] for one in cli("list", "--status", "completed", "--json").items] == [done]
    assert cli("list", "--flow", "notification.webhook").err == "no such requests\n"
    table = cli("list").out
    assert "bad_address" in table
    assert "my-key" in table
    assert "--limit" in cli("list", "--limit", "1").err


def test_list_takes_the_filters_of_redrive(cli, shop):
    rejected = shop("rejected")
    shop("done")
    for fits in (("--reason", "bad_address"), ("--reason", "bad_address", "--since", "1h")):
        assert [one["id"] for one in cli("list", *fits, "--json").items] == [rejected]
    assert len(cli("list", "--since", "1h", "--json").items) == 2
    for none in (
        ("--reason", "other", "--status", "completed"),
        ("--until", "1h"),
        ("--since", "2100-01-01T00:00:00Z"),
        ("--test",),
    ):
        answer = cli("list", *none)
        assert (answer.code, answer.err) == (0, "no such requests\n")
    assert cli("list", "--since", "yesterday").code == 2


def test_filters_apply_to_the_requests_of_a_key(cli, shop):
    found = shop("rejected", key="order-7")
    fits = cli("list", "--key", "order-7", "--reason", "bad_address", "--json")
    assert [one["id"] for one in fits.items] == [found]
    assert cli("list", "--key", "order-7", "--reason", "other", "--json").items == []


def test_a_time_to_deliver_may_be_a_delay(cli):
    sent = cli("submit", "shop.note", "{}", "--app", APP, "--deliver-at", "2h")
    shown = cli("show", sent.out.strip(), "--json", "--app", APP).json
    due, created = (datetime.fromisoformat(shown[name]) for name in ("dueAt", "createdAt"))
    assert timedelta(minutes=119) < due - created < timedelta(minutes=121)


@pytest.mark.parametrize("status", STATUSES)
def test_list_filters_by_every_status_that_a_request_may_have(cli, shop, status):
    """`ignored` and the statuses of payments were refused."""
    shop("done")
    answer = cli("list", "--status", status, "--json")
    assert (answer.code, len(answer.items)) == (0, int(status == "completed")), answer.err


def test_a_status_that_does_not_exist_is_refused_with_those_that_do(cli, shop):
    answer = cli("list", "--status", "done")
    assert answer.code == 2
    assert "'ignored'" in answer.err


def test_the_request_of_a_key_is_listed_before_a_worker_ran(cli):
    sent = cli("submit", "shop.note", "{}", "--app", APP, "--key", "order-7")
    answer = cli("list", "--key", "order-7", "--json", "--app", APP)
    assert ([one["id"] for one in answer.items], answer.err) == ([sent.out.strip()], "")
    assert cli("list", "--key", "order-8").err == "no such requests\n"
    refused = cli("show", "order-8")
    assert refused.code == 3
    assert (
        "no request 'order-8' for this tenant (default), by id or by key; for another tenant pass"
        " --tenant NAME" in refused.err
    )


def test_a_key_names_a_request_as_its_id_does(cli):
    sent = cli("submit", "shop.note", "{}", "--app", APP, "--key", "order-7").out.strip()
    assert cli("show", "order-7", "--app", APP, "--json").json["id"] == sent
    assert cli("cancel", "order-7", "--app", APP, "--json").json == {
        "id": sent,
        "status": "cancelled",
    }
    assert (
        cli("doctor", "order-7", "--app", APP, "--url", "sqlite:///gesta.db", "--json").json["id"]
        == sent
    )


def test_a_list_that_lags_behind_the_events_shows_by_how_many(cli):
    cli("submit", "shop.note", "{}", "--app", APP)
    answer = cli("list")
    assert "does not show yet: 1; no projector is running on this store" in answer.err


def test_tenants_are_separate(cli, shop):
    request_id = shop("done")
    assert cli("list", "--tenant", "other", "--json").json == {"items": [], "next": None}
    assert cli("show", request_id, "--tenant", "other").code == 3


def test_retry_is_only_advised_where_it_changes_something(cli):
    """It was advised for a request that is due already, and then refused."""
    named = cli("submit", "shop.note", "{}", "--deliver-at", "1h", "--app", APP).out.strip()
    assert f"at once: gesta retry {named}" in cli("show", named, "--app", APP).err
    assert cli("retry", named, "--app", APP).code == 0
    assert "gesta retry" not in cli("show", named, "--app", APP).err


def test_a_waiting_request_is_retried_now(cli, shop):
    request_id = shop("retry")
    answer = cli("retry", request_id, "--app", APP, "--by", "ada")
    assert (answer.code, answer.out) == (0, "queued\n")
    last = cli("show", request_id, "--json", "--app", APP).json["history"][-1]
    assert (last["data"]["change"], who(last)) == ("retry", "ada")


def test_a_request_is_cancelled_once_and_what_is_done_is_not(cli, shop):
    waiting, done = shop("retry"), shop("done")
    assert cli("cancel", waiting, "--app", APP).out == "cancelled\n"
    refused = cli("cancel", done, "--app", APP)
    assert refused.code == 1
    assert "the request is completed; it can no longer be cancelled" in refused.err


def test_a_failure_is_redriven_under_a_new_intent(cli, shop):
    request_id = shop("rejected")
    assert cli("redrive", request_id, "--app", APP, "--json").json == {
        "id": request_id,
        "status": "queued",
    }
    assert cli("show", request_id, "--app", APP, "--json").json["intent"] == 2


def test_an_unknown_outcome_is_resolved_by_a_person_on_record(cli, shop):
    request_id = shop("unknown")
    assert "gesta resolve" in cli("show", request_id, "--app", APP).err
    refused = cli("redrive", request_id, "--app", APP)
    assert refused.code == 1
    assert "--again" in refused.err
    answer = cli(
        "resolve",
        request_id,
        "--succeeded",
        "--evidence",
        "it is in their log",
        "--by",
        "ada",
        "--app",
        APP,
    )
    assert (answer.code, answer.out) == (0, "completed\n")
    last = cli("show", request_id, "--app", APP, "--json").json["history"][-1]
    assert (who(last), last["data"]["evidence"]) == ("ada", "it is in their log")


@pytest.mark.parametrize("given", [(), ("--succeeded", "--failed")])
def test_a_resolution_takes_exactly_one_finding(cli, given):
    answer = cli("resolve", "1", "--evidence", "e", *given)
    assert answer.code == 2
    assert "exactly one of" in answer.err


def test_redrive_says_that_it_is_due_at_once_whatever_was_asked_before(cli):
    """It said `it is executed again` of a request that had been cancelled before its time, in
    2030.
    """
    send = (
        "submit",
        "shop.note",
        "{}",
        "--deliver-at",
        "2030-01-01T09:00:00Z",
        "--ttl",
        "2h",
        "--app",
        APP,
    )
    request_id = cli(*send).out.strip()
    assert cli("cancel", request_id, "--app", APP).out == "cancelled\n"
    again = cli("redrive", request_id, "--app", APP)
    assert (again.out, again.err.splitlines()[0]) == ("queued\n", "it is due now")
    shown = cli("show", request_id, "--app", APP, "--json").json
    assert (shown["expiresAt"], shown["dueAt"] < "2030") == (None, True)
    help_text = " ".join(cli("redrive", "--help").out.split())
    assert "failed, expired, was cancelled or is unknown" in help_text
    assert (
        "It is due now, whatever its --deliver-at was, and gets a new budget of attempts; the count"
        " of its attempts goes on. It has no time to live unless you pass --ttl." in help_text
    )


def test_a_forced_redrive_is_a_new_intent_and_says_who_decided(cli, shop):
    request_id = shop("unknown")
    assert cli("redrive", request_id, "--again", "--by", "ada", "--app", APP).out == "queued\n"
    shown = cli("show", request_id, "--app", APP, "--json").json
    assert (shown["intent"], who(shown["history"][-1])) == (2, "ada")


@pytest.mark.parametrize("command", ["show", "retry", "cancel", "redrive"])
def test_an_unknown_request_exits_with_code_3(cli, shop, command):
    shop("done")
    for request_id in ("nonsense", "01999999-9999-7999-8999-999999999999"):
        answer = cli(command, request_id, "--app", APP)
        assert answer.code == 3
        assert f"no request '{request_id}'" in answer.err


def test_a_rebuild_gives_the_same_views_and_sends_nothing(cli, shop):
    for ending in ("done", "rejected", "unknown"):
        shop(ending)
    before, events = cli("list", "--json").out, events_in()
    assert cli("rebuild", "--json").json == {"events": events}
    assert cli("list", "--json").out == before
    work()
    assert events_in() == events


def test_an_unreadable_event_is_quarantined_and_listed(cli, shop):
    request_id = shop("done")
    db = apsw.Connection("gesta.db")
    db.execute(
        "insert into events (stream, version, id, type, data, meta) select stream, 3, zeroblob(16),"
        " 'shop.note.Failed.v1', cast('nonsense' as blob), meta from events where version = 2"
    )
    db.close()
    work()
    (quarantined,) = cli("list", "--quarantined", "--json").items
    assert (quarantined["what"], quarantined["version"]) == ("event", 3)
    assert request_id in quarantined["name"]
    assert "DecodeError" in cli("list", "--quarantined").out
    assert cli("list", "--json").items[0]["status"] == "completed"
    shown = cli("show", request_id, "--app", APP)
    assert shown.code == 6
    assert "cannot be read" in shown.err


def who(event: dict[str, Any]) -> str:
    """Who decided, without the key that a server puts beside the name."""
    return str(event["actor"]).partition(" ")[0]


def test_submit_says_that_missing_config_will_hold_the_request(cli):
    payload = '{"type": "order.paid", "data": {}, "endpoint": "orders"}'
    answer = cli("submit", "notification.webhook", payload)
    assert answer.code == 0
    assert "held: the tenant has no webhook.endpoint orders" in answer.err
    warnings = cli("submit", "notification.webhook", payload, "--json").json["warnings"]
    assert [one["code"] for one in warnings] == ["config_missing"]


def test_submit_does_not_call_a_request_held_that_might_fail(cli):
    secret = f"secret=whsec_{'A' * 32}"
    cli("config", "put", "webhook.endpoint", "orders", "url=http://127.0.0.1:9/h", secret)
    payload = '{"type": "order.paid", "data": {}, "endpoint": "orders"}'
    answer = cli("submit", "notification.webhook", payload)
    assert "held:" not in answer.err
    assert "warning: the request will fail (private_address) unless the process" in answer.err
    paused = cli("pause", "--flow", "notification.webhook", "--tenant", "default")
    assert paused.code == 0, paused.err
    answer = cli("submit", "notification.webhook", payload)
    assert "held: the request is held because of a pause of" in answer.err
    assert "private_address" not in answer.err
