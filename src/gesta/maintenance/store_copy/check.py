"""Whether a copy may be made, before anything is written."""

from __future__ import annotations

from typing import Literal

from gesta.errors import BadInput, Fenced, StoreError
from gesta.maintenance.store_copy.selection import PAGE, Home, Selection
from gesta.maintenance.store_copy.transfer import ref_of
from gesta.ports.fences import Fence
from gesta.security.envelope_encryption import IDENTITY, MasterKey, prove

#: fresh: the target has nothing of it. resumed: an earlier run was interrupted. done: an earlier
#: run came to its end.
Start = Literal["fresh", "resumed", "done"]


def left_fence(target: Home, selection: Selection) -> Fence:
    """What stands around the source once its content has its new home."""
    return Fence("left", target.url, selection.tenant)


def filling_fence(source: Home, selection: Selection) -> Fence:
    """What stands around the target meanwhile; it says what a repetition has to be called with."""
    return Fence(
        "filling",
        source.url if selection.tenant is None else f"{source.url} (tenant {selection.tenant})",
    )


async def check(source: Home, target: Home, selection: Selection, master: MasterKey) -> Start:
    """Where to begin. Raises what is in the way."""
    await _check_keys(source, selection, master)
    is_left = await _check_source(source, target, selection)
    fences = await target.stores.fences.standing()
    for fence in fences:
        if fence == filling_fence(source, selection):
            return "resumed"
        if fence.kind == "filling" or fence.tenant in (None, selection.tenant):
            raise Fenced(target.url, fence.kind, other=fence.other, tenant=fence.tenant)
    identity = (await target.stores.vault.get([IDENTITY])).get(IDENTITY)
    if identity is not None and identity != (await source.stores.vault.get([IDENTITY]))[IDENTITY]:
        raise BadInput(
            f"{target.url} belongs to another installation, made with another secret; name a new"
            " store. Nothing was changed"
        )
    stream = await _first_stream(target, selection)
    if stream is None:
        return "fresh"
    if is_left:
        return "done"
    raise BadInput(
        f"{target.url} has events already (stream {stream}); name a new store. Nothing was changed"
    )


async def check_used(source: Home) -> None:
    """Whether there is anything to copy; also whether there can be a master key to ask for."""
    if IDENTITY not in await source.stores.vault.get([IDENTITY]):
        raise BadInput(f"{source.url} has never been used: there is nothing to copy")


async def _check_keys(source: Home, selection: Selection, master: MasterKey) -> None:
    await check_used(source)
    vault = source.stores.vault
    after = ("", "", 0)
    while page := await vault.listed(after, PAGE):
        after = ref_of(page[-1])
        for encrypted in filter(selection.has_secret, page):
            prove(master, encrypted)


async def _check_source(source: Home, target: Home, selection: Selection) -> bool:
    """Whether it is fenced for this very copy."""
    fences = await source.stores.fences.standing()
    for fence in fences:
        if fence != left_fence(target, selection) and fence.tenant in (None, selection.tenant):
            raise Fenced(source.url, fence.kind, other=fence.other, tenant=fence.tenant)
        if selection.tenant is None and fence.tenant is not None:
            raise StoreError(
                f"tenant {fence.tenant} of {source.url} was copied to {fence.other}: here it is no"
                " longer what it is there. Copy the other tenants one by one, or take it back:"
                f" gesta copy --unfence --tenant {fence.tenant}"
            )
    return left_fence(target, selection) in fences


async def _first_stream(target: Home, selection: Selection) -> str | None:
    after = 0
    while page := await target.stores.events.follow(after, PAGE):
        after = page[-1].position
        for recorded in page:
            if selection.has_event(recorded):
                return recorded.stream
    return None
