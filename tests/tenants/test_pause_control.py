"""Pause and resume, through a whole engine on memory stores."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gesta import Actor, Done, Engine, NotFound, Unknown
from gesta.domain.codec import decode_meta
from gesta.errors import BadScope, StoreError
from gesta.flows import webhook
from gesta.ports.job_queue import HeldJob
from gesta.ports.read_model import View
from gesta.tenants.pauses import NOT_SET, Pause, PauseBook, Refusal, Resumed, Scope
from gesta.worker.release import JobRelease
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
    result,
)


async def test_a_paused_request_waits_without_an_attempt_until_it_is_resumed(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(flow=FLOW, reason="the provider moves")
        request = await engine.submit(Note())
        await pass_time(gesta, 30)
        assert provider.calls == []
        assert (await request.view()).state.attempts == 0
        assert await engine.admin.held() == [HeldJob("default", f"flow:{FLOW}", 1)]
        assert await engine.admin.resume(flow=FLOW) == 1
        await let_run(gesta)
        assert await result(request) == Done(id="provider-1")


async def test_a_submit_warns_of_a_pause_although_nothing_else_of_its_flow_is_checked(gesta):
    async with engine_of(Provider()) as engine:
        # From the second one on, requests are accepted in fewer steps.
        for paused in (False, False, True):
            if paused:
                await engine.admin.pause(flow=FLOW)
            request = await engine.submit(Note())
            assert [one.code for one in request.warnings] == ["paused"] * paused


@pytest.mark.parametrize("scope", [{"tenant": "acme"}, {"tenant": "acme", "flow": FLOW}])
async def test_the_pause_of_a_tenant_holds_no_other_tenant(gesta, scope):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(**scope)
        await engine.submit(Note(), tenant="acme")
        await engine.submit(Note(), tenant="globex")
        await let_run(gesta)
        assert [call.tenant for call in provider.calls] == ["globex"]


async def test_a_paused_credential_holds_the_requests_that_use_it(gesta):
    provider = Provider()
    flow = note_flow(provider, credential=lambda note: f"shop.account/{note.text}")
    async with Engine(URL, flows=[flow]) as engine:
        await engine.admin.pause(tenant="default", credential="shop.account/old")
        old, _ = await engine.submit(Note("old")), await engine.submit(Note("new"))
        await let_run(gesta)
        assert [payload.text for payload in provider.payloads] == ["new"]
        (pause,) = await engine.admin.pauses_of([await old.view()])
        assert pause is not None
        assert pause.scope == Scope(tenant="default", credential="shop.account/old")
        await engine.admin.resume(tenant="default", credential="shop.account/old")
        await let_run(gesta)
        assert await result(old) == Done(id="provider-2")


async def test_a_webhook_is_paused_by_the_code_of_its_endpoint():
    channel = webhook.flow()
    assert channel.credential is not None
    assert channel.credential(webhook.Message("a.b", {}, "shop")) == "webhook.endpoint/shop"


async def test_running_attempts_finish_during_a_pause(gesta):
    gate = Gate()
    async with engine_of(Provider(gate)) as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        await engine.admin.pause(flow=FLOW)
        gate.opened.set()
        await let_run(gesta)
        assert await result(request) == Done(id="through the gate")


async def test_a_time_to_live_ends_while_the_request_is_held(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(flow=FLOW)
        request = await engine.submit(Note(), ttl=timedelta(minutes=1))
        await pass_time(gesta, 62)
        assert (await request.view()).state.status == "expired"
        assert await engine.admin.resume(flow=FLOW) == 0
        await let_run(gesta)
        assert provider.calls == []


async def test_a_held_request_can_be_cancelled(gesta):
    async with engine_of(Provider()) as engine:
        await engine.admin.pause(flow=FLOW)
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await request.cancel() == "cancelled"
        assert await engine.admin.held() == []


async def test_the_sweeper_repairs_a_crash_between_the_two_steps_of_a_resume(gesta, ports):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(flow=FLOW)
        request = await engine.submit(Note())
        await let_run(gesta)
        ports.queue.fail("unhold")
        with pytest.raises(StoreError):
            await engine.admin.resume(flow=FLOW)
        await let_run(gesta)
        assert provider.calls == []
        await pass_time(gesta, 11)
        assert await result(request) == Done(id="provider-1")


async def test_a_worker_that_had_read_the_pause_before_it_ended_leaves_no_job_held(
    gesta, monkeypatch
):
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(flow=FLOW)

        hold = JobRelease.hold
        is_resumed: list[int] = []

        async def resumed_meanwhile(*args, **options):
            if not is_resumed:
                is_resumed.append(await engine.admin.resume(flow=FLOW))
            await hold(*args, **options)

        monkeypatch.setattr(JobRelease, "hold", resumed_meanwhile)
        request = await engine.submit(Note())
        await let_run(gesta)
        assert is_resumed == [0]
        assert await result(request) == Done(id="provider-1")


async def test_a_possibly_executed_job_is_still_possibly_executed_after_a_pause(gesta):
    provider = Provider(Gate())
    engine = engine_of(provider, on_unknown="manual")
    await engine.start()
    request = await engine.submit(Note())
    await let_run(gesta)
    await die(engine)
    async with engine_of(provider, on_unknown="manual") as again:
        await again.admin.pause(tenant="default")
        await pass_time(gesta, 10)
        found = await again.request(request.id)
        assert (await found.view()).state.status == "queued"
        assert [one.count for one in await again.admin.held()] == [1]
        await again.admin.resume(tenant="default")
        await let_run(gesta)
        assert isinstance(await result(found), Unknown)
        assert len(provider.calls) == 1


async def test_a_pause_is_logged_and_holds_after_a_restart(gesta):
    provider = Provider()
    async with engine_of(provider) as engine:
        made = await engine.admin.pause(flow=FLOW, reason="audit", actor=Actor("ada"))
        assert (made.reason, made.by, made.since_ms) == ("audit", "ada", gesta.runtime.now_ms())
        (event,) = await engine.pipeline.environment.stores.events.read([("config-_gesta", 0)])
        assert (event.type, decode_meta(event.meta).actor) == ("config.Paused.v1", Actor("ada"))
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        assert provider.calls == []
        assert await engine.admin.paused() == [made]
        await engine.admin.resume(flow=FLOW, actor=Actor("bob"))
        assert await engine.admin.paused("default") == []


async def test_pausing_is_idempotent_and_only_paused_scopes_can_be_resumed(gesta):
    async with engine_of(Provider()) as engine:
        first = await engine.admin.pause(tenant="acme", reason="audit")
        gesta.advance(5)
        assert await engine.admin.pause(tenant="acme", reason="audit") == first
        assert (await engine.admin.pause(tenant="acme", reason="fraud")).reason == "fraud"
        assert len(await engine.pipeline.environment.stores.events.read([("config-acme", 0)])) == 2
        with pytest.raises(NotFound):
            await engine.admin.resume(tenant="acme", flow=FLOW)
        await engine.admin.resume(tenant="acme")


@pytest.mark.parametrize(
    ("scope", "error"),
    [
        ({}, "give a flow, a tenant or a credential"),
        ({"flow": "no dots"}, "flow:"),
        ({"flow": 7}, "flow:"),
        ({"tenant": "_gesta"}, "tenant:"),
        ({"credential": "shop.account/a"}, "give the tenant"),
        ({"tenant": "acme", "credential": "shop.account"}, "kind/code"),
        ({"tenant": "acme", "flow": FLOW, "credential": "shop.account/a"}, "leave out the flow"),
        ({"tenant": "acme", "reason": "x" * 501}, "reason:"),
    ],
)
async def test_a_wrong_scope_is_refused(gesta, scope, error):
    async with engine_of(Provider()) as engine:
        with pytest.raises(BadScope, match=error):
            await engine.admin.pause(**scope)
        assert await engine.pipeline.environment.stores.events.follow(0, 10) == []


async def test_an_endpoint_is_disabled_during_a_pause(gesta):
    """The receiver says 410 while a person pauses the tenant: both are on record."""
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        fields = {"url": "https://example.com/hook", "secret": "whsec_" + "A" * 32}
        await engine.admin.put_config("webhook.endpoint", "shop", fields)
        config = engine.pipeline.config.of("default")
        await engine.admin.pause(tenant="default")
        await config.disable("webhook.endpoint", "shop", "gone")
        stored = await engine.admin.get_config("webhook.endpoint", "shop")
        assert getattr(stored.body, "disabled", None) is True


ACCOUNT = "shop.account/main"
REFUSED = Scope(None, "default", ACCOUNT, is_refused=True)


def charging(provider: Provider) -> Engine:
    return Engine(URL, flows=[note_flow(provider, credential=lambda _note: ACCOUNT)], work=False)


async def test_the_end_of_a_refusal_leaves_the_pause_of_a_person(gesta):
    async with charging(Provider()) as engine:
        await engine.admin.pause(tenant="default", credential=ACCOUNT)
        await engine.pipeline.pausing.refuse("default", ACCOUNT, 0, "revoked")
        assert [one.kind for one in await engine.admin.paused("default")] == ["pause", "credential"]
        await engine.pipeline.config_writer.note(
            "default", Resumed(None, ACCOUNT, refusal=True), None
        )
        assert [one.kind for one in await engine.admin.paused("default")] == ["pause"]


@pytest.mark.parametrize(
    ("declared", "is_held"),
    [
        ({ACCOUNT: "refused"}, True),
        ({ACCOUNT: "another"}, False),
        ({ACCOUNT: NOT_SET}, True),
        ({}, True),
    ],
)
def test_a_refused_secret_holds_only_processes_that_may_not_have_a_better_one(declared, is_held):
    book = PauseBook(declared)
    pause = Pause(REFUSED, "revoked", 0, "gesta", Refusal(0, ("refused",)))
    book._by_owner["default"] = {REFUSED: pause}
    assert book.covering("default", FLOW, lambda: ACCOUNT) == (pause if is_held else None)


async def test_config_and_ended_pauses_leave_nothing_to_ask_of_every_submit(gesta):
    async with charging(Provider()) as engine:
        pauses = engine.pipeline.config.pauses
        await engine.admin.pause(flow=FLOW, tenant="default")
        assert pauses._by_owner.keys() == {"default"}
        await engine.admin.resume(flow=FLOW, tenant="default")
        assert pauses.is_empty
        assert pauses._by_owner == {}


async def test_of_the_refused_secrets_the_last_eight_are_remembered(gesta):
    async with charging(Provider()) as engine:
        pauses = engine.pipeline.config.pauses
        for n in range(10):
            pauses.declared = {ACCOUNT: f"digest {n}"}
            await engine.pipeline.pausing.refuse("default", ACCOUNT, 0, "revoked")
        pause = pauses.get(REFUSED)
        assert pause is not None
        assert pause.refusal is not None
        assert pause.refusal.declared == tuple(f"digest {n}" for n in range(2, 10))


async def test_a_test_request_is_not_held_by_the_credential_of_live_ones(gesta):
    async with charging(Provider()) as engine:
        await engine.admin.pause(tenant="default", credential=ACCOUNT)
        view = await (await engine.submit(Note())).view()
        test = View(msgspec.structs.replace(view.state, test=True), view.payload)
        live, of_test = await engine.admin.pauses_of([view, test])
        assert live is not None
        assert of_test is None


async def test_more_held_jobs_than_one_commit_releases_are_all_released(gesta, monkeypatch):
    monkeypatch.setattr("gesta.tenants.pause_control.UNHOLD_BATCH", 2)
    provider = Provider()
    async with engine_of(provider) as engine:
        await engine.admin.pause(flow=FLOW)
        for _ in range(5):
            await engine.submit(Note())
        await let_run(gesta)
        assert await engine.admin.resume(flow=FLOW) == 5
