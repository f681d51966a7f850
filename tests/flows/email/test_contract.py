"""The job `email:send`, read at the boundary: every rule of seed 002, every error at once, nothing
repeated of what was given.
"""

from __future__ import annotations

from typing import Any

import pytest

from gesta.errors import InvalidRequest
from gesta.flows import email
from tests.flows.email.jobs import COMPANY, HASH, OUTBOX, job


def field_errors(given: object) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        email.read_job(given)
    return refused.value.fields


def test_the_seeds_own_example_is_taken():
    asked = email.read_job(job())
    message = asked.message
    assert message.outbox_id == OUTBOX  # R2-8, R2-2
    assert (asked.tenant, asked.correlation_id) == (
        COMPANY,
        "req-abc123",
    )  # X-7, X-13: companyId is the tenant, requestId the correlation
    assert (message.to, message.subject) == (
        "cliente@example.com",
        "Seu boleto está disponível",
    )  # R2-9, R2-10
    assert message.html_ref == OUTBOX  # R2-1: a reference, never the HTML
    assert message.recipient == email.Recipient(  # R2-12
        "cliente@example.com", external_id="CUST-12345", cpf_cnpj_hash=HASH, nome="João da Silva"
    )
    assert (asked.priority, asked.delay_ms, asked.ttl_ms) == (5, 0, 86_400_000)


def test_the_constants_are_those_of_the_seed():
    assert dict(email.EMAIL_JOB_CONFIG) == {  # R2-24, S2-1
        "QUEUE_NAME": "email:send",
        "DEFAULT_TTL": 86400000,
        "DEFAULT_PRIORITY": 5,
        "MAX_ATTEMPTS": 5,
        "BACKOFF_DELAYS": (1, 5, 30, 120, 600),
        "DLQ_TTL": 604800000,
    }


@pytest.mark.parametrize("half", ["data", "opts"])
def test_a_job_has_both_halves(half):
    whole = job()
    del whole[half]
    assert field_errors(whole) == {half: "missing"}


@pytest.mark.parametrize(
    "given", [None, [], "x", 7, {"data": [], "opts": 3}, {"data": {1: 2}, "opts": {}}]
)
def test_a_malformed_job_is_refused(given):
    assert field_errors(given)


@pytest.mark.parametrize(
    "name",
    [
        "outboxId",
        "companyId",
        "requestId",
        "to",
        "subject",
        "htmlRef",
        "recipient",
        "attempt",
        "enqueuedAt",
    ],
)
def test_a_mandatory_field_may_not_be_missing(name):
    assert (
        field_errors(job({name: ...}, {"jobId": OUTBOX}))[f"data.{name}"] == "missing"
    )  # R2-8, R2-9, R2-10


@pytest.mark.parametrize("name", ["html", "cpfCnpj", "password", "token", "bankAccount", "foo"])
def test_a_key_that_the_contract_does_not_name_is_refused(name):
    for where, reported in (
        ("data", field_errors(job({name: "x"}))),
        # No clear number in the recipient either.
        ("data.recipient", field_errors(job(None, None, **{name: "x"}))),
        ("opts", field_errors(job(opts={name: "x"}))),
    ):
        assert reported.keys() == {f"{where}.{name}"}  # R2-28, R2-6, S2-24
        assert reported[f"{where}.{name}"].startswith("unknown field")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "123",
        "123e4567-e89b-12d3-a456-42661417400",
        "123e4567e89b12d3a456426614174000",
        f"{OUTBOX} ",
    ],
)
def test_outbox_id_and_company_id_are_uuids(bad):
    assert field_errors(job({"outboxId": bad}))["data.outboxId"] == "must be a UUID"  # R2-14
    assert field_errors(job({"companyId": bad}))["data.companyId"] == "must be a UUID"  # R2-15


def test_uuids_of_any_version_are_taken_and_lower_cased():
    asked = email.read_job(job({"outboxId": OUTBOX.upper(), "companyId": COMPANY.upper()}))
    assert (asked.message.outbox_id, asked.tenant) == (OUTBOX, COMPANY)  # S2-25


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "ana",
        "ana@",
        "@example.com",
        "a b@example.com",
        "ana@example",
        "ana@example.com\nBcc: x@example.com",
        "a" * 250 + "@example.com",
        "ana@exa\x00mple.com",
        "Ana <ana@example.com>",
    ],
)
def test_every_address_is_checked(bad):
    text = "must be a valid e-mail address of at most 254 characters"
    assert field_errors(job({"to": bad}, email=bad))["data.to"] == text  # R2-16
    assert field_errors(job({"cc": [bad]})) == {"data.cc[0]": text}  # S2-24
    assert field_errors(job({"bcc": ["ok@example.com", bad]})) == {"data.bcc[1]": text}
    assert field_errors(job({"replyTo": bad})) == {"data.replyTo": text}  # R2-11


