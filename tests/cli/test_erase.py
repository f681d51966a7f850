"""erase: a person is gone, by a command."""

import pytest

from gesta.admin.representations import payload_representation
from tests.cli.running import events_in
from tests.cli.shop import APP, note

#: A key is of one tenant.
ON_THE_STORE_ONLY = {
    "test_erase_of_another_tenant_or_an_unknown_subject_writes_nothing",
}


def test_erase_prints_how_many_keys_it_destroyed_and_a_repetition_none(cli, shop):
    shop("retry")
    first = cli("erase", "ada@example.com", "--by", "dpo")
    assert (first.code, first.out) == (0, "1\n")
    assert "can no longer be read" in " ".join(first.err.split())
    again = cli("erase", "ada@example.com")
    assert (again.code, again.out) == (0, "0\n")
    assert "exactly as it was submitted" in again.err


def test_erase_speaks_json_and_reads_a_name_from_stdin_so_that_no_history_has_it(cli, shop):
    shop("done")
    assert cli("erase", "-", "--json", stdin="ada@example.com\n").json == {"keys": 1}


def test_erase_of_another_tenant_or_an_unknown_subject_writes_nothing(cli, shop):
    shop("done")
    before = events_in()
    assert cli("erase", "ada@example.com", "--tenant", "acme").out == "0\n"
    assert cli("erase", "grace@example.com").out == "0\n"
    assert events_in() == before


@pytest.mark.parametrize(
    "arguments", [("erase",), ("erase", ""), ("erase", "ada", "--tenant", "_")]
)
def test_a_bad_name_is_bad_input(cli, shop, arguments):
    shop("done")
    assert cli(*arguments).code == 2


def test_show_says_that_a_field_is_encrypted_in_text_and_in_json(cli, shop):
    request_id = shop("retry")
    assert "ada@example.com" not in cli("show", request_id, "--app", APP).out
    shown = cli("show", request_id, "--app", APP, "--json")
    assert shown.json["payload"] == {"comes_to": "retry", "count": 1, "email": "[encrypted]"}
    assert "$encrypted" not in shown.out
    assert cli("erase", "ada@example.com").out == "1\n"
    assert cli("show", request_id, "--app", APP, "--json").json["payload"]["email"] == "[erased]"


def test_a_value_stored_before_its_field_was_marked_is_masked_and_not_called_encrypted():
    shown = payload_representation(b'{"comes_to":"done","email":"ada@example.com"}', note)
    assert shown == {"comes_to": "done", "email": "(personal)"}
