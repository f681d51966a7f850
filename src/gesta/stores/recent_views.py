"""A cache of views of open requests that this process wrote.

A stale view is harmless: readers fold newer events onto it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from gesta.ports.read_model import Key, View

LENGTH = 20_000
#: Of payloads, which may have 256 KB each.
BYTES = 64 * 1024 * 1024


class Saved(NamedTuple):
    """Whether the checkpoints were moved, and whether every view was newer than the stored one."""

    moved: bool
    all_newer: bool


class RecentViews:
    def __init__(self) -> None:
        #: By request id. Of two requests with one id the newer is kept.
        self._kept: dict[str, View] = {}
        self._bytes = 0

    def get(self, keys: Sequence[Key]) -> tuple[dict[Key, View], list[Key]]:
        """The cached views, and the keys of the others."""
        found: dict[Key, View] = {}
        missing: list[Key] = []
        for key in keys:
            flow, tenant, request_id = key
            view = self._kept.get(request_id)
            if view is not None and view.state.tenant == tenant and view.state.flow == flow:
                found[key] = view
            else:
                missing.append(key)
        return found, missing

    def committed(self, views: Sequence[View], saved: Saved) -> None:
        """Call after the commit."""
        kept = self._kept
        if not saved.moved:
            # Another projector runs and may have written newer views.
            self.forget()
            return
        size, all_newer = self._bytes, saved.all_newer
        for view in views:
            state = view.state
            if (before := kept.pop(state.id, None)) is not None:
                size -= len(before.payload)
            if all_newer and not state.is_terminal:
                kept[state.id] = view
                size += len(view.payload)
        self._bytes = size
        while len(kept) > LENGTH or self._bytes > BYTES:
            # Half of them: finding the oldest entry of a dict is slow after many deletions.
            for request_id in list(islice(kept, (len(kept) + 1) // 2)):
                self._bytes -= len(kept.pop(request_id).payload)

    def forget(self) -> None:
        self._kept.clear()
        self._bytes = 0
