"""What a bench run asks for, again and again: the flow, its payloads, and how many effects the
outside world has seen.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gesta.domain.outcome import Done, Outcome
from gesta.engine.engine import Engine
from gesta.errors import BadSettings
from gesta.flows import slack, webhook
from gesta.flows.attempt import Attempt
from gesta.flows.flow import Flow, Payload, flow
from gesta.flows.slack.client import SlackApi, client_of

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

#: Makes a payload of about 330 bytes, the size in raw_sqlite.py.
TEXT = "x" * 300
#: A webhook is a round trip to another process; the rate is known long before 20,000 of them are
#: through.
WEBHOOKS_MAX = 2_000
#: Not secret: it protects nothing but the sandbox of one run.
WEBHOOK_SECRET = "whsec_Z2VzdGEgYmVuY2gsIG5vdCBhIHNlY3JldCBhdCBhbGw="  # noqa: S105 -- see above


#: As many attempts at a time as the plain flow has, and more messages a second than any machine
#: sends: the bench measures no limit.
CONCURRENCY = 8_000
UNLIMITED_PER_SECOND = 1_000_000.0


class Note(Payload, frozen=True):
    number: int
    text: str


# The default of 100 attempts at a time is for calls that take long and cost the other side
# something. This one is over at once, and
# its slot is free only when its outcome is on disk; with fewer slots than submitters the bench
# would measure the limit instead.
@flow("bench.plain", on_unknown="resend", concurrency=CONCURRENCY)
async def plain(note: Note, attempt: Attempt) -> Outcome:  # noqa: ARG001 -- an executor takes both
    """Nothing but the engine itself."""
    return Done(attempt.request_id)


@dataclass(frozen=True)
class Subject:
    flow: Flow
    payload: Callable[[int], Payload]
    requests_max: int | None = None
    #: Private networks that the flow has to reach.
    allow_private: tuple[str, ...] = ()
    #: How many effects the outside world has seen, where there is one.
    effects: Callable[[], int] = lambda: 0
    has_outside: bool = False
    #: What has to be stored before the first request.
    set_up: Callable[[Engine], Awaitable[None]] | None = None
    #: Whether the plain flow is measured in the same run, to tell what the channel itself costs.
    is_compared: bool = False


PLAIN = Subject(plain, lambda number: Note(number, TEXT))


@contextmanager
def subject_of(name: str) -> Iterator[Subject]:
    """The subject of this name, and its outside world for as long as it is needed."""
    match name:
        case "plain":
            yield PLAIN
        case "webhook":
            with _sandbox() as port:
                yield _webhook(port)
        case slack.NAME:
            answers = SlackAnswers()
            with answers.wired():
                yield _slack(answers)
        case "payment.card":
            yield _card()
        case _:
            raise BadSettings(
                f"flow: bench knows 'plain', 'webhook', '{slack.NAME}' and 'payment.card',"
                f" not {name!r}"
            )


def _card() -> Subject:
    """Sales: three events each, because the call is journalled before it is made."""
    # Here: what is not measured must not count among the memory of what is.
    from benchmarks.card_gateway import TYPE, YesGateway
    from gesta.domain.money import Money
    from gesta.flows import card

    gateway = YesGateway()

    async def set_up(engine: Engine) -> None:
        account = {"type": TYPE, "account": "bench", "api_key": "bench"}
        fields = {**account, "per_second": UNLIMITED_PER_SECOND}
        await engine.admin.put_config("payment.gateway", "default", fields)

    def payload(number: int) -> Payload:
        return card.Sale(Money(f"{number + 1}.00", "EUR"), source="pm_1", description=TEXT)

    return Subject(
        card.flow([gateway], concurrency=CONCURRENCY),
        payload,
        effects=lambda: len(gateway.keys),
        has_outside=True,
        set_up=set_up,
        is_compared=True,
    )


def _webhook(port: int) -> Subject:
    def payload(number: int) -> Payload:
        return webhook.Message("bench.note", {"number": number, "text": TEXT})

    channel = webhook.flow(f"http://127.0.0.1:{port}/webhook", WEBHOOK_SECRET)
    return Subject(
        channel, payload, WEBHOOKS_MAX, ("127.0.0.0/8",), lambda: _effects(port), has_outside=True
    )


@contextmanager
def _sandbox() -> Iterator[int]:
    """The sandbox in a process of its own, so that it does not share the engine's core; its
    port.
    """
    command = [sys.executable, "-m", "gesta.sandbox", "--secret", WEBHOOK_SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 -- our own
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline())["port"]
        finally:
            process.terminate()


def _effects(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/sandbox/webhook/effects")
        return len(msgspec.json.decode(connection.getresponse().read())["effects"])
    finally:
        connection.close()


class SlackAnswers:
    """Slack's yes to everything, given in this process where the flow calls Slack's client: neither
    that client nor HTTP is measured.
    """

    def __init__(self) -> None:
        self.given = 0

    def client(self) -> tuple[AsyncWebClient, type[Exception]]:
        """Slack's client with these answers in the place of its calls, and what the real one
        raises.
        """
        from slack_sdk.errors import SlackApiError
        from slack_sdk.web.async_client import AsyncWebClient

        answers = self
        # The same one each time: what it takes to make an answer is nothing of ours.
        yes = SlackYes({"ok": True, "channel": "C0BENCH", "ts": "1794873600.000001"})

        class Client(AsyncWebClient):
            async def api_call(  # type: ignore[override]
                self, *_: object, **__: object
            ) -> SlackYes:
                answers.given += 1
                return yes

        return Client(retry_handlers=[], proxy="none"), SlackApiError

    @contextmanager
    def wired(self) -> Iterator[None]:
        """Attempts begun meanwhile get these answers."""
        client = self.client()
        SlackApi.client_of = staticmethod(lambda _: client)
        try:
            yield
        finally:
            SlackApi.client_of = staticmethod(client_of)


class SlackYes(msgspec.Struct):
    """What the flow reads of an answer."""

    data: dict[str, object]


def _slack(answers: SlackAnswers) -> Subject:
    def payload(number: int) -> Payload:
        return slack.Message(channel="ops", template="bench", data={"number": number, "text": TEXT})

    async def set_up(engine: Engine) -> None:
        unlimited = {"per_second": UNLIMITED_PER_SECOND, "channel_per_second": UNLIMITED_PER_SECOND}
        for kind, code, fields in (
            ("slack.workspace", "default", {"token": "xoxb-bench", **unlimited}),
            ("slack.channel", "ops", {"channel_id": "C0BENCH"}),
            ("template", "bench", {"text": "Order {{ number }}: {{ text }}"}),
        ):
            await engine.admin.put_config(kind, code, fields)

    channel = slack.flow(concurrency=CONCURRENCY)
    return Subject(
        channel,
        payload,
        effects=lambda: answers.given,
        has_outside=True,
        set_up=set_up,
        is_compared=True,
    )
