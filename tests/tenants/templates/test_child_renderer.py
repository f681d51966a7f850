"""The real renderer: a process of its own that may be killed by what it is asked, at no cost for
others.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from gesta.errors import RendererDown
from gesta.runtime.clock import ManualRuntime, SystemRuntime, turn
from gesta.tenants.templates import child, child_process
from gesta.tenants.templates.child import Batch
from gesta.tenants.templates.child_renderer import ChildRenderer
from gesta.tenants.templates.press import Names, RenderError, Sheet
from gesta.tenants.templates.render_queue import FairLines, Waiting
from gesta.tenants.templates.renderer import KEPT, InlineRenderer, Shelf
from gesta.tenants.templates.templates import Template
from tests.tenants.templates.corpus import HOSTILE

GOOD = Template(text="Hello {{ name }}")


@pytest_asyncio.fixture
async def renderer() -> AsyncIterator[ChildRenderer]:
    renderer = ChildRenderer(SystemRuntime())
    yield renderer
    await renderer.close()


async def greeted(renderer: ChildRenderer, name: str = "Ann") -> bool:
    return await renderer.render(GOOD, msgspec.json.encode({"name": name})) == Sheet(
        {"text": f"Hello {name}"}
    )


def children() -> list[int]:
    """Processes that this one has started and that have not ended."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


async def started(renderer: ChildRenderer) -> int:
    """The process that renders now."""
    before = set(children())
    assert await greeted(renderer)
    (pid,) = set(children()) - before
    return pid


