"""A part of the bench in a process of its own, so that it shares neither interpreter nor memory
with the engine.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from pathlib import Path

from gesta.errors import GestaError

#: The checkout: where `python -m benchmarks…` finds these modules.
ROOT = Path(__file__).parents[1]

#: The error shows this many characters of what the failed program wrote.
ERROR_CHARACTERS = 2_000


async def run_module(
    module: str,
    arguments: Sequence[object],
    given: str = "",
    tell: Callable[[str], None] | None = None,
) -> str:
    """The last line that `python -m module arguments` prints.

    `given` goes to its standard input, which no list of processes shows.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return await run_program(command, folder=ROOT, given=given, tell=tell)


async def run_program(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    given: str = "",
    tell: Callable[[str], None] | None = None,
) -> str:
    """The last line that a program prints; each line is printed.

    Raises when it fails, with what it has written to stderr.
    """
    with tempfile.TemporaryFile() as errors:
        # A session of its own: Ctrl-C is for the bench, which then ends its programs.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=errors, cwd=folder, start_new_session=True
        )
        last = ""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(given.encode())
            process.stdin.close()
            async for line in process.stdout:
                last = line.decode().strip()
                if tell is not None:
                    tell(last)
            await process.wait()
        finally:
            if process.returncode is None:
                # Asked, not killed: what it has made on a server it removes before it ends.
                process.send_signal(signal.SIGINT)
                await process.wait()
        if process.returncode:
            errors.seek(0)
            reported = errors.read().decode(errors="replace").strip()[-ERROR_CHARACTERS:]
            raise GestaError(
                f"{' '.join(command[:4])} failed with code {process.returncode}:\n{reported}"
            )
    return last
