from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest

from gesta import Attempt, Done, Engine, Flow, NotFound, Outcome, Payload, Rejected, Retry
from gesta.domain.commands import Rules
from gesta.domain.events import Actor
from gesta.errors import BadConfig, StoreError
from gesta.flows import webhook
from gesta.flows.flow import ConfigBody, Secret
from gesta.runtime.settings import resolve_reference
from gesta.tenants.config import TenantConfig
from tests.world import URL, all_events, fields, let_run, pass_time

KIND = "test.account"


class Account(ConfigBody, frozen=True):
    address: Annotated[str, msgspec.Meta(min_length=3)]
    token: Secret[Annotated[str, msgspec.Meta(max_length=50)]]
    floor: int = 0
    disabled: bool = False
    disabled_reason: str = ""


class Letter(Payload, frozen=True):
    account: str = "main"


class Post:
    """An executor that notes which account each letter went out by."""

    def __init__(self) -> None:
        self.used: list[tuple[str, tuple[str, ...]]] = []
        self.before: Any = None

    async def execute(self, payload: Letter, attempt: Attempt) -> Outcome:
        entity = attempt.config.get(KIND, payload.account)
        if entity is None:
            return Rejected("account_missing")
        assert isinstance(entity.body, Account)
        if self.before is not None:
            before, self.before = self.before, None
            await before(attempt)
        secrets = await attempt.config.secrets(KIND, payload.account, "token")
        self.used.append((entity.body.address, tuple(secrets)))
        return Done()

    def engine(self, **options: Any) -> Engine:
        return Engine(
            URL,
            flows=[Flow("test.letter", Letter, self.execute, Rules(), config={KIND: Account})],
            **options,
        )


async def test_an_attempt_uses_config_changed_after_its_request_was_queued(gesta):
    post = Post()
    async with post.engine(work=False) as asking:
        await asking.admin.put_config(KIND, "main", {"address": "old box", "token": "t-1"})
        await asking.submit(Letter())
        await asking.pipeline.projector.step()
        await asking.admin.put_config(KIND, "main", {"address": "new box", "token": "t-2"})
    async with post.engine() as engine:
        await let_run(gesta)
        assert post.used == [("new box", ("t-2", "t-1"))]  # R0-3, S1-23
        await engine.admin.put_config(KIND, "main", {"address": "newest box"})
        await engine.submit(Letter())
        await let_run(gesta)
    assert post.used[1] == (
        "newest box",
        ("t-2", "t-1"),
    )  # S1-23: never stale, in a process that had read it before


async def test_the_next_attempt_uses_a_change_of_another_process(gesta):
    post = Post()
    async with post.engine() as engine, post.engine(work=False) as other:
        await other.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        await engine.submit(Letter())
        await let_run(gesta)
        await other.admin.put_config(KIND, "main", {"address": "box 2"})
        await engine.submit(Letter())
        await let_run(gesta)
        await other.admin.delete_config(KIND, "main")
        refused = await engine.submit(Letter())
        await let_run(gesta)
        assert await refused.outcome() == Rejected("account_missing")
    assert post.used == [("box 1", ("t-1",)), ("box 2", ("t-1",))]  # S1-23


async def test_no_event_view_job_or_repr_contains_a_secret(gesta):
    post = Post()
    async with post.engine() as engine:
        entity = await engine.admin.put_config(
            KIND, "main", {"address": "box 1", "token": "xoxb-very-secret"}
        )
        await engine.submit(Letter())
        await let_run(gesta)
        assert post.used == [("box 1", ("xoxb-very-secret",))]
        later = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(minutes=10)
        waiting = await engine.submit(Letter(), deliver_at=later)
        await let_run(gesta)
        stored = await all_events(engine)
        [standing] = await engine.pipeline.environment.stores.job_inspection.jobs("", 10)
        texts = [
            repr(entity),
            repr(stored),
            repr(engine.pipeline.config.of("default")),
            repr(await engine.find()),
            repr(standing),
        ]
    # R1-42, S1-23: encrypted in the vault, a name and a version in the event.
    assert not any("very-secret" in text for text in texts)
    # R1-3: a job that waits for its time is a pointer and nothing else.
    assert msgspec.to_builtins(standing.job) == {
        "id": f"{waiting.id}-1",
        "tenant": "default",
        "flow": "test.letter",
        "request_id": waiting.id,
        "dispatch_version": 1,
        "kind": "execute",
        "due_ms": int(later.timestamp() * 1000),
        "priority": 5,
        "possibly_executed": False,
    }
    put = next(event for event in stored if event.stream == "config-default")
    assert fields(put.data) == {
        "kind": KIND,
        "code": "main",
        "body": {"address": "box 1", "token": ""},
        "secrets": {"token": [{"name": "test.account/main/token", "version": 1}]},
    }


