"""The promises of a store about leases on roles, shared roles and live processes."""

from msgspec import structs

from gesta.ports.leases import LiveProcess, RoleLease
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.samples import fresh_name
from gesta.testing.contracts.suite import Contract


class SharedLeasesContract(Contract):
    needs = frozenset({"leases"})

    async def test_a_single_owner_has_all_parts_of_a_role(self, harness: Harness) -> None:
        role = fresh_name()
        assert await harness.leases.share(role, 16, "first", 10) == {*range(16)}
        harness.runtime.advance(9)
        assert await harness.leases.share(role, 16, "first", 10) == {*range(16)}

    async def test_a_new_owner_gets_its_part_from_those_with_more(self, harness: Harness) -> None:
        role = fresh_name()
        for owner in ("first", "second", "third"):
            await harness.leases.share(role, 16, owner, 10)
        parts = [
            await harness.leases.share(role, 16, owner, 10)
            for owner in ("first", "second", "third")
        ]
        assert sorted(map(len, parts)) == [5, 5, 6]
        assert set.union(*parts) == {*range(16)}
        # The division is stable.
        assert [
            await harness.leases.share(role, 16, owner, 10)
            for owner in ("first", "second", "third")
        ] == parts

    async def test_with_more_owners_than_parts_some_have_none(self, harness: Harness) -> None:
        role = fresh_name()
        parts = [
            await harness.leases.share(role, 2, owner, 10)
            for owner in ("first", "second", "third", "first", "second")
        ]
        assert [len(one) for one in parts] == [2, 1, 0, 1, 1]

    async def test_parts_of_an_expired_lease_go_to_the_other_owners(self, harness: Harness) -> None:
        role = fresh_name()
        for owner in ("first", "second", "third", "first", "second"):
            await harness.leases.share(role, 16, owner, 10)
        harness.runtime.advance(9.999)
        kept = [await harness.leases.share(role, 16, owner, 10) for owner in ("first", "second")]
        assert {len(one) for one in kept} <= {5, 6}
        harness.runtime.advance(0.001)
        for owner in ("first", "second"):
            await harness.leases.share(role, 16, owner, 10)
        parts = [await harness.leases.share(role, 16, owner, 10) for owner in ("first", "second")]
        assert [len(one) for one in parts] == [8, 8]
        assert set.union(*parts) == {*range(16)}

    async def test_parts_can_be_given_up_by_a_lease_of_no_length(self, harness: Harness) -> None:
        role = fresh_name()
        await harness.leases.share(role, 16, "first", 10)
        await harness.leases.share(role, 16, "second", 10)
        assert await harness.leases.share(role, 16, "first", 0) == set()
        assert await harness.leases.share(role, 16, "second", 10) == {*range(16)}

    async def test_no_owner_has_a_part_while_another_holds_the_whole_role(
        self, harness: Harness
    ) -> None:
        role = fresh_name()
        await harness.leases.share(role, 4, "first", 10)
        assert await harness.leases.claim(role, "second", 20) is True
        assert await harness.leases.share(role, 4, "first", 10) == set()
        now = harness.runtime.now_ms()
        assert {
            one.name
            for one in await harness.leases.roles()
            if one.owner == "first" and one.is_held(now)
        } == set()
        assert await harness.leases.share(role, 4, "second", 10) == {*range(4)}
        harness.runtime.advance(20)
        assert await harness.leases.share(role, 4, "first", 10) == {*range(4)}

    async def test_concurrent_owners_never_get_the_same_part(self, harness: Harness) -> None:
        role, owners = fresh_name(), [f"owner {n}" for n in range(8)]
        for _ in range(3):
            await race(*(harness.leases.share(role, 16, owner, 10) for owner in owners))
        parts = [await harness.leases.share(role, 16, owner, 10) for owner in owners]
        assert sorted(part for one in parts for part in one) == [*range(16)]
        assert [len(one) for one in parts] == [2] * 8

    async def test_parts_are_listed_as_roles(self, harness: Harness) -> None:
        role = fresh_name()
        await harness.leases.share(role, 2, "first", 10)
        until_ms = harness.runtime.now_ms() + 10_000
        found = [one for one in await harness.leases.roles() if one.name.startswith(role)]
        assert found == [
            RoleLease(f"{role}/0", "first", until_ms),
            RoleLease(f"{role}/1", "first", until_ms),
        ]


