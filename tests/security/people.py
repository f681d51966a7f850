"""Payloads that tell about people, and engines that execute them."""

from __future__ import annotations

from typing import Any

import msgspec

from gesta import (
    Engine,
    Flow,
    Payload,
    Personal,
)
from gesta.domain.commands import Rules
from gesta.domain.retry_policy import RetryPolicy
from gesta.stores.memory.vault import MemoryVault
from tests.world import Provider, all_events

URL = "memory:people"


class Person(msgspec.Struct, frozen=True):
    name: Personal[str]
    role: str = "reader"


class Letter(Payload, frozen=True):
    to: Personal[str]
    order: str = "A-7"
    readers: tuple[Person, ...] = ()


class Bill(Payload, frozen=True):
    customer: str
    email: Personal[str]

    @property
    def subject(self) -> str:
        return self.customer


ANA = Letter("ana@x.example", "A-7", (Person("Ana Lima"), Person("Bo")))


def flow_of(
    provider: Provider, kind: type[Payload] = Letter, name: str = "test.letter", **options: Any
) -> Flow:
    rules = Rules(options.pop("retry", RetryPolicy()), options.pop("on_unknown", "resend"))
    return Flow(name, kind, provider.execute, rules, **options)


def engine_of(provider: Provider, *more: Flow, **options: Any) -> Engine:
    return Engine(URL, flows=[flow_of(provider, **options), *more])


async def stored(engine: Engine) -> bytes:
    """Everything that is on record, as bytes."""
    views = [view.payload for view in await engine.find()]
    return b"".join([event.data + event.meta for event in await all_events(engine)] + views)


def vaults(gesta: Any) -> list[MemoryVault]:
    return [database.vault for database in gesta._databases.values()]
