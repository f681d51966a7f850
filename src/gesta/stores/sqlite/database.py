"""One SQLite file, with one writer thread and one reader thread per process.

The writer commits the steps of all components that are ready as one transaction. With a durable
step in it, the commit is on disk before it is answered. Commits of rebuildable rows alone are not
synced.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from gesta.errors import (
    DamagedStore,
    EmptiedStore,
    Fenced,
    GestaError,
    NotOurs,
    StoreError,
    StoreFull,
    TooNew,
)
from gesta.runtime.clock import Runtime, WorkerThread, sleep
from gesta.stores.migrations import migrations_of
from gesta.stores.sqlite.statements import sql

T = TypeVar("T")
Step = Callable[[apsw.Connection], T]

#: "gest": marks the files of gesta.
APPLICATION_ID = 0x67657374
#: Where it ends in the header of the file.
APPLICATION_ID_END = 72
#: How long another process may take to create the store.
CREATION_SECONDS = 1.0
#: Another process may lock the file during its commit; locking it for longer is an error.
BUSY_MS = 10_000
SETTINGS_TRIES = 50
#: The message of the triggers of a fence (sql/fences.sql), before its kind.
FENCE = "gesta fence: "
#: A step of so many writes is sent immediately.
LARGE = 256
#: How often emptying the write-ahead log is retried while others read it.
EMPTY_AGAIN_SECONDS = 1.0
#: How soon another process's commit is noticed.
WATCH_SECONDS = 0.1


class _Call:
    """A step for a thread, and its result."""

    __slots__ = ("answer", "durable", "error", "future", "step")

    def __init__(self, step: Step[Any], future: asyncio.Future[Any], *, durable: bool) -> None:
        self.step, self.future, self.durable = step, future, durable
        self.answer: Any = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.answer)
        else:
            self.future.set_exception(self.error)


def _deliver(calls: list[_Call]) -> None:
    for call in calls:
        call.deliver()


class Database:
    """Passes steps to the writer and the reader.

    Raises StoreError and its kinds, never errors of apsw.
    """

    def __init__(self, path: str, runtime: Runtime) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._synced = True
        self._writer = open_connection(path)
        self._reader = open_connection(path, migrate=False)
        self._writes: WorkerThread[list[_Call]] = WorkerThread(
            runtime, "gesta-sqlite-writer", self._write_all
        )
        self._reads: WorkerThread[_Call] = WorkerThread(
            runtime, "gesta-sqlite-reader", self._read_batch
        )
        #: Steps that were queued in this iteration of the event loop.
        self._gathered: list[_Call] = []
        self._closed = False
        self._runtime = runtime
        self._watcher = open_connection(path, migrate=False)
        self._seen_version = self._data_version()
        # From here on the event loop reads it, which must not wait for a lock.
        self._watcher.set_busy_timeout(0)
        self._listeners: list[Callable[[], None]] = []
        self._watching = runtime.call_later(WATCH_SECONDS, self._watch)

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after a commit of any process."""
        self._listeners.append(listener)

    def _watch(self) -> None:
        """Runs in the event loop: the version is in shared memory, so reading it is faster than
        asking a thread.
        """
        self._watching = self._runtime.call_later(WATCH_SECONDS, self._watch)
        try:
            version = self._data_version()
        except apsw.Error:
            # Another process recovers the file after a crash.
            version = -1
        if self._seen_version != version:
            self._seen_version = version
            for listener in self._listeners:
                listener()

    def _data_version(self) -> int:
        return _pragma(self._watcher, "data_version")

    def write(self, step: Step[T], *, durable: bool, size: int = 1) -> asyncio.Future[T]:
        """Run a step in the next commit, after those queued earlier. Done after that commit, which
        is on disk if `durable`.

        `size`: how many rows it writes. A large step does not wait for the end of this iteration of
        the event loop.
        """
        call = self._call(step, durable=durable)
        self._gathered.append(call)
        if size >= LARGE:
            self._hand_over()
        elif len(self._gathered) == 1:
            self._loop.call_soon(self._hand_over)
        return call.future

    def read(self, step: Step[T]) -> asyncio.Future[T]:
        """Run a step that only reads committed rows."""
        call = self._call(step, durable=False)
        self._reads.put(call)
        return call.future

    def ask(self, name: str, /, *values: Any) -> asyncio.Future[list[Any]]:
        """The rows of a named query."""
        return self.read(lambda db: db.execute(sql(name), values).fetchall())

    def run(self, name: str, /, *values: Any, durable: bool = False) -> asyncio.Future[list[Any]]:
        """Run a named statement in the next commit; its rows."""
        return self.write(lambda db: db.execute(sql(name), values).fetchall(), durable=durable)

    async def empty_log(self, wait_ms: int) -> bool:
        """Move the write-ahead log into the file and truncate it.

        False: other readers held it for so long. Then it is retried until it succeeds or the file
        is closed, which empties the log, too.
        """
        is_empty = await self._empty(wait_ms)
        if not is_empty:
            self._empty_later()
        return is_empty

    def _empty(self, wait_ms: int) -> asyncio.Future[bool]:
        def empty(db: apsw.Connection) -> bool:
            db.set_busy_timeout(wait_ms)
            try:
                busy, _, _ = db.execute("pragma wal_checkpoint(truncate)").get
                return not busy
            except apsw.BusyError:
                return False
            finally:
                db.set_busy_timeout(BUSY_MS)

        # In the reader's thread, because the writer's steps are in a transaction.
        return self.read(empty)

    def _empty_later(self) -> None:
        def emptied(answer: asyncio.Future[bool]) -> None:
            if not answer.cancelled() and (answer.exception() is not None or not answer.result()):
                self._empty_later()

        def again() -> None:
            if not self._closed:
                # Without waiting: other reads would wait, too.
                self._empty(0).add_done_callback(emptied)

        self._runtime.call_later(EMPTY_AGAIN_SECONDS, again)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._watching.cancel()
            self._watcher.close()
            self._hand_over()
            self._writes.close()
            self._reads.close()
            self._reader.close()
            self._writer.close()

    def _call(self, step: Step[Any], *, durable: bool) -> _Call:
        if self._closed:
            raise StoreError(f"{self.path} is closed; the engine has stopped")
        return _Call(step, self._loop.create_future(), durable=durable)

    def _hand_over(self) -> None:
        """Pass all steps together, so that they share a commit."""
        if self._gathered:
            self._writes.put(self._gathered)
            self._gathered = []

    def _write_all(self, batches: list[list[_Call]]) -> None:
        self._write_batch([call for batch in batches for call in batch])

    def _write_batch(self, calls: list[_Call]) -> None:
        try:
            self._commit(calls)
        except apsw.BusyError as busy:
            # No step caused this, and each one alone would wait as long again.
            for call in calls:
                call.error = self._as_ours(busy)
        except Exception as error:  # noqa: BLE001 -- passed to the caller
            if len(calls) == 1:
                calls[0].error = self._as_ours(error)
            else:
                # One step failed: each gets a commit of its own, so that only its caller gets the
                # error.
                for call in calls:
                    self._write_batch([call])
                return
        self._loop.call_soon_threadsafe(_deliver, calls)

    def _commit(self, calls: list[_Call]) -> None:
        db = self._writer
        self._set_synced(wanted=any(call.durable for call in calls))
        db.execute("begin immediate")
        try:
            for call in calls:
                call.answer = call.step(db)
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise

    def _set_synced(self, *, wanted: bool) -> None:
        if wanted != self._synced:
            self._writer.execute(f"pragma synchronous = {'full' if wanted else 'normal'}")
            self._synced = wanted

    def _read_batch(self, calls: list[_Call]) -> None:
        for call in calls:
            try:
                call.answer = call.step(self._reader)
            except Exception as error:  # noqa: BLE001 -- passed to the caller
                call.error = self._as_ours(error)
        self._loop.call_soon_threadsafe(_deliver, calls)

    def _as_ours(self, error: Exception) -> Exception:
        """An error of apsw as StoreError."""
        if isinstance(error, GestaError) or not isinstance(error, apsw.Error):
            return error
        ours: StoreError
        if isinstance(error, apsw.ConstraintError) and FENCE in str(error):
            ours = self._fenced(str(error))
        elif isinstance(error, apsw.FullError):
            ours = StoreFull(self.path, str(error))
        elif isinstance(error, apsw.CorruptError | apsw.NotADBError):
            ours = DamagedStore(self.path, str(error))
        elif isinstance(error, apsw.BusyError):
            ours = StoreError(
                f"{self.path} was locked by another process for more than {BUSY_MS // 1000} s;"
                " nothing was written. Look for a process that hangs"
            )
        else:
            ours = StoreError(f"{self.path}: {error}; nothing was written")
        ours.__cause__ = error
        return ours

    def _fenced(self, text: str) -> Fenced:
        """The fence that refused a step. Runs in the writer's thread after the rollback."""
        is_tenants = text.endswith("tenant")
        kind = "filling" if text.endswith("filling") else "left"
        found = [
            row
            for row in self._writer.execute(sql("list_fences"))
            if row[0] == kind and bool(row[2]) == is_tenants
        ]
        others, tenants = (", ".join(sorted({str(row[n]) for row in found})) for n in (1, 2))
        return Fenced(self.path, kind, other=others or "another store", tenant=tenants or None)


