"""A disk that can lose its power: what was written and not synced is kept apart, and is gone, or
half there, when the light goes out.

`Disk` is the model. `PowerVfs` lets SQLite write through it: reads and writes go to real files, so
that the engine runs as it always
does, and the model remembers which of them a disk would still have.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

import apsw

#: What a disk writes whole or not at all.
SECTOR = 512
NAME, BASE = "gesta-power", "unix"
JOURNALS = ("-journal", "-wal")


@dataclass
class _File:
    """A file as the disk has it, and what was asked of it since it was last synced: (offset,
    bytes), or (length, None) to cut it.
    """

    synced: bytearray = field(default_factory=bytearray)
    undispatched: list[tuple[int, bytes | None]] = field(default_factory=list)
    #: Whether the folder on disk has its name: after a sync of the file or of the folder.
    is_named: bool = False
    #: Deleted, and the folder not synced since: the name may come back.
    is_deleted: bool = False


def _apply(image: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del image[offset:]
    else:
        image.extend(bytes(max(0, offset - len(image))))
        image[offset : offset + len(data)] = data


class Disk:
    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        #: Held at every change, and by who asks for the whole at a moment: the loop's thread and
        #: the writer's both come here.
        self.lock = RLock()
        #: Called before every write and sync: the moments at which the power may go.
        self.moment: Callable[[], None] = lambda: None

    def opened(self, path: str, content: bytes) -> None:
        """A file that is new to the disk: neither its name nor what is in it was synced by
        anybody.
        """
        with self.lock:
            file = self._files.get(path)
            if file is None or file.is_deleted:
                self._files[path] = _File(undispatched=[(0, content)] if content else [])

    def wrote(self, path: str, offset: int, data: bytes | None) -> None:
        with self.lock:
            self.moment()
            self._files[path].undispatched.append((offset, data))

    def synced(self, path: str) -> None:
        """The file and its name are on the disk.

        With the first sync of a journal SQLite's own file layer syncs the folder, too.
        """
        with self.lock:
            self.moment()
            file = self._files[path]
            for offset, data in file.undispatched:
                _apply(file.synced, offset, data)
            file.undispatched.clear()
            if not file.is_named and path.endswith(JOURNALS):
                self.folder_synced()
            file.is_named = True

    def deleted(self, path: str) -> None:
        with self.lock:
            self.moment()
            if path in self._files:
                self._files[path].is_deleted = True

    def folder_synced(self) -> None:
        with self.lock:
            for path in [path for path, file in self._files.items() if file.is_deleted]:
                del self._files[path]
            for file in self._files.values():
                file.is_named = True

    def after_power_loss(self, dice: random.Random) -> dict[str, bytes]:
        """What would be on the disk if the power went now: of what was not synced, nothing, the
        first part, or any sectors of it.
        """
        with self.lock:
            manner = dice.choice(["nothing", "first part", "any sectors"])
            found = {}
            for path, file in self._files.items():
                # A name that was made or taken away since the folder was last synced may be there
                # or not.
                if file.is_named != file.is_deleted or dice.random() < 0.5:
                    image = bytearray(file.synced)
                    for offset, data in _surviving(file.undispatched, manner, dice):
                        _apply(image, offset, data)
                    found[path] = bytes(image)
            return found


def _surviving(
    undispatched: list[tuple[int, bytes | None]], manner: str, dice: random.Random
) -> list[tuple[int, bytes | None]]:
    if manner == "nothing":
        return []
    if manner == "first part":
        whole = undispatched[: dice.randint(0, len(undispatched))]
        if whole and (last := whole[-1])[1] is not None:
            # Torn: the last one arrived in part.
            whole[-1] = (last[0], last[1][: dice.randrange(0, len(last[1]) + 1, SECTOR)])
        return whole
    kept: list[tuple[int, bytes | None]] = []
    for offset, data in undispatched:
        if data is None:
            kept += [(offset, None)] if dice.random() < 0.5 else []
            continue
        pieces = [
            (offset + start, data[start : start + SECTOR]) for start in range(0, len(data), SECTOR)
        ]
        kept += [piece for piece in pieces if dice.random() < 0.7]
    return kept


class PowerVfs(apsw.VFS):
    """SQLite's own file layer, overheard by a disk. The default of this process until
    `unregister`.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(NAME, base=BASE, makedefault=True)

    def xOpen(  # noqa: N802 -- SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return PowerFile(self._disk, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802 -- SQLite's name
        super().xDelete(name, syncdir)
        self._disk.deleted(name)
        if syncdir:
            self._disk.folder_synced()


class PowerFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(BASE, name, flags)
        self._disk = disk
        # Temporary files have no name and are not looked for again.
        self._path = None if name is None else name if isinstance(name, str) else name.filename()
        if self._path is not None:
            disk.opened(self._path, Path(self._path).read_bytes())

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name
        super().xWrite(data, offset)
        if self._path is not None:
            self._disk.wrote(self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name
        super().xTruncate(newsize)
        if self._path is not None:
            self._disk.wrote(self._path, newsize, None)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- SQLite's name
        super().xSync(flags)
        if self._path is not None:
            self._disk.synced(self._path)
