"""A program whose flow takes as long as a file lies in the folder."""

import asyncio
from pathlib import Path

from gesta import Attempt, Done, Engine, Outcome, Payload, flow


class Errand(Payload, frozen=True):
    n: int = 1


@flow("shop.errand", on_unknown="manual")
async def errand(payload: Errand, attempt: Attempt) -> Outcome:
    Path("begun").touch()
    while Path("busy").exists():
        await asyncio.sleep(0.02)
    return Done(str(payload.n))


engine = Engine("sqlite:///gesta.db", flows=[errand])
