"""Callers in this process that wait for outcomes, woken when the view of their request is saved."""

import asyncio
from collections.abc import Sequence

from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.outcome import Done, Outcome, Rejected, Unknown
from gesta.domain.state import State
from gesta.ports.read_model import Key, View, key_of


def outcome_of(state: State) -> Outcome | None:
    """The outcome of a request; None while something will still happen automatically."""
    lifecycle = lifecycle_of(state.flow)
    match state.status:
        case status if status in lifecycle.success and not state.reason:
            return Done(state.provider_id, state.target_id, state.detail)
        case "failed":
            return Rejected(state.reason, state.detail)
        case "cancelled" if state.reason == "duplicate" and state.attempts == 0:
            return Rejected(state.reason, state.detail)
        case "compensated":
            return Rejected(state.status, f"{state.reason} {state.detail}".rstrip())
        case "expired" | "cancelled":
            return Rejected(state.status)
        case "unknown" if state.due_at is None:
            return Unknown(state.reason, state.detail)
        case status if status in lifecycle.success:
            # The last operation failed, and what succeeded before it stays.
            return Rejected(state.reason, state.detail)
        case _:
            return None


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[Key, list[asyncio.Future[State]]] = {}

    @property
    def waiting(self) -> int:
        """How many requests have a waiting caller."""
        return len(self._waiting)

    def wait(self, key: Key) -> asyncio.Future[State]:
        future: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        return future

    def forget(self, key: Key, future: asyncio.Future[State]) -> None:
        futures = self._waiting.get(key, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(key, None)

    def saved(self, views: Sequence[View]) -> None:
        """The projector has saved these views."""
        if not self._waiting:
            return
        for view in views:
            key = key_of(view.state)
            futures = self._waiting.get(key)
            if futures and outcome_of(view.state) is not None:
                del self._waiting[key]
                for future in futures:
                    if not future.done():
                        future.set_result(view.state)