async def test_the_vault_has_secrets_only_encrypted(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(
            KIND, "main", {"address": "box 1", "token": "xoxb-very-secret"}
        )
        held = await engine.pipeline.environment.stores.vault.listed(("", "", 0), 100)
    boxes = {encrypted.name: encrypted.box for encrypted in held}
    assert len(boxes["test.account/main/token"]) >= len(b"xoxb-very-secret")
    # R1-42: the bytes themselves, because the repr of what is encrypted would hide them.
    assert not any(b"very-secret" in box for box in boxes.values())


async def test_a_rotated_secret_is_used_beside_the_one_before_it_for_a_day(gesta):
    post = Post()
    async with post.engine() as engine:
        for token in ("t-1", "t-2"):
            await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": token})
        for _ in range(2):
            await engine.submit(Letter())
            await let_run(gesta)
            gesta.advance(24 * 3600)
            await let_run(gesta)
    assert [secrets for _, secrets in post.used] == [("t-2", "t-1"), ("t-2",)]


async def test_a_new_entity_with_a_blank_secret_is_refused(gesta):
    async with Engine(flows=[webhook.flow()]) as engine:
        with pytest.raises(BadConfig) as refused:
            await engine.admin.put_config(
                webhook.ENDPOINT, "shop", {"url": "https://example.com/a", "secret": ""}
            )
    assert refused.value.fields == {"secret": "missing"}


async def test_a_secret_left_out_keeps_the_stored_one_and_the_same_one_is_no_new_version(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        kept = await engine.admin.put_config(KIND, "main", {"address": "box 2"})
        same = await engine.admin.put_config(KIND, "main", {"address": "box 2", "token": "t-1"})
        assert [ref.version for ref in kept.secrets["token"]] == [1]
        assert [ref.version for ref in same.secrets["token"]] == [1]


async def test_all_config_of_a_tenant_is_one_stream_and_no_other_tenants(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(
            KIND, "main", {"address": "box 1", "token": "t"}, tenant="acme", actor=Actor("u-1")
        )
        await engine.admin.put_config(
            KIND, "side", {"address": "box 2", "token": "t"}, tenant="acme"
        )
        await engine.admin.put_config(
            KIND, "main", {"address": "box 3", "token": "t"}, tenant="other"
        )
        assert [event.stream for event in await all_events(engine)] == [
            "config-acme",
            "config-acme",
            "config-other",
        ]
        assert [entity.code for entity in await engine.admin.list_config("acme")] == [
            "main",
            "side",
        ]
        (first, *_) = await all_events(engine)
        assert fields(first.meta)["actor"] == {"userId": "u-1"}
        with pytest.raises(NotFound):
            await engine.admin.get_config(KIND, "side", tenant="other")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (
            {"address": "b", "token": "x" * 51, "flor": 1, "floor": "top"},
            {"address", "token", "flor", "floor"},
        ),
        ({}, {"address", "token"}),
        ([], {"payload"}),
    ],
)
async def test_malformed_config_is_refused_with_every_error_and_nothing_is_written(
    gesta, given, names
):
    async with Post().engine(work=False) as engine:
        for act in (engine.admin.put_config, engine.admin.check_config):
            with pytest.raises(BadConfig) as refusal:
                await act(KIND, "main", given)
            assert set(refusal.value.fields) == names
            assert "xxx" not in str(refusal.value)
        assert await all_events(engine) == []


async def test_a_program_stores_the_secret_behind_a_variable_and_not_the_name_of_the_variable(
    gesta, monkeypatch
):
    monkeypatch.setattr("gesta.testing.plugin._reference", resolve_reference)
    monkeypatch.setenv("TOKEN_OF_MAIN", "t-9")
    monkeypatch.delenv("NOT_SET", raising=False)
    post = Post()
    async with post.engine() as engine:
        put, check = engine.admin.put_config, engine.admin.check_config
        for act in (put, check):
            with pytest.raises(BadConfig) as refusal:
                await act(KIND, "main", {"address": "b", "token": "env:NOT_SET"})
            assert refusal.value.fields["token"] == "the variable NOT_SET is not set"
            assert set(refusal.value.fields) == {"address", "token"}
        await check(KIND, "main", {"address": "long", "token": "env:TOKEN_OF_MAIN"})
        await put(KIND, "main", {"address": "long", "token": "env:TOKEN_OF_MAIN"})
        await engine.submit(Letter())
        await let_run(gesta)
        assert post.used == [("long", ("t-9",))]


async def test_a_bad_tenant_or_code_of_config_is_refused_together_with_its_fields(gesta):
    async with Post().engine(work=False) as engine:
        with pytest.raises(BadConfig) as refusal:
            await engine.admin.put_config(KIND, "", {"address": "b"}, tenant="_gesta")
        assert set(refusal.value.fields) == {"tenant", "code", "address", "token"}
        with pytest.raises(NotFound, match=r"known: test\.account"):
            await engine.admin.put_config("test.acount", "main", {})
        assert await all_events(engine) == []


async def test_unreadable_config_delays_the_requests_that_use_it_until_it_is_put_again(
    gesta,
):
    class Old(ConfigBody, frozen=True):
        street: str
        token: Secret[str]

    post = Post()
    old = Flow("test.letter", Letter, post.execute, config={KIND: Old})
    async with Engine(URL, flows=[old], work=False) as asking:
        await asking.admin.put_config(KIND, "main", {"street": "long", "token": "t-1"})
    async with post.engine() as engine:
        request = await engine.submit(Letter())
        await let_run(gesta)
        state = (await request.view()).state
        # It is there, so it is no permanent failure; and nothing was sent without it, so it is
        # not unknown.
        assert (state.status, state.reason) == ("queued", "bad_config")
        with pytest.raises(BadConfig, match="put it again"):
            await engine.admin.get_config(KIND, "main")
        await engine.admin.put_config(KIND, "main", {"address": "box 1"})
        await gesta.settle()
        assert await request.status() == "completed"
    assert post.used == [("box 1", ("t-1",))]


async def test_an_unreachable_vault_causes_a_retry(gesta, ports):
    post = Post()
    async with post.engine() as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
    async with post.engine() as engine:
        ports.vault.fail("get", StoreError("out of reach"))
        ports.vault.fail("put", StoreError("out of reach"))
        request = await engine.submit(Letter())
        await let_run(gesta)
        assert ((await request.view()).state.status, (await request.view()).state.reason) == (
            "queued",
            "vault_unavailable",
        )
        await gesta.settle()
        assert await request.status() == "completed"


async def test_two_changes_at_once_are_both_kept(gesta):
    async with Post().engine(work=False) as first, Post().engine(work=False) as second:
        await first.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        await asyncio.gather(
            first.admin.put_config(KIND, "main", {"address": "box 2", "token": "t-2"}),
            second.admin.put_config(KIND, "side", {"address": "box 3", "token": "t-3"}),
            second.admin.put_config(KIND, "main", {"address": "box 4"}),
        )
        main = await first.admin.get_config(KIND, "main")
        # Whichever was last, the rotation is not undone by the one who had not seen it.
        assert main.secrets["token"][0].version == 2
        assert await first.pipeline.config.of("default").secrets(KIND, "main", "token") == [
            "t-2",
            "t-1",
        ]


async def test_a_change_during_an_attempt_does_not_mix_old_and_new(gesta):
    post = Post()
    async with post.engine() as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})

        async def change(attempt: Attempt) -> None:
            await engine.admin.put_config(KIND, "main", {"address": "box 2", "token": "t-2"})

        post.before = change
        await engine.submit(Letter())
        await let_run(gesta)
    assert post.used == [("box 1", ("t-1",))]


