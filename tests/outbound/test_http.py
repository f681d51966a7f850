"""attempt.http: what a flow's attempt comes to when the answer is not a success."""

from __future__ import annotations

import pytest

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.outbound.http import (
    Answer,
    AttemptEnded,
    Headers,
    Http,
    HttpRequest,
    HttpResponse,
    TransportError,
)
from gesta.runtime.clock import ManualRuntime

URL = "https://api.example/charges?key=k3y"


class Scripted:
    """A double of the transport: gives its answers in turn, the last one for ever, and keeps what
    it was asked.
    """

    def __init__(self, *results: HttpResponse | TransportError) -> None:
        self.results, self.asked = results, list[HttpRequest]()

    async def send(self, request: HttpRequest) -> HttpResponse:
        result = self.results[min(len(self.asked), len(self.results) - 1)]
        self.asked.append(request)
        if isinstance(result, TransportError):
            raise result
        return result

    async def close(self) -> None: ...


def response(status: int, body: bytes = b"{}", **headers: str) -> HttpResponse:
    return HttpResponse(
        status, Headers((name.replace("_", "-"), value) for name, value in headers.items()), body
    )


async def outcome_of(result: HttpResponse | TransportError) -> Outcome:
    with pytest.raises(AttemptEnded) as caught:
        await Http(Scripted(result), ManualRuntime()).post(URL, json={"card": "4242"})
    return caught.value.outcome


async def test_a_success_is_an_answer_whose_fields_can_be_asked_for():
    answer = await Http(
        Scripted(response(201, b'{"id": "ch_1"}', x_kind="a")), ManualRuntime()
    ).post(URL, json={})
    # R1-8: ok with the provider's id
    assert (answer.status, answer["id"], answer.json(), answer.headers["X-Kind"]) == (
        201,
        "ch_1",
        {"id": "ch_1"},
        "a",
    )
    assert (answer.body, answer.text) == (b'{"id": "ch_1"}', '{"id": "ch_1"}')


def test_the_text_of_an_answer_never_raises():
    assert Answer(HttpResponse(200, Headers(), b"caf\xc3\xa9 \xff")).text == "café \ufffd"


async def test_too_many_requests_is_a_retry_not_before_the_time_asked_for():
    assert await outcome_of(response(429, retry_after="30")) == Retry(
        "http_429", "answered 429", 30.0
    )  # R1-27, R1-8
    assert await outcome_of(response(429)) == Retry("http_429", "answered 429", 0.0)


async def test_a_503_is_a_retry_only_with_a_valid_retry_after_header():
    assert await outcome_of(response(503, retry_after="5")) == Retry(
        "http_503", "answered 503", 5.0
    )
    assert await outcome_of(response(503, retry_after="0")) == Retry(
        "http_503", "answered 503", 0.0
    )
    assert await outcome_of(response(503)) == Unknown("http_503", "answered 503")
    # S1-19: a bad value is ignored, so nothing was said
    assert await outcome_of(response(503, retry_after="soon")) == Unknown(
        "http_503", "answered 503"
    )


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 422])
async def test_any_other_client_error_is_a_rejection(status):
    assert await outcome_of(response(status)) == Rejected(
        f"http_{status}", f"answered {status}"
    )  # R1-27: stops on non-retryable


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_a_rejection(status):
    assert await outcome_of(response(status)) == Rejected(
        "redirect_refused", f"answered {status}"
    )  # S1-27


@pytest.mark.parametrize("status", [500, 501, 502, 504])
async def test_any_other_server_error_is_unknown(status):
    assert await outcome_of(response(status, retry_after="7")) == Unknown(
        f"http_{status}", f"answered {status}", 7.0
    )


async def test_an_unknown_status_makes_no_new_reason():
    assert await outcome_of(response(499)) == Rejected("http_4xx", "answered 499")
    assert await outcome_of(response(599)) == Unknown("http_5xx", "answered 599")


@pytest.mark.parametrize("reason", ["dns", "refused", "unreachable", "tls", "connect_timeout"])
async def test_a_call_that_was_not_sent_is_a_retry(reason):
    assert await outcome_of(TransportError(reason, sent=False)) == Retry(
        reason, TransportError(reason, sent=False).detail
    )


@pytest.mark.parametrize("reason", ["timeout", "reset", "bad_answer"])
async def test_a_call_that_may_have_arrived_is_unknown(reason):
    assert await outcome_of(TransportError(reason, sent=True)) == Unknown(
        reason, "the request may have arrived"
    )


