"""A server with the path from a Slack event to a Backlog issue, and a person who posts events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from msgspec.structs import replace as changed

from gesta import Flow
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows import slack, ticket
from gesta.intake.inbound import slack as slack_events
from gesta.intake.inbound import webhook as webhook_events
from gesta.ports.read_model import View
from gesta.runtime.clock import SystemRuntime
from gesta.sandbox.slack import Posting, message_event, signed
from tests.http_api.served import Reply, Served, note, served
from tests.intake.inbound.slack_posts import CHANNEL, SECRET, TEAM

PATH = "/inbound/slack/events"
PATIENCE_SECONDS = 20.0


def quick_ticket() -> Flow:
    """The same flow with waits that a test can wait for."""
    flow = ticket.flow(timeout_seconds=2.0)
    retry = changed(flow.rules.retry, schedule_seconds=(0.01,))
    asking = RetryPolicy(attempts=30, base_seconds=0.02, cap_seconds=0.1)
    return replace(
        flow, rules=changed(flow.rules, retry=retry, ask_after_seconds=0.05, asking=asking)
    )


def flows() -> list[Flow]:
    return [
        note,
        slack.flow(),
        quick_ticket(),
        slack_events.flow(),
        webhook_events.flow(),
    ]


@dataclass
class Stage:
    """A served engine, and what a test asks of it."""

    api: Served
    numbers: Any = field(default_factory=lambda: count(1))

    async def put(self, kind: str, code: str, tenant: str = "default", **fields: Any) -> None:
        await self.api.engine.admin.put_config(kind, code, fields, tenant=tenant)

    async def set_up(self, tenant: str = "default", team: str = TEAM, secret: str = SECRET) -> None:
        await self.put("slack.team", team, tenant, signing_secret=secret)
        fast = {"per_second": 1_000, "channel_per_second": 1_000}
        await self.put("slack.workspace", "default", tenant, token="xoxb-sandbox", **fast)
        host = "example.backlog.com"
        await self.put("backlog.space", "default", tenant, host=host, api_key="k1", per_second=1000)
        await self.put("backlog.project", "default", tenant, project_id=7, issue_type_id=8)

    def event(self, text: str, number: int | None = None, **more: Any) -> dict[str, Any]:
        number = next(self.numbers) if number is None else number
        defaults: dict[str, Any] = {
            "event_id": f"Ev{number:08d}",
            "ts": f"1700000000.{number:06d}",
            "team": TEAM,
            "channel": CHANNEL,
        }
        return message_event(text, **defaults | more)

    async def post(
        self,
        envelope: Any,
        *,
        secret: str = SECRET,
        path: str = PATH,
        age_seconds: float = 0,
        **changes: str | None,
    ) -> Reply:
        now = SystemRuntime().now_ms() / 1000
        return await self.send(signed(envelope, secret, round(now - age_seconds)), path, **changes)

    async def send(self, posting: Posting, path: str = PATH, **changes: str | None) -> Reply:
        """`changes`: header → value; None removes it."""
        named = {name.replace("_", "-"): value for name, value in changes.items()}
        headers = {name: value for name, value in posting.headers.items() if name not in named}
        headers |= {name: value for name, value in named.items() if value is not None}
        return await self.api.call("POST", path, raw=posting.body, headers=headers)

    async def of(self, flow: str, status: str | None = None, tenant: str = "default") -> list[View]:
        return await self.api.engine.find(flow=flow, status=status, tenant=tenant, limit=1_000)

    async def ended(self, status: str, how_many: int = 1, flow: str = ticket.NAME) -> list[View]:
        found: list[View] = await eventually(
            lambda: self.of(flow, status), lambda found: len(found) == how_many
        )
        return found

    async def everything(self) -> int:
        """How many requests there are, of all flows and of two tenants."""
        return sum(
            [
                len(await self.api.engine.find(tenant=tenant, limit=1_000))
                for tenant in ("default", "acme")
            ]
        )

    @property
    def issues(self) -> list[str]:
        return [effect.data["summary"] for effect in self.api.sandbox.backlog.effects]

    @property
    def replies(self) -> list[tuple[str, str | None]]:
        found = self.api.sandbox.slack.effects
        return [(effect.text, effect.data.get("thread_ts")) for effect in found]


async def eventually(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """What `look` finds once it holds; fails with the last finding."""
    found: Any = None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(found := await look()):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never: {found}") from None
    return found


@asynccontextmanager
async def stage(
    url: str, declared: Sequence[Flow] | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    async with served(url, declared or flows(), **settings) as api:
        made = Stage(api)
        await made.set_up()
        yield made
