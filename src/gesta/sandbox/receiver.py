"""What every fake of the sandbox shares: faults on demand, a memory of keys, a record of effects.

Pure: no clock, no socket.

A call goes through three gates, in the order of a real provider: a fault that refuses it (rate
limit, outage) comes before the key
is looked at; a key that was seen before is answered as it was then; only what is left has an
effect.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gesta.outbound.http import HttpRequest


@dataclass
class Effect:
    """Something that happened once in the fake's world."""

    #: The caller's idempotency key; the fake's own number where the caller sent none.
    id: str
    type: str
    data: Any
    headers: Mapping[str, str]
    #: What was said: the whole body, or the part of it that people read.
    text: str = ""
    #: How often it was asked for. More than 1: a repeat that the key made harmless.
    receipts: int = 1


@dataclass(frozen=True)
class Call:
    """A request as its face reads it."""

    key: str | None
    type: str
    data: Any
    headers: Mapping[str, str]
    body: bytes
    text: str = ""
    #: What a rule may know it by, beside key and type: a token, a channel.
    names: tuple[str, ...] = ()


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What goes wrong with a call: an error (no effect), slowness or a lost answer (the effect
    happens all the same).
    """

    status: int | None = None
    retry_after: int | str | None = None
    #: The answer comes this late; the effect happens at once.
    slow_seconds: float = 0.0
    #: Accept, then drop the connection: the effect happens, the answer is lost.
    drop: bool = False
    #: For so many calls; None: for ever. Left out: once, or for ever where `match` says for which.
    times: int | msgspec.UnsetType | None = msgspec.UNSET
    #: Only for calls with this key, this type or one of these names.
    match: str | None = None
    #: The provider's own code for an error, e.g. `channel_not_found` or `21610`, said the way that
    #: the provider says it.
    error: str | None = None

    @property
    def is_refusal(self) -> bool:
        return self.error is not None or (self.status is not None and not 200 <= self.status < 300)


class Reply(msgspec.Struct, frozen=True):
    """What the fake does: answer with this, that late, or not at all."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}
    slow_seconds: float = 0.0
    drop: bool = False


@dataclass
class _Armed:
    matches: Callable[[Call], bool]
    fault: Fault
    left: int | None


@dataclass
class _Known:
    effect: Effect
    body: bytes
    reply: Reply


_NO_FAULT = Fault()


class Receiver(ABC):
    """A fake of one receiver.

    Faces say how a request is read (`read`) and what success looks like (`success`).
    """

    #: The face's name, in paths and on the command line.
    name: str

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        #: Every request, repeats and refused ones included.
        self.calls = 0
        #: When the latest one came.
        self.now_ms = 0
        self._queue: deque[_Armed] = deque()
        self._rules: list[_Armed] = []
        self._known: dict[str, _Known] = {}
        #: How many effects there ever were, and how many of them are remembered; None: all.
        self.performed = 0
        self.kept: int | None = None

    @abstractmethod
    def serves(self, request: HttpRequest) -> bool:
        """Whether a request has the form that this face knows."""

    @abstractmethod
    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        """What is asked for; or the refusal, when the request is not well formed."""

    @abstractmethod
    def success(self, effect: Effect) -> Reply: ...

    def answer(self, call: Call) -> Reply | None:
        """What is said to a call that only asks; None: it has an effect."""
        return None

    def refusal(self, fault: Fault) -> Reply:
        """How this face says no."""
        body = b"" if fault.error is None else msgspec.json.encode({"error": fault.error})
        return Reply(400 if fault.status is None else fault.status, body, retry_after_header(fault))

    def next(
        self,
        *,
        status: int | None = None,
        retry_after: int | str | None = None,
        slow_seconds: float = 0.0,
        drop: bool = False,
        error: str | None = None,
        times: int = 1,
    ) -> None:
        """Let the next call, or the next `times` calls, go wrong.

        Called again, it queues up behind.
        """
        self.arm(Fault(status, retry_after, slow_seconds, drop, times, None, error))

    def on(
        self,
        match: str | Callable[[Call], bool],
        *,
        status: int | None = None,
        retry_after: int | str | None = None,
        slow_seconds: float = 0.0,
        drop: bool = False,
        error: str | None = None,
        times: int | None = None,
    ) -> None:
        """Let calls of one key, type or name, or those a function picks, go wrong: for ever, or
        `times` times.

        Goes before `next`.
        """
        if isinstance(match, str):
            self.arm(Fault(status, retry_after, slow_seconds, drop, times, match, error))
        else:
            self.arm(Fault(status, retry_after, slow_seconds, drop, times, None, error), match)

    def arm(self, fault: Fault, matches: Callable[[Call], bool] | None = None) -> None:
        """The same from a description, as another process sends it.

        `matches` makes it a rule, as `fault.match` does.
        """
        if fault.match is not None:
            matches = _picks(fault.match)
        if matches is None:
            self._queue.append(
                _Armed(lambda _: True, fault, 1 if fault.times is msgspec.UNSET else fault.times)
            )
        else:
            self._rules.append(
                _Armed(matches, fault, None if fault.times is msgspec.UNSET else fault.times)
            )

    def heal(self) -> None:
        """Forget all faults that are still to come."""
        self._queue.clear()
        self._rules.clear()

    def receive(self, request: HttpRequest, now_ms: int) -> Reply:
        """Take one call and say what the fake does."""
        self.calls += 1
        self.now_ms = now_ms
        call = self.read(request, now_ms)
        if isinstance(call, Reply):
            return call
        fault = self._fault_of(call)
        if fault.is_refusal:
            return msgspec.structs.replace(
                self.refusal(fault), slow_seconds=fault.slow_seconds, drop=fault.drop
            )
        reply = self.answer(call) or self._perform(call)
        status = reply.status if fault.status is None else fault.status
        return msgspec.structs.replace(
            reply, status=status, slow_seconds=fault.slow_seconds, drop=fault.drop
        )

    def _perform(self, call: Call) -> Reply:
        known = None if call.key is None else self._known.get(call.key)
        if known is not None:
            if known.body != call.body:
                # A real provider refuses it too: one key for two things is the caller's mistake.
                return Reply(409, msgspec.json.encode({"error": "idempotency_error"}))
            known.effect.receipts += 1
            return known.reply
        effect = Effect(
            call.key or f"{self.name}-{self.calls}", call.type, call.data, call.headers, call.text
        )
        self.effects.append(effect)
        self.performed += 1
        reply = self.success(effect)
        if call.key is not None:
            self._known[call.key] = _Known(effect, call.body, reply)
        if self.kept is not None:
            del self.effects[: -self.kept]
            while len(self._known) > self.kept:
                del self._known[next(iter(self._known))]
        return reply

    def _fault_of(self, call: Call) -> Fault:
        armed = next((rule for rule in self._rules if rule.left != 0 and rule.matches(call)), None)
        if armed is None:
            armed = next(iter(self._queue), None)
        if armed is None:
            return _NO_FAULT
        if armed.left is not None:
            armed.left -= 1
            if armed.left <= 0 and self._queue and armed is self._queue[0]:
                self._queue.popleft()
        return armed.fault


def _picks(name: str) -> Callable[[Call], bool]:
    return lambda call: name in (call.key, call.type, *call.names)


def retry_after_header(fault: Fault) -> dict[str, str]:
    return {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