async def test_the_child_starts_with_the_first_template_and_ends_with_the_renderer(
    renderer: ChildRenderer,
) -> None:
    before = children()
    await turn()
    assert children() == before
    pid = await started(renderer)
    assert await renderer.variables(GOOD) == Names(["name"])
    await renderer.close()
    assert pid not in children()


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many each batch was."""
    sizes: list[int] = []
    ask = child_process.Child.ask

    def noted(child: child_process.Child, batch: Batch) -> None:
        sizes.append(sum(len(order.data) for order in batch.orders))
        ask(child, batch)

    monkeypatch.setattr(child_process.Child, "ask", noted)
    return sizes


async def test_waiting_orders_go_in_one_batch(renderer: ChildRenderer, sizes: list[int]) -> None:
    assert all(await asyncio.gather(*(greeted(renderer, str(number)) for number in range(600))))
    assert sizes == [512, 88]


async def test_different_orders_for_one_template_get_each_its_own_answer(
    renderer: ChildRenderer,
) -> None:
    await started(renderer)
    template = Template(text="A{{ n }}")
    answers = await asyncio.gather(
        renderer.variables(template), renderer.render(template, b'{"n": 1}')
    )
    assert list[object](answers) == [Names(["n"]), Sheet({"text": "A1"})]


@pytest.mark.slow
async def test_slow_templates_within_the_limit_do_not_add_up_to_a_kill(
    renderer: ChildRenderer,
) -> None:
    pid = await started(renderer)
    slow = Template(text="{% for i in range(8000) %}{% if a|upper == 'X' %}{% endif %}{% endfor %}")
    data = msgspec.json.encode({"a": "x" * 90_000})
    answers = await asyncio.gather(*(renderer.render(slow, data) for _ in range(10)))
    assert answers == [Sheet({"text": ""})] * 10
    assert pid in children()


async def test_a_cancelled_order_is_not_rendered(renderer: ChildRenderer, sizes: list[int]) -> None:
    waiting = [asyncio.ensure_future(greeted(renderer, str(number))) for number in range(3)]
    waiting[1].cancel()
    await turn()
    waiting[2].cancel()
    assert await waiting[0]
    assert sizes == [1]


async def test_the_child_does_not_inherit_the_environment(
    renderer: ChildRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GESTA_MASTER_KEY", "a secret")
    pid = await started(renderer)
    names = [
        line.partition(b"=")[0]
        for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if line
    ]
    assert names == [b"PYTHONPATH"]


async def test_the_operating_system_limits_the_child(renderer: ChildRenderer) -> None:
    pid = await started(renderer)
    limits = {
        line[:26].strip(): line[26:].split()[:2]
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
    }
    assert limits["Max address space"] == [str(child.MEMORY_BYTES)] * 2
    assert limits["Max file size"] == limits["Max core file size"] == ["0", "0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        # Little memory and few steps, but each takes long; and the other way round.
        (
            "{% for i in range(12000) %}{% if a|upper == 'X' %}{% endif %}{% endfor %}",
            "takes too much time",
        ),
        ("{{ a|replace('x', a) }}", "takes too much memory"),
    ],
)
async def test_the_error_of_a_template_over_the_limit_names_time_or_memory(
    source: str, message: str
) -> None:
    renderer = ChildRenderer(ManualRuntime())
    answer = await renderer.render(
        Template(text=source), msgspec.json.encode({"a": "x" * 1_000_000})
    )
    assert answer == RenderError("template", message)
    await renderer.close()


@pytest.mark.slow
async def test_hostile_templates_fail_alone_and_those_of_others_are_rendered() -> None:
    # On a clock that stands still: however slow the machine, nothing is given up for waiting.
    renderer = ChildRenderer(ManualRuntime())
    assert await greeted(renderer)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def is_refused(name: str) -> bool:
        source, data = HOSTILE[name]
        return isinstance(
            await renderer.render(Template(text=source), msgspec.json.encode(data)), RenderError
        )

    hostile, good = (
        list(HOSTILE),
        [greeted(renderer, str(number)) for number in range(len(HOSTILE))],
    )
    answers = await asyncio.gather(*map(is_refused, hostile), *good)
    assert [name for name, is_so in zip(hostile, answers, strict=False) if not is_so] == []
    assert all(answers)
    # Each by itself, too: now the ones that killed a child are known.
    for name in hostile:
        assert await is_refused(name), name
        assert await greeted(renderer)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes < 20_000
    await renderer.close()


@pytest.mark.slow
def test_every_template_ends_and_the_next_one_is_rendered() -> None:
    pieces = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        " x ",
        " for a in ",
        "range(9)",
        "endfor",
        "if",
        "endif",
        "|replace('', x)",
        "|join",
        "~",
        "*",
        "9",
    ]
    pieces += [
        "set x = ",
        "macro m(a)",
        "endmacro",
        "m(x)",
        "[",
        "]",
        "(",
        ")",
        "'",
        '"',
        ".",
        "loop",
        "|tojson",
        "é",
        "\x00",
        "\ud800",
        "raw",
        "\n",
    ]

    async def rendered(renderer: ChildRenderer, template: Template) -> Sheet | RenderError:
        return await renderer.render(template, b'{"x": "xx"}')

    @settings(max_examples=150)
    @given(
        st.lists(st.sampled_from(pieces), max_size=30),
        st.sampled_from(["text", "html", "blocks", "subject"]),
    )
    def check(sources: list[str], part: str) -> None:
        template = Template(**{part: "".join(sources)})
        answer = runner.run(rendered(renderer, template))
        assert isinstance(answer, Sheet | RenderError)
        assert runner.run(greeted(renderer))

    renderer = ChildRenderer(SystemRuntime())
    with asyncio.Runner() as runner:
        check()
        runner.run(renderer.close())


async def test_a_killed_child_is_replaced_and_its_orders_are_repeated(
    renderer: ChildRenderer,
) -> None:
    pid = await started(renderer)
    os.kill(pid, signal.SIGSTOP)
    waiting = [asyncio.ensure_future(greeted(renderer, str(number))) for number in range(3)]
    for _ in range(5):
        await turn()
    os.kill(pid, signal.SIGKILL)
    assert all(await asyncio.gather(*waiting))


async def test_a_template_is_not_blamed_for_a_child_killed_from_outside(
    renderer: ChildRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    ask = child_process.Child.ask

    def kill(child: child_process.Child, batch: Batch) -> None:
        killed.extend(children())
        os.kill(killed[-1], signal.SIGKILL)
        ask(child, batch)

    monkeypatch.setattr(child_process.Child, "ask", kill)
    with pytest.raises(RendererDown, match="its process was killed"):
        await greeted(renderer)
    monkeypatch.undo()
    assert await greeted(renderer)


async def test_a_child_that_does_not_answer_is_killed() -> None:
    runtime = ManualRuntime()
    renderer = ChildRenderer(runtime)
    pid = await started(renderer)
    os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.ensure_future(greeted(renderer))
    for _ in range(5):
        await turn()
    assert not waiting.done()
    runtime.advance(child_process.STALL_SECONDS)
    # It has waited as long as the child was given: the caller gets the error before an attempt
    # would be cut.
    runtime.advance(1)
    with pytest.raises(RendererDown, match="too many templates are waiting"):
        await waiting
    assert await greeted(renderer)
    await renderer.close()


async def test_a_cancelled_caller_does_not_affect_other_orders(
    renderer: ChildRenderer,
) -> None:
    pid = await started(renderer)
    os.kill(pid, signal.SIGSTOP)
    cut, waiting = (
        asyncio.ensure_future(greeted(renderer)),
        asyncio.ensure_future(greeted(renderer, "Bob")),
    )
    for _ in range(5):
        await turn()
    cut.cancel()
    os.kill(pid, signal.SIGCONT)
    assert await waiting
    assert cut.cancelled()


async def test_signals_that_stop_the_parent_do_not_stop_the_child(renderer: ChildRenderer) -> None:
    pid = await started(renderer)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert await greeted(renderer)
    assert pid in children()


PARENT = """
import asyncio
import math
from gesta.tenants.templates.child_renderer import ChildRenderer
from gesta.tenants.templates.templates import Template
from gesta.runtime.clock import SystemRuntime
from tests.tenants.templates.test_child_renderer import children

