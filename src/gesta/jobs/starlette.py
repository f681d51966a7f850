"""Slow endpoints in Starlette and FastAPI.

jobs = Endpoints(engine)
app.mount("/jobs", jobs.app)

@app.post("/reports", status_code=202)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(report: Report) -> Summary: ...
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gesta.jobs.answers import Answer
from gesta.jobs.endpoints import EndpointsCore
from gesta.jobs.status_app import StatusApp


class Endpoints(EndpointsCore):
    request_type, response_type = Request, Response
    # A handler may have a parameter `request` of another type.
    request_name = "gesta_request"

    @property
    def app(self) -> StatusApp:
        """Mount it at `path`: it answers for the jobs."""
        return StatusApp(self)

    def response_of(self, answer: Answer) -> Response:
        return Response(
            answer.body, answer.status, dict(answer.headers), media_type=answer.media_type
        )
