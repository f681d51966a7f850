"""sandbox: post events as other systems would, to try the path of an inbound event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from gesta.cli.arguments import referred
from gesta.cli.command import FAILED
from gesta.cli.invocation import Call
from gesta.cli.output import Json, print_json, say, tell

POST_SECONDS = 10.0


@dataclass(frozen=True)
class Posted:
    """The fields that Slack would send about the message."""

    secret: Annotated[
        str,
        typer.Option("--secret", metavar="SECRET", help="The signing secret; env:NAME, or @FILE."),
    ]
    team: Annotated[str, typer.Option("--team", metavar="ID", help="Id of a slack.team.")]
    channel: Annotated[str, typer.Option("--channel", metavar="ID", help="Id of a channel.")] = (
        "C0SANDBOX"
    )
    event_id: Annotated[
        str | None,
        typer.Option(
            "--event-id", metavar="ID", help="Id of the event. The same id again is a duplicate."
        ),
    ] = None
    ts: Annotated[
        str | None,
        typer.Option("--ts", metavar="TS", help="Timestamp of the message: 1700000000.000100."),
    ] = None
    times: Annotated[
        int, typer.Option("--times", min=1, max=1_000, metavar="N", help="Post it this many times.")
    ] = 1
    url: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="URL that receives the events of the app."),
    ] = "http://127.0.0.1:8420/inbound/slack/events"


async def slack_event(
    _: Call,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text of the message.")],
    posted: Posted,
    as_json: Json = False,
) -> None:
    """Post a signed event to a running server, as Slack would."""
    import aiohttp
    import msgspec

    from gesta.errors import BadInput
    from gesta.runtime.clock import SystemRuntime
    from gesta.sandbox.slack import message_event, signed

    runtime = SystemRuntime()
    now, unique = runtime.now_ms(), runtime.random_bytes(4).hex()
    envelope = message_event(
        text,
        event_id=posted.event_id or f"Ev{unique.upper()}",
        ts=posted.ts or f"{now // 1000}.{now % 1000:03d}000",
        team=posted.team,
        channel=posted.channel,
    )
    answers = []
    timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for number in range(posted.times):
            at = runtime.now_ms() // 1000
            posting = signed(envelope, referred("secret", posted.secret), at, retry=number)
            try:
                async with session.post(
                    posted.url, data=posting.body, headers=posting.headers
                ) as answer:
                    answers.append((answer.status, await answer.read()))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise BadInput(
                    f"{posted.url}: {type(error).__name__}; is `gesta serve` running?"
                ) from None
    for status, body in answers:
        if as_json:
            print_json({"status": status, "answer": msgspec.json.decode(body or b"null")})
        else:
            say(f"{status} {body.decode(errors='replace')}")
    if any(status >= 400 for status, _ in answers):
        tell("an event was not accepted: check --secret, --team and the server's clock")
        raise typer.Exit(FAILED)
