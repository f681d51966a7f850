"""What every payment gateway promises, whatever its API looks like.

One test per promise, held against a gateway by its harness. Another gateway is one file and this:

    from gesta.testing.contracts.gateway import GatewayContract

    class TestAcmePay(GatewayContract):
        @pytest.fixture
        def harness(self, runtime):
            return AcmePayHarness(runtime)

The harness brings a fake of the provider, which counts what it really did.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import pytest

from gesta.domain.money import Money
from gesta.errors import InvalidSignature, ListingFailed
from gesta.flows.payment.gateway import (
    AccountRefused,
    CallConflicted,
    CallContradicted,
    CallDeclined,
    CallNotFound,
    CallRefused,
    CallRetry,
    CallSucceeded,
    CallUnknown,
    Connection,
    Delivery,
    Gateway,
    GatewayAccount,
    GatewayCall,
    Instruction,
    LedgerRow,
    Reference,
    Unrenderable,
    Verb,
    Window,
)
from gesta.outbound.http import Http, HttpRequest, HttpResponse, Transport, TransportError
from gesta.runtime.clock import ManualRuntime

CODE = "shop"
REQUEST_ID = "01939d3c-0000-7000-8000-{:012d}"


class GatewayHarness(Protocol):
    """One gateway and the fake of its provider under the contract."""

    gateway: Gateway
    #: Reaches the fake.
    transport: Transport
    account: GatewayAccount
    api_key: str
    webhook_secret: str
    #: Means of payment that succeed, and that the bank declines.
    source: str
    declined_source: str

    def movements(self) -> list[str]:
        """What the provider really did, oldest first: authorize, sale, capture, void, refund."""

    def lose_next(self) -> None:
        """The next call is executed, and its answer is lost."""

    def fail_next(self, status: int, retry_after: int | None = None) -> None:
        """The next call is answered with this status and has no effect."""

    def refuse(self, api_key: str) -> None:
        """The provider refuses this API key from now on."""

    def wrong_amount(self, body: bytes) -> bytes:
        """An answer of the provider, changed to state another amount."""

    def webhook(self) -> Delivery:
        """The signed delivery of the provider's latest event, made now."""


class Line:
    """The way to the fake: counts what was sent, and can fail before and after it."""

    def __init__(self, harness: GatewayHarness) -> None:
        self._harness = harness
        self.sent: list[HttpRequest] = []
        self.error: TransportError | None = None
        #: Replaces the next answer.
        self.answer: bytes | None = None
        self.is_changing_amounts = False

    async def send(self, request: HttpRequest) -> HttpResponse:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.sent.append(request)
        response = await self._harness.transport.send(request)
        if self.is_changing_amounts:
            response = replace(response, body=self._harness.wrong_amount(response.body))
        if self.answer is not None:
            response, self.answer = replace(response, body=self.answer), None
        return response

    async def close(self) -> None:
        """Nothing is open."""


