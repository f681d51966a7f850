"""Templates that are filled in before the attempts of a take begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload
from gesta.domain.commands import Rules
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import RendererDown
from gesta.options import Options
from gesta.rendering import TEMPLATE, InlineRenderer, Template
from gesta.rendering.press import Fault, Sheet
from gesta.rendering.renderer import Commission
from gesta.request import Request
from gesta.testing import Harness
from gesta.worker.takes import most_at_once

URL = "sqlite:///ahead.db"


class Letter(Payload, frozen=True):
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    template: str | None = "welcome"


class Post:
    """A flow that says what it will have filled in, and a pile of what it sent."""

    def __init__(self) -> None:
        self.pile: list[str] = []
        self.flow = Flow(
            "test.letter",
            Letter,
            self._send,
            Rules(RetryPolicy(attempts=2), "park"),
            config={TEMPLATE: Template},
            renders=self._renders,
            sandbox=True,
        )

    def _renders(self, letter: Letter) -> tuple[str, dict[str, Any], str | None] | None:
        if letter.data.get("is_odd"):
            raise LookupError("a bug of the flow's")
        return None if letter.template is None else (letter.template, letter.data, None)

    async def _send(self, letter: Letter, attempt: Attempt) -> Outcome:
        text = "no template"
        if letter.template is not None:
            text = (await attempt.templates.render(letter.template, letter.data)).parts["text"]
        self.pile.append(text)
        return Done("sent")


class Desk:
    """In the place of the renderer's: answers commissions when it is told to, and counts what attempts ask for by themselves."""

    def __init__(self) -> None:
        self.line: list[Commission] = []
        self.is_held = False
        #: How many of all commissions were answered together, and what attempts asked for.
        self.together: list[int] = []
        self.asked = 0

    def answer(self, *numbers: int) -> None:
        """Those at these places in the line; all of them without any."""
        chosen = [self.line[number] for number in numbers] if numbers else self.line
        self.line = [one for one in self.line if one not in chosen]
        _put(InlineRenderer(), chosen)


_put, _render = InlineRenderer.put, InlineRenderer.render


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()

    def put(_: InlineRenderer, commissions: Sequence[Commission]) -> None:
        desk.together.append(len(commissions))
        desk.line += commissions
        if not desk.is_held:
            desk.answer()

    async def render(renderer: InlineRenderer, template: Template, data: bytes) -> Sheet | Fault:
        desk.asked += 1
        return await _render(renderer, template, data)

    monkeypatch.setattr(InlineRenderer, "put", put)
    monkeypatch.setattr(InlineRenderer, "render", render)
    return desk


async def put(engine: Engine, **parts: str) -> None:
    await engine.operating.put_config(TEMPLATE, "welcome", parts)


async def submit(engine: Engine, *letters: Letter, test: bool = False) -> list[str]:
    accepted = await engine.submit_many([(letter, Options(test=test)) for letter in letters])
    return [one.id for one in accepted if isinstance(one, Request)]


async def states(engine: Engine, ids: list[str]) -> list[tuple[str, int]]:
    """Status and attempts of each."""
    return [(view.state.status, view.state.attempts) for view in [await engine.get(one) for one in ids]]


def letters(count: int) -> list[Letter]:
    return [Letter({"n": number}) for number in range(count)]


async def test_the_templates_of_a_take_are_filled_in_together_and_no_attempt_asks(gesta: Harness, desk: Desk) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        ids = await submit(engine, *letters(20))
        await gesta.settle()
        assert sorted(post.pile) == sorted(f"Hello {number}" for number in range(20))
        assert (desk.asked, max(desk.together)) == (0, most_at_once(post.flow.concurrency))
        _, last, _ = (await engine.history(ids[0]))[-1]
        assert getattr(last, "used", None) == {"template/welcome": 1}


async def test_each_begins_when_its_own_is_done(gesta: Harness, desk: Desk) -> None:
    post, desk.is_held = Post(), True
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        await submit(engine, *letters(3), Letter(template=None))
        await gesta.settle(days=0)
        assert post.pile == ["no template"]
        desk.answer(1)
        await gesta.settle(days=0)
        assert post.pile == ["no template", "Hello 1"]
        desk.answer()
        await gesta.settle(days=0)
        assert sorted(post.pile[2:]) == ["Hello 0", "Hello 2"]


async def test_a_template_that_changed_meanwhile_is_filled_in_anew(gesta: Harness, desk: Desk) -> None:
    post, desk.is_held = Post(), True
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        ids = await submit(engine, *letters(1))
        await gesta.settle(days=0)
        await put(engine, text="Bye {{ n }}")
        desk.answer()
        await gesta.settle(days=0)
        assert post.pile == ["Bye 0"]
        _, last, _ = (await engine.history(ids[0]))[-1]
        assert getattr(last, "used", None) == {"template/welcome": 2}


async def test_what_cannot_be_filled_in_ahead_is_left_to_the_attempt(gesta: Harness, desk: Desk) -> None:
    post, desk.is_held = Post(), True
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        await submit(engine, *letters(2), Letter({"n": 7, "is_odd": True}))
        await gesta.settle(days=0)
        assert post.pile == ["Hello 7"], "its flow's function raises"
        first = desk.line[0]
        first.settle(RendererDown("no memory left"))
        # As when the renderer is closed in the middle of a batch: the others must not suffer for it.
        first.settle(RendererDown("this process is stopping"))
        await gesta.settle(days=0)
        assert (post.pile, desk.asked) == (["Hello 7", "Hello 0"], 2)
        desk.answer(1)
        await gesta.settle(days=0)
        assert (post.pile, desk.asked) == (["Hello 7", "Hello 0", "Hello 1"], 2)


async def test_a_template_that_cannot_be_filled_in_fails_its_own_request(gesta: Harness, desk: Desk) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        (bad, good) = await submit(engine, Letter({}), Letter({"n": 1}))
        await gesta.settle(days=0)
        assert await states(engine, [bad, good]) == [("failed", 1), ("sent", 1)]
        assert (await engine.get(bad)).state.reason == "template_render_failed"
        assert desk.asked == 0


async def test_a_test_sees_its_own_config_and_asks_by_itself(gesta: Harness, desk: Desk) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        await submit(engine, *letters(1), test=True)
        await gesta.settle(days=0)
        assert (post.pile, desk.asked, desk.together) == (["Hello 0"], 1, [])


async def test_what_has_not_begun_is_given_back_without_an_attempt_when_the_engine_stops(gesta: Harness, desk: Desk) -> None:
    post, desk.is_held = Post(), True
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        ids = await submit(engine, *letters(3))
        await gesta.settle(days=0)
        desk.answer(0)
        await gesta.settle(days=0)
        left = list(desk.line)
    assert [one.is_over for one in left] == [True, True], "nobody need fill them in"
    desk.answer()
    assert post.pile == ["Hello 0"]
    desk.is_held = False
    async with Engine(URL, flows=[post.flow]) as engine:
        await gesta.settle(days=0)
        assert sorted(post.pile) == ["Hello 0", "Hello 1", "Hello 2"]
        assert await states(engine, ids) == [("sent", 1)] * 3


async def test_what_a_lost_lease_left_waiting_is_not_called(gesta: Harness, desk: Desk) -> None:
    post, desk.is_held = Post(), True
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ n }}")
        ids = await submit(engine, *letters(1))
        await gesta.settle(days=0)
        engine.road.pool.lease.lose("of a test")
        desk.answer()
        desk.is_held = False
        await gesta.settle()
        assert post.pile == ["Hello 0"], "once, by the take that followed"
        assert await states(engine, ids) == [("sent", 1)]
