"""The doctor's search for secrets in what queues store about jobs."""

import pytest

from gesta.admin.doctor.job_texts import job_findings
from gesta.ports.foreign_jobs import JobTexts

ID = "018f0000-0000-7000-8000-000000000001"
POINTER = f'{{"messageRequestId":"{ID}","tenant":"acme"}}'


def job(*, is_own=False, state="waiting", **texts):
    return JobTexts("notification.slack", "7", state, is_own, texts)


def test_pointers_are_clean():
    assert job_findings([job(data=POINTER, opts='{"attempts":1}', is_own=True)]) == []
    assert job_findings([job(data=POINTER, returnvalue="null")]) == []


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        ({"data": '{"workspace":{"botToken":"xoxb-12345678-abc"}}'}, "data.workspace.botToken"),
        ({"data": '{"password":"hunter22"}'}, "data.password"),
        ({"data": '{"cpf":"529.982.247-25"}'}, "data.cpf"),
        ({"data": '{"cpf":52998224725}'}, "data.cpf"),
        ({"data": '{"a":["ok","Bearer abcdefgh12345678"]}'}, "data.a"),
        ({"data": '{"xoxb-12345678-abc":1}'}, "data"),
        ({"data": '{"text":"' + "x " * 4_000 + 'sk_live_12345678"}'}, "data.text"),
        ({"failedReason": "401 for token=abcdef"}, "failedReason"),
        ({"logs": "trying with xoxb-12345678-abc"}, "logs"),
        ({"stacktrace": '["Error: whsec_abc at send"]'}, "stacktrace"),
    ],
)
def test_a_secret_is_found_wherever_it_is_and_never_shown(texts, field):
    (found,) = job_findings([job(**texts, state="failed")])  # R1-54
    assert (found.level, found.about) == ("bad", "queue of notification.slack")
    assert found.status.endswith(f"in {field}")
    assert "1 failed job" in found.status
    for value in ("hunter22", "abc", "529", "whsec_"):
        assert value not in found.status.removesuffix(field)


def test_addresses_in_a_job_of_a_node_service_are_a_warning():
    found = job_findings([job(data='{"to":"ana@example.com"}')] * 3)
    assert [(one.level, one.status) for one in found] == [
        ("warn", "3 waiting jobs with an address or a phone number in data.to")
    ]


def test_a_job_of_gesta_holds_a_pointer_and_nothing_else():
    wide = POINTER[:-1] + ',"channel":"C1"}'
    (found,) = job_findings([job(data=wide, is_own=True)])  # R0-1
    assert found.level == "bad"
