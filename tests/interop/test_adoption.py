"""Jobs that a Node service puts with the real BullMQ become requests, are executed once, and are
answered.
"""

import asyncio
import subprocess
import sys
from uuid import uuid4

import pytest

from gesta.admin.doctor.collect import sampled_jobs
from gesta.admin.doctor.job_texts import job_findings
from gesta.flows import email
from gesta.intake import adoption
from gesta.sandbox.server import SandboxServer
from tests.flows.email.jobs import job as email_job
from tests.interop.post_office import SENDER, Order, engine_on
from tests.interop.waiting import until
from tests.processes.members import ROOT

QUEUE = "email-send"
COMPANY = "789e4567-e89b-12d3-a456-426614174999"
#: Most of what is shown here does not depend on the major or the server.
ONE = pytest.mark.parametrize("setting", [(6, "server")], indirect=True, ids=str)
BOTH = pytest.mark.parametrize("setting", [(5, "server"), (6, "server")], indirect=True, ids=str)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch):
    monkeypatch.setattr(adoption, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(adoption, "RENEWAL_SECONDS", 0.5)


@pytest.fixture
async def mail():
    async with SandboxServer() as server:
        yield server


@pytest.fixture
async def office(tmp_path, url, mail):
    """A store with a sender and a body, and how to open engines on it."""
    office = Office(tmp_path, url, mail)
    await office.furnish()
    return office


class Office:
    def __init__(self, folder, url, mail):
        self.folder, self.url, self.mail = folder, url, mail

    async def furnish(self):
        host, _, port = self.mail.smtp_url.removeprefix("smtp://").partition(":")
        sender = SENDER | {"host": host, "port": int(port)}
        async with engine_on(self.folder, self.url, work=False) as engine:
            await engine.admin.put_config("email.sender", "default", sender, tenant=COMPANY)
            self.body = await email.store_body(engine, "<p>Olá</p>", tenant=COMPANY)

    def engine(self, **settings):
        return engine_on(self.folder, self.url, **settings)

    def job(self, data=None, opts=None, **recipient):
        """A job of document 002 with an outboxId of its own."""
        outbox = str(uuid4())
        fields = {"outboxId": outbox, "htmlRef": self.body} | (data or {})
        return email_job(fields, {"jobId": outbox} | (opts or {}), **recipient)

    @property
    def sent(self):
        return [one.data["subject"] for one in self.mail.sandbox.smtp.effects]


async def put(node, job, queue=QUEUE, name="email:send"):
    return (await node.ask("add", queue=queue, name=name, data=job["data"], opts=job["opts"]))["id"]


async def ended(node, job_id, queue=QUEUE):
    async def look():
        return (await node.ask("job", queue=queue, id=job_id))["state"] in ("completed", "failed")

    await until(look)
    # Read again: the state is read after the job.
    return await node.ask("job", queue=queue, id=job_id)


def reason_of(found):
    return found["job"]["failedReason"].strip('"')


@pytest.mark.every_setting
async def test_a_complete_job_is_sent_once_and_its_producer_gets_the_result(office, node):
    job = office.job(opts={"removeOnComplete": False})
    async with office.engine() as engine:
        added = await put(node, job)
        result = (await node.ask("result", queue=QUEUE, id=added))["result"]
        row = await email.email_log(engine, added, tenant=COMPANY)
    assert added == job["data"]["outboxId"]  # R2-2
    assert set(result) == {
        "sesMessageId",
        "status",
        "processedAt",
        "durationMs",
        "attempt",
    }  # R2-34
    assert (result["status"], result["attempt"]) == ("SENT", 1)
    assert (row.status, row.ses_message_id) == ("SENT", result["sesMessageId"])
    assert office.sent == [job["data"]["subject"]]


@BOTH
async def test_a_repeated_job_sends_no_second_mail(office, node):
    job = office.job(opts={"removeOnComplete": True})
    async with office.engine():
        added = await put(node, job)
        assert await put(node, job) == added  # R2-26: present, so no second job
        counts = await node.ask("counts", queue=QUEUE)
        assert sum(counts.values()) <= 1
        await until(lambda: sent(office, 1))
        await until(lambda: gone(node, added))
        # removeOnComplete has made the id free: only the request knows of it now.
        again = job["data"], job["opts"] | {"removeOnComplete": False}
        await put(node, {"data": again[0], "opts": again[1]})
        found = await ended(node, added)
    assert found["state"] == "completed"
    assert found["returnvalue"]["status"] == "ALREADY_SENT"  # R2-26, R2-27
    assert len(office.sent) == 1  # S2-3


@ONE
async def test_an_active_job_takes_no_second_one_and_other_content_is_a_conflict(office, node):
    job = office.job(opts={"removeOnComplete": True})
    async with office.engine() as engine:
        await engine.admin.pause(flow="notification.email", reason="maintenance")
        added = await put(node, job)
        await until(lambda: in_state(node, added, "active", "delayed"))
        assert await put(node, job) == added  # R2-26: active, so no new job
        # Ours is held by the pause, so that it is in no list.
        await until(lambda: counted(node, 1))
        await engine.admin.resume(flow="notification.email")
        await until(lambda: gone(node, added))
        other = office.job({"outboxId": added, "subject": "Other"}, {"jobId": added})
        await put(node, other)
        assert "conflict" in reason_of(await ended(node, added))
        letters = await dead_letters(engine)
    assert [one.failure.reason for one in letters] == ["conflict"]
    assert office.sent == [job["data"]["subject"]]


@BOTH
async def test_invalid_jobs_fail_with_the_rule_and_are_dead_letters(office, node):
    wrong = {
        "recipient.email must match to": office.job(email="b@example.com"),  # R2-19
        "At least one recipient identifier required": office.job(
            externalId=..., cpfCnpjHash=...
        ),  # R2-20
        "data.password: unknown field": office.job({"password": "hunter2"}),
        "data.attempt: must be from 1 to 5": office.job({"attempt": 6}),
        "opts.jobId: must be the outboxId": office.job(opts={"jobId": "another"}),
    }
    good = office.job(opts={"removeOnComplete": False})
    async with office.engine() as engine:
        ids = [await put(node, job) for job in wrong.values()]
        sent_id = await put(node, good)
        found = [await ended(node, one) for one in ids]
        assert (await ended(node, sent_id))["state"] == "completed"
        letters = await dead_letters(engine)
    reasons = [reason_of(one) for one in found]
    assert [one.partition(";")[0] for one in reasons] == list(wrong)
    assert {one.failure.reason for one in letters} == {"invalid_request"}
    assert sorted(one.failure.detail.partition(": ")[2] for one in letters) == sorted(reasons)
    assert all(one.correlation_id == "req-abc123" for one in letters)
    assert len(office.sent) == 1


@ONE
async def test_bad_jobs_stop_no_other_job(office, node):
    bad = {
        "data: 10000011 bytes are too large for a job": {"html": "x" * 10_000_000},
        "data: must be a JSON object": "text",
        "data.outboxId: missing": {"to": "a@example.com"},
    }
    good = office.job(opts={"removeOnComplete": False})
    async with office.engine():
        ids = [await put(node, {"data": data, "opts": {}}) for data in bad.values()]
        sent_id = await put(node, good)
        found = [reason_of(await ended(node, one)) for one in ids]
        assert (await ended(node, sent_id))["state"] == "completed"
    for text, reason in zip(bad, found, strict=True):
        assert reason.startswith(text.partition(" bytes")[0] if "bytes" in text else text), reason


@ONE
async def test_an_expired_or_refused_mail_fails_the_job(office, node):
    office.mail.sandbox.smtp.on("gone@example.com", status=550, error="5.1.1")
    refused = office.job({"to": "gone@example.com"}, email="gone@example.com")
    late = office.job(opts={"timestamp": 1_700_000_000_000})
    async with office.engine() as engine:
        ids = [await put(node, refused), await put(node, late)]
        reasons = [reason_of(await ended(node, one)) for one in ids]
        assert (await engine.get(ids[1], tenant=COMPANY)).state.status == "expired"  # R2-5
    assert reasons[0].startswith("invalid_email")
    assert reasons[1] == "EXPIRED"  # S2-2
    assert office.sent == []


@ONE
async def test_a_slow_request_is_waited_for_and_keeps_no_job_from_being_adopted(
    office, node, monkeypatch
):
    monkeypatch.setattr(adoption, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(adoption, "HELD_MAX", 1)
    office.mail.sandbox.smtp.on("slow@example.com", status=450, times=1)
    slow = office.job(
        {"to": "slow@example.com"}, {"removeOnComplete": False}, email="slow@example.com"
    )
    quick = office.job(opts={"removeOnComplete": False})
    async with office.engine():
        slow_id = await put(node, slow)
        await until(lambda: in_state(node, slow_id, "delayed"))
        assert (await ended(node, await put(node, quick)))["state"] == "completed"
        found = await ended(node, slow_id)
    assert found["returnvalue"]["attempt"] == 2  # R2-34


@ONE
async def test_a_pointer_is_answered_with_the_end_of_its_request(office, node):
    async with office.engine() as engine:
        request = await engine.submit(Order(7))
        pointer = {"tenant": "default", "requestId": request.id}
        good = await put(node, {"data": pointer, "opts": {}}, "shop.order", "execute")
        found = await ended(node, good, "shop.order")
    assert found["returnvalue"] == {"status": "completed", "providerId": "7", "attempt": 1}  # R1-3


@ONE
async def test_a_pointer_to_another_tenants_request_finds_nothing(office, node, monkeypatch):
    monkeypatch.setattr(adoption, "AGAIN_MS_MIN", 10)
    async with office.engine() as engine:
        request = await engine.submit(Order(7))
        foreign = {"tenant": "acme", "requestId": request.id}
        no_uuid = {"tenant": "acme", "requestId": "7"}
        ids = [
            await put(node, {"data": data, "opts": {}}, "shop.order", "execute")
            for data in (foreign, no_uuid)
        ]
        found = [reason_of(await ended(node, one, "shop.order")) for one in ids]
        letters = await dead_letters(engine, "acme")
    assert found[0] == f"request_not_found: tenant acme has no request {request.id}"  # S0-26
    assert found[1].startswith("job data of shop.order: ")
    assert len(letters) == 2


@BOTH
async def test_an_enriched_job_is_read_for_its_ids_until_the_date(office, node):
    secret = "xoxb-1234567890-secret"
    async with office.engine(enriched_jobs_until="2999-12-31") as engine:
        request = await engine.submit(Order(1))
        enriched = {"tenant": "default", "requestId": request.id, "config": {"token": secret}}
        added = await put(node, {"data": enriched, "opts": {}}, "shop.order", "execute")
        found = await ended(node, added, "shop.order")
        assert found["returnvalue"]["status"] == "completed"  # R0-29, R1-54
        assert 'enriched_jobs_total{namespace="shop.order"} 1.0' in engine.metrics().decode()
    assert secret not in str(found)  # S0-28
    async with office.engine(enriched_jobs_until="2020-12-31"):
        added = await put(node, {"data": enriched, "opts": {}}, "shop.order", "execute")
        found = await ended(node, added, "shop.order")
    assert "more than a pointer, which is refused since 2020-12-31" in reason_of(found)  # R0-29
    assert secret not in str(found)  # S0-28


@ONE
async def test_the_doctor_finds_the_secret_that_a_node_service_left_in_a_queue(office, node):
    secret = {"tenant": "acme", "requestId": str(uuid4()), "apiKey": "sk_live_12345678"}
    async with office.engine(work=False) as engine:
        assert job_findings(await sampled_jobs(engine.pipeline)) == []
        await put(node, {"data": secret, "opts": {"delay": 60_000}}, "shop.order", "execute")
        (found,) = job_findings(await sampled_jobs(engine.pipeline))  # R1-54
    assert (found.level, found.about) == ("bad", "queue of shop.order")
    assert found.status == "1 delayed job with a secret, or more than a pointer, in data.apiKey"


@pytest.mark.slow
@ONE
async def test_a_process_that_is_killed_between_two_steps_repeats_nothing(office, node):
    """After the lease, after the request or dead letter was appended, before the answer."""
    good = office.job(opts={"removeOnComplete": False})
    bad = office.job({"attempt": 9})
    ids = [await put(node, good), await put(node, bad)]
    for point in ("foreign_jobs.take", "events.append", "foreign_jobs.settle"):
        command = [sys.executable, "-m", "tests.interop.post_office", str(office.folder)]
        process = subprocess.Popen([*command, office.url, point], cwd=ROOT)
        assert await asyncio.to_thread(process.wait, 60) == -9, point
    async with office.engine() as engine:
        found = [await ended(node, one) for one in ids]
        letters = await dead_letters(engine)
    assert [one["state"] for one in found] == ["completed", "failed"]
    assert [one.failure.reason for one in letters] == ["invalid_request"]
    assert len(office.sent) == 1  # R2-3


async def dead_letters(engine, tenant=COMPANY):
    """With everything projected."""

    async def is_projected():
        return await engine.admin.unseen() == 0

    await until(is_projected)
    return await engine.admin.dead_letters(tenant)


async def sent(office, count):
    return len(office.sent) >= count


async def counted(node, count):
    return sum((await node.ask("counts", queue=QUEUE)).values()) == count


async def gone(node, job_id):
    return (await node.ask("job", queue=QUEUE, id=job_id))["state"] is None


async def in_state(node, job_id, *states):
    return (await node.ask("job", queue=QUEUE, id=job_id))["state"] in states
