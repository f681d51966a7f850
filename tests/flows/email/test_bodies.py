"""Where the content of an e-mail comes from: references inside the tenant only, templates, and
their errors.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta import Done, Engine, Rejected
from gesta.errors import BadInput, InvalidRequest
from gesta.flows import email
from gesta.flows.email.bodies import MissingBody, read_file, read_ref
from gesta.testing.plugin import Harness
from tests.flows.email.jobs import OUTBOX

SENDER = {"kind": "smtp", "host": "mail.example.com", "from_address": "shop@example.com"}


@pytest.fixture
async def engine(gesta: Harness, tmp_path: Path) -> AsyncIterator[Engine]:
    for tenant in ("default", "other"):
        (tmp_path / "files" / tenant).mkdir(parents=True)
    async with Engine(
        "memory://bodies", flows=[email.flow(files=str(tmp_path / "files"))]
    ) as engine:
        for tenant in ("default", "other"):
            await engine.admin.put_config("email.sender", "default", SENDER, tenant=tenant)
        yield engine


async def outcome_of(engine: Engine, gesta: Harness, ref: str, tenant: str = "default") -> object:
    request = await engine.submit(email.Message("ana@example.com", "Olá", ref), tenant=tenant)
    await gesta.settle()
    return await request.outcome()


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        (OUTBOX, "db"),
        (f"db:{OUTBOX.upper()}", "db"),
        ("file:a.html", "file"),
        ("file:2026/11/boleto 7.html", "file"),
        ("s3:a/b=c/d.html", "s3"),
    ],
)
def test_references_are_parsed_by_scheme(text, scheme):
    ref = read_ref(text)
    assert ref is not None
    assert ref.scheme == scheme  # R2-1


HOSTILE = [
    "",
    "x",
    "db:",
    "db:7",
    "db:../x",
    "file:",
    "file:/etc/passwd",
    "file:../x",
    "file:a/../b",
    "file:a/..",
    "file:./a",
    "file:a//b",
    "file:~/x",
    "file:a\\b",
    "file:a\x00b",
    "file:a\nb",
    "file:..\\x",
    "file:a/.../b",
    "file: /x",
    "s3:/x",
    "s3:../x",
    "s3:a/../../b",
    "http://169.254.169.254/",
    "https://x/y",
    "file://host/x",
    "data:text/html,x",
    "ftp:x",
    "FILE:x",
    "javascript:x",
    "file:%2e%2e/x",
    "s3:" + "x" * 600,
    "file:a/ /b",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_references_that_lead_elsewhere_are_refused(text):
    assert read_ref(text) is None  # S2-19


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("./\\:%~\0 "), max_size=40))
def test_a_file_reference_stays_below_its_folder(name):
    ref = read_ref(f"file:{name}")
    if ref is not None:
        at = Path("/files/tenant") / ref.name
        assert Path(os.path.normpath(at)).is_relative_to("/files/tenant")  # S2-19
        assert os.path.normpath(at) != "/files/tenant"


async def test_a_stored_body_is_found_by_its_tenant_only(engine, gesta):
    ref = await email.store_body(engine, "<p>Hi</p>")
    assert isinstance(await outcome_of(engine, gesta, ref), Done)
    assert await outcome_of(engine, gesta, ref, "other") == Rejected(
        "html_not_found", "db:"
    )  # S2-19
    assert len(gesta.sandbox.smtp.effects) == 1


async def test_a_body_that_is_missing_is_looked_for_twice_more(engine, gesta):
    request = await engine.submit(email.Message("ana@example.com", "Olá", OUTBOX))
    await gesta.settle()
    assert await request.outcome() == Rejected("html_not_found", "db:")
    assert (await request.view()).state.attempts == 3  # S2-19: retry ×2, then permanent
    assert gesta.sandbox.smtp.calls == 0


async def test_a_body_that_comes_late_is_found(engine, gesta, tmp_path):
    request = await engine.submit(email.Message("ana@example.com", "Olá", "file:late/page.html"))
    await gesta.settle(days=0)
    assert await request.status() == "queued"
    (tmp_path / "files" / "default" / "late").mkdir()
    (tmp_path / "files" / "default" / "late" / "page.html").write_text("<p>Hi</p>")
    await gesta.settle()
    assert isinstance(await request.outcome(), Done)


async def test_a_dropped_or_erased_body_is_gone(engine, gesta):
    ref = await email.store_body(engine, "<p>Hi</p>")
    about = await email.store_body(engine, "<p>Ana</p>", about="ana@EXAMPLE.org")
    await email.drop_body(engine, ref)
    await engine.erase("ana@example.org")
    for one in (ref, about):
        assert await outcome_of(engine, gesta, one) == Rejected("html_not_found", "db:")


@pytest.mark.parametrize("html", ["x" * (512 * 1024 + 1), "a\0b", "\ud800"])
async def test_an_invalid_body_is_not_stored(engine, html):
    with pytest.raises(BadInput, match="html"):
        await email.store_body(engine, html)


async def test_files_lead_nowhere_else(engine, gesta, tmp_path):
    files = tmp_path / "files"
    (tmp_path / "secret").write_text("secret")
    (files / "other" / "theirs.html").write_text("theirs")
    own = files / "default"
    (own / "link.html").symlink_to(tmp_path / "secret")
    (own / "out").symlink_to(files / "other")
    (own / "folder.html").mkdir()
    os.mkfifo(own / "pipe.html")
    (own / "large.html").write_bytes(b"x" * (512 * 1024 + 1))
    (own / "image.html").write_bytes(b"\x89PNG\xff\xfe")
    (own / "closed.html").write_text("x")
    for name in (
        "link.html",
        "out/theirs.html",
        "folder.html",
        "pipe.html",
        "nothing.html",
        "other/theirs.html",
    ):
        with pytest.raises(MissingBody, match="html_not_found"):
            read_file(files, "default", name)  # S2-19
    assert await outcome_of(engine, gesta, "file:large.html") == Rejected(
        "html_too_large", "file:"
    )  # S2-19: at most 512 KB
    assert await outcome_of(engine, gesta, "file:image.html") == Rejected(
        "html_unreadable", "file:"
    )
    assert gesta.sandbox.smtp.calls == 0


async def test_a_tenants_folder_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.html").write_text("x")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "default").symlink_to(tmp_path / "real")
    with pytest.raises(MissingBody):
        read_file(tmp_path / "files", "default", "x.html")


async def test_a_process_without_a_folder_has_no_files(gesta):
    async with Engine("memory://none", flows=[email.flow()]) as engine:
        await engine.admin.put_config("email.sender", "default", SENDER)
        assert await outcome_of(engine, gesta, "file:x.html") == Rejected("html_not_found", "file:")
        assert await outcome_of(engine, gesta, "s3:x.html") == Rejected("html_not_found", "s3:")


async def test_a_template_makes_subject_html_and_text(engine, gesta):
    await engine.admin.put_config(
        "template",
        "welcome",
        {
            "subject": "Olá {{ name }}",
            "mjml": (
                "<mjml><mj-body><mj-section><mj-column><mj-text>Hi {{ name"
                " }}</mj-text></mj-column></mj-section></mj-body></mjml>"
            ),
        },
    )
    await engine.admin.put_config(
        "template",
        "welcome@pt",
        {"subject": "Oi {{ name }}", "html": "<p>Oi {{ name }}</p>", "text": "Oi!"},
    )
    for locale in (None, "pt-BR"):
        request = await engine.submit(
            email.Message(
                "ana@example.com", template="welcome", data={"name": "<Ana>"}, locale=locale
            )
        )
        assert isinstance(await request.outcome(), Done)
    first, second = gesta.sandbox.smtp.effects
    assert (first.data["subject"], first.text.strip()) == ("Olá <Ana>", "Hi <Ana>")
    assert "Hi &lt;Ana&gt;" in first.data["html"]
    assert (second.data["subject"], second.data["html"].strip(), second.text.strip()) == (
        "Oi <Ana>",
        "<p>Oi &lt;Ana&gt;</p>",
        "Oi!",
    )


async def test_a_missing_variable_is_refused_at_submit(engine, gesta):
    await engine.admin.put_config(
        "template", "welcome", {"subject": "x", "html": "<p>{{ user.name }}</p>"}
    )
    with pytest.raises(InvalidRequest) as refused:
        await engine.submit(email.Message("ana@example.com", template="welcome", data={}))
    assert refused.value.fields == {"data.user.name": "the template welcome needs it"}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ({"html": "<p>x</p>"}, "template_render_failed"),
        ({"subject": "{{ s }}", "html": "<p>x</p>"}, "template_render_failed"),
        ({"subject": "x", "mjml": "<mjml>"}, "html_unreadable"),
        ({"subject": "x", "html": "{{ s * 20000 }}"}, "template_render_failed"),
        (None, "template_missing"),
    ],
)
async def test_an_email_that_cannot_be_composed_is_not_sent(engine, gesta, template, reason):
    if template is not None:
        await engine.admin.put_config("template", "t", template)
    request = await engine.submit(
        email.Message("ana@example.com", template="t", data={"s": "y" * 200})
    )
    outcome = await request.outcome()
    assert isinstance(outcome, Rejected)
    assert outcome.reason == reason
    assert gesta.sandbox.smtp.calls == 0


async def test_an_email_may_have_only_text(engine, gesta):
    await engine.admin.put_config("template", "t", {"subject": "x", "text": "Hi {{ name }}"})
    request = await engine.submit(
        email.Message("ana@example.com", template="t", data={"name": "Ana"})
    )
    assert isinstance(await request.outcome(), Done)
    [letter] = gesta.sandbox.smtp.effects
    assert (letter.text, letter.data["html"]) == ("Hi Ana\n", "")
