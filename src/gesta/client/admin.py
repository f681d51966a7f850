"""Operator calls: config, templates, dead letters, unknown outcomes, bulk decisions, pauses,
erasure, keys, suppression lists, subscriptions.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from gesta.api_types.admin import (
    Count,
    ErasedRepresentation,
    FlowRepresentation,
    PauseRepresentation,
    QuarantinedRepresentation,
    Resumed,
)
from gesta.api_types.bulk import Bulk, BulkAction, BulkLine, BulkProgress
from gesta.api_types.config import ConfigKindRepresentation, EntityRepresentation, Previewed
from gesta.api_types.decisions import DeadLetter, UnknownOutcome
from gesta.api_types.keys import ChangeRepresentation, KeyRepresentation, MadeKey, Myself
from gesta.api_types.requests import ACTOR, Submitted
from gesta.api_types.structs import ListOf
from gesta.api_types.subscriptions import (
    HandlerSubscription,
    SuppressedRepresentation,
    WebhookSubscription,
)
from gesta.client.connection import Again, Ask, Calls, Json, path_of
from gesta.client.problems import error_of
from gesta.errors import Unreachable


class AdminCalls(Calls):
    def config(self, *, kind: str | None = None) -> AsyncIterator[EntityRepresentation]:
        return self.pages(
            "config",
            answer=ListOf[EntityRepresentation],
            query={"kind": kind},
            limit=None,
        )

    async def config_kinds(self) -> list[ConfigKindRepresentation]:
        """The kinds of config that can be stored, with the schema of their fields."""
        return (await self.read("config-kinds", answer=ListOf[ConfigKindRepresentation])).items

    async def get_config(self, kind: str, code: str) -> EntityRepresentation:
        return await self.read("config", kind, code, answer=EntityRepresentation)

    async def put_config(
        self,
        kind: str,
        code: str,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        keep: bool = False,
        by: str | None = None,
    ) -> EntityRepresentation:
        """Store an entity. Secrets that are left out stay; with `keep` all other fields stay, too.

        `version` is the version that was read, 0 for a new entity. Raises VersionConflict where the
        entity has another version.
        """
        headers = (
            {}
            if version is None
            else {"If-Match": f'"{version}"'}
            if version
            else {"If-None-Match": "*"}
        )
        # Not repeated with a version: a second call would conflict with the first.
        repeat = version is None
        body, query = {"fields": dict(fields)}, {"keep": keep or None}
        return await self.change(
            "PUT",
            "config",
            kind,
            code,
            answer=EntityRepresentation,
            query=query,
            body=body,
            headers=headers,
            by=by,
            repeat=repeat,
        )

    async def delete_config(
        self, kind: str, code: str, *, version: int | None = None, by: str | None = None
    ) -> None:
        """Remove an entity.

        Not repeated when the answer is lost: a second call would raise NotFound.
        """
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        await self.change(
            "DELETE", "config", kind, code, answer=type(None), headers=headers, by=by, repeat=False
        )

    async def try_endpoint(self, code: str, *, key: str | None = None) -> Submitted:
        """Send a signed test message to a webhook endpoint."""
        headers = {"Idempotency-Key": key or self._new_key()}
        return await self.post(
            "endpoints", code, "test", answer=Submitted, headers=headers, repeat=True
        )

    async def preview_template(
        self, code: str, variables: Mapping[str, Any] | None = None, *, locale: str | None = None
    ) -> Previewed:
        """Render a template with these variables. Nothing is sent or stored."""
        body = {"variables": dict(variables or {}), "locale": locale}
        return await self.post(
            "templates", code, "preview", answer=Previewed, body=body, repeat=True
        )

    async def try_template(
        self,
        code: str,
        flow: str,
        destination: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
        *,
        locale: str | None = None,
        key: str | None = None,
    ) -> Submitted:
        """Send a template as a normal request."""
        body: Json = {
            "flow": flow,
            "destination": dict(destination),
            "variables": dict(variables or {}),
            "locale": locale,
        }
        headers = {"Idempotency-Key": key or self._new_key()}
        return await self.post(
            "templates", code, "test", answer=Submitted, body=body, headers=headers, repeat=True
        )

    def dead_letters(
        self, *, flow: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Requests that failed finally, newest first."""
        query = {"flow": flow, "reason": reason}
        return self.pages("dead-letters", answer=ListOf[DeadLetter], query=query, limit=limit)

    async def dead_letter(self, request_id: str, *, flow: str | None = None) -> DeadLetter:
        query = {"flow": flow}
        return await self.read("dead-letters", request_id, answer=DeadLetter, query=query)

    def bulk(self, asked: Bulk, *, by: str | None = None) -> AsyncGenerator[BulkProgress]:
        """Decide about every request that fits a filter; reports the progress as it goes.

        For instance `bulk(Bulk(action="redrive", reason="no_paper", dead_letters=True))`, first
        with `dry_run=True`. Iterate over the reports: the run starts with the first one, and stops
        when the iterator is closed or the connection breaks; `resume_bulk` continues it.
        """
        fields: Json = msgspec.to_builtins(asked)
        body = {name: value for name, value in fields.items() if value is not None}
        return self._reports("bulk", body=body, by=by)

    def resume_bulk(
        self,
        run_id: int,
        action: BulkAction,
        *,
        dead_letters: bool = False,
        rate: float | None = None,
        by: str | None = None,
    ) -> AsyncGenerator[BulkProgress]:
        """Continue a run that was stopped; `run_id` is `BulkProgress.id`.

        Raises InvalidRequest unless the run was started with this action and, with `dead_letters`,
        over dead letters only; NotFound; BulkFinished.
        """
        body = {"action": action, "deadLetters": dead_letters or None, "rate": rate}
        return self._reports("bulk", str(run_id), "resume", body=body, by=by)

    async def _reports(
        self, *parts: str, body: Json, by: str | None
    ) -> AsyncGenerator[BulkProgress]:
        headers = {} if by is None else {ACTOR: by}
        ask = Ask("POST", path_of(*parts), is_repeatable=False, body=body, headers=headers)
        rest, last = b"", None
        try:
            async with aclosing(self.line.stream(ask)) as chunks:
                async for chunk in chunks:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        report = msgspec.json.decode(line, type=BulkLine)
                        if report.problem is not None:
                            raise error_of(report.problem, None)
                        if report.progress is not None:
                            last = report.progress
                            yield last
        except Again as again:
            raise again.error from None
        if last is None or not last.finished:
            resume = (
                "" if last is None else f'; resume_bulk({last.id}, "{last.action}") continues it'
            )
            raise Unreachable(f"{self.line.server} stopped the bulk run{resume}")

    async def purge(
        self, request_id: str, *, flow: str | None = None, by: str | None = None
    ) -> None:
        """Remove a request from the dead letters; its events stay."""
        await self.change(
            "DELETE",
            "dead-letters",
            request_id,
            answer=type(None),
            query={"flow": flow},
            by=by,
            repeat=False,
        )

    def unknown(
        self, *, flow: str | None = None, limit: int | None = None
    ) -> AsyncIterator[UnknownOutcome]:
        """Requests whose unknown outcome a person has to resolve."""
        return self.pages(
            "unknown",
            answer=ListOf[UnknownOutcome],
            query={"flow": flow},
            limit=limit,
        )

    async def pauses(self) -> list[PauseRepresentation]:
        return (await self.read("pauses", answer=ListOf[PauseRepresentation])).items

    async def pause(
        self,
        *,
        flow: str | None = None,
        credential: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> PauseRepresentation:
        """Pause the tenant, one of its flows, or everything that uses a credential: requests wait
        until it is resumed.

        Safe to repeat.
        """
        body = {"flow": flow, "credential": credential, "reason": reason}
        return await self.post("pauses", answer=PauseRepresentation, body=body, by=by, repeat=True)

    async def resume(
        self, *, flow: str | None = None, credential: str | None = None, by: str | None = None
    ) -> int:
        """End a pause; returns how many jobs were held. Not repeated when the answer is lost."""
        query = {"flow": flow, "credential": credential}
        return (
            await self.change("DELETE", "pauses", answer=Resumed, query=query, by=by, repeat=False)
        ).held

    async def erase(self, subject: str, *, by: str | None = None) -> int:
        """Erase a person; returns how many keys were destroyed.

        Safe to repeat; after a lost answer the second call may return 0.
        """
        return (
            await self.post(
                "erase", answer=ErasedRepresentation, body={"subject": subject}, by=by, repeat=True
            )
        ).destroyed

    async def flows(self) -> list[FlowRepresentation]:
        """The flows that the server accepts requests for."""
        return (await self.read("flows", answer=ListOf[FlowRepresentation])).items

    async def counts(self) -> list[Count]:
        return (await self.read("counts", answer=ListOf[Count])).items

    async def quarantined(self, limit: int = 100) -> list[QuarantinedRepresentation]:
        """Events and jobs that could not be processed."""
        query = {"limit": limit}
        return (
            await self.read("quarantined", answer=ListOf[QuarantinedRepresentation], query=query)
        ).items

    async def whoami(self) -> Myself:
        """The key of this client, and its scopes."""
        return await self.read("whoami", answer=Myself)

    async def keys(self) -> list[KeyRepresentation]:
        """The tenant's keys, without their texts."""
        return (await self.read("keys", answer=ListOf[KeyRepresentation])).items

    async def create_key(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "submit"),
        expires_at: datetime | None = None,
        test: bool = False,
        by: str | None = None,
    ) -> MadeKey:
        """Create a key. Its text is shown only once.

        Not repeated when the answer is lost: that would create a second key.
        """
        body: Json = {"name": name, "scopes": list(scopes), "expiresAt": expires_at, "test": test}
        return await self.post("keys", answer=MadeKey, body=body, by=by)

    async def revoke_key(self, key_id: str, *, by: str | None = None) -> KeyRepresentation:
        """Revoke a key. Safe to repeat."""
        return await self.change("DELETE", "keys", key_id, answer=KeyRepresentation, by=by)

    def audit(self, *, limit: int | None = None) -> AsyncIterator[ChangeRepresentation]:
        """The audit log, newest first."""
        return self.pages("audit", answer=ListOf[ChangeRepresentation], query={}, limit=limit)

    def suppressed(
        self, flow: str, *, limit: int | None = None
    ) -> AsyncIterator[SuppressedRepresentation]:
        """Suppressed addresses of a flow, masked."""
        return self.pages(
            "suppression",
            flow,
            answer=ListOf[SuppressedRepresentation],
            query={},
            limit=limit,
        )

    async def suppress(
        self, flow: str, address: str, *, reason: str = "by hand", by: str | None = None
    ) -> SuppressedRepresentation:
        """Send no more messages of this flow to this address. Safe to repeat."""
        body = {"address": address, "reason": reason}
        return await self.change(
            "PUT", "suppression", flow, answer=SuppressedRepresentation, body=body, by=by
        )

    async def find_suppressed(self, flow: str, address: str) -> SuppressedRepresentation:
        """Why an address is suppressed; raises NotFound when it is not."""
        return await self.post(
            "suppression",
            flow,
            "find",
            answer=SuppressedRepresentation,
            body={"address": address},
            repeat=True,
        )

    async def unsuppress(self, flow: str, entry_id: str, *, by: str | None = None) -> None:
        """Allow messages to an address again. Not repeated when the answer is lost."""
        await self.change(
            "DELETE", "suppression", flow, entry_id, answer=type(None), by=by, repeat=False
        )

    async def subscriptions(self) -> list[WebhookSubscription | HandlerSubscription]:
        """The tenant's webhook subscriptions, and the handlers of programs."""
        return (
            await self.read(
                "subscriptions", answer=ListOf[WebhookSubscription | HandlerSubscription]
            )
        ).items

    async def forget_subscription(self, name: str, *, by: str | None = None) -> None:
        """Delete the checkpoint of a handler that no program declares any more.

        Not repeated when the answer is lost.
        """
        await self.change("DELETE", "subscriptions", name, answer=type(None), by=by, repeat=False)
