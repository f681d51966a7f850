"""Rate limits of providers: token buckets that all processes of a store share, each tenant's apart from everybody else's.

A flow takes a token right before it calls the provider. Tokens are reserved in the store a moment ahead and in blocks, so that there is no
round trip for each request: whoever asks in the same turn asks together, and what was asked for lately is asked for in advance. A token
that nobody uses lapses; with a process die the tokens that it had reserved, a quarter of a second's at most.

Who gets none is postponed to where the next free one is likely, one behind the other, and none of its request's attempts is spent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from gesta.buckets import Buckets, Name, Wanted
from gesta.domain.token_bucket import Rate
from gesta.errors import StoreError
from gesta.group_commit import GroupCommit
from gesta.runtime import Runtime, sleep
from gesta.unspent import Postponed

#: Tokens are reserved so far ahead; an attempt waits for its own in its slot. One that was not used this long after its time has lapsed.
AHEAD_MS = 250
#: In advance no more is reserved than falls in this time: others want their part of what is ahead.
ADVANCE_MS = 100
#: Those who are postponed are spread over this long; then again from the front.
SPREAD_MS = 300_000
#: Without the store nobody can say whether there is a token.
STORE_PAUSE_SECONDS = 1.0
#: More names than this are looked through for those that say nothing any more.
NAMES_MAX = 10_000


class Limit(msgspec.Struct, frozen=True):
    """At most `per_second` tokens in the long run, and `burst` at once after a rest."""

    #: Scoped by tenant by the engine, e.g. "slack/T1/C2".
    name: str
    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not self.name or not self.per_second > 0 or self.burst < 1:
            raise ValueError(f"a limit needs a name, a rate above 0 and a burst of at least 1, not {self}")

    @property
    def gap_ms(self) -> float:
        return 1000 / self.per_second


class _Tap:
    """What this process knows of one bucket. Times are epoch milliseconds."""

    __slots__ = ("before", "began_at", "closed_until", "empty_until", "promised", "takes", "times")

    def __init__(self) -> None:
        #: Tokens that are ours, the earliest first.
        self.times: deque[float] = deque()
        #: There is surely none before this.
        self.empty_until = 0.0
        #: Nor does one count that we have: the provider does not want to be asked.
        self.closed_until = 0.0
        #: Where the one stands that was postponed last.
        self.promised = 0.0
        #: How many were wanted since then, and how many in as long a time before.
        self.began_at = self.takes = self.before = 0

    def wanted(self, now: int) -> None:
        """Count one who wants a token."""
        elapsed_ms = now - self.began_at
        if elapsed_ms >= ADVANCE_MS:
            self.before = self.takes if elapsed_ms < 2 * ADVANCE_MS else 0
            self.takes, self.began_at = 0, now
        self.takes += 1

    def promise(self, gap_ms: float, next_at: float, now: int) -> float:
        """Milliseconds until it is likely that there is one, for each who asks another."""
        self.promised = max(next_at, self.promised + gap_ms)
        if self.promised > now + SPREAD_MS:
            self.promised = next_at
        return self.promised - now

    def is_idle(self, now: int) -> bool:
        return not self.times and max(self.empty_until, self.promised, self.began_at + AHEAD_MS) < now


class Tokens:
    """The tokens of this process, for all tenants."""

    def __init__(self, buckets: Buckets, runtime: Runtime) -> None:
        self._buckets, self._runtime = buckets, runtime
        self._taps: dict[Name, _Tap] = {}
        self._asking: GroupCommit[tuple[Name, Limit], float | Postponed] = GroupCommit(self._reserve, "gesta-limits")

    async def take(self, tenant: str, limits: Sequence[Limit]) -> None:
        taken: list[tuple[Name, float]] = []
        try:
            for limit in limits:
                name = tenant, limit.name
                taken.append((name, await self._token(name, limit)))
        except BaseException:
            for name, at in taken:
                # Somebody else may use it while it lasts.
                self._tap(name).times.appendleft(at)
            raise
        wait_ms = max((at for _, at in taken), default=0.0) - self._runtime.now_ms()
        if wait_ms > 0:
            await sleep(self._runtime, wait_ms / 1000)
        self._refuse_closed(tenant, limits)

    def _refuse_closed(self, tenant: str, limits: Sequence[Limit]) -> None:
        """A call that was answered meanwhile may have closed what we have a token of."""
        now = self._runtime.now_ms()
        for limit in limits:
            tap = self._tap((tenant, limit.name))
            if tap.closed_until > now:
                raise Postponed(tap.promise(limit.gap_ms, tap.closed_until, now) / 1000)

    async def close(self, tenant: str, name: str, seconds: float) -> None:
        now, wait_ms = self._runtime.now_ms(), max(0, round(seconds * 1000))
        tap = self._tap((tenant, name))
        tap.times.clear()
        tap.closed_until = max(tap.closed_until, now + wait_ms)
        tap.empty_until = max(tap.empty_until, tap.closed_until)
        try:
            await self._buckets.close([((tenant, name), wait_ms)])
        except StoreError:
            # What the attempt has to say is worth more than this: other processes will hear it from the provider.
            return

    async def _token(self, name: Name, limit: Limit) -> float:
        """When our token falls, soon or now. Raises Postponed when there is none."""
        tap, now = self._tap(name), self._runtime.now_ms()
        while tap.times and tap.times[0] + AHEAD_MS < now:
            tap.times.popleft()
        tap.wanted(now)
        if tap.times:
            return tap.times.popleft()
        if tap.empty_until > now + AHEAD_MS:
            raise Postponed(tap.promise(limit.gap_ms, tap.empty_until, now) / 1000)
        try:
            answer = await self._asking.add((name, limit))
        except StoreError:
            raise Postponed(STORE_PAUSE_SECONDS) from None
        if isinstance(answer, Postponed):
            raise answer
        return answer

    async def _reserve(self, asked: list[tuple[Name, Limit]]) -> list[float | Postponed]:
        """One question for everybody who asks now."""
        waiting: dict[Name, list[Limit]] = {}
        for name, limit in asked:
            waiting.setdefault(name, []).append(limit)
        wanted = [
            Wanted(name, Rate(limits[0].gap_ms, limits[0].burst), len(limits) + self._in_advance(name, limits))
            for name, limits in waiting.items()
        ]
        reserved = await self._buckets.reserve(wanted, AHEAD_MS)
        now = self._runtime.now_ms()
        for one, answer in zip(wanted, reserved, strict=True):
            tap = self._tap(one.name)
            tap.times.extend(answer.times)
            if len(answer.times) < one.tokens:
                tap.empty_until = answer.next_at
        return [self._given(self._tap(name), limit, now) for name, limit in asked]

    def _given(self, tap: _Tap, limit: Limit, now: int) -> float | Postponed:
        return tap.times.popleft() if tap.times else Postponed(tap.promise(limit.gap_ms, tap.empty_until, now) / 1000)

    def _in_advance(self, name: Name, limits: list[Limit]) -> int:
        """As many as were wanted lately, beyond those who wait: a lone request reserves nothing for nobody."""
        tap = self._tap(name)
        return min(max(tap.before, tap.takes - len(limits)), int(ADVANCE_MS / limits[0].gap_ms))

    def _tap(self, name: Name) -> _Tap:
        tap = self._taps.get(name)
        if tap is None:
            if len(self._taps) >= NAMES_MAX:
                now = self._runtime.now_ms()
                self._taps = {known: one for known, one in self._taps.items() if not one.is_idle(now)}
            tap = self._taps[name] = _Tap()
        return tap


class Limits:
    """What an attempt is given: the buckets of its tenant."""

    __slots__ = ("_tenant", "_tokens")

    def __init__(self, tokens: Tokens, tenant: str) -> None:
        self._tokens, self._tenant = tokens, tenant

    async def take(self, *limits: Limit) -> None:
        """One token of each, or Postponed: then none was taken. Call it right before the provider is called."""
        await self._tokens.take(self._tenant, limits)

    async def close(self, name: str, seconds: float) -> None:
        """Nobody takes a token of this name before that: the provider said when it wants to be asked again.

        At once in this process; others may use what they have reserved already, a quarter of a second's at most.
        """
        await self._tokens.close(self._tenant, name, seconds)
