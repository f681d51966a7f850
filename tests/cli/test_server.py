"""Commands that ask a running server instead of opening the store."""

from __future__ import annotations

import signal

import pytest

from gesta.cli.main import COMMANDS, GROUPS
from tests.cli.running import work
from tests.cli.serving import SERVED, ServerBeside
from tests.cli.shop import APP, Note

SECRET = "whsec_" + "q" * 32


@pytest.fixture
def server(folder, monkeypatch):
    """Named by the environment."""
    with ServerBeside() as beside:
        monkeypatch.setenv("GESTA_SERVER", beside.address)
        monkeypatch.setenv("GESTA_API_KEY", beside.key)
        yield beside


def test_every_command_asks_the_server_or_says_that_it_works_on_the_store(
    server, cli, tmp_path, monkeypatch
):
    """`cli` forgets the server for what it knows to be of the store, so these are asked with it
    named on the command line.
    """
    (tmp_path / "config.toml").write_text("")
    for arguments in (
        ["rebuild"],
        ["doctor"],
        ["copy", "--to", "sqlite:///other.db"],
        ["config", "apply", "config.toml"],
    ):
        answer = cli(*arguments, "--server", server.address)
        assert answer.code == 2, answer
        assert "this command opens the store itself" in answer.err
    served = {name for commands in COMMANDS.values() for name in commands} | set(GROUPS)
    assert served - SERVED == {
        "demo",
        "serve",
        "api",
        "worker",
        "docs",
        "openapi",
        "doctor",
        "rebuild",
        "copy",
        "settings",
        "jobs",
        "sandbox",
    }


def test_the_store_stays_closed(server, start, folder, monkeypatch):
    """The command has no store of its own: its folder is another one."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    sent = start("submit", "shop.note", "{}", "--key", "k").end()
    assert (sent.code, sent.err) == (0, f"created; see it with: gesta show {sent.out.strip()}\n")
    assert start("show", sent.out.strip(), "--json").end().json["key"] == "k"
    assert list(elsewhere.iterdir()) == []


def test_a_named_store_is_used(server, start):
    answer = start("list", "--url", "sqlite:///other.db").end()
    assert answer.code == 6
    assert "other.db" in answer.err


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"GESTA_API_KEY": ""}, 2, "this is not an API key"),
        (
            {"GESTA_API_KEY": "gesta_live_aaaaaaaa_" + "x" * 43},
            1,
            "unknown, wrong, revoked or expired",
        ),
        ({"GESTA_SERVER": "localhost"}, 2, "it must begin with http:// or https://"),
    ],
)
def test_a_wrong_server_and_a_wrong_key_are_reported(
    server, start, monkeypatch, change, code, message
):
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    answer = start("list").end()
    assert answer.code == code, answer
    assert message in answer.err
    assert "x" * 43 not in answer.err


def test_a_server_needs_a_key(server, start, monkeypatch):
    monkeypatch.delenv("GESTA_API_KEY")
    answer = start("list").end()
    assert (answer.code, "GESTA_API_KEY" in answer.err) == (2, True)


def test_another_tenant_is_another_key(server, start):
    answer = start("list", "--tenant", "acme").end()
    assert (answer.code, "the API key belongs to tenant default" in answer.err) == (2, True)


def test_pauses_for_all_tenants_are_not_a_tenants(server, start):
    for more in (("--everything",), ("--flow", "shop.note")):
        answer = start("pause", *more).end()
        assert (answer.code, "affects all tenants" in answer.err) == (2, True)
    assert (
        start("pause", "--flow", "shop.note", "--tenant", "default", "--reason", "audit").end().out
        == "tenant:default flow:shop.note\n"
    )
    sent = start("submit", "shop.note", "{}", "--key", "k").end().out.strip()
    assert "flow shop.note of tenant default is paused (audit)" in " ".join(
        start("show", sent).end().out.split()
    )
    assert start("resume", "--flow", "shop.note", "--tenant", "default").end().code == 0


def test_neither_secret_nor_key_is_shown(server, start, monkeypatch):
    monkeypatch.setenv("HOOK", SECRET)
    put = (
        "config",
        "put",
        "webhook.endpoint",
        "shop",
        "url=https://shop.example/hooks?token=t0ken",
        "secret=env:HOOK",
    )
    shown = [
        start(*one).end()
        for one in (
            put,
            ("config", "put", "webhook.endpoint", "shop", "disabled=false"),
            ("config", "list"),
            ("config", "list", "--json"),
            ("config", "get", "webhook.endpoint", "shop"),
            ("key", "list", "--json"),
            ("settings",),
            ("settings", "--json"),
        )
    ]
    assert [one.code for one in shown] == [0] * len(shown), shown
    for one in shown:
        for text in (SECRET, server.key.rpartition("_")[2], "t0ken"):
            assert text not in one.out + one.err
    # What was left out of the second call is still what the first one said.
    from gesta import Engine
    from gesta.flows import webhook
    from gesta.runtime import clock as runtime

    async def stored():
        async with Engine("sqlite:///gesta.db", flows=[webhook.flow()], work=False) as engine:
            return (await engine.admin.get_config("webhook.endpoint", "shop")).body

    assert runtime.run(stored()).url == "https://shop.example/hooks?…"


def test_a_key_is_made_and_ended_by_the_server(server, start):
    made = start("key", "create", "--scope", "read").end()
    assert made.code == 0
    key_id = made.out.split("_")[2]
    assert key_id in start("key", "list").end().out
    assert start("key", "revoke", key_id).end().out.strip() == key_id


def test_tail_follows_over_http(server, start):
    counted, endless = start("tail", "--count", "1", "--json"), start("tail")
    counted.wait_for("following")
    endless.wait_for("following")
    (request_id,) = work(Note("done"))
    first = counted.end()
    assert first.code == 0
    assert first.lines[0]["requestId"] == request_id
    assert list(first.lines[0])[:3] == ["requestId", "flow", "tenant"]
    assert request_id in endless.end(signal.SIGINT).out


def test_a_server_that_is_gone_is_reported_with_its_exit_code(start, monkeypatch, folder):
    monkeypatch.setenv("GESTA_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("GESTA_API_KEY", "gesta_live_aaaaaaaa_x")
    answer = start("list", "--app", APP).end()
    assert answer.code == 6
    assert "cannot be reached" in answer.err
