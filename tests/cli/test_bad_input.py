"""Bad input of every class: an exit code, a text that names the field or the cause, and nothing is
written.
"""

import base64
import re

import apsw
import pytest

from tests.cli.running import Running, events_in, work
from tests.cli.shop import APP, Note

SEND = ("submit", "shop.note")
WEBHOOK = ("submit", "notification.webhook", '{"type": "a", "data": {}}')


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ((*SEND, '{"colour": "red"}'), ["colour: unknown field"]),
        ((*SEND, '{"count": "seven"}'), ["count: expected 'int', got 'str'"]),
        (
            (*SEND, '{"count": "seven", "colour": "red", "comes_to": 1}'),
            ["count:", "colour: unknown field", "comes_to:"],
        ),
        (
            (
                *SEND,
                '{"colour": "red"}',
                "--tenant",
                "no/slash",
                "--key",
                "",
                "--priority",
                "11",
                "--ttl",
                "0s",
            ),
            ["colour:", "tenant:", "key:", "priority:", "ttl:"],
        ),
        (
            (*SEND, "{}", "--deliver-at", "2030-01-31T09:00:00"),
            ["deliver_at: a time with its time zone is needed, for instance 2030-01-01T09:00:00Z"],
        ),
        (
            (*SEND, "{}", "--deliver-at", "tomorrow"),
            ["'tomorrow' is not a time", "2030-01-31T09:00:00Z"],
        ),
        ((*SEND, "{}", "--ttl", "soon"), ["'soon' is not a duration", "2m"]),
        ((*SEND, "{}", "--ttl", "99999999999d"), ["is too long"]),
        ((*SEND, "{}", "--tenant", "-dash-first"), ["tenant: 1 to 63 of A-Z a-z 0-9"]),
        ((*SEND, "{}", "--key", "k" * 513), ["key: a string of 1 to 512 characters"]),
        ((*SEND, "{}", "--wait", "-1"), ["--wait"]),
        ((*SEND, "[1, 2]"), ["payload: must be a JSON object"]),
        ((*SEND, '{"count": '), ["payload: not valid JSON"]),
        ((*SEND, "@nowhere.json"), ["payload: nowhere.json cannot be read: No such file"]),
        (("submit", "shop.nothing", "{}"), ["no flow 'shop.nothing'", "it has: shop.note"]),
    ],
    ids=lambda value: " ".join(value)[:50],
)
def test_a_bad_request_is_refused_before_a_store_is_made(cli, folder, arguments, messages):
    answer = cli(*arguments, "--app", APP)
    assert answer.code == 2
    for text in messages:
        assert text in answer.err
    assert answer.out == ""
    assert not (folder / "gesta.db").exists()


def test_an_oversize_payload_is_refused_with_its_size(cli, folder):
    (folder / "big.json").write_text('{"comes_to": "' + "x" * (256 * 1024) + '"}')
    answer = cli(*SEND, "@big.json", "--app", APP)
    assert answer.code == 2
    assert re.search(r"payload: 2621\d\d bytes, and 262144 is the maximum", answer.err)
    assert events_in() == 0


def test_a_payload_without_end_is_not_read_to_its_end(cli):
    answer = cli(*SEND, "@/dev/zero", "--app", APP)
    assert answer.code == 2
    assert "payload from /dev/zero: more than 4194304 bytes" in answer.err


