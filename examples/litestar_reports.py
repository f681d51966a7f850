"""A slow endpoint in Litestar. The jobs run in
`gesta worker --app examples.litestar_reports:engine`.
"""

import asyncio
from typing import Any

import msgspec
from litestar import Litestar, post
from litestar.params import JSONBody

from gesta import Engine
from gesta.jobs.litestar import Endpoints


class Report(msgspec.Struct):
    title: str
    pages: int


engine = Engine(work=False)
jobs = Endpoints(engine)


@post("/reports", status_code=202)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(data: JSONBody[Report]) -> dict[str, Any]:
    await asyncio.sleep(data.pages / 10)  # the slow part
    return {"title": data.title, "words": data.pages * 300}


app = Litestar([build, jobs.route], lifespan=[engine.lifespan])
