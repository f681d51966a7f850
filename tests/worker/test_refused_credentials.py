"""A credential that a provider refuses: what uses it is held until it changes, and nothing becomes
a dead letter.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload, Personal, Rejected, Retry, Unknown
from gesta.domain.commands import Rules
from gesta.errors import OutcomeTimeout, StoreError
from gesta.flows import webhook
from gesta.flows.deferrals import CredentialRefused
from gesta.flows.flow import ConfigBody, Secret
from gesta.ports.job_queue import HeldJob
from gesta.sandbox import Effect
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    fields,
    let_run,
    note_flow,
    pass_time,
    result,
    types_of,
)

ACCOUNT = "shop.account"
CREDENTIAL = f"{ACCOUNT}/main"
REFUSED = CredentialRefused(CREDENTIAL, "invalid_auth", "answered 401")
HELD = f"tenant:default refused:{CREDENTIAL}"


class Account(ConfigBody, frozen=True):
    token: Secret[str]


def account_flow(provider: Provider, **options: Any) -> Flow:
    return note_flow(
        provider, credential=lambda _: CREDENTIAL, config={ACCOUNT: Account}, **options
    )


def shop(provider: Provider, **options: Any) -> Engine:
    return Engine(URL, flows=[account_flow(provider, **options)])


class Bank:
    """A provider that accepts one token."""

    def __init__(self, good: str = "good") -> None:
        self.good = good
        self.refused = 0
        self.done: list[str] = []

    async def execute(self, note: Note, attempt: Attempt) -> Outcome:
        tokens = await attempt.config.secrets(ACCOUNT, "main", "token")
        if tokens[:1] != [self.good]:
            self.refused += 1
            raise CredentialRefused(CREDENTIAL, "invalid_auth", f"it said {tokens[0]} is no token")
        self.done.append(note.text)
        return Done(note.text)


def bank_flow(bank: Bank) -> Flow:
    return Flow(
        FLOW,
        Note,
        bank.execute,
        Rules(),
        config={ACCOUNT: Account},
        credential=lambda _: CREDENTIAL,
    )


async def paused_events(engine: Engine, tenant: str = "default") -> list[dict[str, Any]]:
    stored = await engine.pipeline.environment.stores.events.read([(f"config-{tenant}", 0)])
    return [fields(event.data) for event in stored if event.type == "config.Paused.v1"]


@pytest.mark.slow
async def test_thousands_of_requests_held_by_one_revoked_credential_are_sent_when_it_is_put(
    gesta,
):
    bank, count = Bank(), 3_000
    async with Engine(URL, flows=[bank_flow(bank)]) as engine:
        await engine.admin.put_config(ACCOUNT, "main", {"token": "revoked"})
        requests = [await engine.submit(Note(str(n))) for n in range(50)]
        await engine.submit_many([Note(str(n)) for n in range(50, count)])
        await pass_time(gesta, 20)
        assert await engine.admin.dead_letters() == []
        assert await engine.admin.held() == [HeldJob("default", HELD, count)]
        assert bank.refused <= 100, "no more than ran at once"
        assert len(await paused_events(engine)) == 1
        assert {(await one.view()).state.attempts for one in requests} == {0}
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        assert await engine.admin.held() == []
        await let_run(gesta)
        assert sorted(bank.done, key=int) == [str(n) for n in range(count)]
        assert await engine.admin.counts() == {(FLOW, "completed"): count}


async def test_holding_is_on_the_requests_record_and_uses_up_no_attempt(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        view = await request.view()
        assert (view.state.status, view.state.version, view.state.attempts) == ("queued", 2, 0)
        assert (await types_of(engine, request.id))[1:] == ["RequestUpdated"]
        (pause,) = await engine.admin.pauses_of([view])
        assert pause is not None
        assert (pause.reason, pause.by, str(pause.scope)) == (
            "invalid_auth: answered 401",
            "gesta",
            HELD,
        )
        assert len(provider.calls) == 1


async def test_later_requests_are_held_without_a_call(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        await engine.submit(Note("later"))
        await let_run(gesta)
        assert len(provider.calls) == 1
        assert await engine.admin.held() == [HeldJob("default", HELD, 2)]


async def test_held_requests_continue_when_the_refused_entity_is_deleted(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        await engine.admin.put_config(ACCOUNT, "main", {"token": "revoked"})
        request = await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.delete_config(ACCOUNT, "main")
        await let_run(gesta)
        assert await result(request) == Done(id="provider-2")


async def test_another_entity_lets_nothing_go(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.put_config(ACCOUNT, "other", {"token": "t"})
        await pass_time(gesta, 30)
        assert len(provider.calls) == 1


async def test_a_crash_between_the_change_and_the_jobs_is_put_right(gesta, ports):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        ports.queue.fail("unhold")
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await let_run(gesta)
        assert await result(request) is None
        await pass_time(gesta, 11)
        assert await result(request) == Done(id="provider-2")


async def test_an_attempt_that_still_used_the_old_version_pauses_nothing(gesta):
    """The entity is put while an attempt with the old one is under way, which is then refused."""
    gate = Gate()

    async def refused(payload: Note, attempt: Attempt) -> Outcome:
        await gate(payload, attempt)
        raise REFUSED

    provider = Provider(refused)
    async with shop(provider) as engine:
        await engine.admin.put_config(ACCOUNT, "main", {"token": "old"})
        request = await engine.submit(Note())
        await gate.reached.wait()
        await engine.admin.put_config(ACCOUNT, "main", {"token": "new"})
        gate.opened.set()
        await let_run(gesta)
        assert await paused_events(engine) == []
        assert await result(request) == Done(id="provider-2")


async def test_a_request_expires_while_a_refused_credential_holds_it(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        request = await engine.submit(Note(), ttl=timedelta(minutes=1))
        await pass_time(gesta, 62)
        assert (await request.view()).state.status == "expired"
        assert await engine.admin.held() == []
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await let_run(gesta)
        assert len(provider.calls) == 1


async def test_the_pause_of_a_person_and_the_engines_own_do_not_hide_each_other(gesta):
    provider = Provider(REFUSED)
    async with shop(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.pause(tenant="default", credential=CREDENTIAL, reason="audit")
        assert sorted(pause.reason for pause in await engine.admin.paused()) == [
            "audit",
            "invalid_auth: answered 401",
        ]
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await pass_time(gesta, 20)
        assert len(provider.calls) == 1, "the person's pause stands"
        assert [pause.reason for pause in await engine.admin.paused()] == ["audit"]
        await engine.admin.resume(tenant="default", credential=CREDENTIAL)
        await let_run(gesta)
        assert await result(request) == Done(id="provider-2")


async def test_a_person_can_let_it_go_on_when_the_provider_has_fixed_it(gesta):
    provider = Provider(REFUSED, REFUSED)
    async with shop(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await engine.admin.resume(tenant="default", credential=CREDENTIAL) == 1
        await let_run(gesta)
        assert (len(provider.calls), await engine.admin.held()) == (
            2,
            [HeldJob("default", HELD, 1)],
        )
        await engine.admin.resume(tenant="default", credential=CREDENTIAL)
        await let_run(gesta)
        assert await result(request) == Done(id="provider-3")


async def test_a_question_to_the_provider_is_held_too(gesta):
    provider, asked = Provider(Unknown("timeout")), Provider(REFUSED)
    async with shop(provider, on_unknown="reconcile", reconcile=asked) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 10)
        view = await request.view()
        assert (view.state.status, view.state.attempts, view.state.asked) == ("unknown", 1, 0)
        assert [one.scope for one in await engine.admin.held()] == [HELD]
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await pass_time(gesta, 10)
        assert (await request.view()).state.status == "completed"


async def test_a_request_that_is_cancelled_while_its_credential_is_refused_ends_cancelled(gesta):
    gate = Gate()

    async def refused(payload: Note, attempt: Attempt) -> Outcome:
        await gate(payload, attempt)
        raise REFUSED

    async with shop(Provider(refused)) as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        await request.cancel()
        gate.opened.set()
        await pass_time(gesta, 1)
        assert (await request.view()).state.status == "cancelled"


async def test_an_attempt_that_was_lost_before_is_counted_once(gesta):
    """A take without a recorded end, then a refused credential: the loss is one attempt, the hold
    none.
    """
    engine = shop(Provider(Gate()))
    await engine.start()
    request = await engine.submit(Note())
    await let_run(gesta)
    await die(engine)
    provider = Provider(REFUSED)
    async with shop(provider) as again:
        await pass_time(gesta, 40)
        found = await again.request(request.id)
        assert ((await found.view()).state.attempts, len(provider.calls)) == (1, 1)
        await again.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await let_run(gesta)
        assert await result(found) == Done(id="provider-2")
        assert (await found.view()).state.attempts == 2


async def test_a_journalled_attempt_is_taken_back(gesta):
    provider = Provider(REFUSED)
    async with shop(provider, journal=True, on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        state = (await request.view()).state
        assert (state.status, state.started, state.attempts) == ("queued", None, 0)
        await engine.admin.put_config(ACCOUNT, "main", {"token": "good"})
        await let_run(gesta)
        assert await result(request) == Done(id="provider-2")


async def test_a_store_that_is_out_of_reach_does_not_lose_the_hold(gesta, ports):
    async def refused(_payload: Note, _attempt: Attempt) -> Outcome:
        ports.events.fail("append", StoreError("gone"), times=3)
        raise REFUSED

    provider = Provider(refused)
    async with shop(provider) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 10)
        assert (len(provider.calls), await engine.admin.held()) == (
            1,
            [HeldJob("default", HELD, 1)],
        )


async def test_another_process_that_declares_another_secret_tries_again(gesta):
    def program(secret: str, provider: Provider) -> Engine:
        return shop(provider, declared={CREDENTIAL: ("https://provider.example", secret)})

    refused = Provider(REFUSED)
    async with program("old", refused) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        (event,) = await paused_events(engine)
        assert "old" not in str(event)
    async with program("old", refused) as engine:
        await pass_time(gesta, 30)
        assert len(refused.calls) == 1, "the same secret is not tried again"
    provider = Provider()
    async with program("new", provider) as engine:
        await let_run(gesta)
        assert await result(await engine.request(request.id)) == Done(id="provider-1")


async def test_a_caller_with_a_secret_of_its_own_learns_that_another_process_holds_it(gesta):
    """It read only that it is queued: the pause does not apply to the process of the caller."""

    def program(secret: str, **options: Any) -> Engine:
        provider = Provider(REFUSED)
        return Engine(
            URL, flows=[account_flow(provider, declared={CREDENTIAL: (secret,)})], **options
        )

    async with program("old"), program("new", work=False) as script:
        request = await script.submit(Note())
        await let_run(gesta)
        with pytest.raises(OutcomeTimeout) as late:
            await request.outcome(timeout=1)
        assert (
            "another process of this store holds it: the provider refuses shop.account/main"
            in str(late.value)
        )


async def test_two_processes_whose_secrets_are_both_refused_do_not_wake_each_other(gesta):
    providers = Provider(*[REFUSED] * 20), Provider(*[REFUSED] * 20)
    one, other = (shop(providers[n], declared={CREDENTIAL: (f"bad-{n}",)}) for n in (0, 1))
    async with one, other:
        for n in range(20):
            await one.submit(Note(str(n)))
            await pass_time(gesta, 2)
        assert sum(len(provider.calls) for provider in providers) <= 4


async def test_a_flow_that_names_no_credential_of_that_form_fails_the_attempt_and_pauses_nothing(
    gesta,
):
    provider = Provider(CredentialRefused("no slash", "invalid_auth"))
    async with engine_of(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        state = (await request.view()).state
        assert (state.attempts, state.reason) == (1, "credential_refused")
        assert await engine.admin.paused("default") == []


async def test_secrets_and_personal_data_do_not_stand_in_the_pause(gesta):
    bank = Bank()
    async with Engine(URL, flows=[bank_flow(bank)]) as engine:
        await engine.admin.put_config(ACCOUNT, "main", {"token": "tok-revoked-1"})
        await engine.submit(Note())
        await let_run(gesta)
        (event,) = await paused_events(engine)
        assert event["reason"] == "invalid_auth: it said [hidden] is no token"


class Letter(Payload, frozen=True):
    to: Personal[dict[str, str]]
    account: str = "main"


@pytest.mark.parametrize("account", ["main", "other"])
async def test_an_encrypted_payload_is_held_by_its_credential(gesta, account):
    async def post(letter: Letter, attempt: Attempt) -> Outcome:
        return Done(letter.account)

    letters = Flow(
        "shop.letter", Letter, post, credential=lambda letter: f"{ACCOUNT}/{letter.account}"
    )
    async with Engine(URL, flows=[letters]) as engine:
        await engine.admin.pause(tenant="default", credential=CREDENTIAL)
        request = await engine.submit(Letter({"name": "Ada"}, account))
        await let_run(gesta)
        assert (await result(request) is None) is (account == "main")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_webhook_whose_secret_is_refused_waits_for_the_endpoint_to_be_put_again(
    gesta, status
):
    gesta.sandbox.webhook.next(status=status)
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        endpoint = {"url": "https://shop.example/hook", "secret": "whsec_" + "A" * 32}
        await engine.admin.put_config(webhook.ENDPOINT, "shop", endpoint)
        request = await engine.submit(webhook.Message("order.paid", {"order": 7}, "shop"))
        await pass_time(gesta, 60)
        state = (await request.view()).state
        assert (state.status, state.attempts) == ("queued", 0)
        await engine.admin.put_config(
            webhook.ENDPOINT, "shop", {**endpoint, "secret": "whsec_" + "B" * 32}
        )
        await let_run(gesta)
        assert isinstance(await result(request), Done)
        effects: list[Effect] = gesta.sandbox.webhook.effects
        assert len(effects) == 1


async def test_metrics_and_log_show_a_refused_credential(gesta, caplog):
    async with shop(Provider(REFUSED)) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 70)
        text = engine.metrics().decode()
        assert f'gesta_credentials_refused_total{{flow="{FLOW}"}} 1.0' in text
        assert f'gesta_held{{flow="{FLOW}"}} 1.0' in text
        (age,) = [
            float(line.split()[1])
            for line in text.splitlines()
            if line.startswith("gesta_credential_refused_seconds ")
        ]
        assert age > 0
        (line,) = [
            record.message for record in caplog.records if "credential refused" in record.message
        ]
        assert CREDENTIAL in line
        assert "invalid_auth" in line


async def test_a_refused_credential_does_not_count_as_a_failed_attempt(gesta):
    """Beside it, what the provider says of one request stays that request's own."""
    provider = Provider(Rejected("no_such_room"), Retry("throttled"))
    async with shop(provider) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await result(request) == Rejected("no_such_room")
        assert await engine.admin.paused("default") == []
