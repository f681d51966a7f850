"""Keys kept in order. Inserts near the end, as with time-ordered ids, move almost nothing."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=tuple[Any, ...])


class SortedIndex(Generic[KeyT]):
    """A set of tuples in ascending order.

    A bound may be shorter than the keys: `(id,)` is right before every key with that id.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[KeyT] = []

    def add(self, key: KeyT) -> None:
        insort(self._keys, key)

    def remove(self, key: KeyT) -> None:
        del self._keys[bisect_left(self._keys, key)]

    def ascending(self, after: tuple[Any, ...] = ()) -> Iterator[KeyT]:
        for index in range(bisect_right(self._keys, after), len(self._keys)):
            yield self._keys[index]

    def descending(self, before: tuple[Any, ...] | None = None) -> Iterator[KeyT]:
        end = len(self._keys) if before is None else bisect_left(self._keys, before)
        for index in range(end - 1, -1, -1):
            yield self._keys[index]
