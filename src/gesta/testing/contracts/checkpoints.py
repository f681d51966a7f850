"""What every store of views promises about checkpoints and roles: of two that do the same work, one
gets it.
"""

from __future__ import annotations

from typing import ClassVar

from gesta.ports.read_model import Checkpoint, Move, RoleLease
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Capability, ReadModelHarness
from gesta.testing.contracts.samples import fresh_name, fresh_quarantined, fresh_view, key_of
from gesta.testing.contracts.suite import Contract


class CheckpointContract(Contract):
    needs: ClassVar[frozenset[Capability]] = frozenset({"read_model"})

    async def test_a_checkpoint_starts_at_0(self, harness: ReadModelHarness) -> None:
        assert await harness.read_model.checkpoint(fresh_name()) == 0

    async def test_views_and_checkpoint_move_together(self, harness: ReadModelHarness) -> None:
        name, view = fresh_name(), fresh_view()
        assert await harness.read_model.save([view], [], Move(name, 0, 7)) is True
        assert await harness.read_model.save([], [], Move(name, 7, 9)) is True
        assert await harness.read_model.checkpoint(name) == 9
        assert key_of(view) in await harness.read_model.get([key_of(view)])

    async def test_who_does_not_know_the_checkpoint_writes_nothing(
        self, harness: ReadModelHarness
    ) -> None:
        name, view = fresh_name(), fresh_view(tenant=fresh_name("tenant"))
        await harness.read_model.save([], [], Move(name, 0, 7))
        for before in (0, 6, 8):
            assert (
                await harness.read_model.save(
                    [view], [fresh_quarantined(tenant=view.state.tenant)], Move(name, before, 20)
                )
                is False
            )
        assert await harness.read_model.checkpoint(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.quarantined(view.state.tenant, 10) == []

    async def test_a_checkpoint_that_was_never_moved_is_at_0_for_everybody(
        self, harness: ReadModelHarness
    ) -> None:
        name = fresh_name()
        assert await harness.read_model.save([], [], Move(name, 5, 6)) is False
        assert await harness.read_model.checkpoint(name) == 0

    async def test_of_projectors_that_race_one_moves_the_checkpoint(
        self, harness: ReadModelHarness
    ) -> None:
        name = fresh_name()
        views = [fresh_view() for _ in range(8)]
        answers = await race(
            *(
                harness.read_model.save([view], [], Move(name, 0, n + 1))
                for n, view in enumerate(views)
            )
        )
        assert sorted(answers) == [False] * 7 + [True]  # K-13
        assert await harness.read_model.checkpoint(name) == answers.index(True) + 1
        assert set(await harness.read_model.get([*map(key_of, views)])) == {
            key_of(views[answers.index(True)])
        }

    async def test_checkpoints_of_two_names_know_nothing_of_each_other(
        self, harness: ReadModelHarness
    ) -> None:
        one, other = fresh_name(), fresh_name()
        await harness.read_model.save([], [], Move(one, 0, 7))
        assert await harness.read_model.save([], [], Move(other, 0, 3)) is True
        assert (
            await harness.read_model.checkpoint(one),
            await harness.read_model.checkpoint(other),
        ) == (
            7,
            3,
        )

    async def test_a_checkpoint_begins_where_it_is_told_to_and_only_once(
        self, harness: ReadModelHarness
    ) -> None:
        name = fresh_name()
        assert await harness.read_model.begin(name, 7) == 7
        assert await harness.read_model.begin(name, 9) == 7
        assert await harness.read_model.save([], [], Move(name, 7, 8)) is True
        assert await harness.read_model.begin(name, 9) == 8

    async def test_all_checkpoints_are_told_by_name(self, harness: ReadModelHarness) -> None:
        first, second = sorted((fresh_name(), fresh_name()))
        await harness.read_model.begin(second, 7)
        await harness.read_model.save([], [], Move(first, 0, 3))
        told = [
            one for one in await harness.read_model.checkpoints() if one.name in (first, second)
        ]
        assert told == [Checkpoint(first, 3), Checkpoint(second, 7)]

    async def test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay(
        self, harness: ReadModelHarness
    ) -> None:
        gone, stays = fresh_name(), fresh_name()
        await harness.read_model.begin(gone, 7)
        await harness.read_model.begin(stays, 8)
        await harness.read_model.forget(gone)
        await harness.read_model.forget(fresh_name())
        assert [
            one.name for one in await harness.read_model.checkpoints() if one.name in (gone, stays)
        ] == [stays]
        assert await harness.read_model.checkpoint(gone) == 0
        assert await harness.read_model.begin(gone, 3) == 3

    async def test_what_keeps_a_checkpoint_from_moving_is_told_until_it_moves(
        self, harness: ReadModelHarness
    ) -> None:
        name = fresh_name()
        await harness.read_model.begin(name, 7)
        await harness.read_model.stuck(name, "first", 1000)
        await harness.read_model.stuck(name, "second", 2000)
        assert Checkpoint(name, 7, "second", 1000) in await harness.read_model.checkpoints()
        await harness.read_model.save([], [], Move(name, 7, 8))
        assert Checkpoint(name, 8) in await harness.read_model.checkpoints()


class RoleContract(Contract):
    needs: ClassVar[frozenset[Capability]] = frozenset({"read_model"})

    async def test_a_role_has_one_owner_until_its_lease_runs_out(
        self, harness: ReadModelHarness
    ) -> None:
        role = fresh_name()
        assert await harness.read_model.claim(role, "first", 10) is True
        harness.runtime.advance(9.999)
        assert await harness.read_model.claim(role, "second", 10) is False
        harness.runtime.advance(0.001)
        assert await harness.read_model.claim(role, "second", 10) is True
        assert await harness.read_model.claim(role, "first", 10) is False

    async def test_the_owner_of_a_role_renews_its_lease(self, harness: ReadModelHarness) -> None:
        role = fresh_name()
        await harness.read_model.claim(role, "first", 10)
        harness.runtime.advance(9)
        assert await harness.read_model.claim(role, "first", 10) is True
        harness.runtime.advance(9)
        assert await harness.read_model.claim(role, "second", 10) is False

    async def test_a_role_can_be_given_up_by_a_lease_of_no_length(
        self, harness: ReadModelHarness
    ) -> None:
        role = fresh_name()
        await harness.read_model.claim(role, "first", 10)
        await harness.read_model.claim(role, "first", 0)
        assert await harness.read_model.claim(role, "second", 10) is True

    async def test_two_roles_know_nothing_of_each_other(self, harness: ReadModelHarness) -> None:
        assert await harness.read_model.claim(fresh_name(), "first", 10) is True
        assert await harness.read_model.claim(fresh_name(), "second", 10) is True

    async def test_of_owners_that_race_for_a_role_one_gets_it(
        self, harness: ReadModelHarness
    ) -> None:
        role = fresh_name()
        answers = await race(*(harness.read_model.claim(role, f"owner {n}", 10) for n in range(8)))
        assert sorted(answers) == [False] * 7 + [True]

    async def test_roles_are_told_with_their_owner_and_the_end_of_their_lease(
        self, harness: ReadModelHarness
    ) -> None:
        role = fresh_name()
        await harness.read_model.claim(role, "first", 10)
        await harness.read_model.claim(role, "second", 10)
        now = harness.runtime.now_ms()
        assert RoleLease(role, "first", now + 10_000) in await harness.read_model.roles()
