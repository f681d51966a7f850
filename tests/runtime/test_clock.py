from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from uuid import UUID

from gesta.domain.ids import id_text
from gesta.runtime.clock import (
    Ids,
    ManualRuntime,
    Signal,
    SystemRuntime,
    WorkerThread,
    run,
    sleep,
    spawn,
    turn,
)


async def test_a_manual_clock_does_not_move_by_itself():
    runtime = ManualRuntime(start_ms=1_000)
    assert (runtime.now_ms(), runtime.monotonic()) == (1_000, 1.0)
    await turn()
    assert runtime.now_ms() == 1_000
    runtime.advance(2.5)
    assert (runtime.now_ms(), runtime.monotonic()) == (3_500, 3.5)


async def test_timers_fire_in_their_order_and_at_their_time():
    runtime, fired = ManualRuntime(start_ms=0), []
    for seconds in (3, 1, 2):
        runtime.call_later(seconds, lambda s: fired.append((s, runtime.now_ms())), seconds)
    runtime.call_later(2.5, fired.append, "cancelled").cancel()
    assert runtime.next_timer_ms == 1_000
    runtime.advance(2.5)
    assert fired == [(1, 1_000), (2, 2_000)]
    runtime.advance(1)
    assert fired[-1] == (3, 3_000)
    assert runtime.next_timer_ms is None


async def test_a_sleep_ends_when_the_clock_has_moved_far_enough():
    runtime = ManualRuntime()
    sleeping = spawn(sleep(runtime, 10), "sleeper")
    await turn()
    runtime.advance(9.9)
    await turn()
    assert not sleeping.done()
    runtime.advance(0.1)
    await sleeping


def test_the_same_seed_gives_the_same_dice():
    first, second, other = ManualRuntime(seed=1), ManualRuntime(seed=1), ManualRuntime(seed=2)
    draws = [[runtime.chance(), runtime.random_bytes(8)] for runtime in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]
    assert all(0 <= draw[0] < 1 for draw in draws)  # type: ignore[operator]


async def test_a_signal_set_without_a_waiter_is_kept_for_the_next_one():
    signal = Signal(ManualRuntime())
    signal.set()
    await signal.wait(1_000)
    waiting = spawn(signal.wait(1_000), "waiter")
    await turn()
    assert not waiting.done()
    signal.set()
    await waiting


async def test_a_signal_wakes_every_waiter():
    signal = Signal(ManualRuntime())
    waiting = [spawn(signal.wait(1_000), "waiter") for _ in range(3)]
    await turn()
    signal.set()
    await asyncio.gather(*waiting)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind():
    runtime = ManualRuntime()
    signal = Signal(runtime)
    waiting = spawn(signal.wait(5), "waiter")
    await turn()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert runtime.next_timer_ms is None
    signal.set()
    await signal.wait(5)


def test_ids_increase_even_inside_one_millisecond_and_when_the_clock_goes_back():
    runtime = ManualRuntime()
    ids = Ids(runtime)
    made = [ids.new() for _ in range(5_000)]
    runtime._now_ms -= 60_000
    made += [ids.new() for _ in range(10)]
    assert made == sorted(made)
    assert len(set(made)) == 5_010
    assert {UUID(one).version for one in made} == {7}


def test_ids_are_uuids_of_version_7_that_begin_with_the_time():
    raw = Ids(ManualRuntime(start_ms=0x0123456789AB)).new_bytes()
    assert int.from_bytes(raw[:6], "big") == 0x0123456789AB
    assert (raw[6] >> 4, raw[8] >> 6) == (7, 0b10)
    assert len(id_text(raw)) == 36


def test_random_bytes_are_never_given_twice():
    runtime = SystemRuntime()
    assert len({runtime.random_bytes(16) for _ in range(2_000)}) == 2_000
    assert len(runtime.random_bytes(10_000)) == 10_000


def test_a_worker_thread_runs_what_has_gathered_as_one_batch_in_order():
    begun, go_on, batches = threading.Event(), threading.Event(), []

    def work(batch: list[int]) -> None:
        batches.append(batch)
        begun.set()
        go_on.wait(10)

    worker_thread: WorkerThread[int] = WorkerThread(SystemRuntime(), "test-worker", work)
    worker_thread.put(1)
    assert begun.wait(10)
    for n in (2, 3, 4):
        worker_thread.put(n)
    go_on.set()
    worker_thread.close()
    assert batches == [[1], [2, 3, 4]]


def test_a_worker_thread_that_is_closed_runs_what_waits_and_ends_its_thread():
    done: list[int] = []
    worker_thread: WorkerThread[int] = WorkerThread(
        SystemRuntime(), "test-closing-worker", done.extend
    )
    for n in range(100):
        worker_thread.put(n)
    worker_thread.close()
    assert done == list(range(100))
    assert "test-closing-worker" not in {thread.name for thread in threading.enumerate()}


def test_a_program_is_run_to_its_end_and_its_answer_is_given():
    code = (
        "import asyncio\nfrom gesta.runtime.clock import run\nasync def main():\n    await"
        " asyncio.sleep(0)\n    return 7\nprint(run(main()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("7\n", 0)
    assert callable(run)


async def test_two_tasks_that_wait_alternately_both_see_every_set():
    signal = Signal(ManualRuntime())
    heard: list[str] = []

    async def listen(name: str) -> None:
        while True:
            await signal.wait(1_000)
            heard.append(name)

    listening = [spawn(listen(name), name) for name in ("first", "second")]
    await turn()
    signal.set()
    # Both are awake and neither waits yet: the notification that comes now must reach both.
    signal.set()
    await turn()
    await turn()
    assert sorted(heard) == ["first", "second"]

    async def busy() -> None:
        await signal.wait(1_000)
        heard.append("third")
        signal.set()
        await turn()
        await turn()
        await signal.wait(1_000)
        heard.append("third again")

    third = spawn(busy(), "third")
    await turn()
    signal.set()
    for _ in range(5):
        await turn()
    assert "third again" in heard
    for task in (*listening, third):
        task.cancel()
