"""A gateway that config describes keeps the gateway contract; a wrong description is refused."""

from __future__ import annotations

import msgspec
import pytest

from gesta.domain.money import Money
from gesta.errors import ListingFailed
from gesta.flows.payment.gateway import (
    AccountRefused,
    CallConflicted,
    CallNotFound,
    CallPending,
    CallSucceeded,
    CallUnknown,
    Connection,
    GatewayAccount,
    Instruction,
    Reference,
    Unrenderable,
    Window,
)
from gesta.flows.payment.http_gateway import HttpGateway
from gesta.outbound.http import Headers, Http, HttpRequest, HttpResponse
from gesta.runtime.clock import ManualRuntime
from gesta.testing.contracts.gateway import GatewayContract
from tests.flows.payment.plain_gateway import OPTIONS, URL, PlainHarness

REFERENCE = Reference("default", "payment.card", "01939d3c-0000-7000-8000-000000000001", "sale", 1)
SALE = Instruction(
    verb="sale", key="k", reference=REFERENCE, amount=Money("49.90", "EUR"), source="card-1"
)
#: What the gateway answers to SALE.
DONE = {
    "id": "m1",
    "payment": "p1",
    "status": "done",
    "amount": 4_990,
    "currency": "EUR",
    "reference": str(REFERENCE),
}


class TestHttpGateway(GatewayContract):
    @pytest.fixture
    def harness(self, runtime):
        return PlainHarness(runtime)


class Answers:
    """Answers every call with one status and body."""

    def __init__(self, status: int, body: object) -> None:
        self.status, self.body = status, body
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        return HttpResponse(self.status, Headers(), msgspec.json.encode(self.body))

    async def close(self) -> None:
        """Nothing is open."""


def account(**changes: object) -> GatewayAccount:
    return GatewayAccount("http", "shop 1", "", api_url=URL, options=OPTIONS | changes)


def connection(answers: Answers, of: GatewayAccount | None = None) -> Connection:
    return Connection(Http(answers, ManualRuntime()), "shop", of or account(), "k-1")


async def executed(body: object, of: GatewayAccount | None = None) -> object:
    reached = connection(Answers(200, body), of)
    gateway = HttpGateway()
    return await gateway.execute(gateway.render(SALE, reached), reached)


async def test_the_description_decides_the_whole_call():
    answers = Answers(201, DONE)
    reached = connection(answers)
    gateway = HttpGateway()
    assert await gateway.execute(gateway.render(SALE, reached), reached) == CallSucceeded(
        "p1", Money("49.90", "EUR"), "m1"
    )
    [sent] = answers.requests
    assert (sent.method, sent.url) == ("POST", f"{URL}/payments")
    assert msgspec.json.decode(sent.body or b"") == {
        "amount": 4_990,
        "currency": "EUR",
        "reference": str(REFERENCE),
        "card": "card-1",
    }
    assert sent.headers["Idempotency-Key"] == "k"
    assert sent.headers["Authorization"] == "Bearer k-1"


async def test_a_status_without_a_meaning_is_unknown():
    assert isinstance(await executed(DONE | {"status": "maybe"}), CallUnknown)


@pytest.mark.parametrize(
    ("status", "replays", "stored"),
    [(500, "all", True), (503, "all", False), (504, "all", False), (500, "success", False)],
)
async def test_only_a_failure_of_the_gateway_itself_is_stored_with_the_key(status, replays, stored):
    """502 to 504 also come from a proxy: the gateway may never have seen the key."""
    reached = connection(Answers(status, {}), account(replays=replays))
    gateway = HttpGateway()
    answer = await gateway.execute(gateway.render(SALE, reached), reached)
    assert isinstance(answer, CallUnknown)
    assert answer.is_stored is stored


async def test_a_status_that_waits_is_pending():
    assert await executed(DONE | {"status": "waiting"}) == CallPending("p1", "waiting")


@pytest.mark.parametrize("amount", [49.9, "49.90", True, None, [4_990]])
async def test_an_amount_that_is_no_whole_number_is_unknown(amount):
    assert isinstance(await executed(DONE | {"amount": amount}), CallUnknown)


async def test_another_currency_is_a_conflict():
    answer = await executed(DONE | {"currency": "USD"})
    assert answer == CallConflicted("p1", Money("49.90", "USD"), "m1")


async def test_decimal_amounts_are_read_as_texts():
    decimal = account(amounts="decimal")
    answer = await executed(DONE | {"amount": "49.90"}, decimal)
    assert answer == CallSucceeded("p1", Money("49.90", "EUR"), "m1")
    assert isinstance(await executed(DONE | {"amount": 49.9}, decimal), CallUnknown)


async def test_a_404_to_the_question_is_not_taken_for_a_missing_payment():
    gateway, reached = HttpGateway(), connection(Answers(404, {}))
    call = gateway.render(SALE, reached)
    assert isinstance(await gateway.look_up(call, reached), CallUnknown)
    stated = account(look_up={"path": "/m?r={reference}", "missing_status": 404})
    other = connection(Answers(404, {}), stated)
    assert await gateway.look_up(gateway.render(SALE, other), other) == CallNotFound()


async def test_a_movement_of_another_reference_is_not_ours():
    other = DONE | {"reference": str(msgspec.structs.replace(REFERENCE, intent=2))}
    gateway, reached = HttpGateway(), connection(Answers(200, {"data": [other]}))
    assert await gateway.look_up(gateway.render(SALE, reached), reached) == CallNotFound()


async def test_without_keys_nothing_may_be_sent_twice():
    reached = connection(Answers(200, DONE), account(key_lifetime_seconds=0, replays="none"))
    assert HttpGateway().render(SALE, reached).resend_seconds == 0


async def test_a_longer_key_lifetime_in_the_config_prolongs_no_journaled_call():
    call = HttpGateway().render(SALE, connection(Answers(200, DONE)))
    assert call.resend_seconds == 604_800 - 3_600


async def test_an_operation_that_is_not_described_is_not_rendered():
    payout = msgspec.structs.replace(SALE, verb="payout")
    with pytest.raises(Unrenderable, match="payout"):
        HttpGateway().render(payout, connection(Answers(200, DONE)))


async def test_options_that_became_invalid_send_nothing():
    gateway, answers = HttpGateway(), Answers(200, DONE)
    call = gateway.render(SALE, connection(answers))
    broken = connection(answers, account(statuses=7))
    assert isinstance(await gateway.execute(call, broken), AccountRefused)
    assert isinstance(await gateway.look_up(call, broken), AccountRefused)
    with pytest.raises(ListingFailed):
        await gateway.list(Window(0, 1), broken)
    assert answers.requests == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"statuses": {"done": "perhaps"}}, "options"),
        ({"key_lifetime_seconds": -1}, "options"),
        ({"unheard_of": 1}, "options"),
        ({"auth": "Bearer"}, "options.auth"),
        ({"look_up": {"path": "/movements"}}, "options.look_up"),
        ({"look_up": {"path": "/m?r={reference}&x={secret}"}}, "options.look_up"),
        ({"ledger": {"path": "/ledger"}}, "options.ledger"),
        ({"operations": {"sale": {"path": "/pay"}}}, "options.operations.sale"),
        ({"operations": {"steal": {"path": "/pay"}}}, "options"),
    ],
)
def test_a_wrong_description_is_refused_with_its_field(change, field):
    assert set(HttpGateway().errors(account(**change))) == {field}


def test_a_right_description_has_no_errors():
    assert HttpGateway().errors(account()) == {}
    assert set(HttpGateway().errors(GatewayAccount("http", "a", "", options=OPTIONS))) == {
        "api_url"
    }
