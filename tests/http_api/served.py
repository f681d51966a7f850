"""An engine and its API on a real port of this machine, for tests that call it as anybody would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import msgspec

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Rejected,
    Retry,
    Unknown,
    flow,
)
from gesta.domain.events import Actor
from gesta.engine.environment import Environment, Wiring, wire_really
from gesta.flows import slack, sms, webhook
from gesta.http_api.app import Web
from gesta.http_api.server import address_of, bind, serving
from gesta.runtime.settings import Settings
from gesta.sandbox import Sandbox, SandboxTransport
from gesta.sandbox.smtp import SandboxMail

ADMIN = ("admin",)


class Note(Payload, frozen=True):
    """`text` decides: "refuse", "unknown", "later", anything else is done."""

    text: str
    to: Personal[str] = ""


@flow("shop.note", on_unknown="manual", attempts=3)
async def note(payload: Note, attempt: Attempt) -> Outcome:
    match payload.text:
        case "refuse":
            return Rejected("said_no", "the receiver said no")
        case "unknown":
            return Unknown("no_answer")
        case "later":
            return Retry("not_now", after_seconds=3600)
        case _:
            return Done(id=f"done-{attempt.request_id[:8]}")


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any
    text: str


#: Fields whose content is the caller's own, or a JSON schema.
CALLERS_OWN = {"payload", "fields", "parts", "schema", "variables", "details", "data"}


def refuse_empty_texts(content: Any, path: str = "") -> None:
    """An absent value is null or left out, never an empty text."""
    assert content != "", f"{path} is an empty text"
    if isinstance(content, list):
        content = dict(enumerate(content))
    for name, value in content.items() if isinstance(content, dict) else ():
        if name not in CALLERS_OWN:
            refuse_empty_texts(value, f"{path}.{name}")


class Served:
    """What a test holds in its hands."""

    def __init__(
        self, web: Web, address: str, session: aiohttp.ClientSession, sandbox: Sandbox
    ) -> None:
        self.web, self.engine, self.address, self.session, self.sandbox = (
            web,
            web.engine,
            address,
            session,
            sandbox,
        )

    async def key(self, *scopes: str, tenant: str = "default", test: bool = False) -> str:
        chosen: Any = scopes or ADMIN
        _, text = await self.engine.admin.create_key(
            tenant=tenant, name="a test", scopes=chosen, test=test, actor=Actor("test")
        )
        return text

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        data = raw
        if raw is None and body is not None:
            data = msgspec.json.encode(body)
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(
            method, self.address + path, data=data, headers=sent
        ) as answer:
            text = await answer.text()
            is_json = answer.headers.get("Content-Type", "").endswith(("/json", "+json"))
            content = msgspec.json.decode(text) if is_json and text else None
            if path != "/openapi.json":
                refuse_empty_texts(content)
            return Reply(answer.status, answer.headers, content, text)

    async def submit(self, api_key: str, /, text: str = "hello", **more: Any) -> Reply:
        return await self.call(
            "POST",
            "/v1/requests",
            {"flow": "shop.note", "payload": {"text": text}, **more},
            key=api_key,
        )


@asynccontextmanager
async def served(
    url: str, flows: Sequence[Flow] = (), *, work: bool = True, **settings: Any
) -> AsyncIterator[Served]:
    """Everything real but the providers, which are the sandbox's doubles."""
    sandbox, before = Sandbox(), Wiring.wire

    async def wire(chosen: Settings) -> Environment:
        environment = await wire_really(chosen)
        await environment.transport.close()
        return replace(
            environment,
            transport=SandboxTransport(environment.runtime, sandbox),
            mail=SandboxMail(environment.runtime, sandbox.smtp),
        )

    Wiring.wire = staticmethod(wire)
    declared = flows or [note, slack.flow(), webhook.flow(), sms.flow()]
    engine = Engine(
        settings=Settings(url=url, master_key=MASTER, **settings), flows=declared, work=work
    )
    listener = bind("127.0.0.1", 0)
    try:
        web = Web(engine)
        async with engine, serving(web, listener), aiohttp.ClientSession() as session:
            yield Served(web, address_of(listener), session, sandbox)
    finally:
        # Where the engine never started, nothing else does.
        listener.close()
        Wiring.wire = staticmethod(before)


#: 32 bytes of a test.
MASTER = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
