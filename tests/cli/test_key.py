"""API keys on the command line: printed once and alone, listed without their text, ended by their
id.
"""

from __future__ import annotations

import pytest

from gesta import Engine
from gesta.errors import Forbidden
from gesta.runtime.clock import run


def check(text: str):
    async def ask():
        async with Engine("sqlite:///gesta.db", work=False) as engine:
            return await engine.pipeline.keys.check(text)

    return run(ask())


def test_a_key_stands_alone_on_stdout(cli):
    answer = cli("key", "create")
    (text,) = answer.out.splitlines()
    assert text not in answer.err
    assert "not shown again" in answer.err
    grant = check(text)
    assert (grant.tenant, grant.scopes, grant.is_test, grant.expires_ms) == (
        "default",
        {"read", "submit"},
        False,
        None,
    )
    assert cli("key", "list").out.count(grant.key_id) == 1


def test_a_key_has_the_scopes_the_end_and_the_tenant_that_were_asked_for(cli):
    answer = cli(
        "key",
        "create",
        "--scope",
        "operate",
        "--scope",
        "read",
        "--expires",
        "90d",
        "--name",
        "shop",
        "--tenant",
        "acme",
        "--by",
        "ada",
        "--json",
    )
    made = answer.json
    text = made.pop("key")
    grant = check(text)
    assert (grant.tenant, grant.scopes, grant.name) == ("acme", {"operate", "read"}, "shop")
    assert cli("key", "list", "--tenant", "acme", "--json").items == [made]
    assert (made["scopes"], made["createdBy"], made["revokedAt"]) == (
        ["read", "operate"],
        "ada",
        None,
    )
    assert cli("key", "list", "--json").items == []


def test_a_test_key_is_printed_and_listed_as_one(cli):
    answer = cli("key", "create", "--test")
    assert answer.out.startswith("gesta_test_")
    assert "a test key" in answer.err
    assert check(answer.out.strip()).is_test
    assert "(test)" in cli("key", "list").out


def test_a_revoked_key_opens_nothing(cli):
    text = cli("key", "create").out.strip()
    key_id = check(text).key_id
    answer = cli("key", "revoke", key_id, "--by", "bob")
    assert (answer.code, answer.out) == (0, f"{key_id}\n")
    with pytest.raises(Forbidden):
        check(text)
    assert "revoked by bob" in cli("key", "list").out
    assert cli("key", "revoke", key_id, "--json").json["revokedBy"] == "bob"


@pytest.mark.parametrize(
    "asked",
    [
        ["--scope", "root"],
        ["--test", "--scope", "admin"],
        ["--expires", "soon"],
        ["--expires", "999999999d"],
        ["--expires", "0s"],
        ["--name", ""],
    ],
)
def test_a_key_with_bad_options_is_refused(cli, asked):
    answer = cli("key", "create", *asked)
    assert (answer.code, answer.out) == (2, "")


def test_a_key_that_is_not_there_is_not_found_and_a_text_is_not_repeated(cli):
    text = cli("key", "create").out.strip()
    answer = cli("key", "revoke", text)
    assert answer.code == 3
    assert text not in answer.err
    assert cli("key", "list", "--tenant", "acme").out == ""
