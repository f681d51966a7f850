"""A double of the transport: requests go to the sandbox in the same process, without a socket, on
the runtime's clock.
"""

from __future__ import annotations

from gesta.outbound.http import Headers, HttpRequest, HttpResponse, TransportFault
from gesta.runtime.clock import Runtime, sleep
from gesta.sandbox import Sandbox


class SandboxTransport:
    """Plays the double's reply as a network would: late, lost or whole."""

    def __init__(self, runtime: Runtime, sandbox: Sandbox | None = None) -> None:
        self._runtime = runtime
        self.sandbox = sandbox or Sandbox()

    async def send(self, request: HttpRequest) -> HttpResponse:
        receiver = next(receiver for receiver in self.sandbox if receiver.serves(request))
        reply = receiver.receive(request, self._runtime.now_ms())
        if reply.slow_seconds >= request.timeout_seconds:
            await sleep(self._runtime, request.timeout_seconds)
            raise TransportFault("timeout", sent=True)
        if reply.slow_seconds:
            await sleep(self._runtime, reply.slow_seconds)
        if reply.drop:
            raise TransportFault("reset", sent=True)
        return HttpResponse(reply.status, Headers(reply.headers.items()), reply.body)

    async def close(self) -> None:
        """Nothing is open."""
