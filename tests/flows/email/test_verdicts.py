"""What servers answer, and what follows: the tables of D-11 and D-9, line by line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gesta import Done, Engine, Rejected, Retry, Unknown
from gesta.flows import email
from gesta.flows.deferrals import CredentialRefused
from gesta.flows.email.sender import THROTTLED_SECONDS, SmtpVerdict, after_mail_error, verdict_of
from gesta.outbound.smtp import MailAnswer, MailError, MailReply

SES = {
    "kind": "ses",
    "region": "eu-west-1",
    "access_key_id": "AKID",
    "secret_access_key": "s",
    "from_address": "shop@example.com",
}


def verdict(code: int, text: str = "", stage: Any = "recipient") -> SmtpVerdict:
    return verdict_of(MailAnswer(stage, MailReply(code, text)), "main")


def test_an_accepted_email_is_done():
    assert verdict(250, "2.0.0 ok", "data") == SmtpVerdict()  # D-11


@pytest.mark.parametrize("code", [421, 450, 451, 452, 454])
@pytest.mark.parametrize("stage", ["connect", "login", "sender", "recipient", "data"])
def test_4xx_is_for_now(code, stage):
    assert verdict(code, "later", stage) == SmtpVerdict(
        Retry(f"smtp_{code}", f"answered {code} at {stage}")
    )  # D-11


def test_other_4xx_share_a_reason():
    assert verdict(499).outcome == Retry("smtp_4xx", "answered 499 at recipient")


@pytest.mark.parametrize("code", [421, 450, 451, 454])
def test_4_7_x_is_a_throttle_which_the_whole_account_respects(code):
    found = verdict(code, "4.7.0 slow down")
    assert found == SmtpVerdict(
        Retry("throttled", f"answered {code} 4.7.0 at recipient", THROTTLED_SECONDS),
        close_seconds=THROTTLED_SECONDS,
    )  # D-11


@pytest.mark.parametrize("code", [530, 534, 535, 538])
def test_a_refused_login_holds_the_account(code):
    with pytest.raises(CredentialRefused) as refused:
        verdict(code, "5.7.8 no", "login")
    assert (refused.value.credential, refused.value.reason) == (
        "email.sender/main",
        "login_refused",
    )  # D-11: 535 is configuration


@pytest.mark.parametrize("code", [500, 501, 502, 503, 504, 550, 551, 552, 553, 554, 556])
def test_a_5xx_is_final(code):
    found = verdict(code, "no")
    assert isinstance(found.outcome, Rejected)  # D-11
    assert found.outcome.reason == (f"smtp_{code}" if 550 <= code <= 554 else "smtp_5xx")
    assert not found.suppress


@pytest.mark.parametrize(
    ("enhanced", "suppress"),
    [("5.1.1", True), ("5.1.2", False), ("5.1.3", False), ("5.1.10", False)],
)
def test_a_bad_address_is_rejected_and_5_1_1_is_suppressed(enhanced, suppress):
    found = verdict(550, f"{enhanced} no such user <ana@example.com>")
    assert found == SmtpVerdict(
        Rejected("invalid_email", f"answered 550 {enhanced} at recipient"), suppress=suppress
    )  # D-11, R2-36


@pytest.mark.parametrize(
    "text",
    [
        "5.7.1 policy",
        "5.2.2 full",
        "4.1.1 not of this class",
        "15.1.1",
        "5.1.1234",
        "no code, ana@example.com",
    ],
)
def test_other_codes_suppress_no_address_and_no_text_of_a_server_is_quoted(text):
    found = verdict(550, text)
    assert not found.suppress
    assert isinstance(found.outcome, Rejected)
    assert re.fullmatch(r"answered 550( \d\.\d+\.\d+)? at recipient", found.outcome.detail)


def test_an_answer_that_is_neither_yes_nor_no():
    assert verdict(354, "", "data").outcome == Unknown("bad_answer", "answered 354 at data")
    assert verdict(251, "", "recipient").outcome == Retry("bad_answer", "answered 251 at recipient")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MailError("reset", sent=True), Unknown),
        (MailError("timeout", sent=True), Unknown),
        (MailError("reset", sent=False), Retry),
        (MailError("refused", sent=False), Retry),
        (MailError("dns", sent=False), Retry),
        (MailError("tls", sent=False), Retry),
        (MailError("private_address", sent=False), Rejected),
        (MailError("plain_smtp", sent=False), Rejected),
        (MailError("unsendable", sent=False), Rejected),
    ],
)
def test_no_answer_is_unknown_only_after_the_email_was_sent(error, outcome):
    assert type(after_mail_error(error)) is outcome  # D-11


@pytest.fixture
async def letter(gesta):
    """Sends one e-mail by SES and returns the outcome, or what holds it."""
    async with Engine("memory://ses", flows=[email.flow(on_unknown="manual")]) as engine:
        await engine.admin.put_config("email.sender", "default", SES)
        ref = await email.store_body(engine, "<p>Hi</p>")

        async def send() -> object:
            request = await engine.submit(email.Message("ana@example.com", "Olá", ref))
            await gesta.settle(days=0)
            paused = await engine.admin.paused("default")
            if paused:
                return paused[0].reason
            state = (await request.view()).state
            return state.status, state.reason, state.attempts

        yield send


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"error": "MessageRejected"}, ("failed", "message_rejected", 1)),
        ({"error": "BadRequestException"}, ("failed", "bad_request", 1)),
        ({"error": "SomethingNew"}, ("failed", "ses_4xx", 1)),
        ({"error": "LimitExceededException"}, ("queued", "limit_exceeded", 1)),
        ({"status": 500}, ("unknown", "ses_5xx", 1)),
        ({"status": 503}, ("unknown", "ses_5xx", 1)),
        ({"drop": True}, ("unknown", "reset", 1)),
        ({"error": "TooManyRequestsException"}, ("queued", "", 0)),
        ({"error": "Throttling: Daily message quota exceeded."}, ("queued", "", 0)),
    ],
)
async def test_answers_of_ses_have_their_outcome(gesta, letter, fault, expected):
    gesta.sandbox.ses.next(**fault, times=100)
    assert await letter() == expected  # D-9


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("AccountSuspendedException", "sending_paused"),
        ("SendingPausedException", "sending_paused"),
        ("MailFromDomainNotVerifiedException", "sender_misconfigured"),
        ("NotFoundException", "sender_misconfigured"),
        ("AccessDeniedException", "login_refused"),
        ("UnrecognizedClientException", "login_refused"),
        ("InvalidSignatureException", "login_refused"),
    ],
)
async def test_account_errors_hold_the_account(gesta, letter, error, reason):
    gesta.sandbox.ses.next(error=error, times=100)
    held = await letter()
    assert isinstance(held, str)
    assert held.startswith(reason)  # D-9: stop the account, do not burn attempts
    assert gesta.sandbox.ses.effects == []


async def test_a_missing_sender_holds_and_an_incomplete_one_is_reported(gesta):
    async with Engine("memory://senders", flows=[email.flow()]) as engine:
        ref = await email.store_body(engine, "<p>Hi</p>")
        request = await engine.submit(email.Message("ana@example.com", "Olá", ref))
        await gesta.settle(days=0)
        (pause,) = await engine.admin.pauses_of([await request.view()])
        assert pause is not None
        assert (pause.kind, pause.reason.split(":")[0]) == ("config", "sender_missing")
        await engine.admin.put_config(
            "email.sender", "default", {"kind": "smtp", "from_address": "shop@example.com"}
        )
        request = await engine.submit(email.Message("ana@example.com", "Olá", ref))
        await gesta.settle(days=0)
        assert (await request.view()).state.reason == "bad_config"
        await engine.admin.put_config(
            "email.sender",
            "default",
            {"kind": "ses", "region": "eu-west-1", "from_address": "shop@example.com"},
        )
        await gesta.settle(days=0.0001)
        (held,) = await engine.admin.paused()
        assert held.reason.startswith("secret_missing: the sender has no access_key_id")
        await engine.admin.put_config("email.sender", "default", SES)
        await gesta.settle()
        assert isinstance(await request.outcome(), Done)
