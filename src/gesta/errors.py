"""Every error that gesta raises, in one tree. The text says what happened, where, and what to do.

GestaError
├── BadInput               the caller can put it right; nothing was written
│   ├── InvalidRequest     all field errors at once
│   ├── AmbiguousId        several flows have a request with this id; name the flow
│   ├── UnknownFlow
│   ├── BadFlow            a flow was declared wrongly
│   │   └── MissingExtra   the library that it needs is not installed
│   ├── BadSubscription    a handler was declared wrongly
│   ├── BadSettings        gesta.toml, GESTA_* or an argument
│   ├── BadConfig          a tenant's config entity
│   ├── BadScope           what to pause or resume
│   └── BadTransaction     what a request is to be part of
├── Forbidden              the API key opens nothing
├── Conflict               the key was used with other content
├── NotFound               no such request, entity or dead letter
├── VersionConflict        config is not at the version that the caller has seen
├── Refused                the request's state does not allow it
├── LeaseLost              the work is in other hands, or its end is on record
├── InvalidSignature       a report that is not the provider's
├── OutcomeTimeout         no outcome within the time given
├── Erased                 the person it is about was erased
├── PartlyAccepted         the store failed in the middle of a batch; the answers so far are with it
├── Overloaded             too much is waiting, or the disk is nearly full; nothing was written
├── RendererDown           templates cannot be filled in now, whatever is in them
├── PoisonEvent            a stored event cannot be read; the rest goes on
└── StoreError             the store cannot be used
    ├── Busy               a request kept changing; try again
    ├── WrongMasterKey
    ├── LostMasterKey      the key file is gone
    ├── NotOurs            the file is not a gesta store
    ├── TooNew             written by a newer gesta
    ├── StoreFull          no room left; nothing was written
    ├── Fenced             its content was copied elsewhere, or is being copied here
    └── Unreachable        the server does not answer, or not as gesta does
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gesta.domain.commands import CommandRefused as DomainRefused
from gesta.domain.state import State

if TYPE_CHECKING:
    from gesta.api_types.requests import RequestRepresentation


class GestaError(Exception):
    """Anything gesta raises on purpose."""


class BadInput(GestaError):
    """The input is wrong; nothing was written."""


class InvalidRequest(BadInput):
    """The payload or an option is wrong.

    `fields` has every fault: field path → what is wrong with it.
    """

    def __init__(self, flow: str, fields: Mapping[str, str]) -> None:
        lines = "; ".join(f"{name}: {fault}" for name, fault in fields.items())
        super().__init__(f"{flow}: {lines}")
        self.flow, self.fields = flow, dict(fields)


class AmbiguousId(BadInput):
    """Several flows have a request with this id: some flows accept the caller's own ids."""

    def __init__(self, request_id: str, flows: Sequence[str]) -> None:
        names = sorted(flows)
        super().__init__(
            f"several flows have a request {request_id!r}: {', '.join(names)}; name the flow"
        )
        self.request_id, self.flows = request_id, names


class UnknownFlow(BadInput):
    """`remedy` says what would add it; flows.channels.unknown_flow knows that."""

    def __init__(self, what: str, *, name: str, known: Iterable[str], remedy: str = "") -> None:
        has = ", ".join(sorted(known)) or "none"
        super().__init__(f"no flow {what} is registered with this engine; it has: {has}{remedy}")
        self.name = name


class BadFlow(BadInput):
    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"flow {name!r}: {fault}")


class MissingExtra(BadFlow):
    """A channel is declared whose client library is not installed. `extra` names what installs
    it.
    """

    def __init__(self, name: str, library: str, extra: str) -> None:
        super().__init__(
            name,
            f"needs {library}, which is not installed; install it with: pip install"
            f" 'gesta[{extra}]'",
        )
        self.name, self.extra = name, extra


class BadSubscription(BadInput):
    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"subscription {name!r}: {fault}")


class BadSettings(BadInput):
    """A setting is wrong; the text names it and where it comes from."""


