"""What the job of another program asks for.

A complete job brings a whole request; its channel says how it is read (`Flow.adopts`). A pointer
names a request that exists. An enriched job is a pointer with configuration and secrets beside it,
as older producers wrote them: only its ids are read, until the date that the settings name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from gesta.domain.events import Event, Meta
from gesta.domain.ids import TENANT
from gesta.domain.state import State
from gesta.errors import BadInput, InvalidRequest
from gesta.flows.flow import Flow, Payload
from gesta.intake.submit_options import Options
from gesta.ports.foreign_jobs import ForeignJob
from gesta.ports.read_model import Key
from gesta.runtime.redaction import scrub, scrubbed_name
from gesta.stores.pointers import Pointer, id_fields, pointer_of, pointer_to

History = Sequence[tuple[str, Event | None, Meta]]


@dataclass(frozen=True)
class JobContract:
    """The complete jobs of a channel: how one is read, and how its producer is answered."""

    #: Every complete job has this field, and no pointer has it.
    id_field: str
    #: (data, the job, the time now) → payload and options. Raises InvalidRequest with every error.
    read: Callable[[Mapping[str, Any], ForeignJob, int], tuple[Payload, Options]]
    #: The message for the producer about these errors.
    message: Callable[[Mapping[str, str]], str]
    #: The result of a request that was sent, and of one that was sent before the job was put.
    result: Callable[[State, History], Any]
    repeated: Callable[[State], Any]
    #: Why a request that ended otherwise was not sent.
    failure: Callable[[State], str]


class Complete(msgspec.Struct, frozen=True):
    payload: Payload
    options: Options


class Reference(msgspec.Struct, frozen=True):
    tenant: str
    request_id: str
    #: Of an enriched job, what to leave of its data: the ids.
    data: str | None = None


class Refusal(msgspec.Struct, frozen=True):
    """`message` is for the producer and the dead letter: it names fields and rules, no value."""

    tenant: str
    message: str
    correlation_id: str | None = None
    reason: Literal["conflict", "invalid_request"] = "invalid_request"
    #: As of a reference; None: the data stays.
    data: str | None = None


Meaning = Complete | Reference | Refusal


@dataclass(frozen=True)
class JobReading:
    flows: Mapping[str, Flow]
    #: Who gets the dead letters of jobs that name no tenant.
    tenant: str
    #: The last day on which enriched jobs are read; None: they are refused.
    enriched_until: date | None

    def read(self, job: ForeignJob, now_ms: int) -> Meaning:
        if job.data is None:
            return Refusal(self.tenant, f"data: {job.size} bytes are too large for a job")
        try:
            data = msgspec.json.decode(job.data)
        except (msgspec.DecodeError, UnicodeError):
            return Refusal(self.tenant, "data: is not valid JSON")
        except RecursionError:
            return Refusal(self.tenant, "data: is nested too deeply")
        if not isinstance(data, dict):
            return Refusal(self.tenant, "data: must be a JSON object")
        contract = self.flows[job.flow].adopts
        if contract is not None and (contract.id_field in data or "tenant" not in data):
            return self._complete(contract, data, job, now_ms)
        return self._reference(data, job, now_ms)

    def _complete(
        self, contract: JobContract, data: dict[str, Any], job: ForeignJob, now_ms: int
    ) -> Meaning:
        try:
            return Complete(*contract.read(data, job, now_ms))
        except InvalidRequest as error:
            return self.invalid(job, data, error.fields)

    def invalid(
        self, job: ForeignJob, data: Mapping[str, Any], errors: Mapping[str, str]
    ) -> Refusal:
        contract = self.flows[job.flow].adopts
        message = "; ".join(f"{name}: {error}" for name, error in errors.items())
        if contract is not None:
            message = contract.message(errors)
        return Refusal(
            self._tenant_of(data.get("companyId", data.get("tenant"))),
            scrub(message),
            _correlation(data.get("requestId")),
        )

    def _reference(self, data: dict[str, Any], job: ForeignJob, now_ms: int) -> Meaning:
        assert job.data is not None
        tenant = self._tenant_of(data.get("tenant"))
        try:
            return _named(pointer_of(job.flow, job.data))
        except BadInput as error:
            refused = str(error)
        # Only the ids are looked at.
        ids = {name: data[name] for name in id_fields(job.flow) if name in data}
        try:
            pointer = pointer_of(job.flow, msgspec.json.encode(ids))
        except BadInput:
            return Refusal(tenant, scrub(refused))
        kept = pointer_to(job.flow, pointer.tenant, pointer.request_id).decode()
        today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
        if self.enriched_until is not None and today <= self.enriched_until:
            return msgspec.structs.replace(_named(pointer), data=kept)
        when = "" if self.enriched_until is None else f" since {self.enriched_until.isoformat()}"
        return Refusal(
            tenant,
            f"job data of {job.flow}: contains more than a pointer, which is refused{when}; put"
            f" only {', '.join(id_fields(job.flow))}",
            data=kept,
        )

    def _tenant_of(self, given: object) -> str:
        tenant = given.strip().lower() if isinstance(given, str) else ""
        return tenant if TENANT.fullmatch(tenant) else self.tenant


def key_of(flow: str, meaning: Complete | Reference) -> Key:
    """The request of a job. A complete job brings the id of its request as its key."""
    if isinstance(meaning, Reference):
        return flow, meaning.tenant, meaning.request_id
    assert meaning.options.key is not None
    return flow, meaning.options.tenant, meaning.options.key


def dead_letter_id(job: ForeignJob) -> str:
    """The same for a job that is taken again, another for one that was put again or changed."""
    whole = f"{job.flow}\0{job.id}\0{job.timestamp_ms}\0{job.size}\0{job.data}"
    digest = hashlib.sha256(whole.encode(errors="surrogateescape")).digest()
    return str(UUID(bytes=digest[:16], version=5))


def shown_id(job: ForeignJob) -> str:
    """The producer's id of a job, for dead letters and logs."""
    return scrubbed_name(job.id[:100])


def _named(pointer: Pointer) -> Reference:
    return Reference(pointer.tenant, pointer.request_id)


def _correlation(given: object) -> str | None:
    if isinstance(given, str) and 0 < len(given) <= 128 and given.isprintable():
        return given
    return None