async def test_an_endpoint_that_answers_410_is_disabled(gesta):
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        secret = "whsec_" + "QUJD" * 8
        await engine.admin.put_config(
            webhook.ENDPOINT, "shop", {"url": "https://example.com/a", "secret": secret}
        )
        gesta.sandbox.webhook.next(status=410)
        first = await engine.submit(webhook.Message(type="a.b", data={}, endpoint="shop"))
        await let_run(gesta)
        second = await engine.submit(webhook.Message(type="a.b", data={}, endpoint="shop"))
        await let_run(gesta)
        assert ((await first.view()).state.reason, (await second.view()).state.reason) == (
            "endpoint_gone",
            "endpoint_disabled",
        )
    assert gesta.sandbox.webhook.calls == 1


async def test_an_endpoint_changed_during_an_attempt_is_not_disabled(gesta):
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        secret = "whsec_" + "QUJD" * 8
        await engine.admin.put_config(
            webhook.ENDPOINT, "shop", {"url": "https://example.com/old", "secret": secret}
        )
        gesta.sandbox.webhook.next(status=410, slow_seconds=5)
        await engine.submit(webhook.Message(type="a.b", data={}, endpoint="shop"))
        await pass_time(gesta, 2)
        await engine.admin.put_config(webhook.ENDPOINT, "shop", {"url": "https://example.com/new"})
        await pass_time(gesta, 5)
        entity = await engine.admin.get_config(webhook.ENDPOINT, "shop")
        assert entity.body == webhook.Endpoint("https://example.com/new", "")
        following = await engine.submit(webhook.Message(type="a.b", data={}, endpoint="shop"))
        await let_run(gesta)
        assert await following.status() == "sent"


