"""Vaults with one thing wrong."""

from msgspec.structs import replace

from gesta.ports.vault import Encrypted
from gesta.stores.memory.vault import MemoryVault
from gesta.testing.contracts.vault import VaultAfterRestartContract as AfterRestart
from gesta.testing.contracts.vault import VaultContract as Vault
from tests.contracts.faults.planting import breaks


@breaks(Vault.test_a_secret_is_read_as_it_was_stored)
class CutsTheBoxAtItsFirstZero(MemoryVault):
    def _put_one(self, box):
        return super()._put_one(replace(box, box=box.box.partition(b"\0")[0]))


@breaks(
    Vault.test_a_version_once_written_never_changes,
    Vault.test_of_two_boxes_for_a_version_in_one_batch_the_first_stays,
    Vault.test_of_boxes_that_race_for_a_version_one_is_written,
)
class Overwrites(MemoryVault):
    def _put_one(self, box):
        self._boxes[box.tenant, box.name, box.version] = box
        return True


@breaks(Vault.test_versions_of_a_name_are_kept_separately)
class KeepsTheLastVersion(MemoryVault):
    def _put_one(self, box):
        self._boxes = {
            ref: other for ref, other in self._boxes.items() if ref[:2] != (box.tenant, box.name)
        }
        return super()._put_one(box)


@breaks(Vault.test_a_tenant_never_gets_the_secret_of_another)
class IgnoresTheTenant(MemoryVault):
    async def get(self, refs):
        return {
            ref: box for ref, box in self._boxes.items() for _, *own in refs if list(ref[1:]) == own
        }


@breaks(Vault.test_what_does_not_exist_is_left_out)
class AnswersWithAll(MemoryVault):
    async def get(self, refs):
        return dict(self._boxes)


@breaks(Vault.test_a_destroyed_version_is_gone_and_the_others_stay)
class DestroysEveryVersion(MemoryVault):
    async def delete(self, refs):
        for _, name, _ in refs:
            self._boxes = {ref: box for ref, box in self._boxes.items() if ref[1] != name}


@breaks(
    Vault.test_a_destroyed_version_is_never_written_again,
    Vault.test_a_destroyed_newest_version_is_returned_without_its_box,
    AfterRestart.test_a_destroyed_version_is_remembered,
)
class ForgetsWhatItDestroyed(MemoryVault):
    async def delete(self, refs):
        for ref in refs:
            self._boxes.pop(ref, None)
            if self._versions.get(ref[:2]) == ref[2]:
                del self._versions[ref[:2]]


@breaks(Vault.test_the_newest_version_of_each_name_is_returned)
class TellsTheVersionWrittenLast(MemoryVault):
    def _put_one(self, box):
        written = super()._put_one(box)
        self._versions[box.tenant, box.name] = box.version
        return written


@breaks(Vault.test_a_destroyed_newest_version_is_returned_without_its_box)
class RemembersWhatNeverWas(MemoryVault):
    async def delete(self, refs):
        await self.put([Encrypted(tenant, name, version, b"") for tenant, name, version in refs])
        await super().delete(refs)


@breaks(Vault.test_versions_are_listed_in_order_page_by_page_and_destroyed_ones_without_a_box)
class ListsWhatCanBeOpenedOnly(MemoryVault):
    async def listed(self, after, limit):
        return [one for one in await super().listed(after, limit) if one.box]


@breaks(Vault.test_versions_are_listed_in_order_page_by_page_and_destroyed_ones_without_a_box)
class ListsEachNameOnce(MemoryVault):
    """As one does that goes on behind a name instead of a version."""

    async def listed(self, after, limit):
        return [
            one for one in await super().listed(after, limit) if (one.tenant, one.name) != after[:2]
        ]


@breaks(Vault.test_an_empty_box_is_put_as_a_version_that_was_destroyed)
class PutsNoEmptyBox(MemoryVault):
    def _put_one(self, box):
        return bool(box.box) and super()._put_one(box)
