"""jobs: the job store that slow endpoints share with other services."""

from __future__ import annotations

from typing import Annotated

import typer

from gesta.cli.invocation import Invocation
from gesta.cli.output import Json, print_answer, progress_bar, tell
from gesta.errors import BadInput


async def migrate_jobs(
    _: Invocation,
    jobs_url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The Redis server: redis://127.0.0.1:6379"),
    ],
    as_json: Json = False,
) -> None:
    """Convert jobs that are stored as JSON texts to hashes, while services use them. After an
    interruption run it again: it continues where it stopped.
    """
    from gesta.jobs.migration import migrate
    from gesta.stores.redis.connection import Redis
    from gesta.stores.redis.job_hashes import RedisJobHashes, jobs_address

    if jobs_url.partition(":")[0] not in ("redis", "rediss"):
        raise BadInput(
            "URL: only a single Redis server can have jobs stored as text; write redis://host"
        )
    address, layout, prefix = jobs_address(jobs_url)
    redis = Redis(address)
    try:
        table = RedisJobHashes(redis, layout=layout, prefix=prefix)
        total = await redis.command("DBSIZE")
        with progress_bar("jobs") as report:
            done = await migrate(table, lambda seen, _: report(seen, total))
    finally:
        await redis.close()
    document = {"hashes": done.hashes, "left": done.left}
    print_answer(document, str(done.hashes), as_json=as_json)
    for one in done.left:
        tell(f"{one} cannot be read as a job; it was left unchanged")
    if done.left:
        tell("Delete these keys, or repair them and run the command again")