@pytest.mark.parametrize(
    "arguments", [("list",), ("dlq", "list"), ("config", "list"), ("show", "1"), ("tail",)]
)
def test_a_tenant_that_cannot_be_is_refused_where_a_listing_would_only_be_empty(cli, arguments):
    work()
    answer = cli(*arguments, "--tenant", "a b")
    assert answer.code == 2
    assert "tenant from argument: 'a b'" in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url = ", "gesta.toml: not valid TOML"),
        ("colour = 'red'", "colour: unknown setting in gesta.toml; known: url,"),
        ("url = 5", "url in gesta.toml: must be a string, not int"),
        ("log_level = 'loud'", "log_level in gesta.toml: 'loud' is not one of debug"),
        ("allow_private = 7", "allow_private in gesta.toml: a list of networks"),
        ("flows = 'all'", "flows in gesta.toml: write one table per flow"),
        (
            "[flows.slak]",
            (
                "[flows.slak] in gesta.toml: there is no such flow; this gesta has: card, email,"
                " gateway_events, settlement, slack, slack_events, sms, ticket, transfer, webhook,"
                " webhook_events"
            ),
        ),
        ("[flows.webhook]\ncolour = 1\ntimeout = 20", "colour: unknown; known: url,"),
        (
            "[flows.webhook]\ncolour = 1\ntimeout = 20",
            "timeout: 20 is not a duration; write a number with a unit, for instance 500ms, 5s",
        ),
        ("[flows.webhook]\nurl = 'https://example.com'", "url= needs secret="),
        ("url = 'mysql://x'", "there is no store 'mysql'"),
        ("url = 'gesta.db'", "'gesta.db' is not a store URL"),
        ("master_key = 'short'", "master key from gesta.toml: 32 bytes in base64 are needed"),
    ],
)
def test_a_bad_setting_is_named_with_where_it_stands(cli, folder, text, message):
    (folder / "gesta.toml").write_text(text)
    answer = cli(*WEBHOOK)
    assert answer.code == 2
    assert message in answer.err


def test_a_bad_setting_from_the_environment_is_named_by_its_variable(cli, monkeypatch):
    monkeypatch.setenv("GESTA_LOG_LEVEL", "loud")
    answer = cli("list")
    assert answer.code == 2
    assert "log_level in GESTA_LOG_LEVEL" in answer.err


def test_an_invalid_network_is_named(cli, monkeypatch):
    monkeypatch.setenv("GESTA_ALLOW_PRIVATE", "here")
    answer = cli(*WEBHOOK)
    assert answer.code == 2
    assert "allow_private" in answer.err


def test_a_settings_file_that_is_not_there_is_named(cli):
    answer = cli("settings", "--file", "other.toml")
    assert answer.code == 2
    assert "other.toml: no such file" in answer.err


def test_a_wrong_master_key_and_a_malformed_one_give_different_errors_and_change_nothing(
    cli, monkeypatch
):
    work(Note())
    monkeypatch.setenv("GESTA_MASTER_KEY", base64.b64encode(bytes(32)).decode())
    answer = cli(*WEBHOOK)
    assert answer.code == 6
    assert "the master key from GESTA_MASTER_KEY does not decrypt this store's vault" in answer.err
    assert events_in() == 2
    monkeypatch.setenv("GESTA_MASTER_KEY", "short")
    assert cli("list").code == 2


def test_a_file_that_is_no_database_is_left_alone(cli, folder):
    path = folder / "gesta.db"
    path.write_bytes(b"holiday pictures, not a database " * 100)
    before = path.read_bytes()
    answer = cli(*SEND, "{}", "--app", APP)
    assert answer.code == 6
    assert (
        "gesta.db is not a gesta store (it is not a SQLite database); nothing was changed"
        in answer.err
    )
    assert path.read_bytes() == before


COMMANDS = [("serve", "--no-api"), ("doctor",), ("list",), ("config", "list")]


def refusal_of(*arguments: str) -> str:
    """What a command in a process of its own prints before it ends with 6."""
    answer = Running((*arguments, "--app", APP)).end()
    assert answer.code == 6
    return " ".join(f"{answer.out} {answer.err}".split())


@pytest.mark.parametrize("arguments", COMMANDS)
def test_an_emptied_store_was_silently_created_again(arguments, folder):
    work(Note())
    (folder / "gesta.db").write_bytes(b"")
    text = refusal_of(*arguments)
    assert "gesta.db is empty, but gesta.key shows that it was a gesta store" in text
    assert "Restore the store from a backup" in text
    assert (folder / "gesta.db").read_bytes() == b""


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_damaged_store_was_reported_as_not_a_gesta_store(arguments, folder):
    work(Note())
    content = (folder / "gesta.db").read_bytes()
    (folder / "gesta.db").write_bytes(content[:100] + b"\xff" * 3996 + content[4096:])
    text = refusal_of(*arguments)
    assert "gesta.db is a damaged gesta store" in text
    assert "restore the store from a backup" in text
    assert "not a gesta store" not in text


