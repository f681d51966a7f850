"""The log on stderr: JSON lines or text."""

from __future__ import annotations

import logging
import sys

import msgspec
import pytest

from gesta.cli.log import LOGGER, start_log
from gesta.runtime.settings import load
from gesta.runtime.telemetry import logger


@pytest.fixture
def line(folder, monkeypatch, capsys):
    """Start the log in a format and give what one warning looks like."""

    def written(log_format: str, *, is_terminal: bool) -> str:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
        start_log(load({"log_format": log_format}))
        logger().warning("attempt_failed", flow="shop.note", reason="time\nout", detail="")
        return str(capsys.readouterr().err)

    return written


@pytest.mark.parametrize(
    ("log_format", "is_terminal", "is_json"),
    [
        ("json", True, True),
        ("json", False, True),
        ("text", True, False),
        ("text", False, False),
        ("auto", True, False),
        ("auto", False, True),
    ],
)
def test_the_format_auto_is_text_on_a_terminal_and_json_elsewhere(
    line, log_format, is_terminal, is_json
):
    written = line(log_format, is_terminal=is_terminal)
    assert written.startswith("{") is is_json
    assert written.count("\n") == 1
    if is_json:
        assert msgspec.json.decode(written)["reason"] == "time\nout"
    else:
        assert written[13:] == "warning  attempt_failed  flow=shop.note reason=time\\nout\n"


def test_a_traceback_keeps_its_lines_in_text(line, capsys):
    line("text", is_terminal=False)
    logger().error("executor_raised", traceback="File a\n  in f\nValueError: \x1b[31m")
    written = capsys.readouterr().err.splitlines()
    assert written[1:] == ["    File a", "      in f", "    ValueError: \\x1b[31m"]


def test_a_line_that_is_not_json_is_shown_as_it_is(line, capsys):
    line("text", is_terminal=False)
    LOGGER.log(logging.ERROR, "plain words")
    assert capsys.readouterr().err == "error    plain words\n"


def test_an_unknown_log_format_is_refused(cli):
    answer = cli("list", "--log-format", "xml")
    assert answer.code == 2
    assert "log_format in argument: 'xml' is not one of auto, json, text" in answer.err
