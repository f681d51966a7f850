"""API keys and test requests on every store, each process with its own memory of the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gesta import Actor, Done, Engine
from gesta.errors import Forbidden, OutcomeTimeout
from gesta.flows import slack
from gesta.runtime.settings import Settings
from tests.stores.postgresql.places import MASTER_KEY, fresh_url

ADA = Actor("ada")

Open = Callable[..., Engine]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request, tmp_path) -> Callable[[], Awaitable[Open]]:
    """Engines on one store of each kind; those of memory on the clock of the test."""
    if request.param == "memory":
        request.getfixturevalue("gesta")

    async def open_place() -> Open:
        urls = {"memory": "memory:access", "sqlite": f"sqlite:///{tmp_path / 'gesta.db'}"}
        url = urls.get(request.param) or await fresh_url()
        return lambda **options: Engine(
            settings=Settings(url=url, master_key=MASTER_KEY), flows=[slack.flow()], **options
        )

    return open_place


async def test_a_key_of_one_process_is_valid_in_another_until_it_is_revoked(place):
    engine = await place()
    async with engine(work=False) as here, engine(work=False) as there:
        made = [
            await here.admin.create_key(name=str(n), tenant=f"t{n % 3}", actor=ADA)
            for n in range(9)
        ]
        assert [(await there.pipeline.keys.check(text)).key_id for _, text in made] == [
            key.id for key, _ in made
        ]
        key, text = made[0]
        ended = await here.admin.revoke_key(key.id, tenant="t0", actor=ADA)
        with pytest.raises(Forbidden):
            await here.pipeline.keys.check(text)
        assert await there.admin.list_keys("t0") == [made[6][0], made[3][0], ended]
        assert not await there.pipeline.keys.any_admin()
        await here.admin.create_key(name="root", scopes=["admin"], tenant="zz", actor=ADA)
        assert await there.pipeline.keys.any_admin()
    async with engine(work=False) as later:
        with pytest.raises(Forbidden):
            await later.pipeline.keys.check(text)
        assert (await later.pipeline.keys.check(made[1][1])).tenant == "t1"
        trail = [(one.what, one.about, one.by) for one in await later.admin.audit("t0", limit=2)]
        assert trail == [("key_revoked", key.id, "ada"), ("key_created", made[6][0].id, "ada")]
        assert [one.about for one in await later.admin.audit("t0", before=3)] == [
            made[3][0].id,
            key.id,
        ]


async def test_a_newcomers_test_message_is_sent_and_its_key_is_free_for_the_live_one(place):
    engine = await place()
    async with engine() as one:
        message = slack.Message(channel="ops", text="hello")
        tried = await one.submit(message, key="order-7", test=True)
        assert isinstance(await tried.outcome(timeout=30), Done)
        assert (await one.submit(message, key="order-7", test=True)).verdict == "duplicate"
        live = await one.submit(message, key="order-7")
        assert live.verdict == "created"
        with pytest.raises(OutcomeTimeout, match=r"gesta config put slack\.workspace default"):
            await live.outcome(timeout=1)
        states = [(await request.view()).state for request in (tried, live)]
        assert [(state.test, state.status, state.reason) for state in states] == [
            (True, "sent", ""),
            (False, "queued", ""),
        ]
