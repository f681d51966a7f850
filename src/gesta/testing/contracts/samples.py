"""Sample data. Every id and name is new, so that tests can share a server."""

from typing import Any

from msgspec.structs import replace

from gesta.domain.ids import job_id
from gesta.domain.lifecycles import Status
from gesta.domain.state import Phase, State
from gesta.domain.stream_names import request_stream
from gesta.ports.event_store import Append, Claim, EventStore, NewEvent, Recorded
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Quarantined, View
from gesta.ports.vault import Encrypted
from gesta.runtime.clock import Ids, SystemRuntime
from gesta.testing.contracts.harness import Harness

#: Real time and randomness: those of a test are the same in each test.
_ids = Ids(SystemRuntime())
#: When the sample requests were created.
MADE_MS = 1_800_000_000_000
OLD_MS = MADE_MS - 86_400_000


def fresh_id() -> str:
    return _ids.new()


def fresh_name(kind: str = "contract") -> str:
    """A name for a flow, tenant, token, role or secret."""
    return f"{kind}.n{_ids.new_bytes().hex()}"


def fresh_stream() -> str:
    """A stream of a request. A store may follow streams with such names only."""
    return request_stream("contract.flow", "acme", _ids.new())


def fresh_events(count: int = 1) -> tuple[NewEvent, ...]:
    return tuple(
        NewEvent(_ids.new_bytes(), f"contract.Happened{n}.v1", b'{"n":%d}' % n, b'{"tenant":"t"}')
        for n in range(count)
    )


def fresh_append(
    stream: str | None = None,
    expected: int = 0,
    count: int = 1,
    claim: Claim | None = None,
    first: Claim | None = None,
) -> Append:
    return Append(stream or fresh_stream(), expected, fresh_events(count), claim, first)


async def appended(
    harness: Harness, stream: str | None = None, expected: int = 0, count: int = 1
) -> Append:
    """New events, appended."""
    append = fresh_append(stream, expected, count)
    await harness.events.append([append])
    return append


def sized_append(*sizes: int, stream: str | None = None) -> Append:
    """A new stream of events whose data has so many bytes each."""
    events = tuple(
        NewEvent(_ids.new_bytes(), "contract.Happened0.v1", b"x" * size, b'{"tenant":"t"}')
        for size in sizes
    )
    return Append(stream or fresh_stream(), 0, events)


def fresh_claim(name: bytes | None = None, content: bytes = b"content") -> Claim:
    return Claim(name or _ids.new_bytes(), fresh_id(), content)


def fresh_job(flow: str, tenant: str = "acme", **fields: Any) -> Job:
    request_id = fresh_id()
    return Job(job_id(request_id, 1), tenant, flow, request_id, 1, **fields)


def phase_of(status: str) -> Phase:
    return "open" if status == "queued" else "unknown" if status == "unknown" else "ended"


def fresh_view(**fields: Any) -> View:
    """A request that is queued and due, unless the fields say otherwise."""
    defaults: dict[str, Any] = {
        "id": fresh_id(),
        "tenant": "acme",
        "flow": "contract.flow",
        "status": "queued",
        "version": 1,
        "created_at": MADE_MS,
        "updated_at": MADE_MS,
        "dispatch_version": 1,
    }
    defaults["phase"] = phase_of(fields.get("status", "queued"))
    return View(State(**(defaults | fields)), b'{"text":"hello"}')


def fresh_quarantined(tenant: str, at_ms: int = 1) -> Quarantined:
    return Quarantined(
        what="event",
        tenant=tenant,
        stream=fresh_stream(),
        version=3,
        error="cannot be decoded",
        at_ms=at_ms,
    )


def fresh_encrypted(**fields: Any) -> Encrypted:
    defaults: dict[str, Any] = {
        "tenant": "acme",
        "name": fresh_name(),
        "version": 1,
        "box": b"\x00sealed\xff",
    }
    return Encrypted(**(defaults | fields))


def key_of(view: View) -> tuple[str, str, str]:
    return view.state.flow, view.state.tenant, view.state.id


async def follow_from(events: EventStore, after: int, page: int = 100) -> list[Recorded]:
    """Everything after a position, page by page, until the end."""
    found: list[Recorded] = []
    while events_of_page := await events.follow(after, page):
        # Otherwise this would never end.
        assert events_of_page[-1].position > after
        found += events_of_page
        after = found[-1].position
    return found


async def end_of_log(events: EventStore) -> int:
    found = await follow_from(events, 0, page=10_000)
    return found[-1].position if found else 0


def moved_on(view: View, status: Status) -> View:
    """The same request, one event later."""
    state = view.state
    phase = phase_of(status)
    return View(replace(state, status=status, phase=phase, version=state.version + 1), view.payload)