def open_connection(path: str, *, migrate: bool = True) -> apsw.Connection:
    """A connection to a store of gesta, with our settings."""
    if not Path(path).parent.is_dir():
        raise StoreError(f"{path}: the folder {Path(path).parent} does not exist; create it first")
    with suppress(FileExistsError):
        # Only its owner may read it. SQLite gives the files beside it the same mode.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        db = apsw.Connection(path, statementcachesize=400)
        db.set_busy_timeout(BUSY_MS)
        if migrate:
            _apply_migrations(db, path)
        _apply_settings(db)
    except (apsw.NotADBError, apsw.CorruptError) as error:
        if _was_a_store(Path(path)):
            raise DamagedStore(path, str(error)) from error
        raise NotOurs(path, "it is not a SQLite database") from error
    except apsw.FullError as error:
        raise StoreFull(path, str(error)) from error
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    return db


async def refuse_emptied(path: Path, runtime: Runtime) -> None:
    """Raise EmptiedStore for a file without content beside what only a store has.

    Waits a moment first: another process may be creating the store for an existing key.
    """
    until = runtime.monotonic() + CREATION_SECONDS
    while (evidence := emptied_evidence(path)) is not None:
        if runtime.monotonic() >= until:
            raise EmptiedStore(str(path), str(evidence))
        await sleep(runtime, CREATION_SECONDS / 10)


