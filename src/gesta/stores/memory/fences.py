"""Fences in a dict, which every port checks before it writes. Implements gesta.ports.fences."""

from collections.abc import Callable, Iterable, Sequence

from gesta.errors import Fenced
from gesta.ports.event_store import Append
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.stores.owners import tenant_of


class MemoryFences:
    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], Fence] = {}
        #: Puts a job when a fence is taken down; the database sets it.
        self.put_one: Callable[[Job], object] = bool

    async def put_up(self, fence: Fence) -> None:
        self._standing[fence.kind, fence.tenant or ""] = fence

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        self._standing.pop((fence.kind, fence.tenant or ""), None)
        for job in jobs:
            self.put_one(job)

    async def standing(self) -> list[Fence]:
        return [fence for _, fence in sorted(self._standing.items())]

    def check(self) -> None:
        """Before any write."""
        self._refuse("left", "")

    def check_jobs(self) -> None:
        """Before a job is put, undispatched or leased."""
        self.check()
        self._refuse("filling", "")

    def check_tenants(self, tenants: Iterable[str]) -> None:
        """Before events or secrets of these tenants are written."""
        self.check()
        for tenant in tenants if self._standing else ():
            self._refuse("left", tenant)

    def check_appends(self, appends: Iterable[Append]) -> None:
        """Before events are appended. A call is refused as a whole."""
        events = (event for append in appends for event in append.events)
        self.check_tenants(tenant_of(event.meta) for event in events)

    def _refuse(self, kind: str, tenant: str) -> None:
        found = self._standing.get((kind, tenant))
        if found is not None:
            raise Fenced("memory", found.kind, other=found.other, tenant=found.tenant)
