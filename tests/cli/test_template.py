"""`gesta template preview`: what a template makes of some data, without sending or storing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.post import APP
from tests.cli.running import Cli, events_in

#: A server has flows of its own and other words for what is missing; files need none.
ON_THE_STORE_ONLY = {
    "test_one_part_for_a_locale_as_text_and_as_json",
    "test_files_that_are_not_stored_need_no_store",
    "test_errors_are_reported",
    "test_a_process_without_templates_reports_the_missing_config_kind",
}


@pytest.fixture
def stored(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GESTA_APP", APP)
    (folder / "welcome.html").write_text("<p>Hello {{ name }}</p>\n")
    for code, subject in (("welcome", "Hello {{ name }}"), ("welcome@pt", "Olá {{ name }}")):
        assert (
            cli("config", "put", "template", code, f"subject={subject}", "html=@welcome.html").code
            == 0
        )


def test_every_part_is_shown_and_nothing_is_stored(cli: Cli, stored: None) -> None:
    before = events_in()
    answer = cli("template", "preview", "welcome", "--data", '{"name": "<Ann>"}')
    assert (answer.code, answer.out) == (0, "Hello <Ann>\n<p>Hello &lt;Ann&gt;</p>\n")
    assert answer.err == "── subject\n── html\n"
    assert events_in() == before


def test_one_part_for_a_locale_as_text_and_as_json(cli: Cli, folder: Path, stored: None) -> None:
    (folder / "data.json").write_text('{"name": "Ann"}')
    answer = cli(
        "template",
        "preview",
        "welcome",
        "--locale",
        "pt-BR",
        "--data",
        "@data.json",
        "--part",
        "subject",
    )
    assert (answer.out, answer.err) == ("Olá Ann\n", "")
    answer = cli(
        "template",
        "preview",
        "welcome",
        "--locale",
        "pt-BR",
        "--data",
        "-",
        "--json",
        stdin='{"name": "Ann"}',
    )
    assert answer.json == {
        "code": "welcome@pt",
        "version": 1,
        "parts": {"subject": "Olá Ann", "html": "<p>Hello Ann</p>"},
    }


def test_files_that_are_not_stored_need_no_store(cli: Cli, folder: Path) -> None:
    (folder / "a.json").write_text('[{"text": "{{ name }}"}]')
    (folder / "a.liquid").write_text("Hello {{ name }}")
    answer = cli(
        "template",
        "preview",
        "--source",
        "a.json",
        "--source",
        "text=a.liquid",
        "--data",
        '{"name": "A\\"nn"}',
        "--json",
    )
    assert answer.json == {"parts": {"text": 'Hello A"nn', "blocks": '[{"text": "A\\"nn"}]'}}
    assert list(folder.glob("gesta.*")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["welcome"],
            2,
            "template welcome: variables.name: the template welcome needs it",
        ),
        (["other"], 3, "no template 'other' for this tenant"),
        (["welcome", "--tenant", "b"], 3, "no template 'welcome' for this tenant"),
        (
            ["welcome", "--data", '{"name": 1}', "--part", "text"],
            2,
            "part: this template has subject, html",
        ),
        (["welcome", "--data", "{"], 2, "data: not valid JSON"),
        (["welcome", "--data", "[]"], 2, "data: must be a JSON object"),
        (["welcome", "--data", "@nowhere"], 2, "data: nowhere cannot be read"),
        ([], 2, "name either a stored template, or files with --source"),
        (["welcome", "--source", "a.txt"], 2, "either a stored template"),
        (["--source", "a.liquid"], 2, "source: which part is a.liquid?"),
        (["--source", "nowhere.txt"], 2, "source: nowhere.txt cannot be read"),
        (
            ["--source", "welcome.html", "--source", "html=welcome.html"],
            2,
            "source: html is given twice",
        ),
        (
            ["--source", "text=bomb"],
            2,
            "template: takes too much memory. An attempt would end as template_render_failed",
        ),
    ],
)
def test_errors_are_reported(
    cli: Cli, folder: Path, stored: None, arguments: list[str], code: int, message: str
) -> None:
    (folder / "bomb").write_text("{{ range(99999)|join('x' * 9999) }}")
    answer = cli("template", "preview", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err


def test_a_process_without_templates_reports_the_missing_config_kind(
    cli: Cli, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = cli("template", "preview", "welcome", "--app", "tests.cli.shop:engine")
    assert answer.code == 3
    assert "no config kind 'template" in answer.err


def test_a_template_that_cannot_work_is_not_stored(cli: Cli, stored: None, folder: Path) -> None:
    (folder / "bad.txt").write_text("one\n{% for x in y %}")
    before = events_in()
    answer = cli("config", "put", "template", "bad", "text=@bad.txt")
    assert answer.code == 2
    assert "config template/bad: text: line 2: unexpected end of input" in answer.err
    assert events_in() == before


def test_the_html_of_mjml_is_written_to_a_file(cli, folder):
    (folder / "hello.mjml").write_text(
        "<mjml><mj-body><mj-section><mj-column><mj-text>Hello {{ name }}</mj-text></mj-column>"
        "</mj-section></mj-body></mjml>"
    )
    answer = cli(
        "template",
        "preview",
        "--source",
        "hello.mjml",
        "--data",
        '{"name": "Ana & Bo"}',
        "--html",
        "out.html",
    )
    assert (answer.code, answer.out) == (0, "out.html\n"), answer.err
    page = (folder / "out.html").read_text()
    assert "Hello Ana &amp; Bo" in page
    assert "<mj-" not in page


def test_a_template_without_a_page_has_no_html_to_write(cli, folder):
    (folder / "hello.txt").write_text("Hello")
    answer = cli("template", "preview", "--source", "hello.txt", "--html", "out.html")
    assert (answer.code, "no html or mjml" in answer.err) == (2, True)
    assert not (folder / "out.html").exists()
