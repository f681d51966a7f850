"""The programs and commands in README and docs/ do what the texts say, with their lines
unchanged.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gesta import Done, Engine, Erased

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_FLOW = ROOT / "docs" / "own-flow.md"
SECRET = "whsec_" + "a" * 32


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def run(arguments, folder, **variables):
    """Run Python in a folder, with these variables of the environment beside the needed ones."""
    needed = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=needed | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_all(commands, folder, **variables):
    """Run commands of a page; each must succeed. Returns what each printed."""
    done_by = {}
    for command in commands:
        words = shlex.split(command.removeprefix("python -m "), comments=True)
        done = done_by[command] = run(["-m", *words], folder, **variables)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done_by


def program(page, words):
    """The one program of a page that has these words, run; what it defined."""
    found = [block for block in blocks(page, "python") if words in block]
    assert len(found) == 1
    names = {"__name__": "program"}
    exec(compile(found[0], str(page), "exec"), names)
    return names


def test_the_quickstart_prints_what_the_readme_says(gesta, capsys):
    main = program(ROOT / "README.md", '@flow("demo.hello"')["main"]
    asyncio.run(main())
    asyncio.run(main())
    assert capsys.readouterr().out.splitlines() == [
        "Hello Ada!",
        "created Done()",
        "duplicate Done()",
    ]


def test_the_quickstart_works_when_pasted_into_a_file(tmp_path):
    (block,) = [one for one in blocks(ROOT / "README.md", "python") if "demo.hello" in one]
    (tmp_path / "hello.py").write_text(block)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    printed = [
        subprocess.run(
            [sys.executable, "hello.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for _ in range(2)
    ]
    assert printed == ["Hello Ada!\ncreated Done()\n", "duplicate Done()\n"]


def test_the_smallest_program_sends_once(gesta, capsys):
    program(ROOT / "README.md", "slack.Message(")
    program(ROOT / "README.md", "slack.Message(")
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"created Done\(id='\d{10}\.\d{6}', target='C012AB3CD'\)", first)
    assert second == first.replace("created", "duplicate")
    assert [effect.text for effect in gesta.sandbox.slack.effects] == ["hello"]


async def test_the_flow_of_ones_own_sends_its_key(gesta):
    names = program(OWN_FLOW, '@flow("billing.receipt"')
    async with Engine(flows=[names["receipt"]]) as engine:
        request = await engine.submit(names["Receipt"](order="7", email="ada@example.com"))
        assert await request.outcome() == Done(id="sandbox_1")
    assert [effect.id for effect in gesta.sandbox.http.effects] == [f"default:{request.id}:send:1"]


async def test_the_handler_of_the_guide_is_called_for_a_completed_receipt(gesta, capsys):
    flow = program(OWN_FLOW, '@flow("billing.receipt"')
    engine = program(OWN_FLOW, '@engine.on("billing.*"')["engine"]
    engine.add(flow["receipt"])
    async with engine:
        request = await engine.submit(
            flow["Receipt"](order="7", email="ada@example.com"), key="receipt-7"
        )
        await request.outcome()
        await gesta.settle()
    assert capsys.readouterr().out == f"completed {request.id} receipt-7 \n"


def test_the_readme_names_the_extra_to_install_and_the_command_that_shows_the_docs():
    """A newcomer's `gesta config put slack.workspace` was refused, and its links led nowhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for block in blocks(ROOT / "README.md", "sh"):
        if "slack" in block:
            before = text.partition(block)[0].splitlines()[-4:]
            assert "pip install 'gesta[slack]'" in "\n".join(before)
    assert "gesta docs " in text
    guide = OWN_FLOW.read_text(encoding="utf-8")
    for word in (
        "engine.on(",
        "engine.erase(",
        "deliver_at",
        "ttl",
        "priority",
        "retention",
        "Retry(",
        "Rejected(",
        "Unknown(",
    ):
        assert word in guide


async def test_the_test_of_an_application_passes(gesta):
    await program(ROOT / "docs" / "testing.md", "async def test_")[
        "test_a_throttled_message_is_sent_once"
    ](gesta)


