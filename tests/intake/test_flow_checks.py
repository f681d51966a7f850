"""What a flow itself checks at submit, with the tenant's config in its hands."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gesta import Done, Engine, InvalidRequest
from gesta.flows import webhook
from gesta.flows.flow import ConfigBody
from gesta.intake.submit import Invalid
from gesta.intake.submit_options import Options
from gesta.ports.event_store import Append
from gesta.ports.outbox import Raw
from gesta.runtime.settings import Settings
from gesta.tenants.config import TenantConfig
from gesta.tenants.templates.templates import Templates
from tests.world import FLOW, URL, Note, Provider, all_events, let_run, note_flow, result

ROOM = "chat.room"
ERRORS = {"text": "no room of this code"}


class Room(ConfigBody, frozen=True):
    name: str


class Checking:
    def __init__(self) -> None:
        self.asked = 0

    async def check(
        self, note: Note, config: TenantConfig, templates: Templates
    ) -> Mapping[str, str]:
        self.asked += 1
        assert templates.find("welcome") is None
        return {} if config.get(ROOM, note.text) is not None else ERRORS


@pytest.fixture
def checking() -> Checking:
    return Checking()


def chat(checking: Checking, *, work: bool = True) -> Engine:
    return Engine(
        URL, flows=[note_flow(Provider(), config={ROOM: Room}, check=checking.check)], work=work
    )


async def test_a_payload_that_the_check_refuses_is_not_accepted(gesta, checking):
    async with chat(checking) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Note("ops"))
        assert refused.value.fields == ERRORS
        with pytest.raises(InvalidRequest):
            await engine.submit_many([Note("ops")])
        assert await all_events(engine) == []


async def test_a_payload_that_the_check_accepts_is_executed(gesta, checking):
    async with chat(checking) as engine:
        await engine.admin.put_config(ROOM, "ops", {"name": "Operations"})
        request = await engine.submit(Note("ops"))
        await let_run(gesta)
        assert await result(request) == Done(id="provider-1")
        assert checking.asked == 1


async def test_it_never_refuses_by_config_that_is_out_of_date(gesta, checking):
    """Another process puts what this one, which only submits, has not read."""
    async with chat(checking, work=False) as engine, chat(Checking()) as other:
        await engine.admin.put_config(ROOM, "dev", {"name": "Development"})
        with pytest.raises(InvalidRequest):
            await engine.submit(Note("ops"))
        await other.admin.put_config(ROOM, "ops", {"name": "Operations"})
        assert (await engine.submit(Note("ops"))).verdict == "created"
        assert len(await engine.submit_many([Note("ops")])) == 1


async def test_a_payload_that_does_not_fit_its_type_is_refused_before(gesta, checking):
    async with chat(checking) as engine:
        with pytest.raises(InvalidRequest):
            await engine.submit(Note(7))  # type: ignore[arg-type]
        assert checking.asked == 0


async def test_errors_of_the_flow_are_reported_with_errors_of_the_options(gesta, checking):
    async with chat(checking) as engine:
        for submitting in (
            engine.submit(Note("ops"), key="", priority=11),
            engine.submit_many([(Note("ops"), Options(key="", priority=11))]),
        ):
            with pytest.raises(InvalidRequest) as refused:
                await submitting
            assert set(refused.value.fields) == {"text", "key", "priority"}
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Note("ops"), tenant="no/tenant")
        assert set(refused.value.fields) == {"tenant"}
        assert await all_events(engine) == []


async def test_errors_are_reported_also_where_the_config_cannot_be_read(gesta, checking, ports):
    async with chat(checking, work=False) as engine:
        ports.events.fail("read", times=9)
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Note("ops"), priority=11)
        assert set(refused.value.fields) == {"priority"}
        ports.events.heal()


async def test_a_request_from_an_outbox_is_checked_too(gesta, checking):
    async with chat(checking) as engine:
        now, ids = engine.pipeline.runtime.now_ms(), engine.pipeline.process.ids
        await engine.admin.put_config(ROOM, "ops", {"name": "Operations"})
        rows = [
            Raw(ids.new(), FLOW, "default", now, f'{{"text":"{room}"}}', None, None, None, 5, None)
            for room in ("ops", "missing")
        ]
        good, bad = await engine.pipeline.intake.prepare(rows)
        assert isinstance(good, Append)
        assert isinstance(bad, Invalid)
        assert bad.errors == ERRORS


@pytest.mark.parametrize(
    ("url", "allowed", "codes"),
    [
        ("https://10.0.0.7/hooks", (), ["private_address"]),
        ("https://localhost:8443/hooks", (), ["private_address"]),
        ("https://[::1]/hooks", (), ["private_address"]),
        ("http://10.0.0.7/hooks", ("10.0.0.0/8",), []),
        ("http://93.184.216.34/hooks", (), ["plain_http"]),
        ("https://93.184.216.34/hooks", (), []),
        # Only the worker resolves names.
        ("https://inside.example/hooks", (), []),
    ],
)
@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "declared"])
async def test_submit_warns_of_an_address_that_the_worker_may_not_call(
    tmp_path, url, allowed, codes, is_stored
):
    settings = Settings(url=f"sqlite:///{tmp_path / 'gesta.db'}", allow_private=allowed)
    secret = f"whsec_{'A' * 32}"
    flow = webhook.flow() if is_stored else webhook.flow(url, secret)
    async with Engine(settings=settings, flows=[flow], work=False) as engine:
        if is_stored:
            fields = {"url": url, "secret": secret}
            await engine.admin.put_config("webhook.endpoint", "default", fields)
        request = await engine.submit(webhook.Message(type="order.paid", data={}))
        assert [one.code for one in request.warnings] == codes
        assert all("GESTA_ALLOW_PRIVATE" in one.message for one in request.warnings)
        tried = await engine.submit(webhook.Message(type="order.paid", data={}), test=True)
        assert tried.warnings == ()


@pytest.mark.parametrize("work", [True, False], ids=["executes", "only submits"])
async def test_a_process_that_only_submits_does_not_say_that_the_request_will_fail(tmp_path, work):
    settings = Settings(url=f"sqlite:///{tmp_path / 'gesta.db'}")
    flow = webhook.flow("https://10.0.0.7/hooks", f"whsec_{'A' * 32}")
    async with Engine(settings=settings, flows=[flow], work=work) as engine:
        request = await engine.submit(webhook.Message(type="order.paid", data={}))
        (text,) = [one.message for one in request.warnings]
    assert ("if this process executes it" in text) is work
    assert ("unless the process that executes it may call 10.0.0.7" in text) is not work


async def test_a_pause_that_holds_a_request_is_the_only_warning(tmp_path):
    settings = Settings(url=f"sqlite:///{tmp_path / 'gesta.db'}")
    flow = webhook.flow("https://10.0.0.7/hooks", f"whsec_{'A' * 32}")
    async with Engine(settings=settings, flows=[flow], work=False) as engine:
        await engine.admin.pause(tenant="default", reason="maintenance")
        request = await engine.submit(webhook.Message(type="order.paid", data={}))
        assert [one.code for one in request.warnings] == ["paused"]
        assert request.warnings[0].message.endswith("tenant default: maintenance")
