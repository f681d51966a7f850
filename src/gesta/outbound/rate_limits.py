"""Rate limits of providers: token buckets of each tenant, shared by all processes of a store.

A flow takes a token right before it calls the provider. Tokens are reserved in the store in blocks,
a moment ahead, so that not every request needs a round trip. A process reserves four times what was
wanted lately, and again when half of it is used. Unused tokens expire. A process that dies loses
its reserved tokens, a quarter of a second's worth at most.

An attempt without a token is postponed to when the next one is likely, and uses up no attempt.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gesta.domain.token_bucket import Rate
from gesta.errors import StoreError
from gesta.flows.deferrals import Postponed
from gesta.ports.token_buckets import Name, TokenBuckets, Wanted
from gesta.runtime.clock import Runtime, sleep
from gesta.runtime.group_commit import GroupCommit

#: Tokens are reserved so far ahead; an attempt waits for its own in its slot.
AHEAD_MS = 250
#: A token expires if no attempt has used it this long after its time. Attempts come in waves, and
#: under load a wave takes a good part of a second. No more tokens are kept than were reserved in
#: advance.
EXPIRY_MS = 1_000
#: In advance no more is reserved than falls in this time: others want their part of what is ahead.
ADVANCE_MS = 100
#: Waves are so far apart at most, in times of ADVANCE_MS; what is wanted no more counts half as
#: much with each one beyond, and nothing in the end.
_WAVES, _FORGOTTEN = EXPIRY_MS // ADVANCE_MS, 32
#: Those who are postponed are spread over this long; then again from the front.
SPREAD_MS = 300_000
#: After the store failed, an attempt is postponed for this long.
STORE_PAUSE_SECONDS = 1.0
#: More names than this are looked through for those that say nothing any more.
NAMES_MAX = 10_000

#: A rate in a tenant's config. Slower than once in a quarter of an hour is a pause, and near
#: nothing the times of tokens are no numbers any more.
PerSecond = Annotated[float, msgspec.Meta(ge=0.001)]


class Limit(msgspec.Struct, frozen=True):
    """At most `per_second` tokens in the long run, and `burst` at once after a rest."""

    #: Scoped by tenant by the engine, e.g. "slack/T1/C2".
    name: str
    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not self.name or not self.per_second > 0 or self.burst < 1:
            raise ValueError(
                f"a limit needs a name, a rate above 0 and a burst of at least 1, not {self}"
            )

    @property
    def gap_ms(self) -> float:
        return 1000 / self.per_second


class _Tap:
    """What this process knows of one bucket. Times are epoch milliseconds."""

    __slots__ = (
        "before",
        "began_at",
        "closed_until",
        "empty_until",
        "low",
        "promised",
        "sure",
        "sure_until",
        "takes",
        "times",
    )

    def __init__(self) -> None:
        #: Tokens that are ours, the earliest first.
        self.times: deque[float] = deque()
        #: More are reserved when no more than so many are left; -1: none in advance.
        self.low = -1
        #: There is surely none before this.
        self.empty_until = 0.0
        #: Nor does one count that we have: the provider does not want to be asked.
        self.closed_until = 0.0
        #: Where the one stands that was postponed last.
        self.promised = 0.0
        #: So many of them may be taken without a further thought until then, once their times have
        #: come: see `look_ahead`.
        self.sure, self.sure_until = 0, 0.0
        #: Tokens wanted in the current period, and in the one before. The count of a burst halves
        #: with each further period.
        self.began_at = self.takes = self.before = 0

    def look_ahead(self, now: int) -> None:
        """Compute how many reserved tokens the fast path may take, and until when."""
        self.sure = 0
        if self.times and self.closed_until <= now:
            self.sure = max(0, len(self.times) - self.low - 1)
            self.sure_until = min(self.times[0] + EXPIRY_MS, self.began_at + ADVANCE_MS)

    def begin_anew(self, now: int) -> None:
        """Begin a new period of counting how many tokens are wanted."""
        silences = (now - self.began_at) // ADVANCE_MS - 1
        self.before = max(self.takes, self.before // 2) >> min(
            max(0, silences - _WAVES), _FORGOTTEN
        )
        self.takes, self.began_at = 0, now

    def promise(self, gap_ms: float, next_at: float, now: int) -> float:
        """Milliseconds until a token is probably free. Each caller gets a later time."""
        self.promised = max(next_at, self.promised + gap_ms)
        if self.promised > now + SPREAD_MS:
            self.promised = next_at
        return self.promised - now

    def is_idle(self, now: int) -> bool:
        return (
            not self.times and max(self.empty_until, self.promised, self.began_at + EXPIRY_MS) < now
        )


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """A request for tokens of one bucket. With 0 tokens it only reserves in advance."""

    name: Name
    limit: Limit
    tokens: int = 1


#: All the tokens that one caller lacks, so that it waits only once.
#: The time of each token, or how long to postpone the attempt.
_Question = list[_Asked]
_Answer = list[float] | Postponed


def _unheard(asked: asyncio.Future[_Answer]) -> None:
    """Drop the error of a reservation in advance, because no caller waits for it. The next caller
    that finds no token gets the error.
    """
    if not asked.cancelled():
        asked.exception()


class Tokens:
    """The tokens of this process, for all tenants."""

    def __init__(self, buckets: TokenBuckets, runtime: Runtime) -> None:
        self._buckets, self._runtime = buckets, runtime
        self._taps: dict[Name, _Tap] = {}
        self._asking: GroupCommit[_Question, _Answer] = GroupCommit(self._reserve, "gesta-limits")

    def take_now(self, tenant: str, limits: Sequence[Limit]) -> bool:
        """Like `take`, if this process holds all the tokens. False: nothing was taken."""
        now, most = self._runtime.now_ms(), len(limits)
        taps: list[_Tap] = []
        for limit in limits:
            tap = self._taps.get((tenant, limit.name))
            # `most` tokens are enough even if one limit is named several times.
            if tap is None or tap.sure < most or tap.sure_until <= now or tap.times[most - 1] > now:
                return False
            taps.append(tap)
        for tap in taps:
            tap.sure -= 1
            tap.takes += 1
            tap.times.popleft()
        return True

    async def take(self, tenant: str, limits: Sequence[Limit]) -> None:
        leased: list[tuple[_Tap, float]] = []
        missing: list[_Asked] = []
        now, last = self._runtime.now_ms(), 0.0
        try:
            for limit in limits:
                name = tenant, limit.name
                tap = self._taps.get(name) or self._tap(name)
                at = self._at_hand(tap, name, limit, now)
                if at is None:
                    missing.append(_Asked(name, limit))
                    continue
                leased.append((tap, at))
                if at > now:
                    last = max(last, at)
            if missing:
                given = await self._ask_for(missing)
                leased += given
                now, last = self._runtime.now_ms(), max(last, *(at for _, at in given))
        except BaseException:
            for tap, at in leased:
                # Another attempt may use it while it lasts.
                tap.times.appendleft(at)
                tap.sure = 0
            raise
        wait_ms = last - now
        if wait_ms > 0:
            await sleep(self._runtime, wait_ms / 1000)
        if missing or wait_ms > 0:
            self._refuse_closed(tenant, limits)

    def _refuse_closed(self, tenant: str, limits: Sequence[Limit]) -> None:
        """Raise Postponed if another call's answer has closed one of these limits meanwhile."""
        now = self._runtime.now_ms()
        for limit in limits:
            tap = self._tap((tenant, limit.name))
            if tap.closed_until > now:
                raise Postponed(tap.promise(limit.gap_ms, tap.closed_until, now) / 1000)

    async def close(self, tenant: str, name: str, seconds: float) -> None:
        now, wait_ms = self._runtime.now_ms(), max(0, round(seconds * 1000))
        tap = self._tap((tenant, name))
        tap.times.clear()
        tap.sure = 0
        tap.closed_until = max(tap.closed_until, now + wait_ms)
        tap.empty_until = max(tap.empty_until, tap.closed_until)
        try:
            await self._buckets.close([((tenant, name), wait_ms)])
        except StoreError:
            # What the attempt has to say is worth more than this: other processes will hear it from
            # the provider.
            return

    def _at_hand(self, tap: _Tap, name: Name, limit: Limit, now: int) -> float | None:
        """The time of the next reserved token; None: the store must be asked.

        Raises Postponed if it is known that the store has none.
        """
        times = tap.times
        tap.sure = 0
        while times and times[0] + EXPIRY_MS < now:
            times.popleft()
        if times and times[0] > now + AHEAD_MS:
            # No token is reserved that far ahead, so the clock was set back. Attempts must not wait
            # until the clock reaches the old time again.
            times.clear()
        if now - tap.began_at >= ADVANCE_MS:
            tap.begin_anew(now)
        tap.takes += 1
        if not times:
            if tap.empty_until > now + AHEAD_MS:
                raise Postponed(tap.promise(limit.gap_ms, tap.empty_until, now) / 1000)
            return None
        if tap.closed_until > now:
            raise Postponed(tap.promise(limit.gap_ms, tap.closed_until, now) / 1000)
        at = times.popleft()
        if len(times) <= tap.low:
            tap.low = -1
            self._asking.add([_Asked(name, limit, 0)]).add_done_callback(_unheard)
        tap.look_ahead(now)
        return at

    async def _ask_for(self, missing: _Question) -> list[tuple[_Tap, float]]:
        """One token of each bucket from the store. Raises Postponed if one bucket has none."""
        try:
            answer = await self._asking.add(missing)
        except StoreError:
            raise Postponed(STORE_PAUSE_SECONDS) from None
        if isinstance(answer, Postponed):
            raise answer
        return [(self._tap(one.name), at) for one, at in zip(missing, answer, strict=True)]

    async def _reserve(self, questions: list[_Question]) -> list[_Answer]:
        """Reserve tokens for all waiting callers in one call of the store."""
        waiting: dict[Name, list[_Asked]] = {}
        for question in questions:
            for one in question:
                waiting.setdefault(one.name, []).append(one)
        wanted = [self._wanted(name, those) for name, those in waiting.items()]
        reserved = await self._buckets.reserve(wanted, AHEAD_MS)
        now = self._runtime.now_ms()
        for block, answer in zip(wanted, reserved, strict=True):
            tap = self._tap(block.name)
            tap.times.extend(answer.times)
            if len(answer.times) < block.tokens:
                tap.empty_until = answer.next_at
        given = [self._given(question, now) for question in questions]
        for block, answer in zip(wanted, reserved, strict=True):
            tap = self._tap(block.name)
            tap.low = len(tap.times) // 2 if tap.times and len(answer.times) == block.tokens else -1
            tap.look_ahead(now)
        return given

    def _wanted(self, name: Name, asked: list[_Asked]) -> Wanted:
        """One token for each waiting attempt, and in advance four times the recent demand.

        A single request reserves none in advance.
        """
        tap, limit, waiting = self._tap(name), asked[0].limit, sum([one.tokens for one in asked])
        # Many attempts that wait at once begin a wave. Tokens in advance spare the rest the wait.
        in_advance = min(
            4 * max(tap.before, tap.takes - waiting, waiting - 1), int(ADVANCE_MS / limit.gap_ms)
        )
        return Wanted(
            name, Rate(limit.gap_ms, limit.burst), waiting + max(0, in_advance - len(tap.times))
        )

    def _given(self, question: _Question, now: int) -> _Answer:
        """Take one token of each limit, or none."""
        given: list[float] = []
        for one in question:
            tap = self._tap(one.name)
            if one.tokens and not tap.times:
                for kept, at in zip(question, given, strict=False):
                    self._tap(kept.name).times.appendleft(at)
                return Postponed(tap.promise(one.limit.gap_ms, tap.empty_until, now) / 1000)
            if one.tokens:
                given.append(tap.times.popleft())
        return given

    def _tap(self, name: Name) -> _Tap:
        tap = self._taps.get(name)
        if tap is None:
            if len(self._taps) >= NAMES_MAX:
                now = self._runtime.now_ms()
                self._taps = {
                    known: one for known, one in self._taps.items() if not one.is_idle(now)
                }
            tap = self._taps[name] = _Tap()
        return tap


class Limits:
    """`attempt.limits`: the token buckets of one tenant."""

    __slots__ = ("_tenant", "_tokens")

    def __init__(self, tokens: Tokens, tenant: str) -> None:
        self._tokens, self._tenant = tokens, tenant

    def take_now(self, *limits: Limit) -> bool:
        """As `take`, if all of them are at hand; False: nothing was taken."""
        return self._tokens.take_now(self._tenant, limits)

    async def take(self, *limits: Limit) -> None:
        """Take one token of each limit. Raises Postponed, and takes none, if one has no token.

        Await it right before calling the provider.
        """
        if not self._tokens.take_now(self._tenant, limits):
            await self._tokens.take(self._tenant, limits)

    async def close(self, name: str, seconds: float) -> None:
        """Close a limit for some seconds, because the provider said when to call again.

        This process stops immediately. Other processes may still use the tokens that they have
        reserved, for at most a quarter of a second.
        """
        await self._tokens.close(self._tenant, name, seconds)
