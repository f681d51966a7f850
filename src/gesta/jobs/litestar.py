"""Slow endpoints in Litestar.

jobs = Endpoints(engine)

@post("/reports", status_code=202)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(data: JSONBody[Report]) -> Summary: ...

app = Litestar([build, jobs.route], lifespan=[engine.lifespan])
"""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, asgi
from litestar.types import Receive, Scope, Send

from gesta.jobs.answers import Answer
from gesta.jobs.endpoints import EndpointsCore
from gesta.jobs.status_app import StatusApp


class Endpoints(EndpointsCore):
    request_type, response_type = Request, Response[bytes]
    # Litestar's own name for it.
    request_name = "request"

    @property
    def route(self) -> Any:
        """A route handler for the application: it answers for the jobs."""
        app = StatusApp(self)

        async def jobs(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)  # type: ignore[arg-type]

        return asgi(self.path, is_mount=True, copy_scope=True)(jobs)

    def response_of(self, answer: Answer) -> Response[bytes]:
        return Response(
            answer.body,
            status_code=answer.status,
            headers=dict(answer.headers),
            media_type=answer.media_type,
        )