def test_an_address_of_254_characters_is_taken():
    address = f"{'a' * 60}@{'b' * 63}.{'c' * 63}.{'d' * 61}.com"
    assert len(address) == 254
    assert email.read_job(job({"to": address}, email=address)).message.to == address  # R2-16


@pytest.mark.parametrize("name", ["cc", "bcc"])
def test_at_most_five_copies(name):
    five = [f"p{n}@example.com" for n in range(5)]
    assert getattr(email.read_job(job({name: five})).message, name) == five  # R2-9
    assert field_errors(job({name: [*five, "p5@example.com"]})) == {
        f"data.{name}": "at most 5 addresses"
    }  # R2-9


def test_repeated_addresses_are_removed():
    given = {
        "cc": ["b@example.com", "B@EXAMPLE.com ", "b@example.com", "cliente@EXAMPLE.com"],
        "bcc": ["b@example.com", "c@example.com"],
    }
    message = email.read_job(job(given)).message
    assert (message.cc, message.bcc) == (
        ["b@example.com", "B@example.com"],
        ["c@example.com"],
    )  # S2-20


@pytest.mark.parametrize(
    "bad", ["", "   ", "a\nb", "a\rb", "a\x00b", "a\x7fb", "a\u2028b", "a\x85b", "x" * 151]
)
def test_a_subject_is_one_line_of_1_to_150_characters(bad):
    assert list(field_errors(job({"subject": bad}))) == ["data.subject"]  # R2-17, S2-17


def test_150_code_points_are_a_subject_whatever_their_bytes():
    assert email.read_job(job({"subject": "é🎉" * 75})).message.subject == "é🎉" * 75  # R2-17


@pytest.mark.parametrize(
    "bad", ["", "  ", "x" * 513, "file:../x", "http://10.0.0.1/x", "<p>hello</p>"]
)
def test_html_ref_is_a_reference(bad):
    assert list(field_errors(job({"htmlRef": bad}))) == ["data.htmlRef"]  # R2-18, R2-1


def test_the_recipients_address_must_match_to():
    assert field_errors(job(email="other@example.com")) == {
        "data.recipient.email": "recipient.email must match to"
    }  # R2-19
    assert (
        email.read_job(job({"to": "Cliente@Example.COM"}, email=" Cliente@example.com ")).message.to
        == "Cliente@example.com"
    )  # S2-18
    reported = str(InvalidRequest("x", field_errors(job(email="other@example.com"))))
    assert "other@" not in reported  # S2-18: the text names no address


def test_a_recipient_has_an_identifier():
    bare = job(externalId=..., cpfCnpjHash=...)
    assert field_errors(bare) == {
        "data.recipient": "At least one recipient identifier required"
    }  # R2-20
    for one in ({"externalId": "1"}, {"cpfCnpjHash": HASH}, {"recipientId": OUTBOX}):
        reported: dict[str, Any] = {"externalId": ..., "cpfCnpjHash": ...}
        assert (
            email.read_job(job(None, None, **(reported | one))).message.recipient is not None
        )  # R2-20


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("recipientId", "7"),
        ("cpfCnpjHash", "A" * 64),
        ("cpfCnpjHash", "a" * 63),
        ("cpfCnpjHash", "12345678909"),
        ("externalId", "x" * 65),
        ("nome", "x" * 121),
        ("razaoSocial", "x" * 151),
        ("nome", "a\nb"),
    ],
)
def test_fields_of_a_recipient_are_validated(field, bad):
    assert list(field_errors(job(**{field: bad}))) == [f"data.recipient.{field}"]  # R2-6, S2-24