@pytest.mark.parametrize("arguments", COMMANDS)
def test_an_unreadable_key_file_ended_with_1(arguments, folder):
    work(Note())
    (folder / "gesta.key").unlink()
    (folder / "gesta.key").mkdir()
    text = refusal_of(*arguments)
    assert "the key file gesta.key cannot be read (Is a directory)" in text


def test_another_programs_database_is_left_alone(cli, folder):
    db = apsw.Connection(str(folder / "gesta.db"))
    db.execute("create table recipe (name text)")
    db.close()
    before = (folder / "gesta.db").read_bytes()
    answer = cli(*SEND, "{}", "--app", APP)
    assert answer.code == 6
    assert "gesta.db is not a gesta store (it is another program's SQLite database)" in answer.err
    assert (folder / "gesta.db").read_bytes() == before


def test_a_newer_store_is_left_alone(cli):
    work(Note())
    db = apsw.Connection("gesta.db")
    db.execute("pragma user_version = 99")
    db.close()
    answer = cli(*SEND, "{}", "--app", APP)
    assert answer.code == 6
    assert "gesta.db has schema 99, this gesta knows" in answer.err
    assert "Upgrade gesta" in answer.err
    assert events_in() == 2


def test_a_folder_that_is_not_there_is_named(cli, folder):
    answer = cli(*SEND, "{}", "--app", APP, "--url", "sqlite:///nowhere/gesta.db")
    assert answer.code == 6
    assert "the folder nowhere does not exist; create it first" in answer.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("show", "1"), ("dlq", "list"), ("config", "list"), ("rebuild",), ("tail",)],
)
def test_looking_at_a_store_that_is_not_there_does_not_make_one(cli, folder, arguments):
    answer = cli(*arguments)
    assert answer.code == 6
    assert "gesta.db (url from default) does not exist" in answer.err
    assert list(folder.iterdir()) == []
    # An empty file is no store either; it became one, with a key beside it.
    (folder / "empty.db").touch()
    empty = cli(*arguments, "--url", "sqlite:///empty.db")
    assert empty.code == 6
    assert (
        "empty.db (url from argument) is empty; `gesta serve` and `gesta submit` create it"
        in empty.err
    )
    assert [(path.name, path.stat().st_size) for path in folder.iterdir()] == [("empty.db", 0)]


def test_an_error_shows_its_traceback_only_with_debug(cli, folder, monkeypatch):
    assert "Traceback" not in cli("list").err
    from gesta.errors import StoreError

    with pytest.raises(StoreError):
        # The interpreter itself prints what leaves main().
        cli("list", "--debug")


def test_a_misspelt_variable_is_noted_by_every_command_that_opens_a_store(cli, monkeypatch):
    """Only the doctor reported it, and a user who trusts a setting does not ask the doctor."""
    monkeypatch.setenv("GESTA_LOGLEVEL", "debug")
    reported = (
        "note: GESTA_LOGLEVEL is not a setting and is ignored; did you mean GESTA_LOG_LEVEL?\n"
    )
    for arguments in ((*SEND, "{}", "--app", APP), ("list",), ("config", "list")):
        answer = cli(*arguments)
        assert (answer.code, answer.err.count(reported)) == (0, 1)


def test_a_time_without_a_zone_is_reported_with_the_other_errors(cli):
    answer = cli(*SEND, '{"count": "many"}', "--deliver-at", "2030-01-01T00:00:00", "--app", APP)
    assert answer.code == 2
    assert "count: " in answer.err
    assert (
        "deliver_at: a time with its time zone is needed, for instance 2030-01-01T09:00:00Z"
        in answer.err
    )
    # Python is no answer to a shell.
    assert "datetime" not in answer.err
