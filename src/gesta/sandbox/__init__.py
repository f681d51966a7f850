"""The sandbox: fakes of providers that fail on demand and record each effect, so that tests can
count effects.

`receiver.py` is the base of all fakes; each other module is one provider. `SandboxTransport` serves
them to `attempt.http` in the same process and on its clock, `server.py` on a port of this machine
(`python -m gesta.sandbox`).
"""

from collections.abc import Iterator

from gesta.outbound.http import Headers, HttpRequest, HttpResponse, TransportError
from gesta.runtime.clock import Runtime, sleep
from gesta.sandbox.backlog import FakeBacklog
from gesta.sandbox.http import FakeHttpApi
from gesta.sandbox.receiver import Effect, Fault, Receiver, Reply
from gesta.sandbox.ses import FakeSes
from gesta.sandbox.slack import FakeSlack
from gesta.sandbox.smtp import FakeMailServer
from gesta.sandbox.stripe import FakeStripe
from gesta.sandbox.twilio import FakeTwilio
from gesta.sandbox.webhook import FakeWebhookReceiver

__all__ = [
    "Effect",
    "Fault",
    "FakeBacklog",
    "FakeHttpApi",
    "Receiver",
    "Reply",
    "Sandbox",
    "SandboxTransport",
    "FakeSes",
    "FakeSlack",
    "FakeMailServer",
    "FakeStripe",
    "FakeTwilio",
    "FakeWebhookReceiver",
]


class Sandbox:
    """All fakes. A request goes to the first that recognises its form; `http` takes the rest."""

    def __init__(
        self,
        webhook: FakeWebhookReceiver | None = None,
        http: FakeHttpApi | None = None,
        *,
        kept: int | None = None,
    ) -> None:
        """`kept`: how many effects each fake keeps; None keeps all."""
        self.webhook = webhook or FakeWebhookReceiver()
        self.slack = FakeSlack()
        self.twilio = FakeTwilio()
        self.backlog = FakeBacklog()
        self.ses = FakeSes()
        self.smtp = FakeMailServer()
        self.stripe = FakeStripe()
        self.http = http or FakeHttpApi()
        for receiver in self:
            receiver.kept = kept

    def __iter__(self) -> Iterator[Receiver]:
        yield from (self.webhook, self.slack, self.twilio, self.backlog, self.ses, self.smtp)
        yield from (self.stripe, self.http)


class SandboxTransport:
    """Delivers a fake's reply as a network would: late, lost or whole."""

    def __init__(self, runtime: Runtime, sandbox: Sandbox | None = None) -> None:
        self._runtime = runtime
        self.sandbox = sandbox or Sandbox()

    async def send(self, request: HttpRequest) -> HttpResponse:
        receiver = next(receiver for receiver in self.sandbox if receiver.serves(request))
        reply = receiver.receive(request, self._runtime.now_ms())
        if reply.slow_seconds >= request.timeout_seconds:
            await sleep(self._runtime, request.timeout_seconds)
            raise TransportError("timeout", sent=True)
        if reply.slow_seconds:
            await sleep(self._runtime, reply.slow_seconds)
        if reply.drop:
            raise TransportError("reset", sent=True)
        return HttpResponse(reply.status, Headers(reply.headers.items()), reply.body)

    async def close(self) -> None:
        """Nothing is open."""