class GatewayContract:
    """Give it a fixture `harness`."""

    number = 0

    @pytest.fixture
    def runtime(self) -> ManualRuntime:
        return ManualRuntime()

    @pytest.fixture
    def line(self, harness: GatewayHarness) -> Line:
        return Line(harness)

    @pytest.fixture
    def connection(self, harness: GatewayHarness, line: Line, runtime: ManualRuntime) -> Connection:
        return Connection(Http(line, runtime), CODE, harness.account, harness.api_key)

    def rendered(
        self, harness: GatewayHarness, connection: Connection, verb: Verb, **more: Any
    ) -> GatewayCall:
        self.number += 1
        request_id = REQUEST_ID.format(self.number)
        fields: dict[str, Any] = {"amount": Money("49.90", "EUR"), "source": harness.source} | more
        instruction = Instruction(
            verb=verb,
            key=f"default:{request_id}:{verb}:1",
            reference=Reference("default", "payment.card", request_id, verb, 1),
            **fields,
        )
        return harness.gateway.render(instruction, connection)

    async def test_a_sale_is_executed_once_with_its_amount_and_id(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallSucceeded)
        assert (answer.amount, bool(answer.id)) == (Money("49.90", "EUR"), True)
        assert harness.movements() == ["sale"]

    async def test_the_key_travels_with_the_call(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        await harness.gateway.execute(call, connection)
        [sent] = line.sent
        assert call.key in sent.headers.values()  # R1-34
        assert sent.body == call.body

    async def test_a_call_that_is_sent_again_has_no_second_effect(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        first = await harness.gateway.execute(call, connection)
        again = await harness.gateway.execute(call, connection)
        assert isinstance(first, CallSucceeded)
        assert isinstance(again, CallSucceeded)
        assert (again.id, again.movement_id) == (first.id, first.movement_id)
        assert harness.movements() == ["sale"]

    async def test_a_journaled_call_is_the_same_after_it_was_stored(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        stored = msgspec.json.decode(msgspec.json.encode(call), type=GatewayCall)
        assert stored == call
        assert stored.request_hash == call.request_hash

    async def test_a_journaled_call_has_no_credential(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        assert harness.api_key.encode() not in msgspec.json.encode(call)
        assert harness.api_key not in f"{call!r} {connection!r} {harness.account!r}"

    async def test_a_lost_answer_is_unknown_and_the_resend_finds_the_first_effect(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        harness.lose_next()
        lost = await harness.gateway.execute(call, connection)
        assert isinstance(lost, CallUnknown)  # S1-1
        again = await harness.gateway.execute(call, connection)
        assert isinstance(again, CallSucceeded)
        assert harness.movements() == ["sale"]

    async def test_a_lost_call_is_found_by_our_own_reference(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        harness.lose_next()
        await harness.gateway.execute(call, connection)
        found = await harness.gateway.look_up(call, connection)
        assert isinstance(found, CallSucceeded)  # S1-5
        assert found.amount == Money("49.90", "EUR")
        assert harness.movements() == ["sale"]

    async def test_a_call_that_was_never_sent_is_not_found(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        await harness.gateway.execute(self.rendered(harness, connection, "sale"), connection)
        call = self.rendered(harness, connection, "sale")
        assert await harness.gateway.look_up(call, connection) == CallNotFound()

    async def test_a_call_that_never_left_may_be_sent_again(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        line.error = TransportError("refused", sent=False)
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallRetry)
        assert harness.movements() == []

    async def test_a_time_limit_after_sending_is_unknown(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        line.error = TransportError("timeout", sent=True)
        call = self.rendered(harness, connection, "sale")
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)

    async def test_an_answer_that_cannot_be_read_is_unknown(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        line.answer = b"<html>welcome to our wifi</html>"
        call = self.rendered(harness, connection, "sale")
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)

    async def test_an_answer_without_the_promised_fields_is_unknown(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        line.answer = b"{}"
        call = self.rendered(harness, connection, "sale")
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)

    @pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
    async def test_a_server_error_is_unknown(
        self, harness: GatewayHarness, connection: Connection, status: int
    ) -> None:
        harness.fail_next(status)
        call = self.rendered(harness, connection, "sale")
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)

    async def test_a_rate_limit_is_safe_to_repeat_after_the_stated_time(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        harness.fail_next(429, 30)
        call = self.rendered(harness, connection, "sale")
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallRetry)
        assert (answer.throttled, answer.after_seconds) == (True, 30)
        assert harness.movements() == []

    async def test_a_key_in_use_is_waited_for(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        harness.fail_next(409)
        call = self.rendered(harness, connection, "sale")
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallRetry)
        assert answer.in_progress

    async def test_a_decline_is_final_for_the_intent(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale", source=harness.declined_source)
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallDeclined)
        again = await harness.gateway.execute(call, connection)
        assert isinstance(again, CallDeclined)
        assert harness.movements() == []

    async def test_a_lost_decline_is_found_as_a_decline_or_not_at_all(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale", source=harness.declined_source)
        harness.lose_next()
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)
        found = await harness.gateway.look_up(call, connection)
        assert isinstance(found, CallDeclined | CallNotFound)

    async def test_a_refused_credential_says_that_nothing_happened(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        harness.refuse(harness.api_key)
        assert isinstance(await harness.gateway.execute(call, connection), AccountRefused)
        assert isinstance(await harness.gateway.look_up(call, connection), AccountRefused)
        assert harness.movements() == []

    @pytest.mark.parametrize("change", [{"account": "another"}, {"api_url": "https://elsewhere"}])
    async def test_a_call_never_reaches_another_account(
        self, harness: GatewayHarness, connection: Connection, line: Line, change: dict[str, str]
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        other = msgspec.structs.replace(harness.account, **change)
        elsewhere = msgspec.structs.replace(connection, account=other)
        assert isinstance(await harness.gateway.execute(call, elsewhere), AccountRefused)
        assert isinstance(await harness.gateway.look_up(call, elsewhere), AccountRefused)
        assert line.sent == []

    async def test_a_new_api_key_of_the_same_account_is_used(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        rotated = msgspec.structs.replace(connection, api_key=f"{harness.api_key}2")
        assert isinstance(await harness.gateway.execute(call, rotated), CallSucceeded)

    async def test_another_amount_than_asked_for_is_a_conflict(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        line.is_changing_amounts = True
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallConflicted)
        assert answer.found != Money("49.90", "EUR")

    async def authorized(self, harness: GatewayHarness, connection: Connection) -> CallSucceeded:
        call = self.rendered(harness, connection, "authorize")
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallSucceeded)
        return answer

    async def test_an_authorization_is_captured_in_part_and_refunded(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        held = await self.authorized(harness, connection)
        part = Money("20.00", "EUR")
        capture = self.rendered(harness, connection, "capture", amount=part, target=held.id)
        captured = await harness.gateway.execute(capture, connection)
        assert isinstance(captured, CallSucceeded)  # R1-37
        assert captured.amount == part
        back = Money("5.00", "EUR")
        refund = self.rendered(harness, connection, "refund", amount=back, target=held.id)
        refunded = await harness.gateway.execute(refund, connection)
        assert isinstance(refunded, CallSucceeded)
        assert refunded.amount == back
        assert harness.movements() == ["authorize", "capture", "refund"]

    @pytest.mark.parametrize("verb", ["capture", "void", "refund"])
    async def test_a_lost_movement_is_found_and_an_unsent_one_is_not(
        self, harness: GatewayHarness, connection: Connection, verb: Verb
    ) -> None:
        held = await self.authorized(harness, connection)
        if verb == "refund":
            capture = self.rendered(harness, connection, "capture", target=held.id)
            await harness.gateway.execute(capture, connection)
        amount = None if verb == "void" else Money("49.90", "EUR")
        call = self.rendered(harness, connection, verb, amount=amount, target=held.id)
        assert await harness.gateway.look_up(call, connection) == CallNotFound()
        harness.lose_next()
        assert isinstance(await harness.gateway.execute(call, connection), CallUnknown)
        found = await harness.gateway.look_up(call, connection)
        assert isinstance(found, CallSucceeded)
        assert harness.movements()[-1] == verb

    async def test_a_capture_beyond_the_authorization_is_refused(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        held = await self.authorized(harness, connection)
        more = Money("49.91", "EUR")
        call = self.rendered(harness, connection, "capture", amount=more, target=held.id)
        assert isinstance(await harness.gateway.execute(call, connection), CallRefused)
        assert harness.movements() == ["authorize"]

    async def test_a_capture_under_another_key_is_looked_up_and_never_repeated(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        held = await self.authorized(harness, connection)
        first = self.rendered(harness, connection, "capture", target=held.id)
        await harness.gateway.execute(first, connection)
        second = self.rendered(harness, connection, "capture", target=held.id)
        assert isinstance(await harness.gateway.execute(second, connection), CallContradicted)
        assert isinstance(await harness.gateway.look_up(first, connection), CallSucceeded)
        assert harness.movements() == ["authorize", "capture"]

    async def test_the_same_key_with_another_body_moves_nothing(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        call = self.rendered(harness, connection, "sale")
        await harness.gateway.execute(call, connection)
        body = call.body.replace(b"4990", b"5000").replace(b"49.90", b"50.00")
        assert body != call.body
        forged = msgspec.structs.replace(call, body=body)
        answer = await harness.gateway.execute(forged, connection)
        if harness.gateway.descriptor(harness.account).body_mismatch == "error":
            assert isinstance(answer, CallContradicted)
        assert harness.movements() == ["sale"]

    async def test_an_amount_that_the_gateway_cannot_express_is_not_rendered(
        self, harness: GatewayHarness, connection: Connection
    ) -> None:
        currency = "MGA"
        if harness.gateway.descriptor(harness.account).exponents.get(currency) != 0:
            pytest.fail("describe MGA with 0 decimal places in the account of the harness")
        with pytest.raises(Unrenderable):
            self.rendered(harness, connection, "sale", amount=Money("10.50", currency))

    async def test_the_ledger_is_listed_page_by_page(
        self, harness: GatewayHarness, connection: Connection, runtime: ManualRuntime
    ) -> None:
        # More than a page of any provider.
        references = []
        for _ in range(130):
            call = self.rendered(harness, connection, "sale")
            references.append(call.reference)
            await harness.gateway.execute(call, connection)
        window = Window(runtime.now_ms() - 60_000, runtime.now_ms() + 60_000)
        rows = await self.listed(harness, connection, window)
        assert sorted(str(row.reference) for row in rows) == sorted(map(str, references))  # R1-40
        assert {row.amount for row in rows} == {Money("49.90", "EUR")}
        assert len({row.id for row in rows}) == 130
        assert await self.listed(harness, connection, window) == rows
        before = Window(window.from_ms - 60_000, window.from_ms)
        assert await self.listed(harness, connection, before) == []

    async def listed(
        self, harness: GatewayHarness, connection: Connection, window: Window
    ) -> list[LedgerRow]:
        rows: list[LedgerRow] = []
        cursor: str | None = None
        for _ in range(100):
            page = await harness.gateway.list(window, connection, cursor)
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows
        raise AssertionError("the ledger has no last page")

    async def test_a_refund_is_negative_in_the_ledger_and_names_its_movement(
        self, harness: GatewayHarness, connection: Connection, runtime: ManualRuntime
    ) -> None:
        sale = await harness.gateway.execute(self.rendered(harness, connection, "sale"), connection)
        assert isinstance(sale, CallSucceeded)
        back = Money("5.00", "EUR")
        call = self.rendered(harness, connection, "refund", amount=back, target=sale.id)
        refund = await harness.gateway.execute(call, connection)
        assert isinstance(refund, CallSucceeded)
        window = Window(runtime.now_ms() - 60_000, runtime.now_ms() + 60_000)
        rows = await self.listed(harness, connection, window)
        [row] = [row for row in rows if row.kind == "refund"]
        assert (row.amount, row.movement_id) == (Money("-5.00", "EUR"), refund.movement_id)
        assert row.reference == call.reference

    async def test_a_ledger_that_cannot_be_read_is_an_error(
        self, harness: GatewayHarness, connection: Connection, line: Line
    ) -> None:
        line.answer = b"<html>"
        with pytest.raises(ListingFailed):
            await harness.gateway.list(Window(0, 10**12), connection)

    async def event_of_a_sale(
        self, harness: GatewayHarness, connection: Connection
    ) -> tuple[GatewayCall, CallSucceeded, Delivery]:
        call = self.rendered(harness, connection, "sale")
        answer = await harness.gateway.execute(call, connection)
        assert isinstance(answer, CallSucceeded)
        return call, answer, harness.webhook()

    async def test_a_webhook_names_the_payment_and_our_reference(
        self, harness: GatewayHarness, connection: Connection, runtime: ManualRuntime
    ) -> None:
        call, answer, hook = await self.event_of_a_sale(harness, connection)
        event = harness.gateway.verify(
            hook, harness.account, [harness.webhook_secret], runtime.now_ms()
        )
        assert (event.payment_id, event.reference) == (answer.id, call.reference)
        rotated = ["whsec_" + "A" * 40, harness.webhook_secret]
        again = harness.gateway.verify(hook, harness.account, rotated, runtime.now_ms())
        assert again.id == event.id

    @pytest.mark.parametrize("forgery", ["body", "signature", "secret", "none", "old", "new"])
    async def test_a_forged_or_replayed_webhook_is_refused(
        self, harness: GatewayHarness, connection: Connection, runtime: ManualRuntime, forgery: str
    ) -> None:
        _, _, hook = await self.event_of_a_sale(harness, connection)
        headers, body, secrets = dict(hook.headers), hook.body, [harness.webhook_secret]
        at_ms = runtime.now_ms()
        match forgery:
            case "body":
                body = body.replace(b"4990", b"1").replace(b"49.90", b"0.01")
                assert body != hook.body
            case "signature":
                headers = {name: _scrambled(text) for name, text in headers.items()}
            case "secret":
                secrets = ["whsec_" + "A" * 40]
            case "none":
                headers, secrets = {}, [harness.webhook_secret]
            case "old":
                at_ms += 3_600_000
            case _:
                at_ms -= 3_600_000
        with pytest.raises(InvalidSignature):
            harness.gateway.verify(Delivery(headers, body), harness.account, secrets, at_ms)

    async def test_without_a_secret_every_webhook_is_refused(
        self, harness: GatewayHarness, connection: Connection, runtime: ManualRuntime
    ) -> None:
        _, _, hook = await self.event_of_a_sale(harness, connection)
        for secrets in ([], [""]):
            with pytest.raises(InvalidSignature):
                harness.gateway.verify(hook, harness.account, secrets, runtime.now_ms())


def _scrambled(text: str) -> str:
    return text[:-4] + text[-4:].translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Header names in lower case, as a server gives them to `verify`."""
    return {name.lower(): text for name, text in headers.items()}