@pytest.mark.parametrize("bad", [0, 6, -1])
def test_attempt_is_1_to_5(bad):
    assert field_errors(job({"attempt": bad})) == {
        "data.attempt": "must be from 1 to 5"
    }  # R2-21, R2-13
    assert [email.read_job(job({"attempt": n})).message.to for n in (1, 5)]  # R2-13


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "yesterday",
        "2026-11-16",
        "2026-11-16T12:00:00",
        "2026-13-16T12:00:00Z",
        "16/11/2026",
        "1763290000",
        "2026-W47-1T12:00:00Z",
    ],
)
def test_enqueued_at_is_iso_8601(bad):
    assert list(field_errors(job({"enqueuedAt": bad}))) == ["data.enqueuedAt"]  # R2-22, R2-13
    assert (
        email.read_job(job({"enqueuedAt": "2026-11-16T12:00:00+03:00"})).message.outbox_id == OUTBOX
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"From": "x@example.com"},
        {"Bcc": "x@example.com"},
        {"DKIM-Signature": "x"},
        {"X-A": "a\r\nBcc: x@example.com"},
        {"X-A\r\nBcc": "x"},
        {"X-A": ""},
        {"X-A": "y" * 994},
        {"X-Outbox-Id": "x"},
        {"X-SES-CONFIGURATION-SET": "x"},
        {"X A": "x"},
        {"X-Ä": "x"},
        {"List-Unsubscribe": "<https://exämple.com>"},
        {"X-A": "1", "x-a": "2"},
        {"": "x"},
    ],
)
def test_headers_are_on_a_list_and_cannot_break_out(bad):
    assert [
        name for name in field_errors(job({"headers": bad})) if name.startswith("data.headers[")
    ]  # S2-16
    assert len(field_errors(job({"headers": bad}))) == 1


def test_headers_tags_and_reply_to_are_taken_over():
    given = {
        "X-Campaign": "spring",
        "List-Unsubscribe": "<https://example.com/u>",
        "References": "<a@b>",
        "In-Reply-To": "<a@b>",
    }
    message = email.read_job(
        job({"headers": given, "tags": ["a", "B_2-c"], "replyTo": "r@example.com"})
    ).message
    assert (message.headers, message.tags, message.reply_to) == (
        given,
        ["a", "B_2-c"],
        "r@example.com",
    )  # R2-11
    assert field_errors(job({"headers": {f"X-{n}": "1" for n in range(21)}})) == {
        "data.headers": "at most 20"
    }  # S2-16


@pytest.mark.parametrize("bad", ["", "a b", "é", "x" * 51, "a:b"])
def test_tags_have_their_form(bad):
    assert list(field_errors(job({"tags": ["ok", bad]}))) == ["data.tags[1]"]  # R2-11, S2-24
    assert field_errors(job({"tags": list("abcdef")})) == {"data.tags": "at most 5"}  # R2-11


@pytest.mark.parametrize("bad", ["", "x" * 129, "a\nb"])
def test_request_id_is_1_to_128_characters(bad):
    assert list(field_errors(job({"requestId": bad}))) == ["data.requestId"]  # S2-24


@pytest.mark.parametrize(
    ("opts", "field"),
    [
        ({"jobId": COMPANY}, "jobId"),
        ({"ttl": 86_400_001}, "ttl"),
        ({"ttl": 0}, "ttl"),
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"delay": -1}, "delay"),
        ({"delay": 1000, "ttl": 1000}, "delay"),
    ],
)
def test_options_have_their_bounds(opts, field):
    assert f"opts.{field}" in field_errors(job(opts=opts))  # S2-2


def test_the_time_to_live_of_a_delayed_job_runs_from_when_it_was_put():
    asked = email.read_job(job(opts={"delay": 60_000, "priority": ..., "ttl": 3_600_000}))
    assert (asked.delay_ms, asked.ttl_ms, asked.priority) == (60_000, 3_540_000, 5)  # S2-2


def test_a_field_that_is_null_was_left_out():
    nothing: dict[str, Any] = dict.fromkeys(("cc", "bcc", "replyTo", "headers", "tags"))
    assert email.read_job(
        job(nothing, {"priority": None, "delay": None}, recipientId=None)
    ) == email.read_job(job())


def test_all_errors_are_reported_at_once():
    found = field_errors(
        job({"to": "x", "subject": "", "attempt": 9, "tags": ["é"]}, {"priority": 99}, email="y")
    )
    assert set(found) == {
        "data.to",
        "data.subject",
        "data.attempt",
        "data.tags[0]",
        "data.recipient.email",
        "opts.priority",
    }


def test_an_email_from_python_has_the_same_rules():
    message = email.Message("x", "a\nb", "file:../x", template="t", recipient=email.Recipient("y"))
    assert set(email.errors_of(message)) == {
        "to",
        "subject",
        "htmlRef",
        "recipient.email",
        "recipient",
    }  # R2-31
    assert (
        email.errors_of(email.Message("a@example.com", template="welcome", data={"name": "Ana"}))
        == {}
    )
    assert email.errors_of(
        email.Message("a@example.com", template="welcome", unsubscribe="javascript:x")
    ) == {"unsubscribe": "an https:// or mailto: URL of ASCII characters"}
