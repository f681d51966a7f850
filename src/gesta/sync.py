"""A synchronous engine for Django, Flask and scripts: `from gesta.sync import Engine`.

It runs the asynchronous engine in a thread of its own, which `start` or the first call starts. No
store connection survives a fork: the engine stops before the fork and starts again after it, in the
parent at once and in the child with its own `start` or its first call.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from gesta.domain.events import Actor
from gesta.domain.lifecycles import Status
from gesta.domain.outcome import Outcome
from gesta.engine import engine as asynchronous
from gesta.engine.request import Request as Handle
from gesta.errors import GestaError
from gesta.flows.flow import Flow, Payload
from gesta.intake.submit import Accepted
from gesta.ports.read_model import View
from gesta.runtime.settings import Settings

T = TypeVar("T")


class Session:
    """A started engine and the thread that runs its event loop."""

    def __init__(self, engine: asynchronous.Engine) -> None:
        self._engine, self._loop = engine, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._loop.run_forever, name="gesta", daemon=True)
        self.thread.start()
        #: Calls that wait for an outcome. A stop cancels them; all others it waits for.
        self.waiting: set[Future[Any]] = set()
        self.is_closed = False
        try:
            self.begin(engine.start()).result()
        except BaseException:
            self._end()
            raise

    @property
    def is_this_thread(self) -> bool:
        return self.thread is threading.current_thread()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        for future in list(self.waiting):
            future.cancel()
        try:
            self.begin(self._engine.stop()).result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join()
        self._loop.close()


class Runner:
    """Runs an asynchronous engine for callers in other threads, and restarts it around forks."""

    def __init__(self, engine: asynchronous.Engine) -> None:
        self.engine = engine
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._calls = self._forks = 0
        self._is_to_restart = self._is_own_fork = self._is_orphan = False
        _LIVE.add(self)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the engine's thread. Forks and `close` wait until it has ended."""
        with self._changed:
            session = self.started()
            self._calls += 1
        try:
            return session.begin(make()).result()
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def wait(self, make: Callable[[float], Coroutine[Any, Any, T]], timeout: float) -> T:
        """Run a coroutine that waits up to `timeout` seconds. A fork interrupts it, and it is
        started again for the rest of its time.
        """
        until = time.monotonic() + timeout
        while True:
            with self._changed:
                session = self.started()
                future = session.begin(make(max(0.0, until - time.monotonic())))
                session.waiting.add(future)
            try:
                return future.result()
            except CancelledError:
                if session.is_closed:
                    raise GestaError("the engine was closed while a call waited") from None
            finally:
                future.cancel()
                session.waiting.discard(future)

    def started(self) -> Session:
        with self._changed:
            if self._is_orphan:
                raise GestaError("a flow forked this process; start another program instead")
            if self._session is not None and self._session.is_this_thread:
                raise GestaError("this thread runs the event loop of gesta; use gesta.Engine here")
            while self._forks:
                self._changed.wait()
            if self._session is None:
                self._session = Session(self.engine)
            return self._session

    def close(self) -> None:
        with self._changed:
            session = self._stop()
            if session is not None:
                session.is_closed = True
                session.stop()

    def before_fork(self) -> None:
        if self._session is not None and self._session.is_this_thread:
            # Its own thread cannot stop it, so the child must not touch what it inherits.
            self._is_own_fork = True
            return
        with self._changed:
            self._forks += 1
            session = self._stop()
            if session is not None:
                self._is_to_restart = True
                session.stop()

    def after_fork_in_parent(self) -> None:
        if self._is_own_fork:
            self._is_own_fork = False
            return
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()
            if self._is_to_restart and not self._forks:
                self._is_to_restart = False
                # An error here would be lost; the next call tries again and raises it.
                with suppress(Exception):
                    self.started()

    def after_fork_in_child(self) -> None:
        # Threads that wait for the lock do not exist in the child.
        self._changed = threading.Condition()
        self._calls = self._forks = 0
        self._is_to_restart, self._is_orphan = False, self._is_own_fork

    def _stop(self) -> Session | None:
        """The session, for the caller to stop, once no call needs it."""
        while self._calls:
            self._changed.wait()
        session, self._session = self._session, None
        return session


