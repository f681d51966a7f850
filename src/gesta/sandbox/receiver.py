"""The base of every fake: faults on demand, known idempotency keys, recorded effects. It has no
clock and no socket.

A call is handled in the order of a real provider. A fault that refuses it (rate limit, outage)
comes first. A known key gets its earlier answer. Only a call that passes both has an effect.
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
    #: The caller's idempotency key, or a number if the caller sent none.
    id: str
    type: str
    data: Any
    headers: Mapping[str, str]
    #: The body, or the part of it that people read.
    text: str = ""
    #: How often it was requested. More than 1: repeats that the key made harmless.
    receipts: int = 1


@dataclass(frozen=True)
class Call:
    """A request as the fake parsed it."""

    key: str | None
    type: str
    data: Any
    headers: Mapping[str, str]
    body: bytes
    text: str = ""
    #: Further names that a rule can match, such as a token or a channel.
    names: tuple[str, ...] = ()


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a call fails: an error (no effect), or a late or lost answer (the effect happens)."""

    status: int | None = None
    retry_after: int | str | None = None
    #: The answer comes this late; the effect happens at once.
    slow_seconds: float = 0.0
    #: The effect happens, then the connection is dropped without an answer.
    drop: bool = False
    #: How many calls it applies to; None: all. By default one, or all if there is a `match`.
    times: int | msgspec.UnsetType | None = msgspec.UNSET
    #: Only for calls with this key, this type or one of these names.
    match: str | None = None
    #: The provider's own error code, e.g. `channel_not_found` or `21610`, answered in the
    #: provider's format.
    error: str | None = None

    @property
    def is_refusal(self) -> bool:
        return self.error is not None or (self.status is not None and not 200 <= self.status < 300)


class Reply(msgspec.Struct, frozen=True):
    """The answer, how late it comes, and whether the connection is dropped instead."""

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
    """A fake of one provider.

    Subclasses parse requests (`read`) and answer successful ones (`success`).
    """

    #: In paths and on the command line.
    name: str

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        #: Counts every request, repeats and refused ones included.
        self.calls = 0
        #: The time of the latest one.
        self.now_ms = 0
        self._queue: deque[_Armed] = deque()
        self._rules: list[_Armed] = []
        self._known: dict[str, _Known] = {}
        #: How many effects there were, and how many of them are kept; None keeps all.
        self.performed = 0
        self.kept: int | None = None

    @abstractmethod
    def serves(self, request: HttpRequest) -> bool:
        """Whether the request has the form of this provider."""

    @abstractmethod
    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        """The call; or the refusal of a malformed request."""

    @abstractmethod
    def success(self, effect: Effect) -> Reply: ...

    def answer(self, call: Call) -> Reply | None:
        """The answer to a call that only reads; None: the call has an effect."""
        return None

    def refusal(self, fault: Fault) -> Reply:
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
        """Let the next `times` calls fail. Further faults queue up behind."""
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
        """Let calls fail that have this key, type or name, or that a function picks: all, or the
        first `times`. Takes precedence over `next`.
        """
        if isinstance(match, str):
            self.arm(Fault(status, retry_after, slow_seconds, drop, times, match, error))
        else:
            self.arm(Fault(status, retry_after, slow_seconds, drop, times, None, error), match)

    def arm(self, fault: Fault, matches: Callable[[Call], bool] | None = None) -> None:
        """Add a fault from its description. With `matches` or `fault.match` it is a rule."""
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
        """Forget all pending faults."""
        self._queue.clear()
        self._rules.clear()

    def receive(self, request: HttpRequest, now_ms: int) -> Reply:
        self.calls += 1
        self.now_ms = now_ms
        call = self.read(request, now_ms)
        return call if isinstance(call, Reply) else self._handle(call)

    def _handle(self, call: Call) -> Reply:
        fault = self._fault_of(call)
        return msgspec.structs.replace(
            self._reply_to(call, fault), slow_seconds=fault.slow_seconds, drop=fault.drop
        )

    def _reply_to(self, call: Call, fault: Fault) -> Reply:
        if fault.is_refusal:
            return self.refusal(fault)
        reply = self.answer(call) or self._perform(call)
        return (
            reply if fault.status is None else msgspec.structs.replace(reply, status=fault.status)
        )

    def _perform(self, call: Call) -> Reply:
        known = None if call.key is None else self._known.get(call.key)
        if known is not None:
            if known.body != call.body:
                # A real provider refuses it, too: one key for two contents.
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
