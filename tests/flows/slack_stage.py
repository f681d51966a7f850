"""What the tests of the Slack channel share: an engine on the test's clock, a workspace, and what
became of a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gesta import Engine
from gesta.domain.state import State
from gesta.flows import slack
from gesta.testing.plugin import Harness

URL = "memory:slack"
TOKEN = "xoxb-1111-first"
PLACE = "C012AB3CD"
OPS = "C0PS0PS0PS"


@asynccontextmanager
async def opened(gesta: Harness, **workspace: Any) -> AsyncIterator[Engine]:
    """An engine whose tenant `default` has a workspace and a channel `ops`."""
    async with Engine(URL, flows=[slack.flow()]) as engine:
        await put(engine, "slack.workspace", "default", token=TOKEN, **workspace)
        await put(engine, "slack.channel", "ops", channel_id=OPS)
        yield engine
    del gesta


async def put(engine: Engine, kind: str, code: str, tenant: str = "default", **fields: Any) -> None:
    await engine.admin.put_config(kind, code, fields, tenant=tenant)


async def end_of(gesta: Harness, engine: Engine, message: slack.Message, **options: Any) -> State:
    """Submit, let everything happen that is due, and tell what became of it."""
    request = await engine.submit(message, **options)
    await gesta.settle()
    return (await request.view()).state


def posted(gesta: Harness) -> list[dict[str, Any]]:
    """What Slack was given, in order."""
    return [effect.data for effect in gesta.sandbox.slack.effects]
