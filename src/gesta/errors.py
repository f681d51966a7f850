"""Every error that gesta raises, in one tree. The text says what happened, where, and what to do.

GestaError
├── BadInput               the caller can correct it; nothing was written
│   ├── InvalidRequest     all field errors at once
│   ├── AmbiguousId        several flows have a request with this id; name the flow
│   ├── UnknownFlow
│   ├── BadFlow            a flow was declared wrongly
│   │   └── MissingExtra   the library that it needs is not installed
│   ├── BadSubscription    a handler was declared wrongly
│   ├── BadSettings        gesta.toml, GESTA_* or an argument
│   ├── BadConfig          a tenant's config entity
│   ├── BadScope           what to pause or resume
│   └── BadTransaction     `within=` is not a usable transaction
├── Forbidden              the API key is not valid
├── Conflict               the key was used with other content
├── NotFound               no such request, entity or dead letter
├── VersionConflict        config is not at the version that the caller has seen
├── Refused                the request's state does not allow it
├── BulkFinished           a finished bulk run cannot be resumed
├── LeaseLost              another worker has the work, or its outcome is recorded
├── InvalidSignature       a report that the provider did not sign
├── OutcomeTimeout         no outcome within the time given
├── Erased                 the person it is about was erased
├── PartlyAccepted         the store failed during a batch; it has the answers so far
├── Overloaded             too many requests wait, or the disk is nearly full; nothing was written
├── ListingFailed          the ledger of a gateway cannot be read now
├── RendererDown           no template can be rendered now
├── PoisonEvent            a stored event cannot be read; it is quarantined
└── StoreError             the store cannot be used
    ├── Busy               a request kept changing; try again
    ├── WrongMasterKey
    ├── LostMasterKey      the key file is gone
    ├── NotOurs            the file is not a gesta store
    ├── TooNew             written by a newer gesta
    ├── QueueRefused       one of several queues cannot be used; the others can
    ├── StoreFull          no room left; nothing was written
    ├── Fenced             its content was copied elsewhere, or is being copied here
    └── Unreachable        the server does not answer, or is not gesta
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gesta.domain.commands import CommandRefused as DomainRefused
from gesta.domain.state import State

if TYPE_CHECKING:
    from gesta.api_types.requests import RequestRepresentation


class GestaError(Exception):
    """The base of all errors that gesta raises deliberately."""


class BadInput(GestaError):
    """The input is wrong; nothing was written."""


class InvalidRequest(BadInput):
    """The payload or an option is wrong.

    `fields` has every error: field path → what is wrong.
    """

    def __init__(self, flow: str, fields: Mapping[str, str]) -> None:
        lines = "; ".join(f"{name}: {error}" for name, error in fields.items())
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
    """`remedy` says how to add the flow (flows.channels.unknown_flow)."""

    def __init__(self, what: str, *, name: str, known: Iterable[str], remedy: str = "") -> None:
        has = ", ".join(sorted(known)) or "none"
        super().__init__(f"no flow {what} is registered with this engine; it has: {has}{remedy}")
        self.name = name


class BadFlow(BadInput):
    def __init__(self, name: str, error: str) -> None:
        super().__init__(f"flow {name!r}: {error}")


class MissingExtra(BadFlow):
    """The client library of a channel is not installed. `extra` installs it."""

    def __init__(self, name: str, library: str, extra: str) -> None:
        super().__init__(
            name,
            f"needs {library}, which is not installed; install it with: pip install"
            f" 'gesta[{extra}]'",
        )
        self.name, self.extra = name, extra


class BadSubscription(BadInput):
    def __init__(self, name: str, error: str) -> None:
        super().__init__(f"subscription {name!r}: {error}")


class BadSchedule(BadInput):
    def __init__(self, name: str, error: str) -> None:
        super().__init__(f"schedule {name!r}: {error}")


class BadSettings(BadInput):
    """A setting is wrong; the text names it and where it comes from."""


class BadConfig(BadInput):
    def __init__(self, kind: str, code: str, fields: Mapping[str, str]) -> None:
        lines = "; ".join(f"{name}: {error}" for name, error in fields.items())
        super().__init__(f"config {kind}/{code}: {lines}")
        self.fields = dict(fields)


class BadScope(BadInput):
    """What to pause or resume is not valid. `fields` has every error: part → what is wrong."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in fields.items()))
        self.fields = dict(fields)


