"""What people read of texts that others wrote: a terminal obeys none of it."""

from __future__ import annotations

import msgspec
import pytest

from gesta.cli.output import facts, print_json, print_json_line, say, show, table, tell, visible
from tests.cli.running import work
from tests.cli.shop import Note

#: Breaks a line, colours the rest of the screen, clears it, turns the letters round.
NASTY = "a\nb\r\x1b[31mred\x1b[2J\x9b5m\u202eabc\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 数 🙂", "plain ä 数 🙂"),
        ("a\nb", "a\\nb"),
        ("a\tb", "a\tb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b5m", "\\x9b5m"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧"),
    ],
)
def test_control_characters_are_shown_instead_of_obeyed(text, shown):
    assert visible(text) == shown


def test_no_table_and_no_line_prints_a_control_character(capsys):
    say(NASTY)
    tell(NASTY)
    show(table(("key", "note"), [(NASTY, NASTY)], folded=("note",)), facts({"key": NASTY}))
    out, err = capsys.readouterr()
    assert not any(letter in out + err for letter in "\r\x1b\x9b\u202e\x07")
    assert (err.count("\n"), out.splitlines()[0]) == (1, visible(NASTY))


def test_json_stays_json_and_says_the_same(capsys):
    print_json({"key": NASTY})
    whole = capsys.readouterr().out
    print_json_line({"key": NASTY})
    line = capsys.readouterr().out
    assert not any(letter in whole + line for letter in "\r\x1b\x9b\u202e\x07")
    assert [msgspec.json.decode(text) for text in (whole, line)] == [{"key": NASTY}] * 2


def test_a_key_with_an_escape_sequence_colours_no_list(cli):
    (request_id,) = work(Note(), key="red\x1b[31m\nx")
    for command in (("list",), ("show", request_id)):
        shown = cli(*command).out
        assert "\x1b" not in shown
        assert "red\\x1b[31m\\nx" in "".join(shown.split())
