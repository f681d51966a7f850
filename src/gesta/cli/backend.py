"""Where a command is carried out: on the store, opened here, or by a server that runs.

Commands see a Desk and never know which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from gesta.api_types.admin import PauseRepresentation, QuarantinedRepresentation
    from gesta.api_types.config import EntityRepresentation, Previewed
    from gesta.api_types.decisions import DeadLetter
    from gesta.api_types.keys import KeyRepresentation, MadeKey
    from gesta.api_types.requests import (
        AttemptRepresentation,
        EventRepresentation,
        RequestRepresentation,
        StreamEvent,
        Submitted,
        Whole,
    )
    from gesta.domain.outcome import Outcome
    from gesta.intake.submit_options import Options

Fields = dict[str, Any]
Resolution = Literal["executed", "not_executed", "rejected"]


@dataclass(frozen=True)
class ConfigKind:
    """A kind of config: its fields, in JSON, which of them are secrets, and which can be texts."""

    names: list[str]
    secrets: frozenset[str]
    texts: frozenset[str]


def kind_of(schema: Mapping[str, Any]) -> ConfigKind:
    """The kind that a JSON schema of its fields tells of."""
    inside = schema.get("$defs", {})
    whole = inside[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    fields: Mapping[str, Any] = whole.get("properties", {})
    secrets = frozenset(name for name, field in fields.items() if field.get("writeOnly"))
    return ConfigKind(
        list(fields),
        secrets,
        frozenset(name for name, field in fields.items() if _takes_text(field)),
    )


def _takes_text(field: Mapping[str, Any]) -> bool:
    if "enum" in field:
        return any(isinstance(one, str) for one in field["enum"])
    return field.get("type") == "string" or any(map(_takes_text, field.get("anyOf", ())))


class Backend(Protocol):
    """What commands do. `by` is who decides."""

    @property
    def tenant(self) -> str: ...
    def now_ms(self) -> int: ...

    async def submit(self, flow: str, fields: object, options: Options) -> Submitted: ...
    async def outcome(self, flow: str, request_id: str, timeout_seconds: float) -> Outcome: ...
    async def find(
        self, flow: str | None, status: str | None, key: str | None, limit: int
    ) -> list[tuple[RequestRepresentation, PauseRepresentation | None]]: ...
    async def whole(self, request_id: str) -> tuple[Whole, PauseRepresentation | None]: ...
    async def events(self, flow: str, request_id: str) -> list[EventRepresentation]: ...
    async def attempts(self, flow: str, request_id: str) -> list[AttemptRepresentation]: ...
    def follow(self) -> AsyncIterator[StreamEvent | None]:
        """New events, without an end; the first None says that nothing is missed from now on."""
        ...

    async def quarantined(self, limit: int) -> list[QuarantinedRepresentation]: ...

    async def cancel(self, request_id: str, by: str) -> str: ...
    async def retry(self, request_id: str, by: str) -> str: ...
    async def redrive(
        self, request_id: str, ttl: timedelta | None, again: bool, by: str
    ) -> str: ...
    async def resolve(
        self, request_id: str, result: Resolution, evidence: str, provider_id: str, by: str
    ) -> str: ...

    async def dead_letters(
        self, flow: str | None, reason: str | None, limit: int
    ) -> list[DeadLetter]: ...
    async def dead_letter(self, request_id: str) -> DeadLetter: ...
    async def purge(self, letter: DeadLetter, by: str) -> None: ...

    async def kinds(self) -> Mapping[str, ConfigKind]: ...
    async def entities(self) -> list[EntityRepresentation]: ...
    async def entity(self, kind: str, code: str) -> EntityRepresentation: ...
    async def put(
        self, kind: str, code: str, fields: Fields, keep: bool, by: str
    ) -> EntityRepresentation: ...
    async def delete(self, kind: str, code: str, by: str) -> None: ...
    async def preview(self, code: str, fields: Fields, locale: str | None) -> Previewed: ...

    async def pauses(self) -> list[PauseRepresentation]: ...
    async def pause(
        self, flow: str | None, tenant: str | None, credential: str | None, reason: str, by: str
    ) -> PauseRepresentation: ...
    async def resume(
        self, flow: str | None, tenant: str | None, credential: str | None, by: str
    ) -> int: ...
    async def pause_everything(self, reason: str, by: str) -> PauseRepresentation: ...
    async def resume_everything(self, by: str) -> int: ...
    async def erase(self, subject: str, by: str) -> int: ...

    async def create_key(
        self, name: str, scopes: Sequence[str], expires_at: datetime | None, test: bool, by: str
    ) -> MadeKey: ...
    async def keys(self) -> list[KeyRepresentation]: ...
    async def revoke_key(self, key_id: str, by: str) -> KeyRepresentation: ...

    async def warn_if_idle(self) -> None:
        """Say so when what is asked for will wait because nobody works on the store."""
        ...

    async def warn_of_lag(self) -> None:
        """Say so when a list does not show everything, and will not soon."""
        ...