async def test_an_unset_environment_reference_causes_a_retry(gesta):
    async def execute(payload: Letter, attempt: Attempt) -> Outcome:
        try:
            return Done(id=attempt.config.reference("env:TOKEN")[:6])
        except KeyError:
            return Retry("secret_missing")

    async with Engine(URL, flows=[Flow("test.letter", Letter, execute)]) as engine:
        request = await engine.submit(Letter())
        await let_run(gesta)
        # R1-42: looked up when the attempt runs, not when the flow is declared.
        assert await request.outcome() == Done("whsec_")


async def test_a_tenants_first_config_is_read_although_a_receipt_without_request_comes_first(
    gesta, ports
):
    async with Post().engine() as engine:

        async def read(original: Any, streams: Any) -> Any:
            found = await original(streams)
            # What reports.py does with the name of a tenant of which it has found nothing a moment
            # ago.
            engine.pipeline.config.forget("new")
            return found

        ports.events.replace("read", read)
        await engine.admin.put_config(
            KIND, "main", {"address": "box", "token": "t-1"}, tenant="new"
        )
        assert [entity.code for entity in await engine.admin.list_config("new")] == ["main"]


async def test_a_secret_is_cached_once_decrypted_and_while_there_is_no_rotation(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        assert engine.pipeline.config.of("default").secrets_at_hand(KIND, "none", "token") is None
        await engine.pipeline.config.of("default").secrets(KIND, "main", "token")
        config = engine.pipeline.config.of("default")
        assert (config.secrets_at_hand(KIND, "main", "token"), config.opened) == (
            ["t-1"],
            ["t-1"],
        ), "taken out of what is said"
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-2"})
        rotated = engine.pipeline.config.of("default")
        assert rotated.secrets_at_hand(KIND, "main", "token") is None, (
            "how long the older one counts is looked at each time"
        )
        assert (await rotated.secrets(KIND, "main", "token"), config.opened) == (
            ["t-2", "t-1"],
            ["t-1"],
        )
        assert rotated.secrets_at_hand(KIND, "main", "token") is None


async def test_a_value_derived_from_config_counts_as_used_each_time_it_is_read(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        made = []

        def address(config: TenantConfig) -> str:
            entity = config.get(KIND, "main")
            assert entity is not None
            made.append(entity.version)
            return "here"

        for _ in range(2):
            config = engine.pipeline.config.of("default")
            assert (config.derived("address", address), config.used) == (
                "here",
                {f"{KIND}/main": 1},
            )
        assert made == [1]


async def test_config_that_a_failing_derivation_read_counts_as_used(gesta):
    async with Post().engine(work=False) as engine:
        await engine.admin.put_config(KIND, "main", {"address": "box 1", "token": "t-1"})
        config = engine.pipeline.config.of("default")

        def fails(own: TenantConfig) -> str:
            own.get(KIND, "main")
            raise LookupError("no such part")

        with pytest.raises(LookupError):
            config.derived("part", fails)
        assert config.used == {f"{KIND}/main": 1}
