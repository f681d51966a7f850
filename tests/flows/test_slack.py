"""notification.slack: what a message may be, where it goes, what Slack is given."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from gesta import Done, Engine
from gesta.errors import InvalidRequest
from gesta.flows import slack
from gesta.flows.slack.message import Channel, Workspace
from gesta.flows.validation import decode_fields
from tests.flows.slack_stage import OPS, PLACE, TOKEN, URL, end_of, opened, posted, put


async def test_the_smallest_program_posts_its_message(gesta):
    async with Engine("sqlite:///gesta.db", flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
        request = await engine.submit(
            slack.Message(channel="C012AB3CD", text="hello"), key="hello-1"
        )
        outcome = await request.outcome(timeout=10)
    [effect] = gesta.sandbox.slack.effects
    assert (request.verdict, effect.text) == ("created", "hello")
    assert outcome == Done(effect.id, PLACE)  # D-1: ts is the id within the channel


async def test_the_arguments_of_a_post(gesta):
    async with opened(gesta) as engine:
        await put(
            engine,
            "slack.app",
            "robot",
            username="Ada",
            icon_emoji=":robot_face:",
            unfurl_links=False,
        )
        blocks = [{"type": "divider"}]
        message = slack.Message(
            channel=PLACE, text="hi", blocks=blocks, thread_ts="1731000000.000100", app="robot"
        )
        state = await end_of(gesta, engine, message)
    [given] = posted(gesta)
    mark, metadata = given.pop("client_msg_id"), given.pop("metadata")
    assert given == {
        "channel": PLACE,
        "text": "hi",
        "blocks": blocks,
        "thread_ts": "1731000000.000100",
        "username": "Ada",
        "icon_emoji": ":robot_face:",
        "unfurl_links": False,
    }
    assert UUID(mark).version == 5  # D-6: a uuid5 as best effort
    assert metadata == {
        "event_type": "gesta_request",
        "event_payload": {"messageRequestId": state.id, "mark": mark},
    }  # D-6
    headers = gesta.sandbox.slack.effects[0].headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert "slackclient/" in headers["user-agent"]


async def test_two_requests_have_marks_of_their_own_and_a_redrive_another(gesta):
    async with opened(gesta) as engine:
        gesta.sandbox.slack.next(error="is_archived")
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle()
        await request.redrive()
        await gesta.settle()
        await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert len({given["client_msg_id"] for given in posted(gesta)}) == 2


@pytest.mark.parametrize(
    ("channel", "stored"),
    [
        ("C012AB3CD", "recipient"),
        ("U0AB", "recipient"),
        ("ops", "code"),
        ("#general", "code"),
        ("c012ab3cd", "code"),
        ("CC", "code"),
        ("C012AB3CD\n", "code"),
    ],
)
def test_a_channel_is_a_recipient_when_it_looks_like_an_id_and_else_a_code(channel, stored):
    message = slack.Message(channel=channel, text="hi")
    expected = (None, channel) if stored == "recipient" else (channel, None)
    assert (message.code, message.place) == expected  # S0-13


def test_fields_are_stored_under_the_names_that_callers_send():
    fields = {
        "channel": "ops",
        "template": "welcome",
        "data": {"n": 1},
        "locale": "pt-BR",
        "threadTs": "1731000000.000100",
        "workspace": "eu",
        "app": "robot",
    }
    message, errors = decode_fields(slack.Message, fields)
    assert (errors, msgspec.json.decode(msgspec.json.encode(message))) == ({}, fields)
    assert message == slack.Message(
        channel="ops",
        template="welcome",
        data={"n": 1},
        locale="pt-BR",
        thread_ts="1731000000.000100",
        workspace="eu",
        app="robot",
    )


@pytest.mark.parametrize(
    ("fields", "faulty"),
    [
        (
            {"text": "a", "channel": PLACE, "token": "xoxb-1"},
            "token",
        ),  # R0-2: no field can carry one
        ({"channel": PLACE}, "text"),
        ({"channel": PLACE, "text": ""}, "text"),
        ({"channel": PLACE, "text": "x" * 40_001}, "text"),  # D-6: Slack would cut it
        ({"channel": PLACE, "blocks": [{}] * 51}, "blocks"),
        ({"channel": PLACE, "text": "a", "template": "t"}, "template"),
        ({"channel": PLACE, "text": "a", "data": {"n": 1}}, "data"),
        ({"channel": PLACE, "text": "a", "locale": "pt"}, "locale"),
        (
            {"channel": PLACE, "text": "a", "threadTs": 1731000000.0001},
            "threadTs",
        ),  # S0-14: never a float
        ({"channel": PLACE, "text": "a", "threadTs": "1731000000.0001"}, "threadTs"),  # S0-14
        ({"channel": PLACE, "text": "a", "recipient": "U0AB"}, "channel"),
        ({"channelCode": "ops", "text": "a", "recipient": "U0AB"}, "recipient"),
        ({"text": "a", "recipient": "#general"}, "recipient"),  # S0-13
        ({"text": "a", "recipient": "ann@example.com"}, "recipient"),  # S0-13
    ],
)
async def test_an_invalid_message_is_refused_before_anything_is_stored(gesta, fields, faulty):
    async with opened(gesta) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.submit(engine.payload("notification.slack", fields))
        assert list(caught.value.fields) == [faulty]
        assert await engine.find() == []


async def test_a_thread_is_kept_with_the_request(gesta):
    async with opened(gesta) as engine:
        request = await engine.submit(
            slack.Message(channel=PLACE, text="a", thread_ts="1731000000.000100")
        )
        assert await request.payload() == slack.Message(
            channel=PLACE, text="a", thread_ts="1731000000.000100"
        )  # S0-14


async def test_a_named_channel_goes_before_all_others(gesta):
    async with opened(gesta, default_channel_id="C0DEFAULT") as engine:
        await end_of(gesta, engine, slack.Message(channel="ops", text="a"))
        await end_of(gesta, engine, slack.Message(recipient="G0GROUP", text="b"))
        await end_of(gesta, engine, slack.Message(text="c"))
    assert [given["channel"] for given in posted(gesta)] == [OPS, "G0GROUP", "C0DEFAULT"]  # R0-24


@pytest.mark.parametrize("channel", ["nowhere", "closed", "elsewhere"])
async def test_a_named_channel_that_is_not_there_fails_and_never_goes_elsewhere(gesta, channel):
    async with opened(gesta, default_channel_id="C0DEFAULT") as engine:
        await put(engine, "slack.channel", "closed", channel_id=OPS, disabled=True)
        await put(engine, "slack.channel", "elsewhere", channel_id=OPS, workspace="eu")
        state = await end_of(gesta, engine, slack.Message(channel=channel, text="a"))
    assert (state.status, state.reason) == ("failed", "channel_config_missing")  # R0-24, S0-12
    assert gesta.sandbox.slack.calls == 0


async def test_a_message_without_destination_is_rejected(gesta):
    async with opened(gesta) as engine:
        state = await end_of(gesta, engine, slack.Message(text="a"))
        assert (state.status, state.reason) == ("failed", "channel_missing")  # S0-12
        request = await engine.submit(slack.Message(channel=PLACE, text="a", workspace="eu"))
        await gesta.settle(days=0)
        (pause,) = await engine.admin.pauses_of([await request.view()])
        assert pause is not None
        assert pause.reason.startswith("workspace_missing")
        assert "gesta config put slack.workspace" in pause.reason
        state = await end_of(gesta, engine, slack.Message(channel=PLACE, text="a", app="robot"))
        assert state.reason == "app_config_missing"
    assert gesta.sandbox.slack.calls == 0


async def test_an_invalid_recipient_id_is_also_refused_at_execution(gesta):
    """Stored by an earlier version, say."""
    async with Engine(
        URL, flows=[replace(slack.flow(token="env:SLACK_TOKEN"), check=None)]
    ) as engine:
        state = await end_of(gesta, engine, slack.Message(recipient="#general", text="a"))
    assert (state.status, state.reason) == ("failed", "invalid_recipient")  # S0-13
    assert gesta.sandbox.slack.calls == 0


async def test_a_template_is_filled_in_and_its_version_recorded(gesta):
    async with opened(gesta) as engine:
        blocks = '[{"type": "section", "text": {"type": "mrkdwn", "text": "Hi {{ name }}"}}]'
        await put(engine, "template", "welcome", text="Hello {{ name }}", blocks=blocks)
        await put(engine, "template", "welcome@pt", text="Ola {{ name }}")
        await end_of(
            gesta, engine, slack.Message(channel=PLACE, template="welcome", data={"name": 'A"n'})
        )
        await end_of(
            gesta,
            engine,
            slack.Message(channel=PLACE, template="welcome", data={"name": "Ana"}, locale="pt-BR"),
        )
    first, second = posted(gesta)
    assert (first["text"], first["blocks"][0]["text"]["text"]) == ('Hello A"n', 'Hi A"n')
    assert (second["text"], "blocks" in second) == ("Ola Ana", False)


async def test_data_that_the_template_needs_is_asked_for_at_submit(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "welcome", text="Hello {{ name }}")
        with pytest.raises(InvalidRequest) as caught:
            await engine.submit(
                slack.Message(channel=PLACE, template="welcome", data={"nom": "Ann"})
            )
        assert caught.value.fields == {"data.name": "the template welcome needs it"}  # S0-16


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("nothing", "template_missing"),
        ("mail", "no_text"),
        ("long", "msg_too_long"),
        ("odd", "template_render_failed"),
    ],
)
async def test_a_message_whose_template_fails_is_not_posted(gesta, template, reason):
    async with opened(gesta) as engine:
        await put(engine, "template", "mail", subject="Hello")
        await put(engine, "template", "long", text="{% for n in range(5) %}{{ x }}{% endfor %}")
        await put(engine, "template", "odd", text="{{ x + 1 }}")
        state = await end_of(
            gesta, engine, slack.Message(channel=PLACE, template=template, data={"x": "y" * 9_000})
        )
    assert (state.status, state.reason) == ("failed", reason)  # S0-16
    assert gesta.sandbox.slack.calls == 0


async def test_a_secret_in_the_environment_that_is_not_set_is_waited_for(gesta, monkeypatch):
    def reference(text: str) -> str:
        raise KeyError(text)

    with monkeypatch.context() as without:
        without.setattr("gesta.testing.plugin._reference", reference)
        async with Engine(URL, flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
            request = await engine.submit(slack.Message(channel=PLACE, text="a"))
            await gesta.settle(days=1)
            state = (await request.view()).state
            (held,) = await engine.admin.paused()
    assert (state.status, state.attempts, gesta.sandbox.slack.calls) == ("queued", 0, 0)
    assert (held.scope.credential, held.reason) == (
        "slack.workspace/default",
        "secret_missing: env:SLACK_TOKEN is not set",
    )
    async with Engine(URL, flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
        await gesta.settle()
        assert isinstance(await (await engine.request(request.id)).outcome(), Done)
    assert gesta.sandbox.slack.calls == 1


async def test_messages_with_one_template_go_to_their_own_channels(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "w", text="Hi")
        await put(engine, "slack.app", "bot", username="Bot")
        for message in (
            slack.Message(channel=PLACE, template="w"),
            slack.Message(channel="C0THER0000", template="w"),
            slack.Message(channel=PLACE, template="w", app="bot"),
        ):
            await end_of(gesta, engine, message)
    assert [(one["channel"], one.get("username")) for one in posted(gesta)] == [
        (PLACE, None),
        ("C0THER0000", None),
        (PLACE, "Bot"),
    ]


async def test_slack_is_asked_although_the_template_is_gone(gesta):
    async with opened(gesta) as engine:
        await put(engine, "template", "w", text="Hi")
        gesta.sandbox.slack.next(drop=True)
        request = await engine.submit(slack.Message(channel=PLACE, template="w"))
        await gesta.settle(days=0)
        assert (await request.view()).state.status == "unknown"
        await engine.admin.delete_config("template", "w")
        await gesta.settle()
        assert (await request.view()).state.status == "sent"


async def test_a_stale_template_refuses_no_message(gesta):
    async with opened(gesta) as engine, Engine(URL, flows=[slack.flow()], work=False) as asking:
        await put(engine, "template", "w", text="Hi {{ name }}")
        await asking.submit(slack.Message(channel=PLACE, template="w", data={"name": "Ann"}))
        await put(engine, "template", "w", text="Hi")
        assert (
            await asking.submit(slack.Message(channel=PLACE, template="w"))
        ).verdict == "created"


async def test_a_newly_declared_token_releases_requests_held_by_the_old_one(gesta):
    gesta.sandbox.slack.on("xoxb-old", error="token_revoked")
    async with Engine(URL, flows=[slack.flow(token="xoxb-old")]) as engine:
        request = await engine.submit(slack.Message(channel=PLACE, text="a"))
        await gesta.settle(days=0.01)
    for token, status, calls in (("xoxb-old", "queued", 1), ("xoxb-new", "sent", 2)):
        async with Engine(URL, flows=[slack.flow(token=token)]) as engine:
            await gesta.settle(days=0.01)
            assert (await engine.get(request.id)).state.status == status
        assert gesta.sandbox.slack.calls == calls, "the token that was refused is not tried again"


async def test_a_stored_default_workspace_takes_precedence_over_the_declared_one(gesta):
    async with Engine(URL, flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
        await put(engine, "slack.workspace", "default", token=TOKEN)
        await end_of(gesta, engine, slack.Message(channel=PLACE, text="a"))
    assert gesta.sandbox.slack.effects[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_token_is_not_shown():
    assert TOKEN not in repr(Workspace(TOKEN))


@pytest.mark.parametrize("channel_id", ["general", "#general", "C1", "C012AB3CD "])
def test_a_stored_channel_has_an_id(channel_id):
    assert "channel_id" in decode_fields(Channel, {"channel_id": channel_id})[1]


def test_without_its_library_the_channel_names_the_extra_to_install():
    program = (
        f"import sys; sys.path[:] = {sys.path}; sys.modules['slack_sdk'] = None\nfrom gesta.errors"
        " import MissingExtra\nfrom gesta.flows import slack\nslack.Message(channel='C012AB3CD',"
        " text='a')\ntry: slack.flow()\nexcept MissingExtra as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'gesta[slack]'" in result


async def test_calls_at_the_same_time_keep_to_their_own_tokens(gesta):
    """The library's client is everybody's; tokens are not."""
    async with opened(gesta, per_second=1_000, channel_per_second=1_000) as engine:
        await put(
            engine,
            "slack.workspace",
            "eu",
            token="xoxb-2222-other",
            per_second=1_000,
            channel_per_second=1_000,
        )
        for _ in range(20):
            gesta.sandbox.slack.next(slow_seconds=1)
        requests = [
            await engine.submit(slack.Message(channel=PLACE, text=workspace, workspace=workspace))
            for workspace in ("default", "eu") * 10
        ]
        await gesta.settle()
        assert {await request.status() for request in requests} == {"sent"}
    sent = {
        (effect.text, effect.headers["authorization"]) for effect in gesta.sandbox.slack.effects
    }
    assert sent == {("default", f"Bearer {TOKEN}"), ("eu", "Bearer xoxb-2222-other")}


async def test_a_channel_that_moved_is_found_where_it_is_now(gesta):
    """Where a message goes is worked out once for a version of the config, and not for longer."""
    async with opened(gesta, per_second=1_000, channel_per_second=1_000) as engine:
        await end_of(gesta, engine, slack.Message(channel="ops", text="before"))
        await put(engine, "slack.channel", "ops", channel_id="C0NEW0NEW")
        await end_of(gesta, engine, slack.Message(channel="ops", text="after"))
        await put(engine, "slack.channel", "ops", channel_id=OPS, disabled=True)
        state = await end_of(gesta, engine, slack.Message(channel="ops", text="never"))
    assert [(given["text"], given["channel"]) for given in posted(gesta)] == [
        ("before", OPS),
        ("after", "C0NEW0NEW"),
    ]
    assert state.reason == "channel_config_missing"
