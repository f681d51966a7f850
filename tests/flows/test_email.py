"""notification.email in the whole pipeline: harness, manual clock, fake mail server and SES."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gesta import Done, Engine, Rejected
from gesta.engine.request import Request
from gesta.errors import BadFlow, Conflict, InvalidRequest
from gesta.flows import email
from gesta.flows.email.message import normal
from gesta.testing.plugin import Harness
from tests.flows.email.jobs import COMPANY, HASH, OUTBOX, job

SMTP = {
    "kind": "smtp",
    "host": "mail.example.com",
    "user": "shop",
    "password": "hunter2!",
    "from_address": "shop@example.com",
}
SES = {
    "kind": "ses",
    "region": "eu-west-1",
    "access_key_id": "AKIDSANDBOX",
    "secret_access_key": "sandbox-secret",
    "from_address": "shop@example.com",
}
PAGE = (
    "<html><head><style>p {color: red}</style></head><body><p>Olá <b>Ana</b></p>"
    "<a href='https://example.com/x'>Boleto</a></body></html>"
)


@dataclass
class Post:
    """An engine with senders, a body and a way to send."""

    engine: Engine
    gesta: Harness
    ref: str = ""

    async def send(
        self, to: str = "ana@example.com", sender: str = "default", **fields: Any
    ) -> Request:
        fields = {"subject": "Olá", "html_ref": self.ref} | fields
        return await self.engine.submit(email.Message(to, sender=sender, **fields))

    async def status(self, request: Request) -> str:
        await self.gesta.settle()
        return await request.status()


@pytest.fixture
async def post(gesta: Harness) -> AsyncIterator[Post]:
    async with Engine("memory://email", flows=[email.flow()]) as engine:
        for tenant in ("default", COMPANY):
            await engine.admin.put_config("email.sender", "default", SMTP, tenant=tenant)
            await engine.admin.put_config("email.sender", "ses", SES, tenant=tenant)
        yield Post(engine, gesta, await email.store_body(engine, PAGE))


@pytest.mark.parametrize("sender", ["default", "ses"])
async def test_an_email_is_sent_with_every_part(post, sender):
    request = await post.send(
        sender=sender,
        cc=["cc@example.org"],
        bcc=["bcc@example.org"],
        reply_to="help@example.com",
        headers={"X-Campaign": "spring"},
        tags=["a", "b"],
        unsubscribe="https://example.com/u?" + "x" * 200,
        recipient=email.Recipient("ana@example.com", external_id="7"),
    )
    outcome = await request.outcome()
    double = post.gesta.sandbox.smtp if sender == "default" else post.gesta.sandbox.ses
    [letter] = double.effects
    assert isinstance(outcome, Done)
    said = letter.data
    assert (said["to"], said["cc"], said["bcc"]) == (
        "ana@example.com",
        ["cc@example.org"],
        ["bcc@example.org"],
    )  # R2-32
    assert "bcc" not in letter.headers
    assert (said["subject"], said["sender"]) == ("Olá", "shop@example.com")
    assert 'style="color: red;"' in said["html"]
    assert letter.text == "Olá Ana\n\nBoleto (https://example.com/x)\n"
    headers = letter.headers
    assert (headers["reply-to"], headers["x-campaign"], headers["x-tags"]) == (
        "help@example.com",
        "spring",
        "a, b",
    )  # R2-32, S2-16
    assert headers["list-unsubscribe"] == f"<https://example.com/u?{'x' * 200}>"
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    assert headers["x-outbox-id"] == request.id  # S2-11
    if sender == "ses":
        assert said["tags"] == {"outboxId": request.id, "tag1": "a", "tag2": "b"}  # S2-11
        assert outcome.id == "sandbox-000001"
    else:
        assert outcome.id == letter.id == headers["message-id"].strip("<>")


async def test_a_job_of_the_contract_is_sent_and_described_by_its_names(post):
    ref = await email.store_body(post.engine, PAGE, tenant=COMPANY)
    given = job({"htmlRef": ref, "attempt": 3})
    request = await email.submit_job(post.engine, given)
    assert (request.verdict, request.id, request.tenant) == (
        "created",
        OUTBOX,
        COMPANY,
    )  # R2-2, R2-31
    outcome = await request.outcome()
    assert isinstance(outcome, Done)
    row = await email.email_log(post.engine, request.id, tenant=COMPANY)
    assert (row.outbox_id, row.company_id, row.status) == (OUTBOX, COMPANY, "SENT")  # R2-33, R2-3
    assert (row.recipient_id, row.ses_message_id, row.duration_ms) == (
        outcome.target,
        outcome.id,
        0,
    )  # R2-33
    view = await post.engine.get(request.id, tenant=COMPANY)
    history = await post.engine.history(request.id, tenant=COMPANY)
    assert view.state.correlation_id == "req-abc123"  # X-13
    assert view.state.expires_at == view.state.created_at + 86_400_000  # R2-4
    result = email.job_result(view.state, history)
    assert result is not None
    assert msgspec.to_builtins(result) == {  # R2-34
        "sesMessageId": outcome.id,
        "status": "SENT",
        "processedAt": row.sent_at,
        "durationMs": 0,
        "attempt": 1,
    }
    assert (
        result.attempt == view.state.attempts == 1
    )  # S2-5: counted from events, whatever the job says
    again = await email.submit_job(post.engine, given)
    assert (again.verdict, again.id) == ("duplicate", OUTBOX)  # S2-3
    assert msgspec.to_builtins(email.already_sent(view.state)) == {
        "status": "ALREADY_SENT",
        "sesMessageId": outcome.id,
    }  # R2-27
    await post.gesta.settle()
    assert [one.receipts for one in post.gesta.sandbox.smtp.effects] == [
        1
    ]  # R2-27, R2-3: no second letter
    with pytest.raises(Conflict):
        await email.submit_job(post.engine, job({"htmlRef": ref, "subject": "Outro"}))


async def test_an_invalid_email_is_refused_before_anything_is_written(post):
    with pytest.raises(InvalidRequest) as refused:
        await post.send("ana@example", subject="a\nb")
    assert set(refused.value.fields) == {"to", "subject"}  # R2-31
    with pytest.raises(InvalidRequest):
        await email.submit_job(post.engine, job({"to": "x"}, email="x"))
    assert await post.engine.find() == []
    assert post.gesta.sandbox.smtp.calls == 0


async def test_the_worker_checks_again(post):
    """A request that other code accepted: the check at submit is taken away for it."""
    flow = post.engine.flows[email.NAME]
    object.__setattr__(flow, "check", None)
    request = await post.send("not an address")
    assert await request.outcome() == Rejected(
        "invalid_email", "to: must be a valid e-mail address of at most 254 characters"
    )  # R2-31
    assert await post.status(request) == "failed"  # R2-36: a dead letter at once
    assert (await request.view()).state.attempts == 1  # R2-36, S2-8
    other = await post.send(subject="")
    assert isinstance(await other.outcome(), Rejected)
    assert post.gesta.sandbox.smtp.calls == 0


async def test_temporary_errors_come_back_by_the_seeds_table(post):
    post.gesta.sandbox.smtp.next(status=451, times=4)
    request = await post.send()
    await post.gesta.settle()
    history = await post.engine.history(request.id)
    waits = [
        (event.next_attempt_at - meta.occurred_at) / 1000
        for name, event, meta in history
        if name.endswith("AttemptFailed.v1")
    ]
    assert [
        planned * 0.75 <= wait <= planned * 1.25
        for wait, planned in zip(waits, (1, 5, 30, 120), strict=True)
    ] == [True] * 4  # R2-37, S2-6
    assert any(wait < planned for wait, planned in zip(waits, (1, 5, 30, 120), strict=True))
    assert await request.status() == "sent"
    assert len(post.gesta.sandbox.smtp.effects) == 1  # R2-3


async def test_after_five_attempts_it_is_a_dead_letter_for_seven_days(post):
    post.gesta.sandbox.smtp.on("ana@example.com", status=451)
    request = await post.send()
    assert await post.status(request) == "failed"
    assert post.gesta.sandbox.smtp.calls == 5  # R2-38
    row = await email.email_log(post.engine, request.id)
    assert (row.status, row.error_code, row.error_reason) == (
        "FAILED",
        "MAX_ATTEMPTS_EXCEEDED",
        "Max attempts reached",
    )  # R2-38
    assert [letter.id for letter in await post.engine.admin.dead_letters()] == [request.id]
    post.gesta.advance(7 * 86_400 - 600)
    assert await post.engine.admin.dead_letters()
    post.gesta.advance(600)
    assert await post.engine.admin.dead_letters() == []  # R2-38, S2-22
    assert await request.status() == "failed"


async def test_a_missing_mailbox_is_a_dead_letter_at_once_and_suppressed(
    post,
):
    post.gesta.sandbox.smtp.next(status=550, error="5.1.1")
    request = await post.send()
    assert await request.outcome() == Rejected(
        "invalid_email", "answered 550 5.1.1 at recipient"
    )  # R2-36
    found = await email.suppressed(post.engine, "Ana@Example.com")
    assert found is not None  # D-11: 5.1.1 puts it on the list
    second = await post.send()
    outcome = await second.outcome()
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "suppressed"
    assert post.gesta.sandbox.smtp.calls == 1
    assert await email.unsuppress(post.engine, "ana@example.com")
    assert isinstance(await (await post.send()).outcome(), Done)


async def test_suppressed_or_refused_copies_are_left_out_and_counted(post):
    await email.suppress(post.engine, "no@example.org")
    post.gesta.sandbox.smtp.on("gone@example.org", status=550)
    request = await post.send(cc=["no@example.org", "cc@example.org"], bcc=["gone@example.org"])
    outcome = await request.outcome()
    assert outcome == Done(
        outcome.id, outcome.target, "durationMs=0 ccSuppressed=1 bccRefused=1"
    )  # S2-20
    assert (await email.email_log(post.engine, request.id)).warnings == {
        "ccSuppressed": 1,
        "bccRefused": 1,
    }
    [letter] = post.gesta.sandbox.smtp.effects
    assert (letter.data["cc"], letter.data["bcc"]) == (["cc@example.org"], [])
    assert "no@example.org" not in letter.headers["cc"]
    post.gesta.sandbox.smtp.on("ana@example.com", status=550)
    assert await (await post.send()).outcome() == Rejected(
        "smtp_550", "answered 550 5.0.0 at recipient"
    )  # S2-20: `to` refused is a failure


async def test_a_lost_answer_is_sent_again_under_the_same_message_id(post):
    post.gesta.sandbox.smtp.next(drop=True)
    request = await post.send()
    assert await post.status(request) == "sent"
    [letter] = post.gesta.sandbox.smtp.effects
    assert letter.receipts == 2  # S2-11: one Message-ID; mail programs show one e-mail


async def test_with_park_a_lost_answer_is_left_to_a_person(gesta):
    async with Engine("memory://park", flows=[email.flow(on_unknown="manual")]) as engine:
        await engine.admin.put_config("email.sender", "default", SMTP)
        post = Post(engine, gesta, await email.store_body(engine, PAGE))
        gesta.sandbox.smtp.next(drop=True)
        request = await post.send()
        assert await post.status(request) == "unknown"
        assert (await email.email_log(engine, request.id)).status == "SENT_ATTEMPT"
        assert [letter.receipts for letter in gesta.sandbox.smtp.effects] == [1]


async def test_an_email_that_is_not_sent_within_24_hours_expires(post):
    await post.engine.admin.pause(tenant="default", reason="for a day")
    request = await post.send()
    # The worker has held the job before the day passes: nothing was begun.
    await post.gesta.settle(days=0)
    post.gesta.advance(86_400 - 1)
    await post.gesta.settle(days=0)
    assert await request.status() == "queued"
    assert await post.status(request) == "expired"  # R2-5
    assert (await email.email_log(post.engine, request.id)).status == "EXPIRED"  # R2-5
    await post.engine.admin.resume(tenant="default")
    await post.gesta.settle()
    assert post.gesta.sandbox.smtp.calls == 0
    await request.redrive(ttl=timedelta(hours=1))
    assert await post.status(request) == "sent"  # S2-29: a new time to live, the same request


async def test_a_delayed_job_waits_and_its_priority_is_kept(post):
    ref = await email.store_body(post.engine, PAGE, tenant=COMPANY)
    request = await email.submit_job(
        post.engine, job({"htmlRef": ref}, {"delay": 3_600_000, "priority": 1})
    )
    state = (await request.view()).state
    assert (state.priority, state.due_at) == (1, state.created_at + 3_600_000)
    assert state.expires_at == state.created_at + 86_400_000  # S2-2
    assert await post.status(request) == "sent"


@pytest.mark.parametrize(
    ("sender", "fault", "put"),
    [
        ("default", {"status": 535}, {"password": "changed!"}),
        ("ses", {"error": "SendingPausedException"}, {"configuration_set": "other"}),
        ("ses", {"error": "AccountSuspendedException"}, {"configuration_set": "other"}),
        ("ses", {"error": "UnrecognizedClientException"}, {"secret_access_key": "changed"}),
    ],
)
async def test_a_refused_account_holds_its_emails_until_it_changes(post, sender, fault, put):
    double = post.gesta.sandbox.smtp if sender == "default" else post.gesta.sandbox.ses
    double.next(**fault, times=100)
    requests = [await post.send(f"p{n}@example.com", sender=sender) for n in range(20)]
    await post.gesta.settle(days=0.5)
    assert {await request.status() for request in requests} == {"queued"}
    assert {(await request.view()).state.attempts for request in requests} == {0}
    [pause] = await post.engine.admin.paused("default")
    assert pause.scope.credential == f"email.sender/{sender}"
    double.heal()
    await post.engine.admin.put_config(
        "email.sender", sender, (SMTP if sender == "default" else SES) | put
    )
    await post.gesta.settle()
    assert {await request.status() for request in requests} == {"sent"}
    assert len(double.effects) == 20


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ("TooManyRequestsException: Maximum sending rate exceeded.", 1),
        ("TooManyRequestsException: Daily message quota exceeded.", 600),
    ],
)
async def test_a_throttled_account_rests_and_no_attempt_is_spent(post, error, seconds):
    post.gesta.sandbox.ses.next(error=error)
    begun = post.gesta.runtime.now_ms()
    request = await post.send(sender="ses")
    assert await post.status(request) == "sent"
    assert (await request.view()).state.attempts == 1  # S2-23: not one of five fast retries
    sent_at = (await post.engine.history(request.id))[-1][2].occurred_at
    assert sent_at - begun >= seconds * 1000


async def test_the_limiter_and_the_concurrency_are_those_of_the_seed(post):
    assert post.engine.flows[email.NAME].concurrency == 10  # R2-35
    for n in range(110):
        await post.send(f"p{n}@example.com")
    begun = post.gesta.runtime.now_ms()
    await post.gesta.settle(days=0)
    first = len(post.gesta.sandbox.smtp.effects)
    await post.gesta.settle()
    ids = [view.state.id for view in await post.engine.find(limit=200)]
    times = [(await post.engine.history(request_id))[-1][2].occurred_at for request_id in ids]
    assert len(post.gesta.sandbox.smtp.effects) == 110
    assert 90 <= first <= 101  # R2-35: a hundred at once, and one more at most
    assert max(times) - begun >= 90  # R2-35: the other ten at 100 a second


async def test_nothing_personal_is_stored_or_logged_in_clear(post, caplog):
    with caplog.at_level(logging.DEBUG, logger="gesta"):
        post.gesta.sandbox.smtp.next(status=451)
        request = await post.send(
            "ana.lima@example.com",
            subject="Boleto de Ana",
            cc=["bruno@example.org"],
            headers={"X-Name": "Ana Lima"},
            recipient=email.Recipient(
                "ana.lima@example.com",
                external_id="CUST-1",
                cpf_cnpj_hash=HASH,
                nome="Ana Lima",
                razao_social="Lima SA",
            ),
        )
        assert await post.status(request) == "sent"
    view = await post.engine.get(request.id)
    names = [b"ana.lima", b"Ana", b"bruno", b"CUST-1", HASH.encode(), b"Lima"]
    assert [name for name in names if name in view.payload] == []
    logged = caplog.text.encode()
    assert [name for name in (*names, b"hunter2") if name in logged] == []  # R2-30
    tags = {
        "outboxId": request.id,
        "to": "a***@e***.com",
        "recipientEmail": "a***@e***.com",
        "cpfCnpjHash": "a3c7b8d9...",
    }
    line = next(
        msgspec.json.decode(record.message)
        for record in caplog.records
        if '"event":"attempt"' in record.message
    )
    assert {name: line[name] for name in tags} == tags  # R2-30
    assert line["jobId"].startswith(request.id)  # R2-30
    letter = next(letter for letter in post.gesta.sandbox.smtp.effects)
    assert letter.data["subject"] == "Boleto de Ana"


async def test_an_erased_person_gets_nothing_and_is_known_no_more(post):
    person = email.Recipient("ana@example.com", external_id="7", nome="Ana")
    sent = await post.send(recipient=person)
    outcome = await sent.outcome()
    assert isinstance(outcome, Done)
    known = await email.recipient(post.engine, outcome.target)
    assert known is not None
    assert (known.nome, known.email) == ("Ana", "ana@example.com")
    await post.engine.admin.pause(tenant="default")
    waiting = await post.send(recipient=person)
    copied = await post.send("bruno@example.org", cc=["ana@example.com"])
    assert await post.engine.erase(normal("ana@EXAMPLE.com")) > 0
    await post.engine.admin.resume(tenant="default")
    await post.gesta.settle()
    for request in (waiting, copied):
        assert (await request.view()).state.reason == "subject_erased"
    assert len(post.gesta.sandbox.smtp.effects) == 1
    assert await email.recipient(post.engine, outcome.target) is None


def test_a_wrong_declaration_of_the_flow_raises(monkeypatch, tmp_path):
    with pytest.raises(BadFlow, match="resend"):
        email.flow(on_unknown="reconcile")  # type: ignore[arg-type]
    with pytest.raises(BadFlow, match="not a folder"):
        email.flow(files=str(tmp_path / "nowhere"))
    monkeypatch.setattr(email, "find_spec", lambda name: None if name == "mrml" else object())
    with pytest.raises(BadFlow, match=r"pip install 'gesta\[email\]'"):
        email.flow()


HTML = "<html><head><style>p {color: red}</style></head><body><p>Thank <b>you</b></p></body></html>"


@pytest.mark.parametrize("sender", ["default", "ses"])
@pytest.mark.parametrize(
    ("content", "html", "text"),
    [
        ({"text": "Thank you."}, "", "Thank you.\n"),
        ({"html": HTML}, 'style="color: red;"', "Thank you\n"),
        ({"html": HTML, "text": "In words."}, 'style="color: red;"', "In words.\n"),
    ],
)
async def test_an_email_may_carry_its_content(post, sender, content, html, text):
    request = await post.send(sender=sender, html_ref=None, **content)
    assert isinstance(await request.outcome(), Done)
    fake = post.gesta.sandbox.smtp if sender == "default" else post.gesta.sandbox.ses
    [sent] = fake.effects
    assert (sent.data["subject"], sent.text) == ("Olá", text)
    assert html in sent.data["html"] if html else not sent.data["html"]
    # It is personal: the store has it encrypted under the recipient's key.
    stored = (await request.view()).payload
    assert b"hank" not in stored
    assert b"words" not in stored
    assert await request.payload() == email.Message(
        "ana@example.com", "Olá", sender=sender, **content
    )


@pytest.mark.parametrize(
    ("content", "faulty"),
    [
        ({}, {"html"}),
        ({"text": "a", "template": "welcome"}, {"text"}),
        ({"html": "a", "text": "a", "template": "welcome"}, {"html", "text"}),
        ({"html": "a", "html_ref": OUTBOX}, {"htmlRef"}),
        ({"template": "welcome", "html_ref": OUTBOX}, {"htmlRef"}),
        ({"text": "a", "data": {"n": 1}}, {"data"}),
        ({"text": "a", "locale": "pt"}, {"locale"}),
        ({"text": " \n"}, {"text"}),
        ({"html": ""}, {"html"}),
        ({"html": "a\0b"}, {"html"}),
        ({"text": "x" * (512 * 1024 + 1)}, {"text"}),
        ({"template": ""}, {"template"}),
    ],
)
def test_an_email_has_exactly_one_kind_of_content(content, faulty):
    assert set(email.errors_of(email.Message("ana@example.com", "Hi", **content))) == faulty