async def main():
    renderer = ChildRenderer(SystemRuntime())
    await renderer.render(Template(text="x"), b"{}")
    print(children()[0], flush=True)
    await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        assert select.select([child], [], [], 20)[0] == [child]
    finally:
        os.close(child)


async def test_without_the_template_engine_the_error_has_the_command_that_installs_it(
    renderer: ChildRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gesta.tenants.templates.renderer.find_spec", lambda _: None)
    for one in (renderer, InlineRenderer()):
        with pytest.raises(RendererDown, match=r"pip install 'gesta\[slack\]'"):
            await one.render(GOOD, b"{}")


async def test_a_child_that_cannot_start_is_reported(
    renderer: ChildRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RendererDown, match="ended while it started"):
        await greeted(renderer)
    monkeypatch.setattr(sys, "executable", "/nowhere")
    with pytest.raises(RendererDown, match="No such file"):
        await greeted(renderer)
    monkeypatch.undo()
    assert await greeted(renderer)


async def test_orders_that_wait_at_the_end_fail_with_a_reason(renderer: ChildRenderer) -> None:
    os.kill(await started(renderer), signal.SIGSTOP)
    waiting = [asyncio.ensure_future(greeted(renderer, str(number))) for number in range(100)]
    for _ in range(5):
        await turn()
    await renderer.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(answer) for answer in answers} == {
        "no template can be rendered: this process is stopping"
    }


def test_the_template_unused_for_longest_makes_room() -> None:
    shelf = Shelf()
    templates = [Template(text=str(number)) for number in range(KEPT)]
    assert [shelf.place(one) for one in templates] == [
        (number + 1, True, []) for number in range(KEPT)
    ]
    assert shelf.place(templates[0]) == (1, False, [])
    assert shelf.place(Template(text="x")) == (KEPT + 1, True, [2])
    big = Template(text="x" * 3_999_999)
    assert len(shelf.place(big)[2]) >= KEPT - 1
    assert shelf.place(big)[1:] == (False, [])


#: Takes a few hundred milliseconds of CPU time, which is within the limit.
HEAVY = Template(text="{% for i in range(8000) %}{% if a|upper == 'X' %}{% endif %}{% endfor %}")
HEAVY_DATA = msgspec.json.encode({"a": "x" * 90_000})


async def test_a_tenants_heavy_templates_do_not_delay_another_tenant(
    renderer: ChildRenderer,
) -> None:
    assert await greeted(renderer)
    heavy = [asyncio.ensure_future(renderer.render(HEAVY, HEAVY_DATA, "acme")) for _ in range(12)]
    for _ in range(5):
        await turn()
    assert await renderer.render(GOOD, b'{"name": "Ann"}', "shop") == Sheet({"text": "Hello Ann"})
    # The heavy orders came first and still wait.
    assert not any(order.done() for order in heavy[6:])
    for order in heavy:
        order.cancel()