async def test_the_channel_of_the_guide_sends_with_its_tenants_token(gesta):
    names = program(ROOT / "docs" / "add-a-channel.md", "def flow()")
    async with Engine(flows=[names["flow"]()]) as engine:
        await engine.admin.put_config(
            "chat.room", "ops", {"url": "https://chat.example.com/ops", "token": "t-1"}
        )
        sent = await engine.submit(names["Note"](room="ops", text="hello"))
        lost = await engine.submit(names["Note"](room="nowhere", text="hello"))
        assert await sent.outcome() == Done(id="sandbox_1")
        await lost.outcome()
        assert (await lost.view()).state.reason == "room_missing"
    [effect] = gesta.sandbox.http.effects
    assert (effect.data, effect.headers["authorization"]) == ({"text": "hello"}, "Bearer t-1")


async def test_the_person_of_the_guide_is_erased(gesta, capsys):
    names = program(ROOT / "docs" / "personal-data.md", "engine.erase(")
    await names["main"]()
    assert capsys.readouterr().out.splitlines() == ["ana@example.com", "1"]
    async with Engine("sqlite:///gesta.db", flows=[names["invoice"]]) as engine:
        [view] = await engine.find()
        with pytest.raises(Erased):
            await (await engine.request(view.state.id)).payload()


def test_the_commands_of_the_readme_work(tmp_path):
    lines = [
        line.partition("  #")[0].strip()
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
    ]
    # The copy needs a server: tests/maintenance/store_copy and tests/stores/postgresql have one.
    commands = [
        line
        for line in lines
        if line.startswith("gesta ") and not line.startswith(("gesta serve", "gesta copy"))
    ]
    assert len(commands) == 4
    done_by = run_all(commands, tmp_path, HOOK_SECRET=SECRET)
    # Nothing works on the store in this test, and the list says so instead of looking empty.
    assert "gesta serve" in done_by["gesta list"].stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_request_is_followed_through_at_most_35_files_each_named_once():
    """The page once crossed 49 files; a newcomer lost the thread."""
    text = (ROOT / "docs" / "follow-a-request.md").read_text(encoding="utf-8")
    files = re.findall(r"\]\(\.\./(src/[^)]+)\)", text)
    assert len(files) == len(set(files)) <= 35
    steps = [int(number) for number in re.findall(r"^\*\*(\d+)\.", text, re.MULTILINE)]
    assert steps == list(range(1, 11))


#: Words of the project's own papers; users cannot look these up.
INTERNAL = re.compile(r"\b(?:[RS]\d-\d+|design\.md|house\.md|spec/)", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_for_users_mentions_requirement_ids_or_internal_papers(page):
    assert INTERNAL.findall(page.read_text(encoding="utf-8")) == []


def test_no_program_in_the_documents_is_left_out():
    programs = [block for page in PAGES for block in blocks(page, "python")]
    # The page about Django says that its program is not run.
    not_run = [block for block in programs if "import HttpRequest, JsonResponse" in block]
    assert (len(programs) - len(not_run), len(not_run)) == (31, 1)
    assert "It does not run Django." in " ".join((ROOT / "docs" / "sync.md").read_text().split())


def test_every_test_that_the_page_of_guarantees_names_is_there():
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|src)/[\w/]+\.py)(?:::(test_\w+))?`", text)
    assert len(named) >= 20
    for path, name in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in source, f"{path}::{name}"


async def test_the_email_of_the_guide_is_sent(gesta, capsys):
    names = program(ROOT / "docs" / "email.md", "email.flow()")
    await names["main"]()
    assert capsys.readouterr().out.splitlines()[-1] == "SENT"
    [letter] = gesta.sandbox.smtp.effects
    assert (letter.data["subject"], letter.text) == ("Hello Ana", "Welcome, Ana.\n")


async def test_the_card_payment_of_the_guide_is_captured(gesta, capsys):
    names = program(ROOT / "docs" / "payments.md", "card.Authorize(")
    await names["main"]()
    assert capsys.readouterr().out == "captured\n"
    assert [one.type for one in gesta.sandbox.stripe.effects] == ["authorize", "capture"]
