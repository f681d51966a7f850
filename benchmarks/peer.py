"""Another system under the load of the bench, in the same run: its rate beside gesta's.

BullMQ, by its own npm package: every job is added by itself, one worker does all of them, on
Valkey. The script is bullmq.mjs beside this module.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.child import run_program
from benchmarks.figures import PeerFigures
from benchmarks.load import SUBMITTERS
from benchmarks.node import Node, find_node, install
from benchmarks.subjects import TEXT
from gesta.errors import BadSettings
from gesta.testing.valkey_server import ValkeyServer, binary

PEERS = ("bullmq",)
#: Jobs that its worker has at a time. Of 20, 50, 100, 200 and 1,000 this was the fastest.
CONCURRENCY = 50
_FOLDER = Path(__file__).parent


class PeerRun(msgspec.Struct, frozen=True):
    """What the script prints."""

    peer: str
    runtime: str
    store: str
    requests: int
    requests_per_second: float


@dataclass(frozen=True)
class Peer:
    """All that it needs is there; `run` measures it."""

    script: Path
    node: Node
    folder: Path

    async def run(self, requests: int) -> PeerRun:
        """On a fresh server, which is gone before anything else is measured."""
        async with ValkeyServer(durable=True, below=self.folder) as server:
            numbers = {
                "port": server.port,
                "requests": requests,
                "submitters": SUBMITTERS,
                "concurrency": CONCURRENCY,
                "textLength": len(TEXT),
            }
            plan = msgspec.json.encode(numbers).decode()
            printed = await run_program(
                [self.node.node, str(self.script), plan], folder=self.script.parent
            )
        return msgspec.json.decode(printed, type=PeerRun)


async def open_peer(name: str, folder: Path, checkout: Path = _FOLDER) -> Peer:
    """Look for all that the peer needs and install its packages, before anything is measured."""
    if name not in PEERS:
        raise BadSettings(f"peer: bench knows {', '.join(PEERS)}, not {name!r}")
    script = checkout / f"{name}.mjs"
    if not script.is_file():
        raise BadSettings(
            f"peer: {name} can be measured from a checkout of gesta only; {script} is not there"
        )
    binary()
    node = find_node()
    await install(node, checkout)
    return Peer(script, node, folder)


def peer_figures(runs: Sequence[PeerRun], ratio: float) -> PeerFigures:
    rates = [run.requests_per_second for run in runs]
    return PeerFigures(
        name=runs[0].peer,
        requests_per_second=round(statistics.median(rates)),
        runs=rates,
        ratio=round(ratio, 2),
        runtime=runs[0].runtime,
        store=runs[0].store,
    )
