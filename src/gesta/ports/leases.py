"""Port: leases on roles that one process at a time should have, such as projector and sweeper; and
the list of live processes.

A lease saves work; correctness never depends on it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from gesta.errors import StoreError
from gesta.runtime.clock import Runtime, sleep

#: Other processes ask every RENEWAL_SECONDS. So another process takes over at most the sum of both
#: after the owner died.
LEASE_SECONDS = 3.0
RENEWAL_SECONDS = 1.0
#: A process that died is listed as live for REPORT_LEASE_SECONDS at most.
REPORT_SECONDS = 10.0
REPORT_LEASE_SECONDS = 30.0
#: No lease lasts longer. A store's SQL has the same number.
LONGEST_LEASE_MS = 600_000
NEVER = float("-inf")


def is_current(until_ms: int, now_ms: int) -> bool:
    """Whether a lease has not expired.

    A lease with an end further away than any lease lasts dates from before the clock was set back;
    it counts as expired.
    """
    return now_ms < until_ms <= now_ms + LONGEST_LEASE_MS


class RoleLease(msgspec.Struct, frozen=True, gc=False):
    """A role, its last owner, and the end of the lease."""

    name: str
    owner: str
    until_ms: int

    def is_held(self, now_ms: int) -> bool:
        return is_current(self.until_ms, now_ms)


class LiveProcess(msgspec.Struct, frozen=True):
    """A process that runs on the store, as it reported itself."""

    #: The owner of its leases: `RoleLease.owner` of the roles that it holds at the moment.
    id: str
    host: str
    pid: int
    #: What it runs, whether or not it holds a lease: api, worker, projector, sweeper.
    roles: tuple[str, ...]
    #: The version of gesta.
    version: str
    #: When it started.
    since_ms: int


def fair_part(parts: Sequence[RoleLease], owner: str, now_ms: int) -> list[str]:
    """Which parts of a role a process should hold: its own, free ones, and what others have beyond
    their fair part.

    No process loses a part if that leaves it less than every process gets. So the division settles.
    """
    mine = [part.name for part in parts if part.owner == owner]
    others: dict[str, list[str]] = {}
    for part in parts:
        if part.owner != owner and part.is_held(now_ms):
            others.setdefault(part.owner, []).append(part.name)
    least, over = divmod(len(parts), len(others) + 1)
    most = least + (over > 0)
    free = [part.name for part in parts if part.owner != owner and not part.is_held(now_ms)]
    mine += free[: max(0, most - len(mine))]
    # The process with the most parts loses one first.
    spare = sorted(
        (
            (nth, name)
            for names in others.values()
            for nth, name in enumerate(names)
            if nth >= least
        ),
        reverse=True,
    )
    return mine + [name for _, name in spare[: max(0, least - len(mine))]]


class Leases(Protocol):
    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        """Acquire or renew the lease on a role. A lease of no length gives it up."""

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        """Acquire or renew leases on parts of a role, called `role/0` to `role/{count - 1}`: the
        numbers of the owner's parts.

        Every process gets about as many (`fair_part`). A lease of no length gives all of them up.
        While another process holds `role` itself, no process has a part.
        """

    async def roles(self) -> list[RoleLease]:
        """Every role that was ever claimed, by name."""

    async def report(self, process: LiveProcess, lease_seconds: float) -> None:
        """Report that a process runs; it counts as live until the lease ends or is renewed.

        A repeated report replaces the earlier one. A lease of no length removes the process. No
        fence stops a report.
        """

    async def processes(self) -> list[LiveProcess]:
        """Every live process, including those that hold no role; the oldest first, then by id."""


class Role:
    def __init__(self, name: str, *, owner: str, leases: Leases, runtime: Runtime) -> None:
        self._name, self._owner, self._leases, self._runtime = name, owner, leases, runtime
        self._renewed_at = NEVER
        self._is_given_up = False
        #: Whether the store has ever answered a claim.
        self.is_known = False

    @property
    def was_ours(self) -> bool:
        """Whether this process held the role after the last claim."""
        return self._renewed_at > NEVER

    async def is_ours(self) -> bool:
        """Claim or renew the role, at most once a second."""
        now = self._runtime.monotonic()
        if not self._is_given_up and now - self._renewed_at >= RENEWAL_SECONDS:
            is_ours = await self._leases.claim(self._name, self._owner, LEASE_SECONDS)
            self.is_known = True
            # It may have been given up while we waited for the answer.
            self._renewed_at = now if is_ours and not self._is_given_up else NEVER
        return self.was_ours

    async def give_up(self) -> None:
        """Give up the role permanently, so that the next process need not wait until the lease
        ends.
        """
        if not self._is_given_up:
            self._is_given_up, self._renewed_at = True, NEVER
            # If the store does not answer, the lease runs out.
            with suppress(StoreError):
                await self._leases.claim(self._name, self._owner, 0.0)


class Presence:
    """Reports a process as live for as long as it runs."""

    def __init__(self, process: LiveProcess, leases: Leases, runtime: Runtime) -> None:
        self.process, self._leases, self._runtime = process, leases, runtime

    async def step(self) -> None:
        await self._leases.report(self.process, REPORT_LEASE_SECONDS)
        await sleep(self._runtime, REPORT_SECONDS)

    async def end(self) -> None:
        # If the store does not answer, the lease runs out.
        with suppress(StoreError):
            await self._leases.report(self.process, 0.0)
