"""Texts for people: events, times and durations in words, and commands that can be pasted."""

import re
import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec

from gesta.api_types.requests import EventRepresentation, HeldBy, RequestRepresentation
from gesta.domain import events as e
from gesta.domain.codec import event_types
from gesta.domain.events import Event
from gesta.domain.hold_words import hold_words
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.domain.transaction import events as money
from gesta.flows.channels import how_to_add
from gesta.ports.leases import LiveProcess

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def span(duration_ms: int) -> str:
    """A duration in its largest unit: `42 s`, `3 min`, `1.5 h`."""
    for size, unit in _UNITS:
        if duration_ms >= size:
            shown = duration_ms / size
            return (
                f"{shown:.1f}".removesuffix(".0") + f" {unit}"
                if shown < 10
                else f"{shown:.0f} {unit}"
            )
    return f"{max(duration_ms, 0)} ms"


def count_of(count: int, what: str) -> str:
    """`1 event`, `2 events`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def verb(count: int, of_one: str, of_many: str) -> str:
    """The verb for a number: `waits`, `wait`."""
    return of_one if count == 1 else of_many


def size(count: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def owner_name(owner: str) -> str:
    """`host:7:0197…` → `process 7 on host`."""
    host, _, rest = owner.partition(":")
    number, _, _ = rest.partition(":")
    return f"process {number} on {host}" if number.isdigit() else owner


def process_name(process: LiveProcess) -> str:
    return f"process {process.pid} on {process.host}"


def ago(at_ms: int, now_ms: int) -> str:
    return f"{span(now_ms - at_ms)} ago"


def moment(at_ms: int) -> str:
    """Date and time in UTC."""
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(sep=" ", timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def moment_and_distance(at_ms: int | None, now_ms: int) -> str:
    """A time and how far away it is."""
    if at_ms is None:
        return ""
    distance = f"in {span(at_ms - now_ms)}" if at_ms > now_ms else ago(at_ms, now_ms)
    return f"{moment(at_ms)} ({distance})"


def note(state: State, now_ms: int, held_by: HeldBy | None = None) -> str:
    """A request in a few words: why it waits or failed, and when it continues."""
    again = state.due_at is not None and state.due_at > now_ms
    return joined(
        state.test and "test",
        held_by is not None and held_by.sentence,
        state.reason,
        state.attempts > 1 and count_of(state.attempts, "attempt"),
        again and f"next in {span((state.due_at or 0) - now_ms)}",
        state.cancel_requested and not state.is_terminal and "cancel requested",
    )


def event_name(type_name: str, flow: str) -> str:
    """`notification.webhook.AttemptFailed.v1` → `AttemptFailed`."""
    return type_name.removeprefix(f"{flow}.").rpartition(".v")[0]


def describe(event: e.Event | None, at_ms: int, currency: str | None = None) -> str:
    """An event in one line; times are relative to the event.

    `currency`: of the transaction. Without it amounts of money are left out, because events count
    minor units.
    """
    match event:
        case None:
            return "written by a newer gesta"
        case e.Created():
            return joined(
                event.key and f"key {event.key}",
                event.deliver_at and f"not before {moment(event.deliver_at)}",
                event.expires_at and f"expires in {span(event.expires_at - at_ms)}",
                event.priority != 5 and f"priority {event.priority}",
                event.test and "test",
            )
        case e.Updated():
            return joined(
                event.change.replace("_", " "),
                event.held_by and _held(event.held_by),
                event.intent and f"intent {event.intent}",
            )
        case e.AttemptFailed():
            return joined(
                f"attempt {event.attempt}",
                event.reason,
                event.detail,
                _next("next", event.next_attempt_at, at_ms),
            )
        case e.OutcomeUnknown():
            waiting = (
                _next("resend" if event.policy == "resend" else "reconcile", event.next_at, at_ms)
                or "a person has to resolve it"
            )
            return joined(f"attempt {event.attempt}", event.reason, event.detail, waiting)
        case money.CallStarted():
            return joined(
                f"attempt {event.attempt}",
                f"key {event.key}",
                event.gateway and f"gateway {event.gateway}",
            )
        case e.AttemptStarted():
            return joined(f"attempt {event.attempt}", f"key {event.key}")
        case money.Moved():
            amount = _amount(event.amount, currency)
            return joined(f"attempt {event.attempts}", amount, event.provider_id, event.detail)
        case money.OperationRequested():
            return joined(_amount(event.amount, currency), event.key and f"key {event.key}")
        case e.Succeeded():
            return joined(f"attempt {event.attempts}", event.provider_id, event.detail)
        case e.Failed():
            return joined(event.reason, event.last_error, count_of(event.attempts, "attempt"))
        case e.OutcomeResolved() | money.Resolved():
            return joined(event.result.replace("_", " "), f"by {event.by}", event.evidence)
        case _:
            fields = msgspec.to_builtins(event)
            return joined(*(f"{name} {value}" for name, value in fields.items()))


def _held(by: str) -> str:
    """`by` names a scope, as the list of pauses does."""
    _, refused, credential = by.partition("refused:")
    return f"until {credential} changes" if refused else f"by a pause of {hold_words(by)}"


def _amount(minor: int, currency: str | None) -> str:
    return "" if currency is None or not minor else str(Money.of_minor(minor, currency))


def currency_of(event: e.Event | None) -> str | None:
    """The currency of the transaction that this first event opens; None: it opens none."""
    if not isinstance(event, e.Created):
        return None
    currency = event.facts.get("currency")
    return currency if isinstance(currency, str) else None


def _next(what: str, at_ms: int | None, from_ms: int) -> str:
    if at_ms is None:
        return ""
    return f"{what} in {span(at_ms - from_ms)}" if at_ms > from_ms else f"{what} now"


def joined(*parts: object) -> str:
    """The parts that are not empty, separated by commas."""
    return ", ".join(str(part) for part in parts if part)


def ms_of(text: str) -> int:
    """ISO-8601 as epoch milliseconds."""
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def state_of(shown: RequestRepresentation) -> State:
    """The state of a request, as far as its representation has it."""
    fields = {field.name for field in msgspec.structs.fields(State)}
    known: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(shown).items()
        if name in fields and value is not None
    }
    times = {name: ms_of(value) for name, value in known.items() if name.endswith("_at")}
    phase = lifecycle_of(shown.flow).phase_of(shown.status)
    return State(**{**known, **times, "attempts": shown.attempt_count, "phase": phase})


def event_of(shown: EventRepresentation, flow: str) -> Event | None:
    """The event; None: a newer version of gesta has written it."""
    times = {
        name: ms_of(value)
        for name, value in shown.data.items()
        if name.endswith("At") and isinstance(value, str)
    }
    # The representation has no payload, and some events cannot be decoded without one.
    data = {"payload": {}, **shown.data, **times}
    try:
        return event_types(flow).decode(shown.type, msgspec.json.encode(data))
    except ValueError:
        return None


class Target(msgspec.Struct, frozen=True):
    """The options that a suggested command must repeat to concern the same requests.

    What comes from the settings need not be repeated.
    """

    tenant: str = ""
    app: str = ""
    #: The store or the server.
    store: str = ""

    def command(self, words: str) -> str:
        """A command about requests of this tenant."""
        return f"gesta {words}{self.tenant}{self.app}{self.store}"

    def process(self, words: str) -> str:
        """A command that needs no tenant, for instance one that starts this program."""
        return f"gesta {words}{self.app}{self.store}"

    def resuming(self, text: str) -> str:
        """A text whose command that ends a pause repeats the options."""
        return re.sub("`gesta (resume [^`]*)`", lambda found: f"`{self.process(found[1])}`", text)

    def command_of_another(self, words: str, flow: str) -> str:
        """A command about a request of a flow that this program does not declare."""
        return f"gesta {words}{self.tenant}{_app_of(flow)}{self.store}"

    def process_of_another(self, words: str, flow: str) -> str:
        """A command that starts a process with a flow that this program does not declare."""
        return f"gesta {words}{_app_of(flow)}{self.store}"


HERE = Target()


def _app_of(flow: str) -> str:
    return "" if how_to_add(flow) else " --app MODULE:NAME"


def options(**given: str | None) -> str:
    """Options as text, each after a blank; None is left out."""
    return "".join(
        f" --{name} {shlex.quote(value)}" for name, value in given.items() if value is not None
    )
