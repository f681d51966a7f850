"""What a bench run asks for, again and again: the flow, its payloads, and how many effects the outside world has seen."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from gesta.attempt import Attempt
from gesta.domain.outcome import Done, Outcome
from gesta.errors import BadSettings
from gesta.flows import webhook
from gesta.flows.flow import Flow, Payload, flow

#: Makes a payload of about 330 bytes, the size in raw_sqlite.py.
TEXT = "x" * 300
#: A webhook is a round trip to another process; the rate is known long before 20,000 of them are through.
WEBHOOKS_MAX = 2_000
#: Known to everybody: it protects nothing but the sandbox of one run.
WEBHOOK_SECRET = "whsec_Z2VzdGEgYmVuY2gsIG5vdCBhIHNlY3JldCBhdCBhbGw="  # noqa: S105 -- see above


class Note(Payload, frozen=True):
    number: int
    text: str


# The default of 100 attempts at a time is for calls that take long and cost the other side something. This one is over at once, and
# its slot is free only when its outcome is on disk; with fewer slots than submitters the bench would measure the limit instead.
@flow("bench.plain", on_unknown="same_key", concurrency=4_000)
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


@contextmanager
def subject_of(name: str) -> Iterator[Subject]:
    """The subject of this name, and its outside world for as long as it is needed."""
    match name:
        case "plain":
            yield Subject(plain, lambda number: Note(number, TEXT))
        case "webhook":
            with _sandbox() as port:
                yield _webhook(port)
        case _:
            raise BadSettings(f"flow: bench knows 'plain' and 'webhook', not {name!r}")


def _webhook(port: int) -> Subject:
    def payload(number: int) -> Payload:
        return webhook.Message("bench.note", {"number": number, "text": TEXT})

    channel = webhook.flow(f"http://127.0.0.1:{port}/webhook", WEBHOOK_SECRET)
    return Subject(channel, payload, WEBHOOKS_MAX, ("127.0.0.0/8",), lambda: _effects(port), has_outside=True)


@contextmanager
def _sandbox() -> Iterator[int]:
    """The sandbox in a process of its own, so that it does not share the engine's core; its port."""
    command = [sys.executable, "-m", "gesta.sandbox", "--secret", WEBHOOK_SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 -- our own module
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
