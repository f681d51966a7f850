"""What providers report is verified, recorded once, passed to subscriptions, and feeds the
suppression list.

Forgeries change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gesta import Engine
from gesta.domain.commands import RecordReceipt
from gesta.errors import InvalidSignature, StoreError
from gesta.flows import email, sms
from gesta.flows.email.sns import FETCHES_MAX
from gesta.intake.provider_reports import ProviderReport, ReportResult
from gesta.outbound.http import HttpRequest, HttpResponse
from gesta.runtime.settings import Settings
from gesta.sandbox.receiver import Reply
from gesta.tenants.config import TenantConfig
from gesta.testing.plugin import Harness
from tests.world import URL

ACCOUNT = {"account_sid": "AC1", "auth_token": "token-1", "sender": "+15550100"}
TOPIC = "arn:aws:sns:eu-central-1:123456789012:letters"
SENDER = {
    "kind": "ses",
    "from_address": "shop@example.com",
    "region": "eu-central-1",
    "access_key_id": "AKIA1",
    "secret_access_key": "s",
    "report_topics": [TOPIC],
}
ADA = "Ada@example.com"
HERE = "https://gesta.example.com/base"


async def opened(gesta: Harness, public_url: str | None = HERE) -> Engine:
    engine = Engine(
        flows=[sms.flow(), email.flow()], settings=Settings(url=URL, public_url=public_url)
    )
    await engine.start()
    for tenant in ("default", "other"):
        await engine.admin.put_config(
            "sms.account", "default", ACCOUNT | {"auth_token": f"token-{tenant}"}, tenant=tenant
        )
        topics = [TOPIC if tenant == "default" else TOPIC + "-other"]
        await engine.admin.put_config(
            "email.sender", "default", SENDER | {"report_topics": topics}, tenant=tenant
        )
    return engine


@pytest.fixture
async def engine(gesta):
    engine = await opened(gesta)
    yield engine
    await engine.stop()


def headers_of(pairs: Mapping[str, str]) -> Any:
    return {name.lower(): value for name, value in pairs.items()}.get


async def posted(engine: Engine, request: HttpRequest) -> ReportResult:
    """As web/reports.py hands it on."""
    _, _, provider, tenant, *parts = (
        urlsplit(request.url).path.removeprefix("/base").strip("/").split("/")
    )
    return await engine.pipeline.reports.take(
        provider, tenant, parts, headers_of(request.headers), request.body or b""
    )


async def sns(engine: Engine, body: bytes, tenant: str = "default") -> ReportResult:
    return await engine.pipeline.reports.take("ses", tenant, (), headers_of({}), body)


async def text(engine: Engine, gesta: Harness, tenant: str = "default") -> str:
    request = await engine.submit(sms.Message("+4930123456", "hello"), tenant=tenant)
    await gesta.settle()
    return request.id


async def letter(engine: Engine, gesta: Harness, to: str = ADA) -> str:
    ref = await email.store_body(engine, "<p>hello</p>")
    request = await engine.submit(email.Message(to, "hello", ref))
    await gesta.settle()
    return request.id


async def test_a_text_that_arrived_is_delivered_and_stays_sent(engine, gesta):
    request_id = await text(engine, gesta)
    assert (
        gesta.sandbox.twilio.effects[0].data["StatusCallback"]
        == f"{HERE}/v1/reports/twilio/default/default/{request_id}"
    )
    assert await posted(engine, gesta.sandbox.twilio.report("sent")) == ReportResult()
    assert await posted(engine, gesta.sandbox.twilio.report()) == ReportResult(new=1)
    state = (await engine.get(request_id)).state
    assert (state.status, state.delivered_at is not None) == ("sent", True)
    assert [kind for kind, _, _ in await engine.history(request_id)][
        -1
    ] == "notification.sms.Delivered.v1"


async def test_a_report_that_comes_again_is_nothing_new(engine, gesta):
    request_id = await text(engine, gesta)
    report = gesta.sandbox.twilio.report("undelivered", error_code="30006")
    assert await posted(engine, report) == ReportResult(new=1)
    version = (await engine.get(request_id)).state.version
    assert await posted(engine, report) == ReportResult(known=1)
    # Out of order: it arrived after all, or did before.
    assert await posted(engine, gesta.sandbox.twilio.report()) == ReportResult(new=1)
    state = (await engine.get(request_id)).state
    assert (state.version, state.bounce, state.delivered_at is not None) == (
        version + 1,
        "no_mobile_number",
        True,
    )


async def test_a_report_resolves_the_unknown_outcome_of_a_lost_answer(engine, gesta):
    gesta.sandbox.twilio.next(drop=True)
    request = await engine.submit(sms.Message("+4930123456", "hello"))
    await gesta._quiet()
    assert await request.status() == "unknown"
    await posted(engine, gesta.sandbox.twilio.report())
    assert await request.status() == "sent"  # S2-11
    await gesta.settle()
    assert len(gesta.sandbox.twilio.effects) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda r: (r.url, {}, r.body),
        lambda r: (r.url, r.headers | {"X-Twilio-Signature": "AAAA"}, r.body),
        lambda r: (r.url, r.headers, r.body.replace(b"delivered", b"undelivered")),
        lambda r: (r.url, r.headers, r.body + b"&Extra=1"),
        lambda r: (r.url[:-1] + ("0" if r.url[-1] != "0" else "1"), r.headers, r.body),
        lambda r: (r.url.replace("/default/default/", "/other/default/"), r.headers, r.body),
        lambda r: (r.url.replace("/default/default/", "/default/nobody/"), r.headers, r.body),
        lambda r: (r.url.replace("/default/default/", "/nobody/default/"), r.headers, r.body),
        lambda r: (r.url.replace("/default/default/", "/de fault/default/"), r.headers, r.body),
        lambda r: (r.url.replace("twilio", "nobody"), r.headers, r.body),
        lambda r: (r.url + "/more", r.headers, r.body),
        lambda r: (r.url, r.headers, b"\xff\xfe"),
        lambda r: (r.url, r.headers, b"A=1&" * 200),
        lambda r: (r.url, r.headers, b"A=" + b"1" * 20_000),
        lambda r: (r.url, r.headers | {"X-Twilio-Signature": "\u00e4" * 5}, r.body),
    ],
)
async def test_every_forged_report_gets_the_same_answer_and_changes_nothing(engine, gesta, change):
    request_id = await text(engine, gesta)
    before = (await engine.get(request_id)).state
    url, headers, body = change(gesta.sandbox.twilio.report())
    with pytest.raises(InvalidSignature) as caught:
        await posted(engine, HttpRequest("POST", url, headers, body))
    assert str(caught.value) == str(InvalidSignature())
    assert (await engine.get(request_id)).state == before


async def test_another_tenants_request_is_not_touched_by_a_tenants_own_token(engine, gesta):
    theirs = await text(engine, gesta, "other")
    await text(engine, gesta)
    genuine = gesta.sandbox.twilio.report()
    # Signed by this tenant's own token, about the other's request.
    gesta.sandbox.twilio.effects[-1].data["StatusCallback"] = (
        f"{HERE}/v1/reports/twilio/default/default/{theirs}"
    )
    assert await posted(engine, gesta.sandbox.twilio.report()) == ReportResult(strange=1)
    assert (await engine.get(theirs, tenant="other")).state.delivered_at is None
    assert await posted(engine, genuine) == ReportResult(new=1)


async def test_a_token_that_was_changed_is_believed_for_a_day(engine, gesta):
    await text(engine, gesta)
    old = gesta.sandbox.twilio.report()
    await engine.admin.put_config("sms.account", "default", ACCOUNT | {"auth_token": "newer"})
    gesta.advance(23 * 3600)
    assert await posted(engine, old) == ReportResult(new=1)
    gesta.advance(2 * 3600)
    with pytest.raises(InvalidSignature):
        await posted(engine, old)


async def test_with_an_api_key_reports_are_asked_for_only_if_they_can_be_verified(engine, gesta):
    keyed = ACCOUNT | {"api_key_sid": "SK1", "auth_token": "secret of the key"}
    await engine.admin.put_config("sms.account", "default", keyed)
    await text(engine, gesta)
    assert "StatusCallback" not in gesta.sandbox.twilio.effects[-1].data
    await engine.admin.put_config(
        "sms.account", "default", keyed | {"callback_token": "the account's own"}
    )
    await text(engine, gesta)
    with pytest.raises(InvalidSignature):
        await posted(engine, gesta.sandbox.twilio.report())
    assert await posted(
        engine, gesta.sandbox.twilio.report(token="the account's own")
    ) == ReportResult(new=1)


async def test_a_token_that_is_set_to_nothing_verifies_nothing(gesta, monkeypatch):
    """As where a program names a variable that is there and empty: anybody can sign under that."""
    declared = sms.flow(account_sid="AC1", token="env:TWILIO_TOKEN", sender="+15550100")
    async with Engine(flows=[declared], settings=Settings(url=URL, public_url=HERE)) as engine:
        await text(engine, gesta)
        monkeypatch.setattr(TenantConfig, "reference", lambda _self, _text: "")
        with pytest.raises(InvalidSignature):
            await posted(engine, gesta.sandbox.twilio.report(token=""))


async def test_no_provider_is_asked_to_report_without_a_public_url(gesta):
    engine = await opened(gesta, None)
    await text(engine, gesta)
    assert "StatusCallback" not in gesta.sandbox.twilio.effects[-1].data
    gesta.sandbox.twilio.effects[-1].data["StatusCallback"] = (
        "/v1/reports/twilio/default/default/" + "0" * 36
    )
    with pytest.raises(InvalidSignature):
        await posted(engine, gesta.sandbox.twilio.report())
    await engine.stop()


async def test_a_number_that_is_suppressed_gets_no_texts(engine, gesta):
    await engine.admin.suppress(sms.message.NAME, "+49 30 123456", reason="asked by phone")
    request_id = await text(engine, gesta)
    state = (await engine.get(request_id)).state
    assert (state.status, state.reason) == ("failed", "suppressed")
    assert gesta.sandbox.twilio.effects == []


async def test_a_permanent_bounce_suppresses_its_address(engine, gesta):
    request_id = await letter(engine, gesta)
    assert await sns(engine, gesta.sandbox.ses.report("delivery", TOPIC)) == ReportResult(new=1)
    assert await sns(
        engine, gesta.sandbox.ses.report("bounce", TOPIC, version="1")
    ) == ReportResult(new=1)
    state = (await engine.get(request_id)).state
    assert (state.status, state.bounce, state.delivered_at is not None) == (
        "sent",
        "permanent_noemail",
        True,
    )
    entry = await engine.admin.suppressed(email.NAME, "ada@EXAMPLE.com")
    assert entry is not None
    assert (entry.suppressed.reason, entry.suppressed.source) == (
        "bounced: permanent_noemail",
        f"report of {email.NAME}",
    )
    assert entry.suppressed.masked == "A***@e***.com"
    again = await letter(engine, gesta)
    assert (await engine.get(again)).state.reason == "suppressed"
    history = [msgspec.json.encode(event) for _, event, _ in await engine.history(request_id)]
    assert b"ada@" not in b"".join(history).lower()


async def test_a_transient_bounce_suppresses_no_address_and_a_complaint_does(engine, gesta):
    await letter(engine, gesta)
    await sns(engine, gesta.sandbox.ses.report("bounce", TOPIC, permanent=False))
    assert await engine.admin.suppressed(email.NAME, ADA) is None
    await sns(engine, gesta.sandbox.ses.report("complaint", TOPIC))
    entry = await engine.admin.suppressed(email.NAME, ADA)
    assert entry is not None
    assert entry.suppressed.reason == "complained: abuse"
    # Removed by a person, and reported again: it stays removed.
    assert await engine.admin.unsuppress(email.NAME, ADA)
    assert await sns(engine, gesta.sandbox.ses.report("complaint", TOPIC)) == ReportResult(known=1)
    assert await engine.admin.suppressed(email.NAME, ADA) is None


async def test_a_report_that_failed_half_way_is_taken_when_it_comes_again(
    engine, gesta, monkeypatch
):
    request_id = await letter(engine, gesta)
    body = gesta.sandbox.ses.report("complaint", TOPIC)
    with monkeypatch.context() as patch:

        async def fails(*_: object, **__: object) -> None:
            raise StoreError("gone")

        patch.setattr(engine.pipeline.recorder, "apply", fails)
        with pytest.raises(StoreError):
            await sns(engine, body)
    assert (await engine.get(request_id)).state.complained_at is None
    assert await sns(engine, body) == ReportResult(new=1)
    assert await engine.admin.suppressed(email.NAME, ADA) is not None


def changed(body: bytes, **fields: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body) | fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda body, _: changed(body, Message="{}"),
        lambda body, _: changed(body, TopicArn=TOPIC + "-other"),
        lambda body, _: changed(body, TopicArn="arn:aws:sns:eu-central-1:999999999999:evil"),
        lambda body, _: changed(body, Signature="AAAA"),
        lambda body, _: changed(body, Signature="not base64!"),
        lambda body, _: changed(body, SignatureVersion="1"),
        lambda body, _: changed(body, SignatureVersion="3"),
        lambda body, _: changed(body, Type="Nonsense"),
        lambda body, _: changed(body, Timestamp="yesterday"),
        lambda body, _: changed(
            body, SigningCertURL="https://sns.eu-central-1.amazonaws.com.evil.example/a.pem"
        ),
        lambda body, _: changed(body, SigningCertURL="http://sns.eu-central-1.amazonaws.com/a.pem"),
        lambda body, _: changed(
            body, SigningCertURL="https://sns.eu-central-1.amazonaws.com/a.txt"
        ),
        lambda body, _: changed(body, SigningCertURL="https://evil.example/a.pem"),
        # The API of SNS itself, which returns what any customer has put there: a certificate, too.
        lambda body, _: changed(
            body,
            SigningCertURL=msgspec.json.decode(body)["SigningCertURL"]
            + "?Action=GetTopicAttributes",
        ),
        lambda body, _: changed(
            body, SigningCertURL=msgspec.json.decode(body)["SigningCertURL"] + "#a"
        ),
        lambda _, sandbox: sandbox.ses.report(
            "bounce", "arn:aws:sns:eu-central-1:999999999999:evil"
        ),
        lambda *_: b"[]",
        lambda *_: b"{",
        lambda *_: b"[" * 100_000,
        lambda *_: b"{}" + b" " * 400_000,
        lambda *_: b"\xff",
    ],
)
async def test_a_forged_message_of_sns_gets_one_answer_and_changes_nothing(engine, gesta, change):
    request_id = await letter(engine, gesta)
    before, calls = (await engine.get(request_id)).state, gesta.sandbox.http.calls
    with pytest.raises(InvalidSignature) as caught:
        await sns(engine, change(gesta.sandbox.ses.report("bounce", TOPIC), gesta.sandbox))
    assert str(caught.value) == str(InvalidSignature())
    assert (await engine.get(request_id)).state == before
    assert await engine.admin.suppressed(email.NAME, ADA) is None
    assert gesta.sandbox.http.calls == calls


async def test_a_message_that_is_days_old_is_not_believed(engine, gesta):
    await letter(engine, gesta)
    body = gesta.sandbox.ses.report("bounce", TOPIC)
    gesta.advance(25 * 3600)
    with pytest.raises(InvalidSignature):
        await sns(engine, body)


async def test_a_tenants_own_topic_changes_no_request_of_another_tenant(engine, gesta):
    request_id = await letter(engine, gesta)
    assert await sns(
        engine, gesta.sandbox.ses.report("delivery", TOPIC + "-other"), "other"
    ) == ReportResult(strange=1)
    assert (await engine.get(request_id)).state.delivered_at is None


async def test_a_subscription_is_confirmed_if_it_is_on_a_topic_of_the_tenant(engine, gesta):
    signer, url = (
        gesta.sandbox.ses.sns,
        "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&Token=t-1",
    )
    now = gesta.runtime.now_ms()
    for more, topic in [
        ({"SubscribeURL": url}, TOPIC + "-evil"),
        ({"SubscribeURL": "https://evil.example/?Token=t-1"}, TOPIC),
    ]:
        body = signer.envelope(
            "hello", topic, "m-1", now, Type="SubscriptionConfirmation", Token="t-1", **more
        )
        with pytest.raises(InvalidSignature):
            await sns(engine, msgspec.json.encode(body))
    assert signer.confirmed == []
    body = signer.envelope(
        "hello", TOPIC, "m-1", now, Type="SubscriptionConfirmation", Token="t-1", SubscribeURL=url
    )
    assert await sns(engine, msgspec.json.encode(body)) == ReportResult()
    assert signer.confirmed == ["t-1"]


async def test_a_certificate_that_cannot_be_had_makes_sns_come_again(engine, gesta, monkeypatch):
    await letter(engine, gesta)
    body = gesta.sandbox.ses.report("bounce", TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(gesta.sandbox.ses, "read", lambda *_: Reply(503))
        with pytest.raises(StoreError):
            await sns(engine, body)
    assert await sns(engine, body) == ReportResult(new=1)


async def test_a_flood_of_made_up_certificates_does_not_block_fetching_a_known_one_again(
    engine, gesta
):
    await letter(engine, gesta)
    assert await sns(engine, gesta.sandbox.ses.report("delivery", TOPIC)) == ReportResult(new=1)
    gesta.advance(25 * 3600)
    await letter(engine, gesta, "bob@example.com")
    body = gesta.sandbox.ses.report("delivery", TOPIC)
    for number in range(FETCHES_MAX + 1):
        with pytest.raises((InvalidSignature, StoreError)):
            await sns(
                engine,
                changed(
                    body, SigningCertURL=f"https://sns.eu-central-1.amazonaws.com/{number}.pem"
                ),
            )
    assert await sns(engine, body) == ReportResult(new=1)


async def test_names_of_tenants_that_do_not_exist_are_not_kept(engine):
    config = engine.pipeline.config
    before = len(config._tenants)
    for number in range(20):
        with pytest.raises(InvalidSignature):
            await sns(engine, b"{}", f"nobody-{number}")
    assert len(config._tenants) == before


async def test_the_list_shows_masks_page_by_page_and_an_entry_can_be_taken_off(engine):
    admin = engine.admin
    for number in range(5):
        await admin.suppress(email.NAME, f"person{number}@example.com", reason="asked")
    await admin.suppress(email.NAME, "stranger@example.com", tenant="other")
    await admin.suppress(sms.message.NAME, "+4930123456")
    await admin.unsuppress(email.NAME, "person0@example.com")
    found, after = [], ""
    while True:
        page, following = await admin.list_suppressed(email.NAME, after=after, limit=2)
        found += page
        if following is None:
            break
        after = following
    assert len({entry.id for entry in found}) == len(found) == 4
    assert {entry.suppressed.masked for entry in found} == {"p***@e***.com"}
    await admin.unsuppress_entry(email.NAME, found[0].id)
    assert len((await admin.list_suppressed(email.NAME))[0]) == 3
    assert len((await admin.list_suppressed(email.NAME, tenant="other"))[0]) == 1
    assert [
        one.suppressed.masked for one in (await admin.list_suppressed(sms.message.NAME))[0]
    ] == ["+49***56"]


@pytest.mark.parametrize(
    ("answer", "is_taken"),
    [
        (HttpResponse(200, body=b"x" * 65_536), True),
        (HttpResponse(200, body=b"x" * 65_537), False),
        (HttpResponse(200, body=b"x", is_whole=False), False),
    ],
)
async def test_an_answer_fetched_for_a_report_is_whole_and_at_most_64_kb(engine, answer, is_taken):
    class Answering:
        async def send(self, _request: HttpRequest) -> object:
            return answer

    reports = engine.pipeline.reports
    reports._reach = replace(reports._reach, transport=Answering())
    with nullcontext() if is_taken else pytest.raises(InvalidSignature):
        assert await reports._fetch("https://sns.example/a.pem") == answer


async def test_a_bounce_of_what_is_no_address_is_recorded_and_suppresses_nothing(engine, gesta):
    request_id = await letter(engine, gesta)
    bounce = ProviderReport(request_id, RecordReceipt("bounced", "r-1"), ("no address", ADA))
    flow = engine.pipeline.flows[email.NAME]
    assert await engine.pipeline.reports._record(flow, "default", bounce) == "new"
    entries, _ = await engine.admin.list_suppressed(email.NAME)
    assert [entry.suppressed.masked for entry in entries] == ["A***@e***.com"]
