"""Base types of the API."""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: For descriptions: printable text. Python's `str.isprintable` allows more scripts than this.
PRINTABLE = r"^[ -~\u00a1-\u00ac\u00ae-\u0377]*$"
#: The maximum number of items on a page.
PAGE_MAX = 200


class Representation(msgspec.Struct, frozen=True, rename="camel"):
    """The content of an answer. Times are ISO-8601 in UTC."""


class ListOf(Representation, Generic[T], frozen=True, kw_only=True):
    """A page of a list. `next` is the `cursor` of the next page; null: this was the last one."""

    items: list[T]
    next: str | None = None


class OtherReason(Representation, frozen=True):
    """How many requests of a flow have a reason; the newest ones are counted."""

    flow: str
    reason: str
    count: int


class ListOfReasons(ListOf[T], Generic[T], frozen=True, kw_only=True):
    """A list that can be narrowed to a reason. Where it is empty, `others` has the most frequent
    reasons that are there instead.
    """

    others: list[OtherReason] | msgspec.UnsetType = msgspec.UNSET


class Asked(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request body or the parameters of a query. Unknown fields are refused."""
