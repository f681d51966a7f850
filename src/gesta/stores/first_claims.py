"""The `first` claims of appends, for stores that need a call of their own for them.

A crash between the two calls leaves claims of events that never came. The same events, submitted
again, hold them.
"""

from collections.abc import Awaitable, Callable, Sequence

from gesta.ports.event_store import Append, AppendVerdict, Claim, LeadsElsewhere


async def append_with_claims(
    appends: Sequence[Append],
    put_claims: Callable[[Sequence[Claim]], Awaitable[list[bool]]],
    append: Callable[[Sequence[Append]], Awaitable[list[AppendVerdict]]],
) -> list[AppendVerdict]:
    """Put the first claims, then append what holds its own. At least one append has one."""
    claims = [one.first for one in appends if one.first is not None]
    held = iter(await put_claims(claims))
    is_held = [one.first is None or next(held) for one in appends]
    fitting = [one for one, holds in zip(appends, is_held, strict=True) if holds]
    verdicts = iter(await append(fitting) if fitting else [])
    return [next(verdicts) if holds else LeadsElsewhere() for holds in is_held]


def have_claims(appends: Sequence[Append]) -> bool:
    return any(one.first is not None for one in appends)
