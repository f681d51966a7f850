"""notification.sms: texts by Twilio, what its answers mean, and how a lost one is found again."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gesta import Engine
from gesta.domain.outcome import Rejected, Unknown
from gesta.domain.state import State
from gesta.errors import BadFlow, InvalidRequest
from gesta.flows import sms
from gesta.flows.sms.twilio import MEANINGS, outcome_of
from gesta.outbound.http import HttpResponse
from gesta.sandbox import Effect
from gesta.testing.plugin import Harness

URL = "memory:sms"
TOKEN = "0123456789abcdef-planted"
ANN = "+4915155501234"
BODY = "Your parcel is here"


@asynccontextmanager
async def opened(gesta: Harness, **account: Any) -> AsyncIterator[Engine]:
    async with Engine(URL, flows=[sms.flow()]) as engine:
        await put(engine, **account)
        yield engine
    del gesta


async def put(engine: Engine, code: str = "default", token: str = TOKEN, **account: Any) -> None:
    fields = {"account_sid": "AC1", "auth_token": token, "sender": "+15550100"} | account
    await engine.admin.put_config(
        "sms.account", code, {name: value for name, value in fields.items() if value is not None}
    )


async def end_of(gesta: Harness, engine: Engine, message: sms.Message) -> State:
    request = await engine.submit(message)
    await gesta.settle()
    return (await request.view()).state


def texts(gesta: Harness) -> list[tuple[str, str]]:
    return [(effect.data["To"], effect.text) for effect in gesta.sandbox.twilio.effects]


async def test_a_newly_declared_token_releases_requests_held_by_the_old_one(gesta):
    gesta.sandbox.twilio.on("old", error="20003")
    async with Engine(URL, flows=[sms.flow("AC0", "old", "+15005550006")]) as engine:
        request = await engine.submit(sms.Message(to=ANN, body=BODY))
        await gesta.settle(days=0.01)
    for token, status, calls in (("old", "queued", 1), ("new", "sent", 2)):
        async with Engine(URL, flows=[sms.flow("AC0", token, "+15005550006")]) as engine:
            await gesta.settle(days=0.01)
            assert (await engine.get(request.id)).state.status == status
        assert gesta.sandbox.twilio.calls == calls, "the token that was refused is not tried again"


async def test_a_text_is_sent_and_its_segments_are_recorded(gesta):
    async with opened(gesta) as engine:
        state = await end_of(gesta, engine, sms.Message(to="+49 151 555-01234", body=BODY))
        _, event, _ = (await engine.history(state.id))[-1]
    [effect] = gesta.sandbox.twilio.effects
    assert (state.status, state.provider_id) == ("sent", effect.id)
    assert getattr(event, "detail", "") == "1 segment, GSM-7"
    assert effect.data | {"at_ms": 0} == {
        "To": ANN,
        "From": "+15550100",
        "Body": BODY,
        "SmartEncoded": "false",
        "at_ms": 0,
    }
    assert effect.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_an_account_that_the_program_declares(gesta):
    async with Engine(
        URL, flows=[sms.flow("AC1", "env:TWILIO_TOKEN", "+15550100", default_region="DE")]
    ) as engine:
        assert (
            await end_of(gesta, engine, sms.Message(to="0151 55501234", body=BODY))
        ).status == "sent"
    assert texts(gesta) == [(ANN, BODY)]


async def test_a_messaging_service_chooses_the_sender(gesta):
    async with opened(gesta, sender=None, messaging_service_sid="MG1", api_key_sid="SK1") as engine:
        gesta.sandbox.twilio.next(drop=True)
        assert (await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))).status == "sent"
    [effect] = gesta.sandbox.twilio.effects
    assert (effect.data["MessagingServiceSid"], "From" in effect.data) == ("MG1", False)


async def test_a_template_is_filled_in(gesta):
    async with opened(gesta) as engine:
        await engine.admin.put_config("template", "parcel", {"text": "Parcel {{ number }} is here"})
        await end_of(gesta, engine, sms.Message(to=ANN, template="parcel", data={"number": 7}))
    assert texts(gesta) == [(ANN, "Parcel 7 is here")]


@pytest.mark.parametrize(
    ("fields", "faulty"),
    [
        ({"to": ANN}, "body"),
        ({"to": ANN, "body": ""}, "body"),
        ({"to": ANN, "body": "x" * 1_601}, "body"),
        ({"to": ANN, "body": "a", "template": "t"}, "template"),
        ({"to": ANN, "body": "a", "data": {"n": 1}}, "data"),
        ({"to": "0151 55501234", "body": "a"}, "to"),
        ({"to": "ann@example.com", "body": "a"}, "to"),
        ({"to": "+49", "body": "a"}, "to"),
        ({"to": "+0000000000000", "body": "a"}, "to"),
        ({"to": ANN, "body": "a", "auth_token": "x"}, "auth_token"),
    ],
)
async def test_an_invalid_text_is_refused_before_anything_is_stored(gesta, fields, faulty):
    async with opened(gesta) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.submit(engine.payload("notification.sms", fields))
        assert list(caught.value.fields) == [faulty]
        assert ANN not in str(caught.value)
        assert await engine.find() == []


async def test_the_region_of_the_account_completes_a_number(gesta):
    async with opened(gesta, default_region="DE") as engine:
        await end_of(gesta, engine, sms.Message(to="0151 55501234", body=BODY))
    assert texts(gesta) == [(ANN, BODY)]


async def test_number_and_text_are_encrypted(gesta, caplog):
    caplog.set_level(logging.DEBUG)
    async with opened(gesta) as engine:
        gesta.sandbox.twilio.next(error="21610")
        await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
        stored = b"".join(
            one.data + one.meta
            for one in await engine.pipeline.environment.stores.events.follow(0, 100)
        )
    logged = stored.decode() + "".join(record.getMessage() for record in caplog.records)
    assert not any(secret in logged for secret in (ANN, "55501234", BODY, TOKEN))


async def test_an_erased_person_gets_no_text(gesta):
    async with opened(gesta) as engine:
        await engine.admin.pause(flow="notification.sms")
        request = await engine.submit(sms.Message(to="+49 151 55501234", body=BODY))
        await gesta.settle(days=0.001)
        assert await engine.erase(ANN) == 1
        await engine.admin.resume(flow="notification.sms")
        await gesta.settle()
        assert ((await request.view()).state.status, (await request.view()).state.reason) == (
            "failed",
            "subject_erased",
        )
    assert gesta.sandbox.twilio.calls == 0


def answer(status: int, code: int | None = None) -> HttpResponse:
    return HttpResponse(
        status,
        body=b""
        if code is None
        else msgspec.json.encode({"code": code, "message": f"To {ANN} is bad"}),
    )


@pytest.mark.parametrize("code", [21211, 21606, 21608, 21610, 21612, 21614, 20404])
def test_permanent_refusals_of_twilio_are_final(code):
    outcome = outcome_of(answer(400, code), None)
    assert outcome == Rejected(MEANINGS[code][1], f"answered 400: {code}")  # D-12
    assert ANN not in repr(outcome)


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (
            answer(500, 20500),
            Unknown("internal_error", "answered 500: 20500"),
        ),  # D-12: not idempotent
        (answer(503), Unknown("http_503", "answered 503")),
        (answer(200), Unknown("bad_answer", "answered 200, but not as Twilio does")),
        (answer(302), Rejected("redirect_refused", "answered 302")),
        (answer(400, 29999), Rejected("twilio_other", "answered 400: 29999")),
        (answer(404), Rejected("http_404", "answered 404")),
    ],
)
def test_answers_without_a_known_code_end_by_their_status(response, outcome):
    assert outcome_of(response, None) == outcome


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "retry_after": 40},
        {"error": "20429", "retry_after": 40},
        {"error": "70005", "retry_after": 40},
    ],
)
async def test_too_fast_waits_and_spends_no_attempt(gesta, fault):
    async with opened(gesta) as engine:
        gesta.sandbox.twilio.next(**fault)
        before = gesta.runtime.now_ms()
        state = await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
    assert (state.status, state.attempts, len(texts(gesta))) == (
        "sent",
        1,
        1,
    )  # D-12: never processed, always safe
    assert gesta.runtime.now_ms() - before >= 40_000


async def test_a_refused_token_holds_everything_of_its_account(gesta):
    async with opened(gesta, per_second=1_000) as engine:
        gesta.sandbox.twilio.on(TOKEN, error="20003")
        requests = [
            await engine.submit(sms.Message(to=ANN, body=str(number))) for number in range(20)
        ]
        await gesta.settle(days=1)
        assert {(await request.view()).state.attempts for request in requests} == {
            0
        }  # D-12: 20003 auth
        assert await engine.admin.dead_letters() == []
        await put(engine, token="another", per_second=1_000)
        await gesta.settle()
        assert {await request.status() for request in requests} == {"sent"}
    assert len(texts(gesta)) == 20


async def test_a_text_that_was_sent_is_found_and_not_sent_again(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.twilio.next(drop=True)
        state = await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
    assert (state.status, state.provider_id, len(texts(gesta))) == (
        "sent",
        gesta.sandbox.twilio.effects[0].id,
        1,
    )  # D-12


async def test_a_text_that_was_not_sent_is_sent_once(gesta):
    async with opened(gesta) as engine:
        await end_of(gesta, engine, sms.Message(to=ANN, body="another text"))
        gesta.sandbox.twilio.next(status=500)
        state = await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
    assert (state.status, state.attempts) == ("sent", 2)
    assert texts(gesta) == [(ANN, "another text"), (ANN, BODY)]


async def test_a_text_alike_of_an_earlier_hour_is_not_taken_for_it(gesta):
    async with opened(gesta) as engine:
        await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
        gesta.advance(3_600)
        gesta.sandbox.twilio.next(status=500)
        state = await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
    assert (state.status, len(texts(gesta))) == ("sent", 2)


async def test_two_equal_texts_leave_the_outcome_unknown(gesta):
    async with opened(gesta) as engine:
        await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
        gesta.sandbox.twilio.next(drop=True)
        state = await end_of(gesta, engine, sms.Message(to=ANN, body=BODY))
    assert (state.status, state.reason, len(texts(gesta))) == ("unknown", "ambiguous", 2)


async def test_a_changed_template_leaves_the_outcome_unknown(gesta):
    async with opened(gesta) as engine:
        await engine.admin.put_config("template", "parcel", {"text": "old"})
        gesta.sandbox.twilio.next(drop=True)
        request = await engine.submit(sms.Message(to=ANN, template="parcel"))
        await gesta.settle(days=1 / 86_400)
        await engine.admin.put_config("template", "parcel", {"text": "new"})
        await gesta.settle()
        state = (await request.view()).state
    assert (state.status, state.reason, texts(gesta)) == ("unknown", "ambiguous", [(ANN, "old")])


async def test_it_is_found_on_a_later_page(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.twilio.next(drop=True)
        request = await engine.submit(sms.Message(to=ANN, body=BODY))
        await gesta.settle(days=1 / 86_400)
        for number in range(150):
            data = {
                "To": ANN,
                "From": "+15550100",
                "Body": str(number),
                "at_ms": gesta.runtime.now_ms(),
            }
            gesta.sandbox.twilio.effects.append(Effect(f"SM9{number}", "create", data, {}))
        await gesta.settle()
        assert await request.status() == "sent"
    assert [body for _, body in texts(gesta)].count(BODY) == 1


async def test_an_account_that_is_not_stored_holds_and_one_without_a_sender_fails(gesta):
    async with opened(gesta) as engine:
        await put(engine, "bare", sender=None)
        request = await engine.submit(sms.Message(to=ANN, body="a", account="later"))
        assert [one.code for one in request.warnings] == ["config_missing"]
        await gesta.settle(days=0)
        (pause,) = await engine.admin.pauses_of([await request.view()])
        assert pause is not None
        assert (pause.kind, pause.reason.split(":")[0]) == ("config", "account_missing")
        assert (
            await end_of(gesta, engine, sms.Message(to=ANN, body="a", account="bare"))
        ).reason == "sender_missing"
    assert gesta.sandbox.twilio.calls == 0


def test_an_account_is_declared_whole():
    with pytest.raises(BadFlow, match="needs token="):
        sms.flow("AC1")
    assert TOKEN not in repr(sms.Account("AC1", TOKEN, "+15550100"))


def test_without_its_library_the_channel_names_the_extra_to_install():
    program = (
        f"import sys; sys.path[:] = {sys.path}; sys.modules['phonenumbers'] = None\n"
        "from gesta.errors import MissingExtra\nfrom gesta.flows import sms\n"
        "try: sms.flow()\nexcept MissingExtra as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'gesta[sms]'" in result
