"""A program with a handler: what became of its notes goes into a file."""

from pathlib import Path

from gesta import Engine, Event
from tests.cli.shop import note

engine = Engine("sqlite:///gesta.db", flows=[note])


@engine.on("shop.note", name="ledger")
async def book(event: Event) -> None:
    with Path("ledger.txt").open("a") as ledger:
        ledger.write(f"{event.request_id} {event.status}\n")
