"""The machine under the bench: file system, disk, memory. A figure without them says little."""

from __future__ import annotations

import os
import re
import resource
import statistics
import sys
import time
from pathlib import Path

from gesta.errors import BadSettings

#: Where nothing reaches a disk, so that durability looks free.
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
MEGABYTE = 1024 * 1024

_MOUNTS = Path("/proc/self/mounts")
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def bench_folder(chosen: str | None) -> Path:
    """The folder to work below: the chosen one, else the current one unless that is kept in
    memory.
    """
    folder = Path(chosen or ".").resolve()
    if not folder.is_dir():
        raise BadSettings(f"folder: {folder} does not exist; make it first")
    if chosen is None and (kind := file_system(folder)) in MEMORY_FILE_SYSTEMS:
        raise BadSettings(
            f"{folder} is on {kind}, which never reaches a disk; name a folder on a real one with"
            " --folder"
        )
    return folder


def file_system(folder: Path) -> str:
    """The type of the file system below a folder, e.g. ext4."""
    try:
        mounts = [line.split(" ")[1:3] for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "unknown"
    # Blanks in a mount point are written as \\040; of several mounts on one point the last one
    # counts.
    found = [
        (len(point), kind)
        for text, kind in mounts
        if folder.is_relative_to(point := text.replace("\\040", " "))
    ]
    longest = max((length for length, _ in found), default=0)
    return next((kind for length, kind in reversed(found) if length == longest), "unknown")


def fsync_ms(folder: Path, times: int = 50) -> float:
    """The median of writing 4 KB and having them on disk: the least that a durable commit can
    take.
    """
    path, block, leased = folder / "fsync", bytes(4096), []
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            start = time.perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            leased.append((time.perf_counter() - start) * 1000)
    path.unlink()
    return statistics.median(leased)


def rss_mb() -> float:
    """What this process has in memory now."""
    return _status_mb("VmRSS")


def forget_peak() -> None:
    """Let the peak count from here, where the system can do that."""
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return


def peak_rss_mb() -> float:
    """The most this process has had in memory since `forget_peak`, or since it began."""
    return _status_mb("VmHWM")


def _status_mb(name: str) -> float:
    try:
        text = _STATUS.read_text(encoding="ascii")
    except OSError:
        text = ""
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    if match is not None:
        return int(match[1]) * 1024 / MEGABYTE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / MEGABYTE
