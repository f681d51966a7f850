"""Config by code: secrets come in by ways that leave no trace, and never out again."""

import base64

import pytest

from tests.cli.running import events_in

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ...").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of 32 bytes ....!").decode()
KIND = "webhook.endpoint"

#: Files of entities are for the store; and these count its events, or look whether there is one at
#: all.
ON_THE_STORE_ONLY = {
    "test_no_command_shows_a_secret",
    "test_all_errors_of_an_entity_are_reported_together_and_nothing_is_written",
    "test_fields_that_cannot_be_read_are_named",
    "test_an_unknown_kind_is_answered_with_the_known_ones",
    "test_an_address_that_may_not_be_called_is_stored_with_a_warning",
    "test_a_file_of_entities_is_applied_however_its_tables_are_written",
    "test_a_file_with_an_error_is_refused_as_a_whole_with_all_errors",
    "test_a_malformed_file_is_refused_before_a_store_is_made",
}


@pytest.fixture
def stored(cli, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    assert (
        cli(
            "config", "put", KIND, "shop", "url=https://example.com/hook", "secret=env:HOOK_SECRET"
        ).code
        == 0
    )


def test_no_command_shows_a_secret(cli, stored, folder):
    answers = [
        cli("config", "get", KIND, "shop"),
        cli("config", "get", KIND, "shop", "--json"),
        cli("config", "list"),
        cli("config", "list", "--json"),
        cli("tail", "--count", "1", "--help"),
    ]
    assert all(SECRET not in answer.out + answer.err for answer in answers)
    assert "(encrypted, version 1)" in answers[0].out
    assert answers[1].json == {
        "kind": KIND,
        "code": "shop",
        "version": 1,
        "fields": {"url": "https://example.com/hook"},
        "secrets": {"secret": 1},
    }
    assert answers[3].items == [answers[1].json]
    written = b"".join(path.read_bytes() for path in folder.glob("gesta.db*"))
    assert SECRET.encode() not in written


@pytest.mark.parametrize(
    ("given", "stdin"), [("secret=@secret.txt", ""), ("secret=-", OTHER + "\n")]
)
def test_a_secret_may_come_from_a_file_or_from_stdin_and_becomes_a_new_version(
    cli, folder, stored, given, stdin
):
    (folder / "secret.txt").write_text(OTHER + "\n")
    answer = cli(
        "config", "put", KIND, "shop", "url=https://example.com/hook", given, "--json", stdin=stdin
    )
    assert answer.json["secrets"] == {"secret": 2}
    assert "history" not in answer.err


def test_a_secret_written_out_is_taken_with_a_warning(cli):
    answer = cli("config", "put", KIND, "shop", "url=https://example.com/hook", f"secret={SECRET}")
    assert answer.code == 0
    assert "secret may now be in your shell's history" in answer.err


def test_a_secret_left_out_keeps_the_stored_one_and_fields_are_typed(cli, stored):
    answer = cli(
        "config", "put", KIND, "shop", "url=https://example.com/new", "disabled=true", "--json"
    )
    assert answer.json["fields"] == {"url": "https://example.com/new", "disabled": True}
    assert answer.json["secrets"] == {"secret": 1}


def test_all_errors_of_an_entity_are_reported_together_and_nothing_is_written(cli):
    answer = cli("config", "put", KIND, "shop", "url=ftp://x", "disabled=perhaps", "colour=red")
    assert answer.code == 2
    for field in ("url:", "secret: missing", "disabled:", "colour: unknown field"):
        assert field in answer.err
    assert events_in() == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["url"], "name=value"),
        (["url=a", "url=b"], "url: given twice"),
        (["secret=@nowhere.txt"], "secret: nowhere.txt cannot be read: No such file"),
        (["secret=env:NOT_SET"], "secret: the variable NOT_SET is not set"),
        (["secret=-", "url=-"], "url: only one field can be read from stdin"),
    ],
)
def test_fields_that_cannot_be_read_are_named(cli, folder, fields, message):
    answer = cli("config", "put", KIND, "shop", *fields)
    assert answer.code == 2
    assert message in answer.err
    assert not (folder / "gesta.db").exists()


def test_an_unknown_kind_is_answered_with_the_known_ones(cli, folder):
    answer = cli("config", "put", "slak.workspace", "main", "token=x")
    assert answer.code == 2
    for known in ("slack.app", "sms.account", "backlog.space", "webhook.endpoint"):
        assert known in answer.err
    assert not (folder / "gesta.db").exists()


