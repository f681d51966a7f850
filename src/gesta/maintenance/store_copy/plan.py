"""What is copied from where to where, and whether the copy is allowed.

The tenant of an event is in its metadata: names are never parsed.
"""

from dataclasses import dataclass
from typing import Literal

from gesta.domain.codec import decode_meta
from gesta.domain.events import Meta
from gesta.errors import BadInput, Fenced, StoreError
from gesta.ports.event_store import Recorded
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.ports.stores import Stores
from gesta.ports.vault import Encrypted
from gesta.security.envelope_encryption import (
    API_KEYS,
    IDENTITY,
    SYSTEM,
    MasterKey,
    data_key_name,
    prove,
)
from gesta.tenants.pauses import EVERYTHING, Scope

#: fresh: the target has nothing of it. resumed: an earlier run was interrupted. done: an earlier
#: run has finished.
Start = Literal["fresh", "resumed", "done"]
#: Rows read and written at once.
PAGE = 2_000


@dataclass(frozen=True)
class Home:
    """A store and its URL as people may read it."""

    stores: Stores
    url: str


@dataclass(frozen=True)
class CopyPlan:
    """A copy of all of a store, or of one tenant's part."""

    source: Home
    target: Home
    tenant: str | None = None

    @property
    def left_fence(self) -> Fence:
        """The fence around the source after its content was copied."""
        return Fence("left", self.target.url, self.tenant)

    @property
    def filling_fence(self) -> Fence:
        """The fence around the target during the copy; it names the arguments of a repetition."""
        url = self.source.url
        return Fence("filling", url if self.tenant is None else f"{url} (tenant {self.tenant})")

    @property
    def scope(self) -> Scope:
        """The scope of the pause during the copy."""
        return EVERYTHING if self.tenant is None else Scope(tenant=self.tenant)

    def has_event(self, recorded: Recorded) -> bool:
        if self.tenant is None:
            return True
        meta = meta_of(recorded)
        return meta is not None and meta.tenant == self.tenant

    def has_secret(self, encrypted: Encrypted) -> bool:
        if self.tenant is None or encrypted.tenant == self.tenant:
            return True
        if encrypted.tenant != SYSTEM:
            return False
        if encrypted.name.startswith(API_KEYS):
            # No tenant's name has a slash, so none is the end of another's.
            return encrypted.name.endswith(f"/{self.tenant}")
        return encrypted.name in (IDENTITY[1], data_key_name(self.tenant))

    def has_job(self, job: Job) -> bool:
        return self.tenant in (None, job.tenant)


def meta_of(recorded: Recorded) -> Meta | None:
    """None for an event that cannot be read; it belongs to no tenant."""
    try:
        return decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
    except ValueError:
        return None


def ref_of(encrypted: Encrypted) -> tuple[str, str, int]:
    return encrypted.tenant, encrypted.name, encrypted.version


async def check(plan: CopyPlan, master: MasterKey) -> Start:
    """Where to begin; nothing is written. Raises an error if the copy is not allowed."""
    source, target = plan.source, plan.target
    await _check_keys(plan, master)
    is_left = await _check_source(plan)
    fences = await target.stores.fences.standing()
    for fence in fences:
        if fence == plan.filling_fence:
            return "resumed"
        if fence.kind == "filling" or fence.tenant in (None, plan.tenant):
            raise Fenced(target.url, fence.kind, other=fence.other, tenant=fence.tenant)
    identity = (await target.stores.vault.get([IDENTITY])).get(IDENTITY)
    if identity is not None and identity != (await source.stores.vault.get([IDENTITY]))[IDENTITY]:
        raise BadInput(
            f"{target.url} belongs to another installation with another secret; name a new store."
            " Nothing was changed"
        )
    stream = await _first_stream(plan)
    if stream is None:
        await _check_stored_jobs(plan)
        return "fresh"
    if is_left:
        return "done"
    raise BadInput(
        f"{target.url} already has events (stream {stream}); name a new store. Nothing was changed"
    )


async def check_used(source: Home) -> None:
    """Whether there is anything to copy; also whether there can be a master key to ask for."""
    if IDENTITY not in await source.stores.vault.get([IDENTITY]):
        raise BadInput(f"{source.url} has never been used: there is nothing to copy")


async def _check_keys(plan: CopyPlan, master: MasterKey) -> None:
    await check_used(plan.source)
    vault = plan.source.stores.vault
    after = ("", "", 0)
    while page := await vault.listed(after, PAGE):
        after = ref_of(page[-1])
        for encrypted in filter(plan.has_secret, page):
            prove(master, encrypted)


async def _check_source(plan: CopyPlan) -> bool:
    """Whether it is fenced for this very copy."""
    source, left_fence = plan.source, plan.left_fence
    fences = await source.stores.fences.standing()
    for fence in fences:
        if fence != left_fence and fence.tenant in (None, plan.tenant):
            raise Fenced(source.url, fence.kind, other=fence.other, tenant=fence.tenant)
        if plan.tenant is None and fence.tenant is not None:
            raise StoreError(
                f"tenant {fence.tenant} of {source.url} was copied to {fence.other}: the two"
                " differ by now. Copy the other tenants one by one, or undo that copy:"
                f" gesta copy --unfence --tenant {fence.tenant}"
            )
    return left_fence in fences


async def _check_stored_jobs(plan: CopyPlan) -> None:
    """Jobs of slow endpoints have no tenant, so they go with a whole store only."""
    jobs = plan.target.stores.job_rows
    if plan.tenant is None and jobs is not None and await jobs.rows(0, 1):
        raise BadInput(
            f"{plan.target.url} already has jobs of slow endpoints; name a new store. Nothing was"
            " changed"
        )


async def _first_stream(plan: CopyPlan) -> str | None:
    after = 0
    while page := await plan.target.stores.events.follow(after, PAGE):
        after = page[-1].position
        for recorded in page:
            if plan.has_event(recorded):
                return recorded.stream
    return None
