"""Inside the frameworks that people use: a real server process with several web workers on one
store, requests sent by the application and over its API.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gesta import Engine
from gesta.domain.events import Actor
from gesta.flows import slack
from gesta.runtime.settings import Settings
from gesta.sandbox.server import SandboxServer
from tests.http_api.served import MASTER
from tests.stores.postgresql.places import fresh_url

WORKERS = 2
PAGE = Path(__file__).resolve().parents[2] / "docs" / "fastapi.md"

RECEIPT = """
class Receipt(Payload):
    order: str
    email: Personal[str]

@flow("billing.receipt", on_unknown="resend", attempts=5)
async def receipt(payload: Receipt, attempt: Attempt) -> Outcome:
    return Done(id=payload.order)
"""

IMPORTS = """
from gesta import Attempt, Done, Engine, Outcome, Payload, Personal, flow
from gesta.flows import slack
"""

FASTAPI = """
engine = Engine("sqlite:///gesta.db", flows=[slack.flow(), receipt])         \
# credentials by config code
app = FastAPI(lifespan=engine.lifespan)
app.mount("/gesta", engine.web())                                    # API and console

@app.post("/orders/{n}/paid")
async def paid(n: int):
    await engine.submit(slack.Message(channel="ops", text=f"{n} paid"), key=f"order-{n}-paid")
"""

STARLETTE = """
engine = Engine("sqlite:///gesta.db", flows=[slack.flow(), receipt])

async def paid(request):
    n = request.path_params["n"]
    await engine.submit(slack.Message(channel="ops", text=f"{n} paid"), key=f"order-{n}-paid")
    return JSONResponse(None)

routes = [Route("/orders/{n:int}/paid", paid, methods=["POST"]), Mount("/gesta", engine.web())]
app = Starlette(routes=routes, lifespan=engine.lifespan)
"""

LITESTAR = """
engine = Engine("sqlite:///gesta.db", flows=[slack.flow(), receipt])

@post("/orders/{n:int}/paid")
async def paid(n: int) -> None:
    await engine.submit(slack.Message(channel="ops", text=f"{n} paid"), key=f"order-{n}-paid")

api = asgi("/gesta", is_mount=True, copy_scope=True)(engine.web())
app = Litestar(route_handlers=[paid, api], lifespan=[engine.lifespan])
"""

PROGRAMS = {
    "fastapi": "from fastapi import FastAPI\n" + IMPORTS + RECEIPT + FASTAPI,
    "starlette": (
        "from starlette.applications import Starlette\nfrom starlette.responses import"
        " JSONResponse\nfrom starlette.routing import Mount, Route\n"
        + IMPORTS
        + RECEIPT
        + STARLETTE
    ),
    "litestar": "from litestar import Litestar, asgi, post\n" + IMPORTS + RECEIPT + LITESTAR,
}


@asynccontextmanager
async def web_workers(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """The application under uvicorn with several workers: its address and the supervisor's pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GESTA_")}
    environment = {**kept, "GESTA_MASTER_KEY": MASTER, "GESTA_ALLOW_PRIVATE": "127.0.0.1/32"}
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "program:app",
        "--port",
        str(port),
        "--workers",
        str(WORKERS),
        "--log-level",
        "warning",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        await asyncio.wait_for(answering(address, process), 60)
        yield address, process.pid
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) is not None