class BadCursor(BadInput):
    """The cursor does not belong to this list."""

    def __init__(self) -> None:
        super().__init__("the cursor does not belong to this list; start the list again")


class BadTransaction(BadInput):
    """`within=` is not a usable transaction; the text says why and what is accepted."""

    def __init__(self, error: str) -> None:
        super().__init__(f"within: {error}")


class Forbidden(GestaError):
    """The same text for every invalid key, so that it reveals nothing about keys."""

    def __init__(self) -> None:
        super().__init__(
            "the API key is unknown, wrong, revoked or expired; create one with: gesta key create"
        )


class Conflict(GestaError):
    """The key belongs to an earlier request with other content.

    `shown` is the key for texts, without credentials.
    """

    def __init__(self, key: str, request_id: str, *, shown: str) -> None:
        super().__init__(
            f"key {shown!r} was used before for request {request_id} with other"
            " content; use a new key, or submit the same content"
        )
        self.key, self.request_id = key, request_id


class NotFound(GestaError):
    def __init__(
        self, what: str, name: str, more: str = "", *, among: str = " for this tenant"
    ) -> None:
        super().__init__(f"no {what} {name!r}{among}{more}")


class VersionConflict(GestaError):
    """Config is not at the version that the caller expects; nothing was written.

    `version` is its version now; 0: it does not exist.
    """

    def __init__(self, kind: str, code: str, *, expected: int, version: int) -> None:
        found = f"is at version {version}" if version else "does not exist"
        wanted = f"expected version {expected}" if expected else "expected it not to exist"
        super().__init__(
            f"config {kind}/{code} {found}; {wanted}. Read it again before you change it"
        )
        self.version = version


class Refused(GestaError):
    """The request's state does not allow it. `code` is stable."""

    def __init__(self, request_id: str, cause: DomainRefused) -> None:
        super().__init__(f"request {request_id}: {cause}")
        self.request_id, self.code = request_id, cause.code


class InDoubt(Refused):
    """The outcome of an earlier operation is unknown: no more money is moved until it is known."""


class BulkFinished(GestaError):
    """The bulk run has finished; nothing was changed."""

    def __init__(self, run_id: int, *, done: int, refused: int, at: str) -> None:
        super().__init__(
            f"bulk run {run_id} finished at {at}: {done} requests changed, {refused} refused;"
            " start a new run instead of resuming this one"
        )
        self.run_id = run_id


class LeaseLost(GestaError):
    """The lease of an external worker has ended, or the request has ended.

    `state` is the request now.
    """

    def __init__(self, state: State) -> None:
        super().__init__(
            f"request {state.id}: this lease has ended, and the request is now {state.status}"
            f"{f' ({state.reason})' if state.reason else ''}; drop the work. If it was already"
            " done, report it as sent"
        )
        self.request_id, self.state = state.id, state


class InvalidSignature(GestaError):
    """A posted report is not from the provider.

    The same text for every cause, so that it helps no forger.
    """

    def __init__(self) -> None:
        super().__init__("the signature is not valid for this address")


