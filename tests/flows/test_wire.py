"""The channels over real sockets: Slack's client and our HTTP, against fakes on a port."""

from __future__ import annotations

import pytest

from gesta import Done, Engine, Rejected
from gesta.flows import slack, sms
from gesta.runtime.settings import Settings
from gesta.sandbox.server import SandboxServer
from tests.searches.forms import files_of

TOKEN = "xoxb-4711-planted-on-the-wire"


@pytest.mark.slow
async def test_slack_by_its_own_client_over_http(tmp_path, caplog):
    caplog.set_level(0)
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    async with SandboxServer() as server:
        settings = Settings(url=url, allow_private=("127.0.0.0/8",))
        async with Engine(settings=settings, flows=[slack.flow()]) as engine:
            fields = {
                "token": TOKEN,
                "api_url": f"{server.url}/slack/api/",
                "channel_per_second": 1_000,
            }
            await engine.admin.put_config("slack.workspace", "default", fields)
            first = await engine.submit(slack.Message(channel="C012AB3CD", text="grüße 😀"))
            sent = await first.outcome(timeout=60)
            server.sandbox.slack.next(error="is_archived")
            second = await engine.submit(slack.Message(channel="C012AB3CD", text="b"))
            refused = await second.outcome(timeout=60)
    [effect] = server.sandbox.slack.effects
    assert (sent, effect.text) == (Done(effect.id, "C012AB3CD"), "grüße 😀")
    assert isinstance(refused, Rejected)
    assert refused.reason == "is_archived"
    assert (effect.headers["authorization"], "slackclient" in effect.headers["user-agent"]) == (
        f"Bearer {TOKEN}",
        True,
    )
    left = {
        name: content for name, content in files_of(tmp_path).items() if not name.endswith(".key")
    }
    assert not [name for name, content in left.items() if TOKEN.encode() in content]  # R0-2
    assert TOKEN not in caplog.text  # R0-2, R0-28


@pytest.mark.slow
async def test_twilio_over_http(tmp_path):
    async with SandboxServer() as server:
        settings = Settings(
            url=f"sqlite:///{tmp_path / 'gesta.db'}", allow_private=("127.0.0.0/8",)
        )
        async with Engine(settings=settings, flows=[sms.flow()]) as engine:
            fields = {
                "account_sid": "AC1",
                "auth_token": "t",
                "sender": "+15550100",
                "api_url": f"{server.url}/twilio",
            }
            await engine.admin.put_config("sms.account", "default", fields)
            request = await engine.submit(
                sms.Message(to="+4915155501234", body="grüße & mehr + 😀")
            )
            sent = await request.outcome(timeout=60)
    [effect] = server.sandbox.twilio.effects
    assert (sent, effect.text) == (Done(effect.id, detail="1 segment, UCS-2"), "grüße & mehr + 😀")