class BadConfig(BadInput):
    def __init__(self, kind: str, code: str, fields: Mapping[str, str]) -> None:
        lines = "; ".join(f"{name}: {fault}" for name, fault in fields.items())
        super().__init__(f"config {kind}/{code}: {lines}")
        self.fields = dict(fields)


class BadScope(BadInput):
    """What is to be paused or resumed is not said well.

    `fields` has every fault: part → what is wrong with it.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {fault}" for name, fault in fields.items()))
        self.fields = dict(fields)


class BadCursor(BadInput):
    """A place in a list that was not given out for it."""

    def __init__(self) -> None:
        super().__init__("the cursor is none that was given out here; begin the list anew")


class BadTransaction(BadInput):
    """The request cannot be part of what `within` was given; the text says why, and what is
    taken.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(f"within: {fault}")


class Forbidden(GestaError):
    """One text for every key that is none: whoever tries them learns nothing by it."""

    def __init__(self) -> None:
        super().__init__(
            "the API key is unknown, wrong, revoked or expired; make one with: gesta key create"
        )


class Conflict(GestaError):
    """The key belongs to an earlier request with other content.

    `shown` is the key as it may stand in a text: without credentials.
    """

    def __init__(self, key: str, request_id: str, *, shown: str) -> None:
        super().__init__(
            f"key {shown!r} was used before for request {request_id} with other"
            " content; use a new key, or send the same content"
        )
        self.key, self.request_id = key, request_id


class NotFound(GestaError):
    def __init__(self, what: str, name: str, more: str = "") -> None:
        super().__init__(f"no {what} {name!r} for this tenant{more}")


class VersionConflict(GestaError):
    """Config is not at the version that the caller has seen; nothing was written.

    `version` is the one it is at, 0: it is not there.
    """

    def __init__(self, kind: str, code: str, *, expected: int, version: int) -> None:
        stands = f"is at version {version}" if version else "is not there"
        wanted = f"not at {expected}" if expected else "and was to be new"
        super().__init__(
            f"config {kind}/{code} {stands}, {wanted}; read it again, and decide again"
        )
        self.version = version


class Refused(GestaError):
    """The request's state does not allow it. `code` is stable."""

    def __init__(self, request_id: str, cause: DomainRefused) -> None:
        super().__init__(f"request {request_id}: {cause}")
        self.request_id, self.code = request_id, cause.code


class LeaseLost(GestaError):
    """Work that was handed out is no longer the holder's: its lease ended, or the request has come
    to an end.

    `state` is what counts now.
    """

    def __init__(self, state: State) -> None:
        super().__init__(
            f"request {state.id}: this lease is over, and the request is {state.status} by"
            f" now{f' ({state.reason})' if state.reason else ''}; drop the work. If it was done all"
            " the same, report it as sent"
        )
        self.request_id, self.state = state.id, state


class InvalidSignature(GestaError):
    """What was posted as a provider's report is not.

    One text for all of it: whoever forges learns nothing.
    """

    def __init__(self) -> None:
        super().__init__("this is no report that was signed for this place")


class OutcomeTimeout(GestaError, TimeoutError):
    """No outcome yet; the request goes on. The text names the cause.

    `held`: what holds the request, where something does.
    """

    def __init__(
        self,
        request_id: str,
        state: State | RequestRepresentation,
        timeout_seconds: float,
        *,
        held: str = "",
    ) -> None:
        if held:
            cause = f"it is held: {held}"
        elif state.reason:
            detail = f" ({state.detail})" if state.detail else ""
            cause = f"its last attempt ended with {state.reason}{detail}"
        else:
            cause = f"it is {state.status} and no attempt of it has ended"
        super().__init__(
            f"request {request_id} has no outcome after {timeout_seconds:g} s: {cause}. It goes on;"
            f" `gesta doctor {request_id}` says what it waits for"
        )
        self.request_id, self.status, self.reason = request_id, state.status, state.reason


