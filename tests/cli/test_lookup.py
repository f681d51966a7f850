"""A request that is named by its key."""

import pytest

from gesta import Done, Engine, Flow
from gesta.cli.backend import find_view
from gesta.domain.commands import Rules
from gesta.errors import BadInput, NotFound
from tests.world import URL, Note, Provider, note_flow


class Other(Note, frozen=True):
    pass


async def test_a_key_that_led_to_several_requests_names_none_of_them(gesta):
    async def execute(_payload: Other, _attempt: object) -> Done:
        return Done()

    async with Engine(
        URL, flows=[note_flow(Provider()), Flow("test.other", Other, execute, Rules())]
    ) as engine:
        first = await engine.submit(Note(), key="order-7")
        assert (await find_view(engine, "order-7", "default")).state.id == first.id
        second = await engine.submit(Other(), key="order-7")
        with pytest.raises(BadInput) as several:
            await find_view(engine, "order-7", "default")
        assert first.id in str(several.value)
        assert second.id in str(several.value)
        with pytest.raises(NotFound):
            await find_view(engine, "order-8", "default")