@pytest.mark.parametrize("reason", ["private_address", "plain_http", "unsendable"])
async def test_an_address_that_may_not_be_called_is_a_rejection(reason):
    outcome = await outcome_of(TransportError(reason, sent=False))
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.detail.startswith("nothing was sent")) == (
        reason,
        True,
    )  # S1-27
    # A person can do something about an address, and the text says what.
    named = ("GESTA_ALLOW_PRIVATE" in outcome.detail, "worker" in outcome.detail)
    assert named == (reason in ("private_address", "plain_http"),) * 2
    assert ("and restart it" in outcome.detail) is (reason == "private_address")


async def test_a_failure_after_a_call_that_succeeded_cannot_say_that_nothing_happened():
    http = Http(Scripted(response(200, b"{}"), response(429)), ManualRuntime())
    await http.post(URL)
    with pytest.raises(AttemptEnded) as caught:
        await http.post(URL)
    assert isinstance(caught.value.outcome, Unknown)
    assert caught.value.outcome.reason == "http_429"


async def test_a_refused_call_after_a_read_keeps_its_outcome():
    http = Http(Scripted(response(200, b"{}"), response(429)), ManualRuntime())
    await http.get(URL)
    with pytest.raises(AttemptEnded) as caught:
        await http.post(URL)
    assert isinstance(caught.value.outcome, Retry)


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[1]", b'{"other": 1}', b'"id"'])
async def test_a_success_that_does_not_say_what_the_flow_needs_is_unknown(body):
    answer = await Http(Scripted(response(200, body)), ManualRuntime()).post(URL)
    with pytest.raises(AttemptEnded) as caught:
        answer["id"]
    assert isinstance(caught.value.outcome, Unknown)
    assert caught.value.outcome.reason == "bad_answer"


def test_a_cut_answer_is_unknown_only_for_those_who_need_its_content():
    answer = Answer(HttpResponse(200, Headers(), b'{"id": 1', is_whole=False))
    assert answer.status == 200
    with pytest.raises(AttemptEnded) as caught:
        answer.json()
    assert caught.value.outcome == Unknown(
        "too_large", "answered 200 with more data than gesta reads"
    )


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
async def test_every_method_sends_what_it_was_given(method):
    transport = Scripted(response(200))
    await getattr(Http(transport, ManualRuntime(), timeout_seconds=9), method)(
        URL, json={"a": 1}, headers={"Idempotency-Key": "k"}
    )
    [request] = transport.asked
    assert (request.method, request.url, request.body, request.timeout_seconds) == (
        method.upper(),
        URL,
        b'{"a":1}',
        9,
    )
    assert request.headers == {"Idempotency-Key": "k", "content-type": "application/json"}


async def test_raw_bytes_go_out_as_they_are_and_exclude_json():
    transport = Scripted(response(200))
    http = Http(transport, ManualRuntime())
    await http.post(URL, body=b"raw", headers={"Content-Type": "text/plain"}, timeout_seconds=3)
    assert (transport.asked[0].body, transport.asked[0].headers) == (
        b"raw",
        {"Content-Type": "text/plain"},
    )
    assert transport.asked[0].timeout_seconds == 3
    with pytest.raises(TypeError):
        await http.post(URL, body=b"raw", json={})


async def test_an_exchange_hands_over_any_status_and_ends_only_without_an_answer():
    http = Http(Scripted(response(500)), ManualRuntime())
    assert (await http.exchange("POST", URL)).status == 500
    with pytest.raises(AttemptEnded):
        await Http(Scripted(TransportError("reset", sent=True)), ManualRuntime()).exchange(
            "POST", URL
        )


async def test_no_outcome_and_no_repr_shows_url_body_or_credentials():
    transport = Scripted(response(400, b"card 4242 refused for k3y"))
    with pytest.raises(AttemptEnded) as caught:
        await Http(transport, ManualRuntime()).post(
            URL, json={"card": "4242"}, headers={"Authorization": "Bearer t0p"}
        )
    seen = (
        f"{caught.value!r} {caught.value.outcome!r} {transport.asked[0]!r} {transport.results[0]!r}"
        f" {response(200, x_token='t0p').headers!r}"
    )
    assert not [
        secret for secret in ("k3y", "4242", "t0p", "api.example") if secret in seen
    ]  # S0-27


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (
            b'{"error": {"code": "resource_missing", "type": "invalid_request_error"}}',
            ": resource_missing",
        ),
        (b'{"ok": false, "error": "channel_not_found"}', ": channel_not_found"),
        (b'{"error": {"type": "card_error"}}', ": card_error"),
        # Sentences, numbers and what is no JSON object may quote what was sent.
        (b'{"error": "no such customer ada@example.com"}', ""),
        (b'{"code": 4242, "error": "4242424242424242"}', ""),
        (b'["resource_missing"]', ""),
        (b"resource_missing", ""),
    ],
)
async def test_a_refusal_keeps_the_provider_s_code_and_none_of_its_sentences(body, code):
    assert await outcome_of(response(400, body)) == Rejected("http_400", f"answered 400{code}")
