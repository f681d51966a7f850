"""A walk through everything that can happen to a request, with secrets and personal data in every
place where a user can put them.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from gesta import (
    Actor,
    Attempt,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Rejected,
    Retry,
    RetryPolicy,
    Unknown,
)
from gesta.domain.commands import Rules
from gesta.flows import webhook
from gesta.flows.flow import ConfigBody, Secret
from gesta.runtime.settings import load
from gesta.sandbox.server import SandboxServer, address, loopback_socket

#: Quotes, an umlaut, a plus and a slash: none of them looks the same in JSON, in a URL and in
#: base64.
SECRETS = {
    "token": 'planted "tök"+en/4711',
    "webhook secret": "whsec_" + base64.b64encode(b"a planted secret, 32 bytes long!").decode(),
    "referred secret": "planted reference/0815+€",
    "bearer": "planted-bearer-0123456789abcdef",
}
PEOPLE = {
    "name": 'Ada "Planted" Lövelace',
    "e-mail": "ada.planted@example.com",
    "nested e-mail": "grace.planted@example.org",
    "phone": "+49 171 5550123",
}
#: What an answer of a provider repeats of what it was sent.
VARIABLE = "GESTA_TEST_REFERRED_SECRET"
FAST = RetryPolicy(attempts=2, base_seconds=0.001, cap_seconds=0.002)
KIND, CODE = "shop.account", "main"
#: A tenant whose requests wait.
PAUSED = "paused"


#: A URL is config, which its owner reads back; a credential in it is masked wherever it is shown.
IN_URL = {"password in a URL": "planted-pass-99", "token in a URL": "planted-token-77"}
ADDRESS = (
    f"https://user:{IN_URL['password in a URL']}@shop.example.com/?token={IN_URL['token in a URL']}"
)


class Person(Payload, frozen=True):
    email: Personal[str]


class Letter(Payload, frozen=True):
    name: Personal[str]
    email: Personal[str]
    phones: Personal[list[str]]
    others: list[Person]
    comes_to: str
    order: str = "A-7"


class Account(ConfigBody, frozen=True):
    url: str
    token: Secret[str]


class Heard:
    """What executors were given: the search would be worth nothing if the words never came so
    far.
    """

    def __init__(self) -> None:
        self.texts: set[str] = set()


def letter_flow(heard: Heard, answers: str) -> Flow:
    async def send(letter: Letter, attempt: Attempt) -> Outcome:
        token, *_ = await attempt.config.secrets(KIND, CODE, "token")
        reference = attempt.config.reference(f"env:{VARIABLE}")
        bearer = SECRETS["bearer"]
        heard.texts |= {
            token,
            reference,
            bearer,
            letter.name,
            letter.email,
            *letter.phones,
            *(one.email for one in letter.others),
        }
        everything = (
            f"{letter} was refused: {letter.name}, {letter.email}, {letter.phones[0]},"
            f" {letter.others[0].email}, {token}, {reference}"
        )
        match letter.comes_to:
            case "raised":
                raise ValueError(everything)
            case "rejected":
                return Rejected("bad_address", everything)
            case "retry":
                return Retry("busy", everything)
            case "answer":
                # The provider repeats what it was sent in its answer, with an error status.
                headers = {"Authorization": f"Bearer {bearer}"}
                return Rejected(
                    "odd_answer",
                    str(
                        await attempt.http.post(answers, json={"echo": everything}, headers=headers)
                    ),
                )
            case _:
                return Unknown("no_answer", everything)

    return Flow("shop.letter", Letter, send, Rules(FAST), config={KIND: Account})


def flows(heard: Heard, answers: str) -> list[Flow]:
    return [letter_flow(heard, answers), webhook.flow()]


def letter(comes_to: str) -> Letter:
    return Letter(
        PEOPLE["name"],
        PEOPLE["e-mail"],
        [PEOPLE["phone"]],
        [Person(PEOPLE["nested e-mail"])],
        comes_to,
    )


class Walk:
    """All of it on one file; `outputs` is whatever was said on the way, by the place where it was
    said.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.heard = folder, Heard()
        self.outputs: dict[str, bytes] = {}
        self.ids: list[str] = []
        #: Those that are not done yet.
        self.waiting: set[str] = set()
        #: Made on the way, so they cannot be written down above.
        self.keys: dict[str, str] = {}

    async def run(self) -> None:
        async with SandboxServer() as server, echo() as answers:
            settings = load(
                {
                    "url": f"sqlite:///{self.folder / 'gesta.db'}",
                    "allow_private": ["127.0.0.1/32"],
                    "log_level": "debug",
                }
            )
            async with Engine(settings=settings, flows=flows(self.heard, answers)) as engine:
                await self._configure(engine, server.url)
                await self._submit(engine)
                await self._decide(engine)
                await self._open(engine)
                await self._leave(engine)
                self.outputs["metrics"] = engine.metrics()
                self.outputs["dead letters"] = repr(await engine.admin.dead_letters()).encode()
                self.outputs["config"] = repr(await engine.admin.list_config()).encode()

    async def _configure(self, engine: Engine, url: str) -> None:
        admin = engine.admin
        await admin.put_config(
            KIND, CODE, {"url": "https://shop.example.com", "token": "an older one"}
        )
        # Changed: for a while both are used.
        await admin.put_config(KIND, CODE, {"url": ADDRESS, "token": SECRETS["token"]})
        await admin.put_config(
            webhook.ENDPOINT, "hook", {"url": f"{url}/webhook", "secret": SECRETS["webhook secret"]}
        )
        self.outputs["refused config"] = await _error_of(
            admin.put_config(KIND, CODE, {"url": 1, "token": [SECRETS["token"]]})
        )

    async def _submit(self, engine: Engine) -> None:
        for comes_to in ("raised", "rejected", "retry", "answer", "unknown"):
            request = await engine.submit(letter(comes_to), key=f"letter {comes_to}")
            self.outputs[f"outcome of {comes_to}"] = (
                repr(await request.outcome()).encode() + repr(request).encode()
            )
            self.ids.append(request.id)
        hook = await engine.submit(webhook.Message("order.paid", {"order": 7}, "hook"), key="hook")
        self.outputs["outcome of the webhook"] = repr(await hook.outcome()).encode()
        self.ids.append(hook.id)
        self.outputs["conflict"] = await _error_of(
            engine.submit(letter("other"), key="letter raised")
        )
        fields = {"name": PEOPLE["name"], "email": 7, "wrong": SECRETS["token"]}
        try:
            engine.payload("shop.letter", fields)
        except Exception as error:
            self.outputs["refused payload"] = str(error).encode()

    async def _decide(self, engine: Engine) -> None:
        raised, rejected, _, _, unknown, _ = [await engine.request(one) for one in self.ids]
        await raised.resolve("not_executed", by="ops", evidence="looked", actor=Actor("ops"))
        await raised.outcome()
        await unknown.resolve("rejected", by="ops", evidence="looked")
        await rejected.redrive()
        await rejected.outcome()
        await rejected.purge()

    async def _open(self, engine: Engine) -> None:
        """API keys, put wherever people may put them by mistake."""
        admin, ops = engine.admin, Actor("ops")
        made, text = await admin.create_key(name="shop", scopes=["admin"], actor=ops)
        other, ended = await admin.create_key(name=f"like {text}", test=True, actor=ops)
        self.keys = {"key": text, "ended key": ended, "secret of a key": text.rpartition("_")[2]}
        await engine.pipeline.keys.check(text)
        await admin.revoke_key(other.id, actor=ops)
        self.outputs["ended key refused"] = await _error_of(engine.pipeline.keys.check(ended))
        self.outputs["wrong key refused"] = await _error_of(
            engine.pipeline.keys.check(text[:-1] + "!")
        )
        self.outputs["key not found"] = await _error_of(admin.revoke_key(text, actor=ops))
        request = await engine.submit(
            letter("rejected"), key=f"key {text}", correlation_id=text, actor=ops
        )
        await request.outcome()
        await request.redrive()
        self.outputs["outcome of a request by a key"] = (
            repr(await request.outcome()).encode() + repr(request).encode()
        )
        self.outputs["conflict of keys"] = await _error_of(
            engine.submit(letter("retry"), key=f"key {text}")
        )
        await admin.pause(tenant="default", reason=f"because of {text}", actor=ops)
        self.outputs["keys"] = repr((made, await admin.list_keys(), await admin.audit())).encode()
        await admin.resume(tenant="default", actor=ops)

    async def _leave(self, engine: Engine) -> None:
        """Requests about the same people that are still to be done: their jobs are in the queue
        when the walk is over.
        """
        soon = datetime.now(UTC) + timedelta(minutes=14)
        later = await engine.submit(letter("rejected"), key="letter later", deliver_at=soon)
        await engine.admin.pause(tenant=PAUSED)
        await engine.admin.put_config(
            KIND, CODE, {"url": ADDRESS, "token": SECRETS["token"]}, tenant=PAUSED
        )
        held = await engine.submit(letter("rejected"), key="letter held", tenant=PAUSED)
        self.waiting = {later.id, held.id}
        self.ids.append(later.id)


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """A provider whose error answers repeat what it was sent, as many real ones do."""

    async def answer(request: web.Request) -> web.Response:
        text = await request.text() + request.headers["Authorization"]
        return web.json_response(
            {"error": {"code": "bad_address", "message": text}, "detail": text}, status=400
        )

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = loopback_socket()
    await web.SockSite(runner, listening).start()
    try:
        yield address(listening)
    finally:
        await runner.cleanup()


async def _error_of(asked: Any) -> bytes:
    try:
        await asked
    except Exception as error:
        return f"{error} {error!r}".encode()
    raise AssertionError("nothing was refused")


def log_into(path: Path) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    logging.getLogger("gesta").addHandler(handler)
    return handler