class OutcomeTimeout(GestaError, TimeoutError):
    """No outcome yet; the request goes on. The text names the cause.

    `cause`: what the caller knows of it; otherwise the end of the last attempt.
    """

    def __init__(
        self,
        request_id: str,
        state: State | RequestRepresentation,
        timeout_seconds: float,
        *,
        cause: str = "",
    ) -> None:
        if not cause and state.reason:
            detail = f" ({state.detail})" if state.detail else ""
            cause = f"its last attempt ended with {state.reason}{detail}"
        cause = cause or f"it is {state.status} and no attempt of it has ended"
        super().__init__(
            f"request {request_id} has no outcome after {timeout_seconds:g} s: {cause}. gesta"
            f" continues with it; `gesta doctor {request_id}` says what it is waiting for"
        )
        self.request_id, self.status, self.reason = request_id, state.status, state.reason


class Erased(GestaError):
    """The payload cannot be read any more: the key of a person it is about was destroyed."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request {request_id}: a person its payload is about was erased; its status and"
            " events remain"
        )
        self.request_id = request_id


class PartlyAccepted(GestaError):
    """The store failed while a batch was accepted in parts.

    `answers` belong to its first requests; the others were not written.
    """

    def __init__(self, answers: Sequence[object], total: int, cause: StoreError) -> None:
        super().__init__(
            f"{len(answers)} of {total} requests were accepted, then: {cause}; submit the other"
            f" {total - len(answers)} again"
        )
        self.answers = list(answers)


class Overloaded(GestaError):
    """Refused before anything was written. The same call may be repeated later."""

    def __init__(self, what: str, advice: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"{what}; nothing was written. {advice}. Try again in {retry_after_seconds:g} s"
        )
        self.retry_after_seconds = retry_after_seconds


class RendererDown(GestaError):
    """The rendering process cannot be started or is too busy. The template is not the cause."""

    def __init__(self, error: str) -> None:
        super().__init__(f"no template can be rendered: {error}")


class ListingFailed(GestaError):
    """A page of a gateway's ledger could not be read. Ask again later; nothing was changed."""

    def __init__(self, reason: str, detail: str = "", after_seconds: float = 0.0) -> None:
        super().__init__(f"the ledger cannot be read: {reason}" + (detail and f": {detail}"))
        self.reason, self.detail, self.after_seconds = reason, detail, after_seconds


class PoisonEvent(GestaError):
    """A stored event cannot be read. It is not a StoreError: retrying would not help."""

    def __init__(self, stream: str, version: int, error: str) -> None:
        super().__init__(
            f"{stream} version {version} cannot be read ({error}); it was written by other code, or"
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
            f"the master key from {where} does not decrypt this store's vault; use the key that"
            " the store was created with (GESTA_MASTER_KEY, or the .key file beside the store)"
        )


class LostMasterKey(StoreError):
    def __init__(self, store: str, path: str) -> None:
        super().__init__(
            f"{store} has encrypted secrets, but its key file {path} is missing; restore the file,"
            " or set GESTA_MASTER_KEY to its content"
        )


class QueueRefused(StoreError):
    """One of several queues cannot be used; the others can. `job_ids`: what was not put into it."""

    def __init__(self, text: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.job_ids = tuple(job_ids)


class MessagesRefused(StoreError):
    """The queue did not take a part of a batch. `numbers`: their places; it has the others."""

    def __init__(self, text: str, numbers: Sequence[int]) -> None:
        super().__init__(text)
        self.numbers = frozenset(numbers)


class NotOurs(StoreError):
    def __init__(self, path: str, error: str) -> None:
        super().__init__(
            f"{path} is not a gesta store ({error}); nothing was changed. Name another file"
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
            text = (
                f"{store} is being filled from {other}; nothing was written. Repeat that `gesta"
                " copy` until it is done"
            )
        else:
            text = (
                f"{whose} was copied to {other}; nothing was written. Point GESTA_URL there; `gesta"
                " copy --unfence` undoes the copy"
            )
        super().__init__(text)
        self.kind, self.other, self.tenant = kind, other, tenant


class Unreachable(StoreError):
    """A server of gesta does not answer, or not as one does.

    `code` is what it said, if it said anything.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code