class LeasesContract(Contract):
    needs = frozenset({"leases"})

    async def test_a_role_has_one_owner_until_its_lease_runs_out(self, harness: Harness) -> None:
        role = fresh_name()
        assert await harness.leases.claim(role, "first", 10) is True
        harness.runtime.advance(9.999)
        assert await harness.leases.claim(role, "second", 10) is False
        harness.runtime.advance(0.001)
        assert await harness.leases.claim(role, "second", 10) is True
        assert await harness.leases.claim(role, "first", 10) is False

    async def test_the_owner_of_a_role_renews_its_lease(self, harness: Harness) -> None:
        role = fresh_name()
        await harness.leases.claim(role, "first", 10)
        harness.runtime.advance(9)
        assert await harness.leases.claim(role, "first", 10) is True
        harness.runtime.advance(9)
        assert await harness.leases.claim(role, "second", 10) is False

    async def test_a_role_can_be_given_up_by_a_lease_of_no_length(self, harness: Harness) -> None:
        role = fresh_name()
        await harness.leases.claim(role, "first", 10)
        await harness.leases.claim(role, "first", 0)
        assert await harness.leases.claim(role, "second", 10) is True

    async def test_roles_are_independent(self, harness: Harness) -> None:
        assert await harness.leases.claim(fresh_name(), "first", 10) is True
        assert await harness.leases.claim(fresh_name(), "second", 10) is True

    async def test_of_concurrent_owners_of_a_role_one_gets_it(self, harness: Harness) -> None:
        role = fresh_name()
        answers = await race(*(harness.leases.claim(role, f"owner {n}", 10) for n in range(8)))
        assert sorted(answers) == [False] * 7 + [True]

    async def test_roles_are_listed_with_owner_and_end_of_lease(self, harness: Harness) -> None:
        role = fresh_name()
        await harness.leases.claim(role, "first", 10)
        await harness.leases.claim(role, "second", 10)
        now = harness.runtime.now_ms()
        assert RoleLease(role, "first", now + 10_000) in await harness.leases.roles()


class LiveProcessesContract(Contract):
    needs = frozenset({"leases"})

    async def test_a_reported_process_is_listed_until_its_lease_ends(
        self, harness: Harness
    ) -> None:
        process = _process(pid=4_294_967_295, roles=("api", "worker"))
        await harness.leases.report(process, 10)
        harness.runtime.advance(9.999)
        assert await _listed(harness, process) == [process]
        harness.runtime.advance(0.001)
        assert await _listed(harness, process) == []

    async def test_a_process_renews_its_report(self, harness: Harness) -> None:
        process, other = _process(), _process()
        await harness.leases.report(process, 10)
        harness.runtime.advance(9)
        await harness.leases.report(process, 10)
        await harness.leases.report(other, 10)
        harness.runtime.advance(9)
        assert await _listed(harness, process) == [process]

    async def test_a_later_report_replaces_the_roles(self, harness: Harness) -> None:
        process = _process(roles=())
        await harness.leases.report(process, 10)
        assert await _listed(harness, process) == [process]
        changed = structs.replace(process, roles=("worker",), version="0.2.0")
        await harness.leases.report(changed, 10)
        assert await _listed(harness, process) == [changed]

    async def test_a_report_with_a_lease_of_no_length_removes_the_process(
        self, harness: Harness
    ) -> None:
        process, other = _process(), _process()
        await harness.leases.report(process, 10)
        await harness.leases.report(other, 10)
        await harness.leases.report(process, 0)
        assert await _listed(harness, process, other) == [other]

    async def test_processes_are_listed_oldest_first(self, harness: Harness) -> None:
        newer, older = _process(since_ms=2), _process(since_ms=1)
        await harness.leases.report(newer, 10)
        await harness.leases.report(older, 10)
        assert await _listed(harness, newer, older) == [older, newer]

    async def test_a_report_from_before_the_clock_was_set_back_is_not_listed(
        self, harness: Harness
    ) -> None:
        process = _process()
        await harness.leases.report(process, 1_000)
        assert await _listed(harness, process) == []

    async def test_processes_report_concurrently(self, harness: Harness) -> None:
        dead, processes = _process(), [_process() for _ in range(8)]
        await harness.leases.report(dead, 1)
        harness.runtime.advance(1)
        await race(*(harness.leases.report(process, 10) for process in processes * 2))
        listed = await _listed(harness, dead, *processes)
        assert listed == sorted(processes, key=lambda process: process.id)


def _process(pid: int = 7, roles: tuple[str, ...] = ("worker",), since_ms: int = 1) -> LiveProcess:
    return LiveProcess(fresh_name(), "host.example", pid, roles, "0.1.0", since_ms)


async def _listed(harness: Harness, *processes: LiveProcess) -> list[LiveProcess]:
    """Of these processes, those that the store lists: others may share the store."""
    ids = {process.id for process in processes}
    return [process for process in await harness.leases.processes() if process.id in ids]
