"""Run the double until the process ends: `python -m gesta.testing.kurrentdb_double FOLDER PORT`."""

import sys
from pathlib import Path

from gesta.runtime.clock import run
from gesta.testing.kurrentdb_double.server import KurrentDBDouble


async def main(folder: str, port: str) -> None:
    async with KurrentDBDouble(Path(folder), port=int(port)) as double:
        await double.ended()


if __name__ == "__main__":
    run(main(*sys.argv[1:3]))