class Erased(GestaError):
    """The payload cannot be read any more: the key of a person it is about was destroyed."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request {request_id}: a person its payload is about was erased; what became of the"
            " request stays on record"
        )
        self.request_id = request_id


class PartlyAccepted(GestaError):
    """A batch was being accepted in parts when the store failed.

    `answers` are those of its first requests; the others were not written.
    """

    def __init__(self, answers: Sequence[object], total: int, cause: StoreError) -> None:
        super().__init__(
            f"{len(answers)} of {total} requests were accepted, then: {cause}; submit the other"
            f" {total - len(answers)} again"
        )
        self.answers = list(answers)


class Overloaded(GestaError):
    """Refused before anything was written, so that nothing that was accepted is ever lost.

    The same call may be made again.
    """

    def __init__(self, what: str, advice: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"{what}; nothing was written. {advice}. Try again in {retry_after_seconds:g} s"
        )
        self.retry_after_seconds = retry_after_seconds


class RendererDown(GestaError):
    """The process that fills templates in cannot be had, or does not get to it.

    The template is not to blame.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(f"no template can be filled in: {fault}")


class PoisonEvent(GestaError):
    """A stored event cannot be read. No StoreError: asking again would not help."""

    def __init__(self, stream: str, version: int, fault: str) -> None:
        super().__init__(
            f"{stream} version {version} cannot be read ({fault}); it was written by other code, or"
            " changed in the store; see `gesta list --quarantined`"
        )
        self.stream, self.version = stream, version


class StoreError(GestaError):
    """The store cannot be used."""


class Busy(StoreError):
    def __init__(self, request_id: str, tries: int) -> None:
        super().__init__(
            f"request {request_id} changed {tries} times while it was being recorded; try again"
        )


class WrongMasterKey(StoreError):
    def __init__(self, where: str) -> None:
        super().__init__(
            f"the master key from {where} does not open this store's vault; give the key it was"
            " made with (GESTA_MASTER_KEY, or the .key file beside the store)"
        )


class LostMasterKey(StoreError):
    def __init__(self, store: str, path: str) -> None:
        super().__init__(
            f"{store} has sealed secrets, and its key file {path} is gone; put the file back, or"
            " set GESTA_MASTER_KEY to what was in it"
        )


class NotOurs(StoreError):
    def __init__(self, path: str, fault: str) -> None:
        super().__init__(
            f"{path} is not a gesta store ({fault}); nothing was changed. Name another file"
        )


class DamagedStore(StoreError):
    def __init__(self, path: str, damage: str) -> None:
        super().__init__(
            f"{path} is a damaged gesta store ({damage}). Stop all processes that use it, keep a"
            " copy of the file, and restore the store from a backup"
        )


class EmptiedStore(StoreError):
    def __init__(self, path: str, evidence: str) -> None:
        super().__init__(
            f"{path} is empty, but {evidence} shows that it was a gesta store; nothing was changed."
            " Restore the store from a backup. To begin a new store, delete the empty file first"
        )


class UnreadableMasterKey(StoreError):
    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"the key file {path} cannot be read ({cause}); let the user of this process read it,"
            " or set GESTA_MASTER_KEY to its content"
        )


class TooNew(StoreError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has schema {found}, this gesta knows {known}; nothing was changed. Upgrade"
            " gesta: pip install -U gesta"
        )


class StoreFull(StoreError):
    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"{path}: no room left ({cause}); nothing was written. Free space and submit again"
        )


class Fenced(StoreError):
    """`tenant`: whose part of the store it is about; None for all of it."""

    def __init__(self, store: str, kind: str, *, other: str, tenant: str | None = None) -> None:
        whose = store if tenant is None else f"tenant {tenant} of {store}"
        if kind == "filling":
            told = (
                f"{store} is being filled from {other}; nothing was written. Repeat that `gesta"
                " copy` until it is done"
            )
        else:
            told = (
                f"{whose} was copied to {other}; nothing was written. Point GESTA_URL there; `gesta"
                " copy --unfence` takes it back"
            )
        super().__init__(told)
        self.kind, self.other, self.tenant = kind, other, tenant


class Unreachable(StoreError):
    """A server of gesta does not answer, or not as one does.

    `code` is what it said, if it said anything.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code