async def answering(address: str, process: asyncio.subprocess.Process) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            assert process.returncode is None
            try:
                async with session.get(f"{address}/gesta/v1/requests") as answer:
                    if answer.status == 401:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "store"),
    # No framework has a part in the store.
    [*((one, "sqlite") for one in PROGRAMS), ("fastapi", "postgresql")],
)
async def test_an_application_sends_once_whichever_worker_is_asked(framework, store, tmp_path):
    url = f"sqlite:///{tmp_path / 'gesta.db'}" if store == "sqlite" else await fresh_url()
    program = PROGRAMS[framework]
    (tmp_path / "program.py").write_text(
        program if store == "sqlite" else program.replace("sqlite:///gesta.db", url)
    )
    async with SandboxServer() as provider:
        async with Engine(
            settings=Settings(url=url, master_key=MASTER), flows=[slack.flow()], work=False
        ) as engine:
            await engine.admin.put_config(
                "slack.workspace",
                "default",
                # One a second is what Slack allows.
                {
                    "token": "xoxb-1",
                    "api_url": f"{provider.url}/slack/",
                    "channel_per_second": 1_000,
                },
            )
            await engine.admin.put_config("slack.channel", "ops", {"channel_id": "C012AB3CD"})
            _, key = await engine.admin.create_key(
                name="shop", scopes=("read", "submit"), actor=Actor("test")
            )
        async with (
            web_workers(tmp_path) as (address, _),
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session,
        ):
            # Each order from several connections at once: they are spread over the workers, and one
            # message is sent.
            calls = [
                session.post(f"{address}/orders/{n}/paid", headers={"Connection": "close"})
                for n in range(4)
                for _ in range(4)
            ]
            assert {answer.status for answer in await asyncio.gather(*calls)} <= {200, 201}
            listed = await asyncio.wait_for(listing(session, address, 4), 60)
            assert {one["status"] for one in listed} == {"sent"}
            body = {
                "flow": "billing.receipt",
                "payload": {"order": "7", "email": "ann@example.com"},
            }
            async with session.post(f"{address}/gesta/v1/requests?wait=20s", json=body) as answer:
                made = await answer.json()
                assert (answer.status, made["request"]["status"]) == (202, "completed")
                assert answer.headers["Location"] == f"/gesta/v1/requests/{made['id']}"
            async with session.get(f"{address}{answer.headers['Location']}") as shown:
                assert (await shown.json())["payload"] == {"order": "7", "email": "[encrypted]"}
        texts = sorted(effect.text for effect in provider.sandbox.slack.effects)
        assert texts == ["0 paid", "1 paid", "2 paid", "3 paid"]


async def listing(session: aiohttp.ClientSession, address: str, count: int) -> list[dict[str, str]]:
    """The requests, once so many have come to their end."""
    while True:
        async with session.get(f"{address}/gesta/v1/requests?flow=notification.slack") as answer:
            items: list[dict[str, str]] = (await answer.json())["items"]
        if sum(one["status"] in ("sent", "failed", "unknown") for one in items) >= count:
            return items
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_program_of_the_page_goes_on_when_a_web_worker_is_killed(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    async with SandboxServer() as provider:
        async with Engine(
            settings=Settings(url=url, master_key=MASTER), flows=[slack.flow()], work=False
        ) as engine:
            fields = {
                "token": "xoxb-1",
                "api_url": f"{provider.url}/slack/",
                "channel_per_second": 1_000,
                "per_second": 1_000,
            }
            await engine.admin.put_config("slack.workspace", "default", fields)
        effects = provider.sandbox.slack.effects
        async with web_workers(tmp_path) as (address, supervisor):
            assert [await paid(address, n) for n in (0, 0, 1, 2)].count("created") == 3
            async with asyncio.timeout(60):
                while len(effects) < 3:
                    await asyncio.sleep(0.02)
                children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
                os.kill(int(children.split()[-1]), signal.SIGKILL)
                for n in range(3, 9):
                    await paid(address, n)
                while len(effects) < 9:
                    await asyncio.sleep(0.02)
        assert sorted(one.text for one in effects) == [f"{n} paid" for n in range(9)]


async def paid(address: str, n: int) -> str:
    """The verdict. A call that the killed worker dropped is repeated, as a caller would."""
    while True:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{address}/orders/{n}/paid") as answer,
            ):
                verdict: str = (await answer.json())["verdict"]
                return verdict
        except aiohttp.ClientError:
            await asyncio.sleep(0.05)
