"""The leader roles that a copy holds: no other process projects or sweeps in the target, or removes
old requests from the source.
"""

from gesta.errors import Fenced, StoreError
from gesta.maintenance.store_copy.plan import CopyPlan, Home
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.leases import RENEWAL_SECONDS
from gesta.projector.partitions import CHECKPOINT, projects
from gesta.projector.rebuild import ROLE as REBUILD
from gesta.runtime.clock import Runtime, sleep

#: Longer than any page takes. A repetition waits this long for a run that was killed.
LEASE_SECONDS = 10.0
LOOK_SECONDS = 0.2


class Roles:
    def __init__(self, plan: CopyPlan, owner: str, runtime: Runtime) -> None:
        self._source, self._target = plan.source, plan.target
        self._owner, self._runtime = owner, runtime
        self._renewed_at = float("-inf")

    async def hold(self) -> None:
        """Take or renew them, at most once a second.

        Raises StoreError when others have one for longer than a dead run could.
        """
        now = self._runtime.monotonic()
        if now - self._renewed_at < RENEWAL_SECONDS:
            return
        for home, names in (
            (self._target, (CHECKPOINT, SWEEP, REBUILD)),
            (self._source, (REBUILD,)),
        ):
            for name in names:
                await self._hold_one(home, name)
        self._renewed_at = now

    async def _hold_one(self, home: Home, name: str) -> None:
        until = self._runtime.monotonic() + LEASE_SECONDS + LOOK_SECONDS
        try:
            while not await self._take(home, name):
                if self._runtime.monotonic() > until:
                    what = "is being copied, or rebuilt" if name == REBUILD else "is worked on"
                    raise StoreError(
                        f"{home.url} {what} by another process; stop it (gesta doctor names it),"
                        " then repeat the copy"
                    )
                await sleep(self._runtime, LOOK_SECONDS)
        except Fenced:
            # The source is fenced: no process removes anything there any more.
            if home is not self._source:
                raise

    async def _take(self, home: Home, name: str) -> bool:
        """While the copy holds the projector's role, no process gets a partition. Processes that
        have one must stop first.
        """
        if name == CHECKPOINT:
            now, roles = home.stores.now_ms(), await home.stores.leases.roles()
            if any(
                projects(role) and role.owner != self._owner and role.is_held(now) for role in roles
            ):
                return False
        return await home.stores.leases.claim(name, self._owner, LEASE_SECONDS)

    async def release(self) -> None:
        for name in (CHECKPOINT, SWEEP, REBUILD):
            await self._target.stores.leases.claim(name, self._owner, 0.0)

    async def source_players(self) -> list[str]:
        """The processes that work on the source now."""
        now = self._source.stores.now_ms()
        held = [role for role in await self._source.stores.leases.roles() if role.is_held(now)]
        return sorted({role.owner for role in held if role.owner != self._owner})
