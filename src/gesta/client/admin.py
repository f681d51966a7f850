"""What people who run gesta do, over HTTP: config, templates, dead letters, unknown outcomes,
pauses, erasure, keys, suppression lists, subscriptions.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from gesta.api_types.admin import (
    Count,
    Counts,
    ErasedRepresentation,
    FlowRepresentation,
    Flows,
    PauseRepresentation,
    Pauses,
    QuarantinedList,
    QuarantinedRepresentation,
    Resumed,
)
from gesta.api_types.bulk import Bulk, BulkLine, BulkProgress
from gesta.api_types.config import (
    ConfigKindRepresentation,
    Entities,
    EntityRepresentation,
    Kinds,
    Previewed,
)
from gesta.api_types.decisions import (
    DeadLetter,
    DeadLetters,
    UnknownOutcome,
    UnknownOutcomes,
)
from gesta.api_types.keys import (
    ChangeRepresentation,
    KeyList,
    KeyRepresentation,
    MadeKey,
    Myself,
    Trail,
)
from gesta.api_types.requests import ACTOR, Submitted
from gesta.api_types.structs import PAGE_MAX
from gesta.api_types.subscriptions import (
    HandlerSubscription,
    Subscriptions,
    SuppressedPage,
    SuppressedRepresentation,
    WebhookSubscription,
)
from gesta.client.connection import Again, Ask, Calls, Json, path_of
from gesta.client.problems import error_of
from gesta.errors import Unreachable


class AdminCalls(Calls):
    async def config(self, *, kind: str | None = None) -> AsyncIterator[EntityRepresentation]:
        """The tenant's config, without its secrets."""
        async for one in self.pages(
            "config", answer=Entities, query={"kind": kind}, limit=None, page=PAGE_MAX
        ):
            yield one

    async def config_kinds(self) -> list[ConfigKindRepresentation]:
        """What can be stored, with the schema of its fields."""
        return (await self.read("config-kinds", answer=Kinds)).items

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
        """Store an entity. A secret left out stays; with `keep` every other field does, too.

        `version`: the one that was read, 0 for none; raises VersionConflict where it is at another.
        """
        headers = (
            {}
            if version is None
            else {"If-Match": f'"{version}"'}
            if version
            else {"If-None-Match": "*"}
        )
        # With a version it is not repeated: the second call would meet what the first has stored.
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

        Not repeated when the answer is lost: it may be gone then, and NotFound would be no answer.
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
        """What a template makes of some variables. Nothing is sent and nothing is stored."""
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
        """Send a template to somebody, as a request like any other."""
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

    async def dead_letters(
        self, *, flow: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Requests that failed for good, newest first."""
        query = {"flow": flow, "reason": reason}
        async for one in self.pages(
            "dead-letters", answer=DeadLetters, query=query, limit=limit, page=PAGE_MAX
        ):
            yield one

    async def dead_letter(self, request_id: str, *, flow: str | None = None) -> DeadLetter:
        query = {"flow": flow}
        return await self.read("dead-letters", request_id, answer=DeadLetter, query=query)

    def bulk(self, asked: Bulk, *, by: str | None = None) -> AsyncGenerator[BulkProgress]:
        """Decide about every request that fits a filter; reports the progress as it goes.

        The run stops when the generator is closed or the connection breaks; `resume_bulk` continues
        it.
        """
        fields: Json = msgspec.to_builtins(asked)
        body = {name: value for name, value in fields.items() if value is not None}
        return self._reports("bulk", body=body, by=by)

    def resume_bulk(
        self, run_id: int, *, rate: float | None = None, by: str | None = None
    ) -> AsyncGenerator[BulkProgress]:
        """Continue a run that was stopped; `run_id` is `BulkProgress.id`."""
        return self._reports("bulk", str(run_id), "resume", body={"rate": rate}, by=by)

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
            resume = "" if last is None else f"; resume_bulk({last.id}) continues it"
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

    async def unknown(
        self, *, flow: str | None = None, limit: int | None = None
    ) -> AsyncIterator[UnknownOutcome]:
        """Outcomes that wait for a person's word."""
        async for one in self.pages(
            "unknown", answer=UnknownOutcomes, query={"flow": flow}, limit=limit, page=PAGE_MAX
        ):
            yield one

    async def pauses(self) -> list[PauseRepresentation]:
        return (await self.read("pauses", answer=Pauses)).items

    async def pause(
        self,
        *,
        flow: str | None = None,
        credential: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> PauseRepresentation:
        """Begin nothing more of the tenant, of one of its flows, or of what uses a credential.

        Safe to repeat.
        """
        body = {"flow": flow, "credential": credential, "reason": reason}
        return await self.post("pauses", answer=PauseRepresentation, body=body, by=by, repeat=True)

    async def resume(
        self, *, flow: str | None = None, credential: str | None = None, by: str | None = None
    ) -> int:
        """Let it go on; how many jobs were held. Not repeated when the answer is lost."""
        query = {"flow": flow, "credential": credential}
        return (
            await self.change("DELETE", "pauses", answer=Resumed, query=query, by=by, repeat=False)
        ).held

    async def erase(self, subject: str, *, by: str | None = None) -> int:
        """Erase a person: how many keys were destroyed.

        Safe to repeat; an answer that was lost may be 0 the second time.
        """
        return (
            await self.post(
                "erase", answer=ErasedRepresentation, body={"subject": subject}, by=by, repeat=True
            )
        ).destroyed

    async def flows(self) -> list[FlowRepresentation]:
        """What can be asked for."""
        return (await self.read("flows", answer=Flows)).items

    async def counts(self) -> list[Count]:
        return (await self.read("counts", answer=Counts)).items

    async def quarantined(self, limit: int = 100) -> list[QuarantinedRepresentation]:
        """Events and jobs that were set aside because they could not be processed."""
        query = {"limit": limit}
        return (await self.read("quarantined", answer=QuarantinedList, query=query)).items

    async def whoami(self) -> Myself:
        """Whose key this is, and what it allows."""
        return await self.read("whoami", answer=Myself)

    async def keys(self) -> list[KeyRepresentation]:
        """The tenant's keys, without their texts."""
        return (await self.read("keys", answer=KeyList)).items

    async def create_key(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "submit"),
        expires_at: datetime | None = None,
        test: bool = False,
        by: str | None = None,
    ) -> MadeKey:
        """A new key, shown this once.

        Not repeated when the answer is lost: that would be a second key.
        """
        body: Json = {"name": name, "scopes": list(scopes), "expiresAt": expires_at, "test": test}
        return await self.post("keys", answer=MadeKey, body=body, by=by)

    async def revoke_key(self, key_id: str, *, by: str | None = None) -> KeyRepresentation:
        """End a key for good. Safe to repeat."""
        return await self.change("DELETE", "keys", key_id, answer=KeyRepresentation, by=by)

    async def audit(self, *, limit: int | None = None) -> AsyncIterator[ChangeRepresentation]:
        """Who changed what, newest first."""
        async for one in self.pages("audit", answer=Trail, query={}, limit=limit, page=PAGE_MAX):
            yield one

    async def suppressed(
        self, flow: str, *, limit: int | None = None
    ) -> AsyncIterator[SuppressedRepresentation]:
        """Addresses that get no more messages of this flow, masked."""
        async for one in self.pages(
            "suppression", flow, answer=SuppressedPage, query={}, limit=limit, page=PAGE_MAX
        ):
            yield one

    async def suppress(
        self, flow: str, address: str, *, reason: str = "by hand", by: str | None = None
    ) -> SuppressedRepresentation:
        """No more messages of this flow to this address. Safe to repeat."""
        body = {"address": address, "reason": reason}
        return await self.change(
            "PUT", "suppression", flow, answer=SuppressedRepresentation, body=body, by=by
        )

    async def find_suppressed(self, flow: str, address: str) -> SuppressedRepresentation:
        """Why an address gets no messages; raises NotFound where it does."""
        return await self.post(
            "suppression",
            flow,
            "find",
            answer=SuppressedRepresentation,
            body={"address": address},
            repeat=True,
        )

    async def unsuppress(self, flow: str, entry_id: str, *, by: str | None = None) -> None:
        """Messages may go there again. Not repeated when the answer is lost."""
        await self.change(
            "DELETE", "suppression", flow, entry_id, answer=type(None), by=by, repeat=False
        )

    async def subscriptions(self) -> list[WebhookSubscription | HandlerSubscription]:
        """The tenant's webhook subscriptions, and the handlers of programs."""
        return (await self.read("subscriptions", answer=Subscriptions)).items

    async def forget_subscription(self, name: str, *, by: str | None = None) -> None:
        """Forget the place of a handler that no program declares any more.

        Not repeated when the answer is lost.
        """
        await self.change("DELETE", "subscriptions", name, answer=type(None), by=by, repeat=False)
