"""Hostile input: each is refused, and an accepted e-mail is sent exactly as given."""

from __future__ import annotations

import asyncio
import re
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gesta import Done, Engine, Rejected
from gesta.engine.environment import Wiring
from gesta.errors import InvalidRequest
from gesta.flows import email
from gesta.flows.deferrals import CredentialRefused
from gesta.flows.email.composing import EmailContent, compose
from gesta.flows.email.message import ascii_address
from gesta.flows.email.sender import verdict_of
from gesta.flows.validation import decode_fields
from gesta.outbound.smtp import MailAnswer, MailReply
from gesta.testing.plugin import Harness
from tests.flows.email.jobs import OUTBOX, job

#: Characters that break things: line ends, other controls, halves of characters, right-to-left,
#: combining, far away.
WORDS = st.sampled_from(
    ["=?utf-8?q?=0D=0ABcc:_x?=", "=?utf-8?b?DQpCY2M6IHg=?=", "=?us-ascii*en?Q?=0A?="]
)
NASTY = st.sampled_from(
    "\r\n\0\t\v\x1b\x7f\x85\u2028\u2029\ud800\u202e\u0301\ufeff<>\"',;:@()[]\\%=?. "
)
TEXT = st.text(st.one_of(NASTY, st.characters()), max_size=60) | WORDS
PLAIN = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u2028\u2029"),
    min_size=1,
    max_size=150,
)
ADDRESS = st.one_of(
    TEXT,
    st.emails(),
    WORDS.map(lambda word: f"{word}@example.com"),
    st.sampled_from(["ana@example.com", "Ana@EXAMPLE.com", "a@münchen.example.com"]),
)
HEADER = st.one_of(
    TEXT, st.sampled_from(["X-A", "x-b", "References", "List-Unsubscribe", "Bcc", "X-A: y\r\nBcc"])
)
VALUE = st.one_of(
    TEXT, PLAIN, st.just("a\r\nBcc: x@example.com"), st.just("=?utf-8?q?=0D=0ABcc:?=")
)
HOSTILE = {
    "to": ADDRESS,
    "subject": st.one_of(TEXT, PLAIN),
    "html_ref": TEXT,
    "cc": st.lists(ADDRESS, max_size=6),
    "bcc": st.lists(ADDRESS, max_size=6),
    "reply_to": ADDRESS,
    "headers": st.dictionaries(HEADER, VALUE, min_size=1, max_size=3),
    "tags": st.lists(TEXT | st.just("a"), max_size=3),
    "unsubscribe": TEXT | st.just("https://example.com/u"),
}
#: Sound but for one or two fields: with more, hardly a letter would get past the first rule.
MESSAGES = st.lists(st.sampled_from(sorted(HOSTILE)), min_size=1, max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: HOSTILE[name] for name in names})
)
SOUND = st.builds(
    email.Message,
    to=st.just("ana@example.com"),
    subject=PLAIN.filter(str.strip),
    html_ref=st.just(OUTBOX),
    headers=st.dictionaries(st.sampled_from(["X-A", "X-B", "X-Long-Name"]), PLAIN, max_size=2),
)
HEADERS = frozenset(
    """message-id date from to cc reply-to subject x-outbox-id x-tags list-unsubscribe
    list-unsubscribe-post references in-reply-to mime-version content-type""".split()
)


def check_email(message: email.Message, html: str, text: str) -> None:
    """The e-mail is as given: these headers, these parts, in lines that every server accepts."""
    letter = compose(
        message,
        EmailContent(message.subject, html, text),
        key="t:r:send:1",
        outbox_id=OUTBOX,
        from_address="shop@example.com",
        from_name="Loja",
        cc=message.cc,
        sent_at_ms=1_800_000_000_000,
    )
    raw = letter.message
    assert raw.isascii()
    assert b"\0" not in raw
    lines = raw.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= 998
    found = message_from_bytes(raw, policy=default)
    own = {name.lower() for name in message.headers}
    assert {name.lower() for name in found} <= HEADERS | own  # S2-16: nothing was smuggled in
    assert "bcc" not in found
    assert len(found.keys()) == len({name.lower() for name in found})
    assert [one.addr_spec for one in found["to"].addresses] == [ascii_address(message.to)]
    assert not found.defects
    for kind, given_text in (("plain", text), ("html", html)):
        part = found.get_body((kind,))
        assert part is not None
        assert (
            part.get_content().replace("\r\n", "\n").strip()
            == given_text.replace("\r\n", "\n").replace("\r", "\n").strip()
        )


@pytest.mark.slow
@given(MESSAGES)
def test_an_email_is_refused_or_sent_as_given(fields):
    message = email.Message(
        **({"to": "ana@example.com", "subject": "x", "html_ref": OUTBOX} | fields)
    )
    errors = email.errors_of(message)
    reported = " ".join(errors.values())
    assert "\n" not in reported
    if not errors:
        check_email(message, "<p>x</p>", "x")


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["X-A", "X-B", "References", "List-Unsubscribe"]) | HEADER,
        VALUE,
        min_size=1,
        max_size=3,
    )
)
def test_a_header_cannot_contain_another_one(headers):
    message = email.Message("ana@example.com", "x", OUTBOX, headers=headers)
    if not email.errors_of(message):
        check_email(message, "<p>x</p>", "x")  # S2-16


