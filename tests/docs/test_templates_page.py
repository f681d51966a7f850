"""The page about templates: its flow, its commands, its bounds."""

import re
import shlex

import pytest

from gesta import Done, InvalidRequest
from gesta.cli.main import main
from gesta.tenants.templates import child, press
from tests.docs.test_docs import ROOT, blocks, program

PAGE = ROOT / "docs" / "templates.md"


async def test_the_flow_fills_in_a_template_and_refuses_what_it_could_not(gesta):
    names = program(PAGE, "class Letter")
    async with names["engine"] as engine:
        await engine.admin.put_config("template", "welcome", {"text": "Hello {{ name }}"})
        request = await engine.submit(names["Letter"]("welcome", {"name": "Ana"}, "pt-BR"))
        assert await request.outcome() == Done()
        assert [effect.data["text"] for effect in gesta.sandbox.http.effects] == ["Hello Ana"]
        with pytest.raises(InvalidRequest, match=r"data\.name: the template welcome needs it"):
            await engine.submit(names["Letter"]("welcome", {}))


def test_the_commands_do_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GESTA_APP", "tests.cli.post:engine")
    for name in ("welcome.txt", "welcome.html", "welcome.pt.txt"):
        (tmp_path / name).write_text(name + " {{ name }}")
    (tmp_path / "ana.json").write_text('{"name": "Ana"}')
    for line in blocks(PAGE, "sh")[0].splitlines():
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        assert not ended.value.code, line
    out = capsys.readouterr().out
    assert "Olá Ana\nwelcome.pt.txt Ana\nwelcome.html Ana\n" in out


def test_the_bounds_are_those_of_the_code():
    said = {
        row[0]: row[1]
        for row in re.findall(
            r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert said["source, all parts together"] == f"{press.SOURCE_LENGTH_MAX:,} characters"
    assert said["result, all parts together"] == f"{press.RESULT_LENGTH_MAX:,} characters"
    assert said["steps"] == f"{press.FUEL:,} a part"
    assert said["CPU time"] == f"{child.CPU_SECONDS} s a message"
    assert said["memory"] == f"{child.MEMORY_BYTES // 1024**2} MB"
