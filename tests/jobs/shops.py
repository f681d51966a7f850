"""The same slow endpoint in three frameworks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import FastAPI
from litestar import Litestar, post
from litestar import Request as LitestarRequest
from litestar.params import FromPath, JSONBody
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from gesta import Engine
from gesta.jobs import JobFailed, TryAgain
from gesta.jobs.fastapi import Endpoints as FastApiEndpoints
from gesta.jobs.litestar import Endpoints as LitestarEndpoints
from gesta.jobs.starlette import Endpoints as StarletteEndpoints

NAME = "reports.build"


class Report(BaseModel):
    title: str
    pages: int = 1


class LitestarReport(msgspec.Struct):
    title: str
    pages: int = 1


class Work:
    """What the handler does, and how often it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def build(self, title: str, pages: int, copies: FromPath[int]) -> object:
        self.calls.append((title, pages))
        await self.go.wait()
        match title:
            case "reject":
                raise JobFailed("NO_PAPER", "The printer is out of paper")
            case "again" if len(self.calls) == 1:
                raise TryAgain("BUSY", "try later")
            case "crash":
                raise RuntimeError("password=hunter2")
            case "set":
                return {1j}
            case "large":
                return "x" * 1_048_576
            case "nothing":
                return None
            case _:
                pass
        return {"title": title, "pages": pages * copies}

    async def read(self, request: Any) -> str:
        """The body as it was stored."""
        self.calls.append(("raw", 1))
        body: bytes = await request.body()
        return body.decode()


def fastapi_shop(engine: Engine, work: Work, **options):
    jobs = FastApiEndpoints(engine, tenant=tenant_of)
    app = FastAPI()
    app.mount("/jobs", jobs.app)

    @app.post("/reports/{copies}", status_code=202, responses=jobs.responses)
    @jobs.endpoint(NAME, **options)
    async def build(report: Report, copies: int = 1):
        return await work.build(report.title, report.pages, copies)

    return app


def starlette_shop(engine: Engine, work: Work, **options):
    jobs = StarletteEndpoints(engine, tenant=tenant_of)

    @jobs.endpoint(NAME, **options)
    async def build(request: Request):
        body = await request.json()
        return await work.build(
            body["title"], body.get("pages", 1), int(request.path_params["copies"])
        )

    return Starlette(
        routes=[Route("/reports/{copies}", build, methods=["POST"]), Mount("/jobs", jobs.app)]
    )


def litestar_shop(engine: Engine, work: Work, **options):
    jobs = LitestarEndpoints(engine, tenant=tenant_of)

    @post("/reports/{copies:int}", status_code=202)
    @jobs.endpoint(NAME, **options)
    async def build(data: JSONBody[LitestarReport], copies: FromPath[int]) -> object:
        return await work.build(data.title, data.pages, copies)

    return Litestar([build, jobs.route])


def fastapi_raw(engine: Engine, work: Work, **options):
    app, jobs = FastAPI(), FastApiEndpoints(engine)
    app.mount("/jobs", jobs.app)

    @app.post("/raw", status_code=202)
    @jobs.endpoint(NAME, **options)
    async def raw(request: Request):
        return await work.read(request)

    return app


def starlette_raw(engine: Engine, work: Work, **options):
    jobs = StarletteEndpoints(engine)

    @jobs.endpoint(NAME, **options)
    async def raw(request: Request):
        return await work.read(request)

    return Starlette(routes=[Route("/raw", raw, methods=["POST"]), Mount("/jobs", jobs.app)])


def litestar_raw(engine: Engine, work: Work, **options):
    jobs = LitestarEndpoints(engine)

    @post("/raw", status_code=202)
    @jobs.endpoint(NAME, **options)
    async def raw(request: LitestarRequest[Any, Any, Any]) -> object:
        return await work.read(request)

    return Litestar([raw, jobs.route])


def tenant_of(headers):
    return headers.get("x-tenant", "default")


SHOPS = {"fastapi": fastapi_shop, "starlette": starlette_shop, "litestar": litestar_shop}
#: The handlers take the request itself.
RAW_SHOPS = {"fastapi": fastapi_raw, "starlette": starlette_raw, "litestar": litestar_raw}
