"""Which databases can be combined, and what is said about the others."""

import pytest

from gesta.engine.environment import open_ports
from gesta.errors import BadSettings
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.testing.contracts.samples import fresh_append

DOUBLE = "kurrentdb://user:hunter2@127.0.0.1:2113?Tls=false"


def settings(tmp_path, **given):
    return Settings(**{"url": f"sqlite:///{tmp_path}/gesta.db"} | given)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"url": DOUBLE}, ("does not implement Vault", "this one in events_url")),
        ({"queue_url": DOUBLE}, ("queue_url: ", "does not implement JobQueue", "accepts redis://")),
        (
            {"views_url": DOUBLE},
            ("views_url: ", "does not implement ReadModel", "accepts redis://"),
        ),
        (
            {"events_url": "redis://127.0.0.1:1"},
            ("events_url: ", "does not implement EventStore", "accepts kurrentdb://"),
        ),
        ({"vault_url": DOUBLE}, ("vault_url: ", "does not implement Vault")),
    ],
)
async def test_a_database_that_lacks_a_port_is_refused_with_its_name(tmp_path, given, texts):
    with pytest.raises(BadSettings) as refused:
        await open_ports(settings(tmp_path, **given), SystemRuntime())
    for text in texts:
        assert text in str(refused.value)
    assert "hunter2" not in str(refused.value)


async def test_a_store_with_events_of_its_own_is_not_left_without_them(tmp_path, double):
    stores = await open_ports(settings(tmp_path), SystemRuntime())
    await stores.events.append([fresh_append()])
    await stores.close()
    with pytest.raises(BadSettings, match="gesta copy --to URL --to-set events_url"):
        await open_ports(settings(tmp_path, events_url=double.url), SystemRuntime())


async def test_events_may_be_in_a_file_of_their_own(tmp_path):
    given = settings(tmp_path, events_url=f"sqlite:///{tmp_path}/events.db")
    append = fresh_append()
    stores = await open_ports(given, SystemRuntime())
    await stores.events.append([append])
    await stores.close()
    events = await open_ports(Settings(url=f"sqlite:///{tmp_path}/events.db"), SystemRuntime())
    assert [one.stream for one in await events.events.follow(0, 10)] == [append.stream]
    await events.close()


def test_every_part_is_in_the_store_of_the_url_unless_another_is_named(tmp_path):
    assert Settings(url="a", views_url="b").databases == {
        "events": "a",
        "views": "b",
        "queue": "a",
        "vault": "a",
    }
