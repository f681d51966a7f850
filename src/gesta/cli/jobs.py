"""jobs: the job store that slow endpoints share with other services."""

from __future__ import annotations

from typing import Annotated

import typer

from gesta.cli.invocation import Invocation
from gesta.cli.output import Json, print_json, say, tell
from gesta.errors import BadInput


async def migrate_jobs(
    _: Invocation,
    jobs_url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The Redis server: redis://127.0.0.1:6379"),
    ],
    as_json: Json = False,
) -> None:
    """Turn jobs that are stored as JSON texts into hashes, while services use them. Run it again
    after an interruption: it goes on where it was.
    """
    from rich.console import Console
    from rich.progress import Progress

    from gesta.jobs.migration import migrate
    from gesta.stores.redis.connection import Redis
    from gesta.stores.redis.job_hashes import RedisJobHashes, jobs_address

    if jobs_url.partition(":")[0] not in ("redis", "rediss"):
        raise BadInput("URL: only jobs on one Redis server were ever texts; write redis://host")
    address, layout, prefix = jobs_address(jobs_url)
    redis = Redis(address)
    screen = Console(stderr=True)
    try:
        table = RedisJobHashes(redis, layout=layout, prefix=prefix)
        total = await redis.command("DBSIZE")
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task("jobs", total=total)
            done = await migrate(table, lambda seen, _: progress.update(task, completed=seen))
    finally:
        await redis.close()
    if as_json:
        print_json({"hashes": done.hashes, "left": done.left})
    else:
        say(str(done.hashes))
    for one in done.left:
        tell(f"{one} is not a job that can be read; it was left as it is")
    if done.left:
        tell("Delete these keys, or repair them and run the command again")