async def test_a_second_child_serves_other_tenants_while_the_first_is_busy(
    renderer: ChildRenderer,
) -> None:
    first = await started(renderer)
    os.kill(first, signal.SIGSTOP)
    stuck = asyncio.ensure_future(renderer.render(GOOD, b'{"name": "Ann"}', "acme"))
    for _ in range(5):
        await turn()
    assert await renderer.render(GOOD, b'{"name": "Bob"}', "shop") == Sheet({"text": "Hello Bob"})
    assert not stuck.done()
    own = set(children())
    assert first in own
    # A tenant never has both children, and there are never more than two.
    more = asyncio.ensure_future(renderer.render(GOOD, b'{"name": "Eve"}', "acme"))
    assert await renderer.render(GOOD, b'{"name": "Cat"}', "shop") == Sheet({"text": "Hello Cat"})
    assert not more.done()
    assert set(children()) == own
    os.kill(first, signal.SIGCONT)
    assert [await stuck, await more] == [
        Sheet({"text": f"Hello {name}"}) for name in ("Ann", "Eve")
    ]


def orders_of(tenant: str, count: int, template: Template = GOOD) -> list[Waiting]:
    loop = asyncio.get_running_loop()
    return [
        Waiting(tenant, template, "render", b"{}", math.inf, loop.create_future())
        for _ in range(count)
    ]


async def test_tenants_get_equal_cpu_time_and_not_equal_numbers_of_orders() -> None:
    lines = FairLines(ManualRuntime())
    served: list[str] = []
    for order in [*orders_of("heavy", 60, HEAVY), *orders_of("light", 60)]:
        lines.put(order)
    while len(served) < 60:
        for order in lines.take(1, ()):
            lines.charge([order], [0.05 if order.tenant == "heavy" else 0.005])
            served.append(order.tenant)
    # Ten times the CPU time for each order, so a tenth of the orders.
    assert 4 <= served.count("heavy") <= 8


async def test_a_tenant_that_was_idle_has_no_credit() -> None:
    lines = FairLines(ManualRuntime())
    for order in orders_of("busy", 200):
        lines.put(order)
    for _ in range(100):
        (order,) = lines.take(1, ())
        lines.charge([order], [0.01])
    for order in orders_of("new", 100):
        lines.put(order)
    served = []
    for _ in range(40):
        (order,) = lines.take(1, ())
        lines.charge([order], [0.01])
        served.append(order.tenant)
    assert 18 <= served.count("new") <= 22


async def test_orders_that_a_child_returned_are_first_and_cost_nothing() -> None:
    lines = FairLines(ManualRuntime())
    orders = orders_of("acme", 4)
    for order in orders:
        lines.put(order)
    taken = lines.take(3, ())
    assert taken == orders[:3]
    lines.charge(taken[:1], [0.001])
    lines.put_back(taken[1:])
    lines.put(orders_of("shop", 1)[0])
    assert lines.take(9, ("shop",)) == orders[1:]
    assert [order.tenant for order in lines.take(9, ())] == ["shop"]


async def test_orders_charged_together_count_as_if_charged_one_by_one() -> None:
    seconds = [0.001, 0.004, 0.002, 0.02, 0.03, 0.001]

    async def expected_after(*, together: bool) -> list[float]:
        lines = FairLines(ManualRuntime())
        for order in [*orders_of("acme", 3), *orders_of("acme", 2, HEAVY), *orders_of("acme", 1)]:
            lines.put(order)
        taken = [one for _ in range(6) for one in lines.take(1, ())]
        if together:
            lines.charge(taken, seconds)
        else:
            for order, used in zip(taken, seconds, strict=True):
                lines.charge([order], [used])
        for order in [*orders_of("acme", 1), *orders_of("acme", 1, HEAVY)]:
            lines.put(order)
        return [order.expected for _ in range(2) for order in lines.take(1, ())]

    assert await expected_after(together=True) == await expected_after(together=False)
