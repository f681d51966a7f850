"""What all groups of calls are made of: read, change, go through pages.

Each call says whether it may be made twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeVar

from gesta.api_types.requests import ACTOR
from gesta.client.connection import PAUSE_SECONDS, Ask, Connection, path_of
from gesta.runtime.clock import Ids, sleep

T = TypeVar("T")
ItemT = TypeVar("ItemT")
Json = dict[str, Any]


class Pages(Protocol[ItemT]):
    """A part of a list, and how to go on."""

    @property
    def items(self) -> list[ItemT]: ...

    @property
    def next(self) -> str | None: ...


class Calls:
    def __init__(self, line: Connection) -> None:
        self.line, self.ids = line, Ids(line.runtime)

    async def read(
        self,
        *parts: str,
        answer: type[T],
        query: Mapping[str, Any] | None = None,
        wait: float = 0.0,
    ) -> T:
        return await self.line.ask(
            Ask(
                "GET", path_of(*parts), query or {}, None, {}, is_repeatable=True, wait_seconds=wait
            ),
            answer,
        )

    async def post(
        self,
        *parts: str,
        answer: type[T],
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        by: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
        wait: float = 0.0,
    ) -> T:
        """`repeat`: made twice, it does nothing that made once it does not."""
        return await self.change(
            "POST",
            *parts,
            answer=answer,
            body=body,
            query=query,
            by=by,
            headers=headers,
            repeat=repeat,
            wait=wait,
        )

    async def change(
        self,
        method: str,
        *parts: str,
        answer: type[T],
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        by: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> T:
        sent = dict(headers or {}) if by is None else {**(headers or {}), ACTOR: by}
        return await self.line.ask(
            Ask(method, path_of(*parts), query or {}, body, sent, repeat, wait), answer
        )

    async def pages(
        self,
        *parts: str,
        answer: type[Pages[T]],
        query: Mapping[str, Any],
        limit: int | None,
        page: int,
    ) -> AsyncIterator[T]:
        """Item by item; a page is asked for when the one before is used up."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = page if left is None else min(page, left)
            got = await self.read(
                *parts, answer=answer, query={**query, "limit": size, "cursor": cursor}
            )
            for item in got.items:
                yield item
            left = None if left is None else left - len(got.items)
            cursor = got.next
            if cursor is None:
                return

    async def rest(self) -> None:
        """A moment of random length."""
        await sleep(self.line.runtime, PAUSE_SECONDS * (1 + self.line.runtime.chance()))
