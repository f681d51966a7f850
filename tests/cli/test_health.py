"""Liveness and readiness of real processes, over HTTP: through a start, an outage of the store and
a drain.
"""

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.cli.running import Running, eventually
from tests.cli.shop import APP

SLOW_APP = "tests.cli.slow_shop:engine"

Start = Callable[..., Running]


def get(server: Running, path: str) -> tuple[int, bytes]:
    url = server.heard.split("health: ")[1].split("/ready")[0]
    try:
        with urllib.request.urlopen(url + path, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def ask(server: Running, path: str) -> tuple[int, Any]:
    code, body = get(server, path)
    return code, msgspec.json.decode(body)


def is_ready(server: Running) -> bool:
    return ask(server, "/ready") == (200, {"ready": True, "wrong": {}})


def is_unready(server: Running) -> bool:
    return ask(server, "/ready")[0] == 503


@contextmanager
def outage() -> Iterator[None]:
    """Another process holds the file: no process can write."""
    db = apsw.Connection("gesta.db")
    # The process may be in the middle of a commit of its own.
    db.set_busy_timeout(10_000)
    db.execute("begin immediate")
    yield
    db.execute("rollback")
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        ("worker",),
        ("worker", "--roles", "worker"),
        ("worker", "--roles", "projector"),
        ("worker", "--roles", "sweeper"),
    ],
    ids=" ".join,
)
def test_a_store_that_cannot_be_written_to_makes_a_process_unready_until_it_can(
    start: Start, command
):
    server = start(*command, "--app", APP, "--health-port", "0")
    server.wait_for("ready; press Ctrl-C")
    eventually(partial(is_ready, server))
    assert ask(server, "/live") == (200, {"live": True, "wrong": {}})
    with outage():
        eventually(partial(is_unready, server))
        _, answer = ask(server, "/ready")
        assert (answer["ready"], "store" in answer["wrong"]) == (False, True)
        assert ask(server, "/live") == (200, {"live": True, "wrong": {}})
    eventually(partial(is_ready, server))
    assert server.end(signal.SIGTERM).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_that_drains_is_alive_and_not_ready_until_its_attempts_have_ended(
    start: Start, cli, command
):
    server = start(command, "--app", SLOW_APP, "--health-port", "0")
    server.wait_for("ready; press Ctrl-C")
    Path("busy").touch()
    sent = cli("submit", "shop.errand", "{}", "--app", SLOW_APP).out.strip()
    eventually(Path("begun").exists)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("attempts that finish first: 1")
    eventually(partial(is_unready, server))
    assert ask(server, "/ready") == (503, {"ready": False, "wrong": {"process": "is stopping"}})
    assert ask(server, "/live") == (200, {"live": True, "wrong": {}})
    Path("busy").unlink()
    assert server.end().code == 0
    assert cli("show", sent, "--json", "--app", SLOW_APP).json["status"] == "completed"


@pytest.mark.slow
def test_the_health_port_serves_metrics_and_nothing_else(start: Start, cli):
    server = start("serve", "--app", APP, "--health-port", "0")
    server.wait_for("ready; press Ctrl-C")
    sent = start(
        "submit", "shop.note", '{"email": "ada@example.com"}', "--app", APP, "--wait", "10s"
    ).end()
    assert sent.code == 0
    code, body = get(server, "/metrics")
    assert code == 200
    assert b'namespace="shop.note"' in body
    assert b"ada@" not in body
    assert [get(server, path)[0] for path in ("/", "/requests", "/live/x")] == [404] * 3


@pytest.mark.slow
def test_a_port_in_use_is_reported_before_a_store_is_created(start: Start):
    with socket.create_server(("127.0.0.1", 0)) as leased:
        port = str(leased.getsockname()[1])
        answer = start("worker", "--app", APP, "--health-port", port).end()
    assert answer.code == 2
    assert answer.err.startswith(f"error: --health-port {port} on 127.0.0.1: ")
    assert answer.err.count("\n") == 1
    assert not Path("gesta.db").exists()


@pytest.mark.slow
def test_without_the_option_no_port_is_open(start: Start):
    server = start("worker", "--app", APP)
    server.wait_for("ready; press Ctrl-C")
    assert "health:" not in server.heard
    assert server.end(signal.SIGTERM).code == 0


def test_wrong_options_of_a_process_are_refused(cli):
    assert cli("worker", "--health-port", "70000").code == 2
    assert cli("worker", "--flow", "no.such").code == 2
    for roles in ("", "worker,", "api", "worker;sweeper"):
        answer = cli("worker", "--roles", roles)
        assert (answer.code, "worker, projector and sweeper" in " ".join(answer.err.split())) == (
            2,
            True,
        )
    answer = cli("worker", "--roles", "projector,sweeper", "--flow", "notification.webhook")
    assert (answer.code, "needs the role worker" in answer.err) == (2, True)
