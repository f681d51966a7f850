"""Pages of a tenant's requests that no single index selects.

Each page costs a limited number of reads, however few requests match.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from gesta.ports.read_model import Filter, View

T = TypeVar("T")

#: Views read at a time, and in all for one page.
READ_AT_ONCE = 200
LOOKED_AT_MAX = 2_000


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Newest first.

    `next` continues the list, also after a short or empty page; None: the list has ended.
    """

    items: list[T]
    next: str | None


async def page_of(
    find: Callable[[Filter], Awaitable[list[View]]],
    chosen: Filter,
    pick: Callable[[View], T | None],
) -> Page[T]:
    """What `pick` makes of the chosen views, `chosen.limit` at most. None skips a view."""
    found: list[T] = []
    before, looked_at = chosen.before_id, 0
    while looked_at < LOOKED_AT_MAX:
        read = await find(msgspec.structs.replace(chosen, before_id=before, limit=READ_AT_ONCE))
        is_last = len(read) < READ_AT_ONCE
        for number, view in enumerate(read, start=1):
            before = view.state.id
            if (one := pick(view)) is not None:
                found.append(one)
            if len(found) == chosen.limit:
                return Page(found, None if is_last and number == len(read) else before)
        if is_last:
            return Page(found, None)
        looked_at += len(read)
    return Page(found, before)
