"""What every vault promises: versions that never change, tenants apart, and destroyed means
gone.
"""

from gesta.ports.vault import Encrypted
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import fresh_encrypted, fresh_name
from gesta.testing.contracts.suite import Contract


class VaultContract(Contract):
    needs = frozenset({"vault"})

    async def test_a_secret_is_read_as_it_was_stored(self, harness: Harness) -> None:
        encrypted = fresh_encrypted(box=bytes(range(256)))
        assert await harness.vault.put([encrypted]) == [True]
        assert await harness.vault.get([_ref(encrypted)]) == {_ref(encrypted): encrypted}

    async def test_a_version_once_written_never_changes(self, harness: Harness) -> None:
        encrypted = fresh_encrypted()
        await harness.vault.put([encrypted])
        assert await harness.vault.put([fresh_encrypted(name=encrypted.name, box=b"other")]) == [
            False
        ]
        assert await harness.vault.get([_ref(encrypted)]) == {_ref(encrypted): encrypted}

    async def test_of_two_boxes_for_a_version_in_one_batch_the_first_stays(
        self, harness: Harness
    ) -> None:
        encrypted = fresh_encrypted()
        assert await harness.vault.put(
            [encrypted, fresh_encrypted(name=encrypted.name, box=b"other"), fresh_encrypted()]
        ) == [
            True,
            False,
            True,
        ]
        assert await harness.vault.get([_ref(encrypted)]) == {_ref(encrypted): encrypted}

    async def test_of_boxes_that_race_for_a_version_one_is_written(self, harness: Harness) -> None:
        first = fresh_encrypted()
        boxes = [fresh_encrypted(name=first.name, box=b"%d" % n) for n in range(8)]
        written = [answer for (answer,) in await race(*(harness.vault.put([box]) for box in boxes))]
        assert sorted(written) == [False] * 7 + [True]
        assert await harness.vault.get([_ref(first)]) == {_ref(first): boxes[written.index(True)]}

    async def test_versions_of_a_name_are_kept_separately(self, harness: Harness) -> None:
        first = fresh_encrypted()
        second = fresh_encrypted(name=first.name, version=2, box=b"second")
        assert await harness.vault.put([first, second]) == [True, True]
        assert await harness.vault.get([_ref(second), _ref(first)]) == {
            _ref(first): first,
            _ref(second): second,
        }

    async def test_a_tenant_never_gets_the_secret_of_another(self, harness: Harness) -> None:
        encrypted = fresh_encrypted()
        await harness.vault.put([encrypted])
        assert await harness.vault.get([("other", encrypted.name, encrypted.version)]) == {}
        own = fresh_encrypted(tenant="other", name=encrypted.name, box=b"own")
        assert await harness.vault.put([own]) == [True]
        assert await harness.vault.get([_ref(own)]) == {_ref(own): own}

    async def test_what_does_not_exist_is_left_out(self, harness: Harness) -> None:
        encrypted = fresh_encrypted()
        await harness.vault.put([encrypted])
        assert await harness.vault.get([_ref(fresh_encrypted()), _ref(encrypted)]) == {
            _ref(encrypted): encrypted
        }
        assert await harness.vault.get([]) == {}

    async def test_a_destroyed_version_is_gone_and_the_others_stay(self, harness: Harness) -> None:
        destroyed = fresh_encrypted()
        kept = fresh_encrypted(name=destroyed.name, version=2)
        await harness.vault.put([destroyed, kept])
        await harness.vault.delete([_ref(destroyed), _ref(fresh_encrypted())])
        assert await harness.vault.get([_ref(destroyed), _ref(kept)]) == {_ref(kept): kept}

    async def test_a_destroyed_version_is_never_written_again(self, harness: Harness) -> None:
        destroyed = fresh_encrypted()
        await harness.vault.put([destroyed])
        await harness.vault.delete([_ref(destroyed)])
        assert await harness.vault.put(
            [destroyed, fresh_encrypted(name=destroyed.name, box=b"other")]
        ) == [False, False]
        assert await harness.vault.get([_ref(destroyed)]) == {}

    async def test_the_newest_version_of_each_name_is_returned(self, harness: Harness) -> None:
        first, other = fresh_encrypted(), fresh_encrypted()
        second, tenth = (
            fresh_encrypted(name=first.name, version=version, box=b"%d" % version)
            for version in (2, 10)
        )
        await harness.vault.put([first, tenth, second, other])
        names = [
            _ref(other)[:2],
            _ref(first)[:2],
            _ref(fresh_encrypted())[:2],
            ("other", first.name),
        ]
        assert await harness.vault.newest(names) == {_ref(first)[:2]: tenth, _ref(other)[:2]: other}
        assert await harness.vault.newest([]) == {}

    async def test_a_destroyed_newest_version_is_returned_without_its_box(
        self, harness: Harness
    ) -> None:
        first, never_written = fresh_encrypted(), fresh_encrypted()
        second = fresh_encrypted(name=first.name, version=2)
        await harness.vault.put([first, second])
        await harness.vault.delete([_ref(second), _ref(never_written)])
        gone = fresh_encrypted(name=first.name, version=2, box=b"")
        assert await harness.vault.newest([_ref(first)[:2], _ref(never_written)[:2]]) == {
            _ref(first)[:2]: gone
        }

    async def test_versions_are_listed_in_order_page_by_page_and_destroyed_ones_without_a_box(
        self, harness: Harness
    ) -> None:
        name = fresh_name()
        kept, destroyed, tenth = (
            fresh_encrypted(tenant=name, name=name, version=version) for version in (1, 2, 10)
        )
        other = fresh_encrypted(tenant=f"{name}.b", name="a")
        await harness.vault.put([other, tenth, destroyed, kept])
        await harness.vault.delete([_ref(destroyed)])
        found: list[Encrypted] = []
        while page := await harness.vault.listed(_ref(found[-1]) if found else ("", "", 0), 2):
            found += page
        assert [_ref(one) for one in found] == sorted(_ref(one) for one in found)
        own = [one for one in found if one.tenant.startswith(name)]
        assert own == [kept, Encrypted(name, name, 2, b""), tenth, other]

    async def test_an_empty_box_is_put_as_a_version_that_was_destroyed(
        self, harness: Harness
    ) -> None:
        gone = fresh_encrypted(box=b"")
        assert await harness.vault.put([gone]) == [True]
        assert await harness.vault.get([_ref(gone)]) == {}
        assert await harness.vault.newest([_ref(gone)[:2]]) == {_ref(gone)[:2]: gone}
        assert await harness.vault.put([fresh_encrypted(name=gone.name)]) == [False]


class VaultAfterRestartContract(Contract):
    needs = frozenset({"vault", "durable"})

    async def test_secrets_are_there_again_and_destroyed_ones_are_not(
        self, harness: Harness
    ) -> None:
        kept, destroyed = fresh_encrypted(), fresh_encrypted()
        await harness.vault.put([kept, destroyed])
        await harness.vault.delete([_ref(destroyed)])
        await reopen(harness)
        assert await harness.vault.get([_ref(kept), _ref(destroyed)]) == {_ref(kept): kept}

    async def test_a_destroyed_version_is_remembered(self, harness: Harness) -> None:
        destroyed = fresh_encrypted()
        await harness.vault.put([destroyed])
        await harness.vault.delete([_ref(destroyed)])
        await reopen(harness)
        assert await harness.vault.put([destroyed]) == [False]
        assert (await harness.vault.newest([_ref(destroyed)[:2]]))[_ref(destroyed)[:2]].box == b""


def _ref(encrypted: Encrypted) -> tuple[str, str, int]:
    return encrypted.tenant, encrypted.name, encrypted.version
