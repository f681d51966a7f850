"""gesta docs: the pages in the terminal."""

import os
import pty
import subprocess
import sys

from tests.architecture.source import ROOT

PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def test_without_a_topic_every_page_is_listed_with_its_title(cli):
    answer = cli("docs")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == PAGES
    assert "Processes" in answer.out


def test_a_page_is_printed_unchanged_into_a_pipe(cli):
    for topic in ("processes", "processes.md", "docs/processes.md"):
        assert cli("docs", topic).out == (ROOT / "docs" / "processes.md").read_text()


def test_a_page_is_rendered_on_a_terminal(folder):
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "gesta", "docs", "processes"]
    with subprocess.Popen(command, stdout=terminal) as process:
        os.close(terminal)
        with os.fdopen(reader, errors="replace") as shown:
            title = shown.readline()
        process.kill()
    # The heading is styled and has lost its mark.
    assert "Processes" in title
    assert "#" not in title
    assert "\x1b[" in title


def test_an_unknown_page_is_not_found_and_near_ones_are_named(cli):
    answer = cli("docs", "proceses")
    assert (answer.code, answer.out) == (3, "")
    assert "the nearest page is processes" in answer.err


def test_a_word_without_a_page_leads_to_the_page_that_describes_it(cli):
    answer = cli("docs", "metrics")
    assert (answer.code, "tenant" in answer.err) == (3, False)
    assert "no page 'metrics'; it is described on the page processes" in answer.err
    assert answer.err.endswith("show it with: gesta docs processes\n")
    assert "pages: access, " in cli("docs", "xylophone").err
