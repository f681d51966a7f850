"""gesta.client against a real server, over a wire that loses answers: one request, one effect."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from gesta import Attempt, Done, Outcome, Payload, Rejected, flow
from gesta.api_types.requests import StreamEvent
from gesta.api_types.subscriptions import WebhookSubscription
from gesta.client import Bulk, Client, Submit, SyncClient
from gesta.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    OutcomeTimeout,
    Refused,
    Unreachable,
)
from gesta.flows.external import external
from gesta.flows.flow import Flow
from tests.http_api.losing import Hasty, Losing
from tests.http_api.served import served

UNKNOWN = "0190b6f2-7c1a-7000-8000-000000000000"
LATER = datetime(2099, 1, 1, tzinfo=UTC)


class Parcel(Payload, frozen=True):
    name: str
    is_refused: bool = False


class Effects(list[str]):
    """Every execution, by its idempotency key."""

    def flow(self) -> Flow:
        @flow("shop.parcel", on_unknown="manual")
        async def parcel(payload: Parcel, attempt: Attempt) -> Outcome:
            self.append(attempt.key)
            return Rejected("said_no") if payload.is_refused else Done(id=payload.name)

        return parcel


@asynccontextmanager
async def lossy(url, *scopes):
    """A server behind a wire that loses answers, a client there, and all that was executed."""
    effects = Effects()
    async with (
        served(url, flows=[effects.flow()]) as api,
        Losing(int(api.address.rpartition(":")[2])) as wire,
        Client(wire.address, await api.key(*scopes), runtime=Hasty()) as client,
    ):
        yield client, wire, effects, api


@pytest.fixture
async def client(api):
    async with Client(api.address, await api.key()) as one:
        yield one


async def test_a_submit_whose_answers_are_lost_is_one_request_and_one_effect(store_url):
    async with lossy(store_url) as (client, wire, effects, api):
        wire.lose = 3
        made = await client.submit("shop.parcel", {"name": "a"})
        assert wire.lost == 3
        assert made.verdict == "duplicate"  # S1-30
        assert (await client.wait(made.id)).status == "completed"
        assert [one.state.id for one in await api.engine.find()] == [made.id]
        assert len(effects) == 1


async def test_a_batch_whose_answers_are_lost_is_done_once(store_url):
    async with lossy(store_url) as (client, wire, effects, api):
        wire.lose = 2
        results = await client.submit_many(
            [Submit("shop.parcel", {"name": str(number)}) for number in range(20)]
        )
        assert [one.verdict for one in results] == ["duplicate"] * 20
        for one in results:
            assert (await client.wait(one.id or "")).status == "completed"
        assert len(effects) == len(set(effects)) == 20
        assert len(await api.engine.find()) == 20


async def test_a_redrive_whose_answer_is_lost_is_not_made_again(store_url):
    async with lossy(store_url) as (client, wire, effects, _):
        made = await client.submit("shop.parcel", Parcel("a", is_refused=True))
        await client.wait(made.id)
        wire.lose = 1
        with pytest.raises(Unreachable, match="it may have been executed"):
            await client.redrive(made.id)
        assert (await client.wait(made.id)).status == "failed"
        while len(effects) < 2:
            await client.wait(made.id)
        names = [one.type for one in await client.events(made.id)]
        assert len([name for name in names if "Failed" in name]) == 2


async def test_idempotent_calls_are_repeated(store_url):
    async with lossy(store_url) as (client, wire, *_):
        later = await client.submit("shop.parcel", {"name": "a"}, deliver_at=LATER)
        wire.lose = 1
        assert (await client.cancel(later.id)).status == "cancelled"
        wire.lose = 1
        assert (await client.get(later.id)).status == "cancelled"
        wire.lose = 1
        assert (await client.pause(flow="shop.parcel", reason="a test")).flow == "shop.parcel"
        assert wire.lost == 3
        assert await client.resume(flow="shop.parcel") == 0


async def test_a_server_that_is_not_there_is_reported_after_some_tries():
    async with Client(
        "http://127.0.0.1:1", "gesta_live_x_y", runtime=(runtime := Hasty()), attempts=4
    ) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await client.redrive(UNKNOWN)
    assert len([one for one in runtime.pauses if one < 3]) == 3


async def test_the_errors_are_those_of_an_engine(client, api):
    made = await client.submit("shop.note", {"text": "hello"}, key="order-7")
    with pytest.raises(Conflict) as conflict:
        await client.submit("shop.note", {"text": "other"}, key="order-7")
    assert conflict.value.request_id == made.id
    with pytest.raises(InvalidRequest) as invalid:
        await client.submit("shop.note", {"txt": 1}, key="")
    assert set(invalid.value.fields) == {"txt", "text", "key"}
    with pytest.raises(NotFound):
        await client.get(UNKNOWN)
    with pytest.raises(NotFound):
        await client.get("no id")
    await client.wait(made.id)
    with pytest.raises(Refused) as refused:
        await client.cancel(made.id)
    assert refused.value.code == "already_ended"
    async with Client(api.address, "gesta_live_x_y") as stranger:
        with pytest.raises(Forbidden):
            await stranger.whoami()
    async with Client(api.address, await api.key("read")) as reader:
        with pytest.raises(Forbidden, match="scope submit"):
            await reader.submit("shop.note", {"text": "hello"})


async def test_a_request_that_takes_longer_is_reported_as_not_finished(client):
    made = await client.submit("shop.note", {"text": "later"}, wait=0.3)
    with pytest.raises(OutcomeTimeout) as late:
        await client.wait(made.id, timeout=0.2)
    assert (late.value.request_id, late.value.status) == (made.id, "queued")


async def test_a_list_comes_page_by_page(client, monkeypatch):
    monkeypatch.setattr("gesta.client.connection.PAGE_MAX", 2)
    ids = [
        (await client.submit("shop.note", {"text": str(number)}, wait=20)).id for number in range(5)
    ]
    assert [one.id async for one in client.find()] == ids[::-1]
    assert [one.id async for one in client.find(limit=3, status="completed")] == ids[:1:-1]
    assert [one.id async for one in client.find(flow="shop.nothing")] == []
    keyed = await client.submit("shop.note", {"text": "keyed"}, key="order-7")
    assert [one.id async for one in client.find(key="order-7")] == [keyed.id]


async def test_a_payload_with_an_id_of_its_own_needs_no_key_of_ours(store_url):
    class Letter(Payload, frozen=True):
        own: str

    async def execute(payload: Letter, attempt: Attempt) -> Outcome:
        return Done()

    letter = Flow("shop.letter", Letter, execute, request_id=lambda payload: payload.own)
    async with (
        served(store_url, flows=[letter]) as api,
        Client(api.address, await api.key()) as client,
    ):
        first = await client.submit("shop.letter", {"own": UNKNOWN})
        (again, other) = await client.submit_many(
            [
                Submit("shop.letter", {"own": UNKNOWN}),
                Submit("shop.letter", {"own": UNKNOWN[:-1] + "1"}),
            ]
        )
        assert (first.id, first.verdict) == (UNKNOWN, "created")
        assert (again.id, again.verdict) == (UNKNOWN, "duplicate")
        assert other.verdict == "created"


async def test_a_stream_goes_on_over_a_broken_wire(store_url):
    async with lossy(store_url) as (client, wire, _, api):
        seen: list[StreamEvent] = []
        stream = client.stream(flow="shop.parcel")

        async def follow(count):
            while len(seen) < count:
                seen.append(await anext(stream))

        following = asyncio.ensure_future(follow(2))
        # The stream shows all events after the connection, so the connection must come first.
        while not api.web.streams.total():
            await asyncio.sleep(0.01)
        first = await client.submit("shop.parcel", {"name": "a"})
        await asyncio.wait_for(following, 20)
        wire.cut()
        second = await client.submit("shop.parcel", {"name": "b"})
        await client.wait(second.id)
        wire.cut()
        await asyncio.wait_for(follow(4), 20)
        await stream.aclose()
        assert [(one.request_id, one.version) for one in seen] == [
            (first.id, 1),
            (first.id, 2),
            (second.id, 1),
            (second.id, 2),
        ]


async def test_config_templates_and_pauses_are_kept_over_http(client, api):
    fields = {"url": "https://shop.example/hooks", "secret": "whsec_" + "a" * 32}
    stored = await client.put_config("webhook.endpoint", "shop", fields, version=0)
    again = await client.put_config(
        "webhook.endpoint", "shop", {"url": "https://shop.example/other"}, version=stored.version
    )
    assert (await client.get_config("webhook.endpoint", "shop")).version == again.version
    assert [(one.kind, one.code) async for one in client.config()] == [("webhook.endpoint", "shop")]
    assert "webhook.endpoint" in [one.kind for one in await client.config_kinds()]
    assert (await client.pause(credential="webhook.endpoint/shop", by="ada")).by == "ada"
    assert [one.credential for one in await client.pauses()] == ["webhook.endpoint/shop"]
    await client.delete_config("webhook.endpoint", "shop", version=again.version)
    with pytest.raises(NotFound):
        await client.get_config("webhook.endpoint", "shop")
    await client.put_config("template", "hello", {"text": "Hello {{ name }}"})
    assert (await client.preview_template("hello", {"name": "Ada"})).parts["text"] == "Hello Ada"
    assert (await client.whoami()).tenant == "default"
    assert "shop.note" in [one.name for one in await client.flows()]


async def test_dead_letters_and_unknown_outcomes_are_decided_over_http(client):
    refused = await client.submit("shop.note", {"text": "refuse"}, wait=20)
    unknown = await client.submit("shop.note", {"text": "unknown"}, wait=20)
    assert [one.id async for one in client.dead_letters(reason="said_no")] == [refused.id]
    await client.redrive(refused.id)
    await client.wait(refused.id)
    assert (await client.dead_letter(refused.id)).failure.reason == "said_no"
    await client.purge(refused.id)
    # The views may be some milliseconds behind, here and below.
    while [one async for one in client.dead_letters()]:
        await asyncio.sleep(0.01)
    assert [one.id async for one in client.unknown()] == [unknown.id]
    decided = await client.resolve(unknown.id, "succeeded", evidence="their log", by="ada")
    assert decided.status == "completed"
    assert (await client.events(unknown.id))[-1].actor.partition(" ")[0] == "ada"
    while ("shop.note", "unknown") in (
        counts := {(one.flow, one.status): one.count for one in await client.counts() if one.count}
    ):
        await asyncio.sleep(0.01)
    assert counts["shop.note", "completed"] == 1
    assert await client.quarantined() == []


async def test_work_is_taken_and_reported_over_a_wire_that_loses_answers(store_url):
    async with (
        served(store_url, flows=[external("shop.pick", on_unknown="resend")]) as api,
        Losing(int(api.address.rpartition(":")[2])) as wire,
        Client(wire.address, await api.key("submit", "read", "execute"), runtime=Hasty()) as client,
    ):
        made = await client.submit("shop.pick", {"order": 7})
        (work,) = await client.take_work("shop.pick", wait=20)
        assert (work.id, work.payload) == (made.id, {"order": 7})
        again = await client.get_work("shop.pick", work.id, work.token)
        assert (again.key, again.payload, again.attempt) == (work.key, work.payload, work.attempt)
        assert not (await client.extend_work("shop.pick", work.id, work.token, 60)).cancel_requested
        wire.lose = 2
        recorded = await client.report_sent(work, provider_message_id="box-9")
        assert (wire.lost, recorded.status) == (2, "completed")
        assert [one.outcome for one in await client.attempts(work.id)] == ["done"]


async def test_addresses_are_suppressed_over_http(client):
    entry = await client.suppress("notification.sms", "+4930123456", reason="asked by phone")
    assert (await client.find_suppressed("notification.sms", "+49 30 123456")).id == entry.id
    assert [one.id async for one in client.suppressed("notification.sms")] == [entry.id]
    await client.unsuppress("notification.sms", entry.id)
    with pytest.raises(NotFound):
        await client.find_suppressed("notification.sms", "+4930123456")
    assert not any(isinstance(one, WebhookSubscription) for one in await client.subscriptions())


async def test_keys_and_the_trail_of_changes_are_read_over_http(client, api):
    made = await client.create_key("the shop", scopes=["submit"], by="ada")
    async with Client(api.address, made.key) as shop:
        assert (await shop.whoami()).scopes == ["submit"]
    assert made.id in [one.id for one in await client.keys()]
    assert (await client.revoke_key(made.id, by="ada")).revoked_by == "ada"
    assert [(one.about, one.by) async for one in client.audit(limit=2)] == [(made.id, "ada")] * 2


@pytest.mark.parametrize("name", ["bulk", "resume_bulk", "find", "stream", "audit"])
def test_help_shows_an_iterator_for_a_caller_without_an_event_loop(name):
    shown = str(inspect.signature(getattr(SyncClient, name)))
    assert "-> collections.abc.Iterator[" in shown
    assert "Async" not in shown


def test_the_docstring_of_a_bulk_run_has_the_names_that_python_takes():
    text, fields = str(Bulk.__doc__), msgspec.structs.fields(Bulk)
    named = set(re.findall(r"`(\w+)`", text))
    assert named == {one.name for one in fields} - {"action"}
    example = re.search(r"`bulk\(Bulk\((.+?)\)\)`", str(Client.bulk.__doc__))
    assert example is not None
    assert set(re.findall(r"(\w+)=", example[1])) <= {one.name for one in fields}
