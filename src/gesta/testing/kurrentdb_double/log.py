"""The log of the double: one file, and the rules by which a server accepts an append."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

#: The largest append that a server accepts unless it is configured otherwise.
MAX_APPEND_BYTES = 1_048_576
#: What a server writes into `$all` by itself. A reader has to filter it out.
SYSTEM_STREAM = "$stats-127.0.0.1"
TOMBSTONE = "$streamDeleted"
#: Where the first record begins: a position is the place of a record in the file.
_HEADER = b"gesta-kurrentdb-double\n"

#: A revision, or what is known of the stream.
Expected = int | Literal["no_stream", "any", "exists"]


class Proposed(NamedTuple):
    """An event to append. `properties` are those of the system: type and content type."""

    id: str
    properties: dict[str, str]
    data: bytes
    metadata: bytes


class Record(msgspec.Struct, frozen=True, array_like=True):
    stream: str
    revision: int
    id: str
    properties: dict[str, str]
    data: bytes
    metadata: bytes
    #: The place in the file. It is not stored.
    position: int = 0


class Written(NamedTuple):
    revision: int
    position: int


class WrongVersion(NamedTuple):
    """`current`: the revision of the last event; None: there is no stream."""

    current: int | None


Refusal = WrongVersion | Literal["deleted", "too large"]


class Log:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "log"
        self.records: list[Record] = []
        self._streams: dict[str, list[Record]] = {}
        self._deleted: set[str] = set()
        self._end = self._read_file()
        self._file = self._path.open("r+b")
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def close(self) -> None:
        self._file.close()

    def stream(self, name: str) -> list[Record] | Literal["deleted"] | None:
        return "deleted" if name in self._deleted else self._streams.get(name)

    def append(
        self, stream: str, expected: Expected, events: Sequence[Proposed]
    ) -> Written | Refusal:
        """All events or none; in the file when it returns."""
        if stream in self._deleted:
            return "deleted"
        if sum(len(one.data) + len(one.metadata) for one in events) > MAX_APPEND_BYTES:
            return "too large"
        there = self._streams.get(stream, [])
        if expected in ("any", "exists"):
            if expected == "exists" and not there:
                return WrongVersion(None)
            start = len(there)
        else:
            start = 0 if expected == "no_stream" else int(expected) + 1
        repeated = there[start : start + len(events)]
        if repeated and [one.id for one in repeated] == [one.id for one in events]:
            return Written(repeated[-1].revision, repeated[-1].position)
        if start != len(there):
            return WrongVersion(there[-1].revision if there else None)
        return self._write(stream, events)

    def tombstone(self, stream: str, expected: Expected) -> Written | Refusal:
        """Delete a stream for good. Its events stay in `$all`, as before a scavenge."""
        if stream in self._deleted:
            return "deleted"
        there = self._streams.get(stream, [])
        fits = {"any": True, "no_stream": not there, "exists": bool(there)}
        is_fit = expected == len(there) - 1 if isinstance(expected, int) else fits[expected]
        if not is_fit:
            return WrongVersion(there[-1].revision if there else None)
        return self._write(stream, [Proposed("", {"type": TOMBSTONE}, b"", b"")])

    def write_statistics(self) -> None:
        self.append(
            SYSTEM_STREAM, "any", [Proposed(f"{self._end:032x}", {"type": "$stats"}, b"{}", b"")]
        )

    def _write(self, stream: str, events: Sequence[Proposed]) -> Written:
        first = len(self._streams.get(stream, ()))
        records = [Record(stream, first + number, *one) for number, one in enumerate(events)]
        # One write: a killed process leaves all events of an append or a part that is cut off.
        frames = [msgspec.msgpack.encode(record) for record in records]
        whole = msgspec.msgpack.encode(frames)
        self._file.write(len(whole).to_bytes(4, "big") + whole)
        self._file.flush()
        return self._take(records, [len(frame) for frame in frames], 4 + len(whole))

    def _take(self, records: Sequence[Record], sizes: Sequence[int], length: int) -> Written:
        position = self._end
        for record, size in zip(records, sizes, strict=True):
            placed = msgspec.structs.replace(record, position=position)
            position += size
            self.records.append(placed)
            if record.properties["type"] == TOMBSTONE:
                self._deleted.add(record.stream)
            else:
                self._streams.setdefault(record.stream, []).append(placed)
        self._end += length
        return Written(self.records[-1].revision, self.records[-1].position)

    def _read_file(self) -> int:
        """Read all whole appends; where the last one ends."""
        if not self._path.exists():
            self._path.write_bytes(_HEADER)
        content, self._end = self._path.read_bytes(), len(_HEADER)
        while len(content) >= self._end + 4:
            length = 4 + int.from_bytes(content[self._end : self._end + 4], "big")
            whole = content[self._end + 4 : self._end + length]
            if len(whole) < length - 4:
                break
            frames = msgspec.msgpack.decode(whole, type=list[bytes])
            records = [msgspec.msgpack.decode(frame, type=Record) for frame in frames]
            self._take(records, [len(frame) for frame in frames], length)
        return self._end