class Engine:
    """The engine for programs without asyncio. Any thread may use it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        flows: Iterable[Flow] = (),
        settings: Settings | None = None,
        work: bool = True,
    ) -> None:
        """`work=False` only submits and reads; another process executes the requests."""
        self._engine = asynchronous.Engine(url, flows=flows, settings=settings, work=work)
        self._runner = Runner(self._engine)

    @property
    def async_engine(self) -> asynchronous.Engine:
        """The engine that it runs. Commands read its flows and settings (`--app shop:engine`)."""
        return self._engine

    def start(self) -> None:
        """Start now instead of with the first call, so that requests that wait are executed.

        Does nothing if the engine runs. A child of a fork does not inherit the start: call it in
        each worker process.
        """
        self._runner.started()

    def submit(self, payload: Payload, **options: Unpack[asynchronous.SubmitOptions]) -> Request:
        """Accept a request; when this returns it is on disk.

        The same key with the same content answers `duplicate`, with other content raises Conflict.
        """
        return Request(
            self._runner, self._runner.call(lambda: self._engine.submit(payload, **options))
        )

    def request(
        self, request_id: str, *, flow: str | None = None, tenant: str = "default"
    ) -> Request:
        """An earlier request of this tenant; raises NotFound."""
        return Request(
            self._runner,
            self._runner.call(lambda: self._engine.request(request_id, flow=flow, tenant=tenant)),
        )

    def find(
        self,
        *,
        tenant: str = "default",
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        before_id: str | None = None,
        limit: int = 50,
    ) -> list[View]:
        """A tenant's requests, newest first; with `key` those that this key led to."""
        return self._runner.call(
            lambda: self._engine.find(
                tenant=tenant,
                flow=flow,
                status=status,
                key=key,
                before_id=before_id,
                limit=limit,
            )
        )

    def outcome(
        self,
        request_id: str,
        timeout: float = 30.0,
        *,
        flow: str | None = None,
        tenant: str = "default",
    ) -> Outcome:
        """Wait until a request needs no more work. Raises OutcomeTimeout, and the request goes
        on.
        """
        return self.request(request_id, flow=flow, tenant=tenant).outcome(timeout)

    def cancel(
        self,
        request_id: str,
        *,
        flow: str | None = None,
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> Status:
        """Cancel a request. A running attempt finishes first; if it succeeds, its result stays."""
        return self.request(request_id, flow=flow, tenant=tenant).cancel(actor=actor)

    def close(self) -> None:
        """Let running attempts end, then stop the thread. The next call starts it again."""
        self._runner.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Request:
    """A request that was submitted, or found by its id."""

    def __init__(self, runner: Runner, handle: Handle) -> None:
        self._runner = runner
        self.id, self.flow, self.tenant = handle.id, handle.flow, handle.tenant
        self.verdict, self.warnings = handle.verdict, handle.warnings

    def __repr__(self) -> str:
        return f"Request({self.flow} {self.id} {self.verdict})"

    def outcome(self, timeout: float = 30.0) -> Outcome:
        """Wait until the request needs no more work. Raises OutcomeTimeout after `timeout` seconds,
        and the request goes on.
        """
        return self._runner.wait(lambda left: self._handle().outcome(left), timeout)

    def status(self) -> Status:
        return self._runner.call(lambda: self._handle().status())

    def cancel(self, *, actor: Actor | None = None) -> Status:
        """Cancel it. A running attempt finishes first; if it succeeds, its result stays."""
        return self._runner.call(lambda: self._handle().cancel(actor=actor))

    def _handle(self) -> Handle:
        accepted = Accepted(self.flow, self.tenant, self.id, self.verdict)
        return Handle(self._runner.engine.pipeline, accepted)


_LIVE: WeakSet[Runner] = WeakSet()


def _each(act: Callable[[Runner], None]) -> Callable[[], None]:
    def act_on_all() -> None:
        for runner in list(_LIVE):
            act(runner)

    return act_on_all


os.register_at_fork(
    before=_each(Runner.before_fork),
    after_in_parent=_each(Runner.after_fork_in_parent),
    after_in_child=_each(Runner.after_fork_in_child),
)
atexit.register(_each(Runner.close))
