"""/v1/bulk: one decision about every request that matches a filter.

The answer is a stream of progress reports, one JSON object a line. The run continues while the
caller reads it. It stops when the caller disconnects, and /v1/bulk/{id}/resume continues it.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from gesta.api_types.bulk import Bulk, BulkAction, BulkLine, BulkProgress, Rate
from gesta.api_types.structs import Asked
from gesta.errors import GestaError, NotFound
from gesta.http_api.problem import Problem, problem_of
from gesta.http_api.route import Call, Route, Stream

NDJSON = "application/x-ndjson"
#: Runs of one tenant at the same time in this process: each reads the whole list of requests.
RUNS_OF_TENANT_MAX = 2


class Resume(Asked, frozen=True):
    """`action` and `deadLetters` are those that the run was started with."""

    action: BulkAction
    dead_letters: Literal[True] | None = None
    #: Requests per second; without it the rate of the run that was stopped.
    rate: Rate | None = None


async def bulk(call: Call) -> Stream:
    """Resolve, retry, cancel, redrive or purge every request that matches all given conditions.

    The first line says how many requests match; the last line has `finished`. With `dryRun` nothing
    is changed. The audit log records the run. If the connection breaks, resume it by its `id`.
    """
    return await _stream(
        call, call.engine.admin.bulk(call.body, tenant=call.tenant, actor=call.actor)
    )


async def resume_bulk(call: Call) -> Stream:
    """Continue a run that was stopped, with the requests that still match.

    422 if the run has another action, 409 `bulk_finished` if it has finished.
    """
    run_id = call.params["id"]
    if not run_id.isascii() or not run_id.isdecimal() or len(run_id) > 15:
        raise NotFound("bulk run", run_id)
    return await _stream(
        call,
        call.engine.admin.resume_bulk(
            int(run_id),
            call.body.action,
            dead_letters=call.body.dead_letters is not None,
            rate=call.body.rate,
            tenant=call.tenant,
            actor=call.actor,
        ),
    )


async def _stream(call: Call, run: AsyncGenerator[BulkProgress, None]) -> Stream:
    if call.web.bulk_runs[call.tenant] >= RUNS_OF_TENANT_MAX:
        detail = f"{RUNS_OF_TENANT_MAX} bulk runs of this tenant are active in this process"
        raise Problem(503, "too_many_bulk_runs", detail, headers={"Retry-After": "5"})
    # It reads all requests before its first report; a dry run checks all of them.
    call.web.bulk_runs[call.tenant] += 1
    try:
        # Errors of the filter are raised here, before the answer begins.
        first = await anext(run)
    finally:
        call.web.bulk_runs[call.tenant] -= 1
    return Stream(_lines(call, run, first), NDJSON)


async def _lines(
    call: Call, run: AsyncGenerator[BulkProgress, None], first: BulkProgress
) -> AsyncIterator[bytes]:
    progress: BulkProgress | None = first
    is_local, keys = call.web.grant is not None, call.pipeline.keys
    call.web.bulk_runs[call.tenant] += 1
    try:
        while progress is not None:
            yield _line(BulkLine(progress=progress))
            if call.pipeline.is_stopping or not (is_local or await keys.is_still_valid(call.grant)):
                return
            progress = await anext(run, None)
    except GestaError as error:
        problem = problem_of(error)
        if is_local or problem is None:
            raise
        yield _line(BulkLine(problem=problem.representation))
    finally:
        call.web.bulk_runs[call.tenant] -= 1
        await run.aclose()


def _line(line: BulkLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


ROUTES = [
    Route(
        "POST",
        "/v1/bulk",
        bulk,
        "operate",
        "Resolve, retry, cancel, redrive or purge many requests",
        "decisions",
        body=Bulk,
        answer=BulkLine,
        gives=NDJSON,
        example={"action": "redrive", "flow": "notification.slack", "dryRun": True},
    ),
    Route(
        "POST",
        "/v1/bulk/{id}/resume",
        resume_bulk,
        "operate",
        "Continue a bulk run",
        "decisions",
        body=Resume,
        answer=BulkLine,
        gives=NDJSON,
        problems=(404, 409),
        example={"action": "redrive"},
    ),
]
