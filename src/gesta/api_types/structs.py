"""What everything that crosses the API is made of."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: The most items that one page of a list has.
PAGE_MAX = 200


class Representation(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is answered. Times are ISO-8601 in UTC."""


class ListOf(Representation, Generic[T], frozen=True, kw_only=True):
    """A page of a list. `next` is the `cursor` of the next page; null: this was the last one."""

    items: list[T]
    next: str | None = None


class Asked(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Something that is asked: a body, or the parameters of a query.

    What it does not name is refused.
    """