def emptied_evidence(path: Path) -> Path | None:
    """The file that shows that an empty file was a store: its key or its write-ahead log."""
    if not path.is_file() or path.stat().st_size:
        return None
    wal = path.with_name(f"{path.name}-wal")
    if wal.is_file() and wal.stat().st_size:
        return wal
    key = path.with_suffix(".key")
    return key if key.exists() else None


def _was_a_store(path: Path) -> bool:
    """Whether an unreadable file has our mark in its header, or a key beside it."""
    with path.open("rb") as file:
        header = file.read(APPLICATION_ID_END)
    mark = header[APPLICATION_ID_END - 4 :]
    return mark == APPLICATION_ID.to_bytes(4) or path.with_suffix(".key").exists()


def _apply_migrations(db: apsw.Connection, path: str) -> None:
    known = migrations_of(__package__)
    if _pragma(db, "application_id") == APPLICATION_ID and _pragma(db, "user_version") == len(
        known
    ):
        return
    # Read again under the lock: another process may be creating the same file.
    db.execute("begin exclusive")
    try:
        version = _pragma(db, "user_version")
        if (
            _pragma(db, "application_id") != APPLICATION_ID
            and db.execute(sql("any_table")).get is not None
        ):
            raise NotOurs(path, "it is another program's SQLite database")
        if version > len(known):
            raise TooNew(path, version, len(known))
        for migration in known[version:]:
            db.execute(migration.sql)
            db.execute(f"pragma user_version = {migration.number}")
        db.execute(f"pragma application_id = {APPLICATION_ID}")
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def _apply_settings(db: apsw.Connection) -> None:
    """Switching to the write-ahead log does not wait for a lock: it is retried after waiting."""
    for _ in range(SETTINGS_TRIES):
        try:
            db.execute(sql("connection_settings")).fetchall()
        except apsw.BusyError:
            db.execute("begin immediate")
            db.execute("rollback")
        else:
            return
    db.execute(sql("connection_settings")).fetchall()


def _pragma(db: apsw.Connection, name: str) -> int:
    return cast(int, db.execute(f"pragma {name}").get)
