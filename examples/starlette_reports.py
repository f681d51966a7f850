"""A slow endpoint in Starlette. The jobs run in
`gesta worker --app examples.starlette_reports:engine`.
"""

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from gesta import Engine
from gesta.jobs import JobFailed
from gesta.jobs.starlette import Endpoints

engine = Engine(work=False)
jobs = Endpoints(engine)


@jobs.endpoint("reports.build", on_unknown="resend")
async def build(request: Request) -> dict[str, Any]:
    try:
        report = await request.json()
        title, pages = str(report["title"]), int(report["pages"])
    except (ValueError, KeyError, TypeError):
        raise JobFailed("BAD_REPORT", "A report has a title and a number of pages") from None
    await asyncio.sleep(pages / 10)  # the slow part
    return {"title": title, "words": pages * 300}


app = Starlette(
    routes=[Route("/reports", build, methods=["POST"]), Mount("/jobs", jobs.app)],
    lifespan=engine.lifespan,
)