def test_a_field_left_out_of_a_put_keeps_its_value(cli, folder):
    cli("submit", "notification.webhook", '{"type": "a", "data": {}}')
    assert (
        cli(
            "config",
            "put",
            "slack.workspace",
            "main",
            "token=xoxb-1",
            "default_channel_id=C012AB3CD",
            "per_second=2.5",
        ).code
        == 0
    )
    answer = cli("config", "put", "slack.workspace", "main", "token=xoxb-2")
    assert (answer.code, "kept: default_channel_id, per_second" in answer.err) == (0, True), answer
    output = cli("config", "get", "slack.workspace", "main").out
    assert all(word in output for word in ("C012AB3CD", "2.5", "version 2")), output
    assert cli("config", "put", "slack.workspace", "main", "per_second=3", "--replace").code == 0
    assert "C012AB3CD" not in cli("config", "get", "slack.workspace", "main").out


def test_an_entity_is_removed_once(cli, stored):
    assert cli("config", "delete", KIND, "shop").code == 0
    assert cli("config", "delete", KIND, "shop").code == 3
    assert cli("config", "get", KIND, "shop").code == 3
    assert "webhook.endpoint: url, secret" in cli("config", "list").err


def test_a_file_of_entities_is_applied_however_its_tables_are_written(cli, folder, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (folder / "config.toml").write_text(
        '[webhook.endpoint.shop]\nurl = "https://example.com/a"\nsecret ='
        ' "env:HOOK_SECRET"\n["webhook.endpoint".bank]\nurl = "https://example.com/b"\nsecret ='
        ' "env:HOOK_SECRET"\ndisabled = true\n'
    )
    assert cli("config", "apply", "config.toml", "--dry-run", "--json").items == [
        {"kind": KIND, "code": "shop", "result": "checked"},
        {"kind": KIND, "code": "bank", "result": "checked"},
    ]
    assert events_in() == 0
    assert cli("config", "apply", "config.toml").out.split() == [f"{KIND}/shop", f"{KIND}/bank"]
    assert [one["code"] for one in cli("config", "list", "--json").items] == ["bank", "shop"]


def test_a_file_with_an_error_is_refused_as_a_whole_with_all_errors(cli, folder):
    (folder / "config.toml").write_text(
        f'[webhook.endpoint.sound]\nurl = "https://example.com/a"\nsecret = "{SECRET}"\n'
        '[webhook.endpoint.first]\nurl = 5\n[webhook.endpoint.second]\ncolour = "red"\n'
    )
    answer = cli("config", "apply", "config.toml")
    assert answer.code == 2
    for text in (
        "webhook.endpoint/first: url:",
        "webhook.endpoint/second: colour: unknown field",
        "Nothing was written",
    ):
        assert text in answer.err
    assert events_in() == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[[", "not valid TOML"),
        (
            "[slak.workspace.main]\ntoken = 1",
            "slak is not a table [KIND.CODE]; kinds: ",
        ),
        ("url = 1", "url is not a table"),
        ("[webhook.endpoint]\nshop = 1", "webhook.endpoint.shop is not a table"),
        (
            '[webhook.endpoint.shop]\nsecret = "env:NOT_SET"',
            "shop: secret: the variable NOT_SET is not set",
        ),
    ],
)
def test_a_malformed_file_is_refused_before_a_store_is_made(cli, folder, text, message):
    (folder / "config.toml").write_text(text)
    answer = cli("config", "apply", "config.toml")
    assert answer.code == 2
    assert message in answer.err
    assert not (folder / "gesta.db").exists()


def test_a_file_that_is_not_there_is_named(cli):
    answer = cli("config", "apply", "nowhere.toml")
    assert answer.code == 2
    assert "nowhere.toml: cannot be read: No such file" in answer.err


def test_an_address_that_may_not_be_called_is_stored_with_a_warning(cli, monkeypatch):
    """It said `stored; the next attempt uses it`, and that attempt made a dead letter."""
    fields = ("url=http://127.0.0.1:8551/h", f"secret={SECRET}")
    answer = cli("config", "put", KIND, "near", *fields)
    assert answer.code == 0
    assert "requests to 127.0.0.1 fail (private_address) unless GESTA_ALLOW_PRIVATE" in answer.err
    monkeypatch.setenv("GESTA_ALLOW_PRIVATE", "127.0.0.0/8")
    assert "GESTA_ALLOW_PRIVATE" not in cli("config", "put", KIND, "near", *fields).err