@pytest.mark.slow
@settings(max_examples=60)
@given(SOUND, PLAIN, PLAIN)
def test_a_valid_email_is_sent_with_every_character(message, html, text):
    if not email.errors_of(message):
        check_email(message, html, text)
        raw = compose(
            message,
            EmailContent(message.subject, html, text),
            key="k",
            outbox_id=OUTBOX,
            from_address="shop@example.com",
            from_name="",
            cc=[],
            sent_at_ms=0,
        ).message
        subject = message_from_bytes(raw, policy=default)["subject"]
        assert re.sub(r"\s+", " ", subject).strip() == re.sub(r"\s+", " ", message.subject).strip()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "outboxId",
    "companyId",
    "requestId",
    "to",
    "cc",
    "bcc",
    "subject",
    "htmlRef",
    "replyTo",
    "headers",
    "tags",
    "recipient",
    "attempt",
    "enqueuedAt",
    "html",
    "cpfCnpj",
]


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    st.dictionaries(st.sampled_from(["jobId", "ttl", "priority", "delay", "x"]), JSON, max_size=3),
)
def test_any_job_is_accepted_or_refused(data, opts):
    try:
        asked = email.read_job(job(data, opts))
    except InvalidRequest as refused:
        reported = refused.fields
    else:
        reported = {} if email.errors_of(asked.message) else {"taken": "and sound"}
    assert reported


@given(
    st.integers(-1, 999), TEXT, st.sampled_from(["connect", "login", "sender", "recipient", "data"])
)
def test_any_answer_of_a_server_is_classified_and_not_quoted(code, text, stage):
    try:
        verdict = verdict_of(MailAnswer(stage, MailReply(code, text)), "main")
    except CredentialRefused as refused:
        reported = refused.detail
    else:
        reported = (
            ""
            if verdict.outcome is None or isinstance(verdict.outcome, Done)
            else verdict.outcome.detail
        )
    assert re.fullmatch(r"(answered -?\d+( \d\.\d{1,3}\.\d{1,3})? at [a-z]+)?", reported)


WORD = "=?utf-8?q?=0D=0ABcc:_eve=40example.com?="
LETTERS: list[dict[str, Any]] = [
    {"subject": f"Hi {WORD}"},
    {"to": f"{WORD}@example.com"},
    {"headers": {"X-A": WORD}},
    {"headers": {"References": f"<a@b> {WORD}"}},
    {"unsubscribe": f"https://example.com/{WORD}"},
    {"to": "ana@example.com\r\nBcc: eve@example.com"},
    {"subject": "Hi\r\nBcc: eve@example.com"},
    {"headers": {"X-A": "1\r\nBcc: eve@example.com"}},
    {"headers": {"Bcc": "eve@example.com"}},
    {"cc": ["eve@example.com\r\nTo: b"]},
    {"html_ref": "file:../../etc/passwd"},
    {"html_ref": "http://169.254.169.254/latest/meta-data"},
    {"html_ref": "s3:../other/secret"},
    {"recipient": email.Recipient("eve@example.com", external_id="7")},
    {"subject": "\ud800"},
    {"data": {"a": 1}},
    {"tags": ["a b"]},
    {"unsubscribe": "https://example.com/\r\nBcc: eve@example.com"},
    {"outbox_id": "7"},
]


@pytest.mark.parametrize("fields", LETTERS)
async def test_submit_refuses_each_and_nothing_is_sent(gesta, fields):
    async with Engine("memory://bad", flows=[email.flow()]) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(
                email.Message(
                    **({"to": "ana@example.com", "subject": "x", "html_ref": OUTBOX} | fields)
                )
            )
        assert refused.value.fields
        assert "eve@" not in str(refused.value)
        await gesta.settle()
        assert await engine.find() == []
        assert gesta.sandbox.smtp.calls == 0


@pytest.mark.slow
@settings(max_examples=20)
@given(st.binary(max_size=200))
def test_a_hostile_body_is_sent_as_it_is_or_not_at_all(body):
    async def send() -> None:
        harness, before = Harness(), Wiring.wire
        Wiring.wire = staticmethod(harness.wire)
        try:
            async with Engine("memory://body", flows=[email.flow()]) as engine:
                sender = {
                    "kind": "smtp",
                    "host": "mail.example.com",
                    "from_address": "shop@example.com",
                }
                await engine.admin.put_config("email.sender", "default", sender)
                await engine.pipeline.records.of("default").put("email.body", OUTBOX, 1, body)
                request = await engine.submit(email.Message("ana@example.com", "x", OUTBOX))
                await harness.settle()
                outcome = await request.outcome()
                assert isinstance(outcome, Done) is (len(harness.sandbox.smtp.effects) == 1)
                assert isinstance(outcome, Done) or outcome == Rejected("html_unreadable", "db:")
        finally:
            Wiring.wire = staticmethod(before)

    asyncio.run(send())


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-A": WORD}},
        {"subject": WORD},
        {"to": f"{WORD}@example.com"},
        {"unsubscribe": WORD},
    ],
)
def test_encoded_words_in_headers_are_refused_when_composing(fields):
    message = email.Message(
        **({"to": "ana@example.com", "subject": "x", "html_ref": OUTBOX} | fields)
    )
    with pytest.raises(ValueError, match=r"control characters|e-mail address"):
        check_email(message, "<p>x</p>", "x")


def test_a_senders_name_is_a_name():
    for bad in (WORD, "a\r\nBcc: x", "a\x85b"):
        body, errors = decode_fields(
            email.Sender, {"kind": "smtp", "from_address": "a@example.com", "from_name": bad}
        )
        assert (body, list(errors)) == (None, ["from_name"])
    assert (
        decode_fields(
            email.Sender,
            {"kind": "smtp", "from_address": "a@example.com", "from_name": "Loja = João? & Cia"},
        )[1]
        == {}
    )
