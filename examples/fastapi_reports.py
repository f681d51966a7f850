"""A slow endpoint in FastAPI; `gesta worker --app examples.fastapi_reports:engine` runs it."""

import asyncio

from fastapi import FastAPI
from pydantic import BaseModel, Field

from gesta import Engine
from gesta.jobs import JobFailed
from gesta.jobs.fastapi import Endpoints


class Report(BaseModel):
    title: str = Field(min_length=1, max_length=200)
    pages: int = Field(ge=1, le=10_000)


class Summary(BaseModel):
    title: str
    words: int


engine = Engine(work=False)
app = FastAPI(lifespan=engine.lifespan)
jobs = Endpoints(engine)
app.mount("/jobs", jobs.app)


@app.post("/reports", status_code=202, responses=jobs.responses)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(report: Report) -> Summary:
    await asyncio.sleep(report.pages / 10)  # the slow part
    if report.title == "secret":
        raise JobFailed("FORBIDDEN_TITLE", "This report may not be built")
    return Summary(title=report.title, words=report.pages * 300)
