"""What every store of views promises about checkpoints and roles: of two that do the same work, one
gets it.
"""

from gesta.ports.checkpoints import Checkpoint, Move
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.samples import fresh_name
from gesta.testing.contracts.suite import Contract


class CheckpointContract(Contract):
    needs = frozenset({"checkpoints"})

    async def test_a_checkpoint_starts_at_0(self, harness: Harness) -> None:
        assert await harness.checkpoints.position(fresh_name()) == 0

    async def test_a_checkpoint_that_was_never_moved_is_at_0(self, harness: Harness) -> None:
        name = fresh_name()
        assert await harness.checkpoints.move([Move(name, 5, 6)]) is False
        assert await harness.checkpoints.position(name) == 0

    async def test_checkpoints_of_two_names_know_nothing_of_each_other(
        self, harness: Harness
    ) -> None:
        one, other = fresh_name(), fresh_name()
        await harness.checkpoints.move([Move(one, 0, 7)])
        assert await harness.checkpoints.move([Move(other, 0, 3)]) is True
        assert (
            await harness.checkpoints.position(one),
            await harness.checkpoints.position(other),
        ) == (
            7,
            3,
        )

    async def test_a_checkpoint_begins_at_the_given_position_and_only_once(
        self, harness: Harness
    ) -> None:
        name = fresh_name()
        assert await harness.checkpoints.begin(name, 7) == 7
        assert await harness.checkpoints.begin(name, 9) == 7
        assert await harness.checkpoints.move([Move(name, 7, 8)]) is True
        assert await harness.checkpoints.begin(name, 9) == 8

    async def test_all_checkpoints_are_listed_by_name(self, harness: Harness) -> None:
        first, second = sorted((fresh_name(), fresh_name()))
        await harness.checkpoints.begin(second, 7)
        await harness.checkpoints.move([Move(first, 0, 3)])
        found = [
            one for one in await harness.checkpoints.checkpoints() if one.name in (first, second)
        ]
        assert found == [Checkpoint(first, 3), Checkpoint(second, 7)]

    async def test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay(
        self, harness: Harness
    ) -> None:
        gone, stays = fresh_name(), fresh_name()
        await harness.checkpoints.begin(gone, 7)
        await harness.checkpoints.begin(stays, 8)
        await harness.checkpoints.forget(gone)
        await harness.checkpoints.forget(fresh_name())
        assert [
            one.name for one in await harness.checkpoints.checkpoints() if one.name in (gone, stays)
        ] == [stays]
        assert await harness.checkpoints.position(gone) == 0
        assert await harness.checkpoints.begin(gone, 3) == 3

    async def test_the_error_of_a_checkpoint_is_listed_until_it_moves(
        self, harness: Harness
    ) -> None:
        name = fresh_name()
        await harness.checkpoints.begin(name, 7)
        await harness.checkpoints.note_error(name, "first", 1000)
        await harness.checkpoints.note_error(name, "second", 2000)
        assert Checkpoint(name, 7, "second", 1000) in await harness.checkpoints.checkpoints()
        await harness.checkpoints.move([Move(name, 7, 8)])
        assert Checkpoint(name, 8) in await harness.checkpoints.checkpoints()
