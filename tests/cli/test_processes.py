"""The main paths in separate processes: serve, submit next to it, SIGTERM, Ctrl-C."""

import asyncio
import base64
import re
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator

import msgspec
import pytest

from gesta.sandbox.server import SandboxServer
from tests.cli.running import Running, events_in, eventually, work
from tests.cli.shop import APP, Note

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ...").decode()
MESSAGE = '{"type": "order.paid", "data": {"n": 1}}'

Start = Callable[..., Running]


@pytest.fixture
def receiver(folder) -> Iterator[SandboxServer]:
    """A webhook receiver on this machine, and a gesta.toml that leads there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = SandboxServer()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    (folder / "gesta.toml").write_text(
        f"allow_private = ['127.0.0.0/8']\n[flows.webhook]\nurl = '{server.url}/webhook'\nsecret ="
        f" '{SECRET}'\n"
    )
    yield server
    asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.slow
def test_a_request_sent_beside_a_server_is_executed_and_sigterm_lets_a_running_attempt_end(
    start: Start, cli, receiver
):
    server = start("serve")
    server.wait_for("ready")
    for text in (
        "(api, projector, sweeper, worker) on sqlite:///gesta.db",
        "flows: ",
        "notification.webhook",
        "created a master key in gesta.key",
    ):
        assert text in server.heard

    sent = start(
        "submit", "notification.webhook", MESSAGE, "--key", "order-1", "--wait", "10s"
    ).end()
    assert sent.code == 0, sent.err
    assert "Done(" in sent.err
    assert "start `gesta serve`" not in sent.err
    shown = cli("show", sent.out.strip(), "--json").json
    assert shown["status"] == "sent"
    assert [event["type"] for event in shown["history"]] == [
        "notification.webhook.RequestCreated.v1",
        "notification.webhook.Sent.v1",
    ]
    assert [effect.data for effect in receiver.sandbox.webhook.effects] == [{"n": 1}]
    # Beside the running server: nothing is sent again.
    assert cli("rebuild", "--json").json == {"events": 2}
    assert cli("list", "--json").items[0]["status"] == "sent"
    assert receiver.sandbox.webhook.calls == 1

    receiver.sandbox.webhook.next(slow_seconds=0.7)
    slow = cli("submit", "notification.webhook", MESSAGE, "--key", "order-2").out.strip()
    eventually(lambda: len(receiver.sandbox.webhook.effects) == 2)
    ended = server.end(signal.SIGTERM)
    assert ended.code == 0
    assert ended.out == ""
    assert "attempts that finish first: 1" in ended.err
    assert "stopped" in ended.err
    assert cli("show", slow, "--json").json["status"] == "sent"
    assert cli("rebuild", "--json").json == {"events": 4}


@pytest.mark.slow
def test_a_server_reports_jobs_of_flows_it_does_not_run(start: Start, cli):
    cli("submit", "shop.note", "{}", "--app", APP)
    projector = start("worker", "--roles", "projector", "--app", APP)
    eventually(lambda: len(cli("list", "--json").items) == 1)
    assert projector.end(signal.SIGTERM).code == 0
    server = start("serve")
    server.wait_for("ready")
    assert (
        "not executed here: 1 jobs of shop.note, a flow that this process does not declare; name"
        " its program with --app" in server.heard
    )
    assert server.end(signal.SIGTERM).code == 0


@pytest.mark.slow
def test_a_server_calls_the_handlers_of_its_program(start: Start, cli, folder):
    server = start("serve", "--app", "tests.cli.listening_shop:engine")
    server.wait_for("ready")
    assert "subscriptions: ledger" in server.heard
    sent = cli("submit", "shop.note", "{}", "--app", APP).out.strip()
    ledger = folder / "ledger.txt"
    eventually(lambda: ledger.exists() and f"{sent} completed" in ledger.read_text())
    assert server.end(signal.SIGTERM).code == 0
    assert ledger.read_text() == f"{sent} created\n{sent} completed\n"


@pytest.mark.slow
def test_tail_follows_what_other_processes_append(start: Start, cli):
    cli("submit", "shop.note", '{"comes_to": "before"}', "--app", APP)
    counted, endless = start("tail", "--count", "1", "--json"), start("tail")
    counted.wait_for("following")
    endless.wait_for("following")
    sent = cli(
        "submit", "shop.note", '{"email": "ada@example.com"}', "--app", APP, "--key", "k"
    ).out.strip()
    answer = counted.end()
    assert answer.code == 0
    (line,) = answer.lines
    assert (line["requestId"], line["type"], line["data"]["key"]) == (
        sent,
        "shop.note.RequestCreated.v1",
        "k",
    )
    assert "ada@" not in answer.out
    assert endless.process.stdout is not None
    assert sent in endless.process.stdout.readline()
    assert endless.end(signal.SIGINT).code == 0


@pytest.mark.slow
def test_a_separate_api_streams_what_another_process_appends_long_before_its_heartbeat(
    start: Start, cli
):
    key = cli("key", "create", "--scope", "read").out.strip()
    cli("submit", "shop.note", "{}", "--app", APP)
    api = start("api", "--app", APP, "--port", "0")
    api.wait_for("ready")
    address = re.search(r"api: (http://\S+)/v1", api.heard)
    assert address is not None
    stream = urllib.request.Request(
        f"{address[1]}/v1/stream", headers={"Authorization": f"Bearer {key}"}
    )
    # The heartbeat that would also deliver it comes after 15 s.
    with urllib.request.urlopen(stream, timeout=10) as events:
        while events.readline() != b"\n":
            pass
        sent = start("submit", "shop.note", "{}", "--app", APP).end().out.strip()
        while not (line := events.readline()).startswith(b"data:"):
            pass
        assert msgspec.json.decode(line[5:])["requestId"] == sent
    assert api.end(signal.SIGTERM).code == 0


def test_ctrl_c_ends_a_wait_without_a_traceback(start: Start):
    waiting = start("submit", "shop.note", "{}", "--app", APP, "--wait", "60s")
    waiting.wait_for("start `gesta serve")
    answer = waiting.end(signal.SIGINT)
    assert answer.code == 130
    assert "Traceback" not in answer.err


def test_ctrl_c_in_a_bulk_run_says_how_far_it_came_and_how_to_continue(start: Start):
    work(*[Note("rejected")] * 4)
    before = events_in()
    # One request at a time, and then a wait of ten seconds.
    running = start("dlq", "redrive", "--all", "--app", APP, "--rate", "0.1")
    running.wait_for("if it is stopped")
    # The entry in the audit log, and one redrive.
    eventually(lambda: events_in() == before + 2)
    stopped = running.end(signal.SIGINT)
    assert (stopped.code, stopped.out) == (130, "")
    number = running.heard.partition("run ")[2].partition(" ")[0]
    resume = f"gesta dlq redrive --resume {number} --app {APP}"
    # The signal may come before the report of that redrive.
    assert re.search(
        rf"\nstopped: redrove at least [01] of 4; to continue: {resume}\n", stopped.err
    )
    rest = start("dlq", "redrive", "--resume", number, "--app", APP, "--rate", "500").end()
    assert (rest.code, rest.out.strip()) == (0, "4"), rest.err
    assert "redrove 4 of 4, 1 of them before the run was resumed" in rest.err


def test_an_error_in_a_process_of_its_own_is_one_line_and_an_exit_code(start: Start):
    answer = start("list").end()
    assert answer.code == 6
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("error: gesta.db")


@pytest.mark.slow
def test_a_worker_without_roles_executes_requests_without_any_other_process(start: Start, cli):
    worker = start("worker", "--app", APP)
    worker.wait_for("ready")
    assert "(projector, sweeper, worker) on" in worker.heard
    sent = start("submit", "shop.note", "{}", "--app", APP, "--wait", "10s").end()
    assert (sent.code, "no projector is running" in sent.err) == (0, False)
    assert worker.end(signal.SIGTERM).code == 0
