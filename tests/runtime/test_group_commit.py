from __future__ import annotations

import asyncio

import pytest

from gesta.runtime.group_commit import GroupCommit


class Writer:
    """Answers each item with its text; waits at the gate when there is one."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate: asyncio.Event | None = None
        self.errors: list[BaseException] = []

    async def write(self, items: list[int]) -> list[str]:
        self.batches.append(items)
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return [str(item) for item in items]


@pytest.fixture
def writer():
    return Writer()


async def test_every_caller_gets_the_answer_to_its_own_item(writer):
    group = GroupCommit(writer.write, "test")
    assert await asyncio.gather(*(group.add(n) for n in range(5))) == ["0", "1", "2", "3", "4"]


async def test_callers_of_the_same_turn_of_the_loop_share_a_batch(writer):
    group = GroupCommit(writer.write, "test")
    await asyncio.gather(*(group.add(n) for n in range(5)))
    assert writer.batches == [[0, 1, 2, 3, 4]]


async def test_the_next_batch_forms_while_the_last_one_is_written(writer):
    writer.gate = asyncio.Event()
    group = GroupCommit(writer.write, "test")
    first = group.add(0)
    await asyncio.sleep(0)
    later = [group.add(n) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    assert writer.batches == [[0]]
    writer.gate.set()
    assert await asyncio.gather(first, *later) == ["0", "1", "2", "3"]
    assert writer.batches == [[0], [1, 2, 3]]


async def test_half_of_many_callers_share_a_batch_while_the_other_half_is_prepared(writer):
    async def write(items):
        # Those who were answered by the last batch come again meanwhile.
        for _ in range(3):
            await asyncio.sleep(0)
        return await writer.write(items)

    group = GroupCommit(write, "test", halved_above=4)

    async def caller(n: int) -> None:
        for _ in range(4):
            assert await group.add(n) == str(n)

    await asyncio.gather(*(caller(n) for n in range(20)))
    assert [len(batch) for batch in writer.batches] == [10] * 8


async def test_a_few_callers_share_one_batch_although_many_would_be_halved(writer):
    group = GroupCommit(writer.write, "test", halved_above=4)
    await asyncio.gather(*(group.add(n) for n in range(4)))
    assert writer.batches == [[0, 1, 2, 3]]


async def test_a_burst_of_large_items_is_cut_into_batches_that_a_store_can_write_within_a_lease(
    writer,
):
    megabytes = 1024 * 1024
    group = GroupCommit(writer.write, "test")
    assert await asyncio.gather(*(group.add(n, n * megabytes) for n in (3, 5, 1, 20, 2))) == [
        "3",
        "5",
        "1",
        "20",
        "2",
    ]
    assert writer.batches == [[3, 5], [1], [20], [2]]


async def test_a_batch_has_at_most_the_limit(writer):
    group = GroupCommit(writer.write, "test", limit=2)
    assert await asyncio.gather(*(group.add(n) for n in range(5))) == ["0", "1", "2", "3", "4"]
    assert writer.batches == [[0, 1], [2, 3], [4]]


async def test_an_error_is_raised_to_its_batch_only(writer):
    writer.errors = [OSError("full")]
    group = GroupCommit(writer.write, "test", limit=2)
    answers = await asyncio.gather(*(group.add(n) for n in range(4)), return_exceptions=True)
    assert [repr(answer) for answer in answers] == [
        "OSError('full')",
        "OSError('full')",
        "'2'",
        "'3'",
    ]
    assert await group.add(9) == "9"


async def test_a_caller_that_stopped_waiting_does_not_disturb_the_others(writer):
    writer.gate = asyncio.Event()
    group = GroupCommit(writer.write, "test")
    first, second = group.add(1), group.add(2)
    await asyncio.sleep(0)
    first.cancel()
    writer.gate.set()
    assert await second == "2"
    assert writer.batches == [[1, 2]]


async def test_no_caller_waits_for_ever_after_too_few_answers():
    async def forgetful(items: list[int]) -> list[str]:
        return [str(item) for item in items[:-1]]

    group = GroupCommit(forgetful, "test")
    first, second = group.add(1), group.add(2)
    assert await first == "1"
    with pytest.raises(ValueError, match="shorter"):
        await second


async def test_no_caller_waits_for_ever_after_the_writer_was_cancelled(writer):
    writer.gate = asyncio.Event()
    group = GroupCommit(writer.write, "test", limit=1)
    waiting = [group.add(n) for n in range(3)]
    await asyncio.sleep(0)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "test"]
    task.cancel()
    await asyncio.wait(waiting)
    assert all(future.cancelled() for future in waiting)
    writer.gate.set()
    assert await group.add(9) == "9"


async def test_items_of_one_caller_are_answered_together_and_in_their_order(writer):
    group = GroupCommit(writer.write, "test", limit=2)
    before, together, after = group.add(0), group.add_all([1, 2, 3]), group.add(4)
    assert await together == ["1", "2", "3"]
    assert (await before, await after) == ("0", "4")
    assert writer.batches == [[0, 1], [2, 3], [4]]


async def test_an_error_in_one_of_their_batches_is_raised_for_all_items_of_one_caller(writer):
    writer.errors = [OSError("full")]
    group = GroupCommit(writer.write, "test", limit=2)
    together, after = group.add_all([1, 2, 3]), group.add(4)
    with pytest.raises(OSError, match="full"):
        await together
    assert await after == "4"
    assert writer.batches == [[1, 2], [3, 4]]


async def test_as_many_batches_are_written_at_a_time_as_may_be(writer):
    writer.gate = asyncio.Event()
    group = GroupCommit(writer.write, "test", at_once=2)
    waiting = []
    for number in (0, 10, 20, 30):
        waiting += [group.add(number), group.add(number + 1)]
        await asyncio.sleep(0)
    assert writer.batches == [[0, 1], [10, 11]]
    writer.gate.set()
    assert len(await asyncio.gather(*waiting)) == 8
    assert writer.batches == [[0, 1], [10, 11], [20, 21, 30, 31]]


async def test_a_batch_beyond_the_limit_is_written_beside_the_first(writer):
    writer.gate = asyncio.Event()
    group = GroupCommit(writer.write, "test", limit=2, at_once=2)
    waiting = [group.add(number) for number in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert writer.batches == [[0, 1], [2, 3]]
    writer.gate.set()
    assert await asyncio.gather(*waiting) == ["0", "1", "2", "3", "4"]


async def test_an_error_of_one_batch_leaves_the_one_beside_it_alone(writer):
    writer.gate, writer.errors = asyncio.Event(), [OSError("disk")]
    group = GroupCommit(writer.write, "test", limit=1, at_once=2)
    first, second = group.add(1), group.add(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.gate.set()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(one) for one in answers] == ["disk", "2"]
    assert await group.add(3) == "3"


async def test_items_of_one_caller_are_answered_in_their_order_whichever_batch_ends_first():
    second_ended = asyncio.Event()

    async def write(items: list[int]) -> list[str]:
        if items == [1, 2]:
            await second_ended.wait()
        return [str(item) for item in items]

    group = GroupCommit(write, "test", limit=2, at_once=2)
    together, last = group.add_all([1, 2, 3]), group.add(4)
    assert await last == "4"
    second_ended.set()
    assert await together == ["1", "2", "3"]
