"""The programs of the public surface, line for line, run as programs in an empty folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from gesta import Engine
from gesta.flows import slack
from gesta.sandbox.server import SandboxServer

SECRET = "whsec_" + "QUJD" * 8

IMPORTS = """
import asyncio
from gesta import Attempt, Done, Engine, Outcome, Payload, Personal, flow
from gesta.flows import webhook
"""

#: As users find it in the documentation; a change here is a change of the public API.
OWN_FLOW = """
class Receipt(Payload):
    order: str
    email: Personal[str]

@flow("billing.receipt", on_unknown="resend", attempts=5)          \
# resend | reconcile (needs reconcile=) | manual; to be chosen
async def receipt(payload: Receipt, attempt: Attempt) -> Outcome:
    answer = await attempt.http.post(URL, json={"order": payload.order}, \
headers={"Idempotency-Key": attempt.key})
    return Done(id=answer["id"])
"""

OWN_FLOW_MAIN = """
async def main():
    async with Engine("sqlite:///gesta.db", flows=[receipt]) as engine:
        request = await engine.submit(Receipt(order="7", email="ann@example.com"), key="order-7")
        print(request.verdict, await request.outcome(timeout=10))
        again = await engine.submit(Receipt(order="7", email="ann@example.com"), key="order-7")
        print(again.verdict, again.id == request.id)

asyncio.run(main())
"""

SMALLEST = """
async def main():
    async with Engine("sqlite:///gesta.db", flows=\
[webhook.flow(url=URL, secret="env:HOOK_SECRET")]) as engine:
        request = await engine.submit(webhook.Message(type="hello", data={"text": "hello"}), \
key="hello-1")
        print(request.verdict, await request.outcome(timeout=10))       # created Done(id='1731…')

asyncio.run(main())
"""

SLACK = """
async with Engine("sqlite:///gesta.db", flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
    request = await engine.submit(slack.Message(channel="C012AB3CD", text="hello"), key="hello-1")
    print(request.verdict, await request.outcome(timeout=10))       # created Done(id='1731…')
"""

SLACK_IMPORTS = """
import asyncio
from gesta import Engine
from gesta.flows import slack
"""

#: The workspace as a tenant stores it, which goes before a program's own: here the double's address
#: instead of Slack's.
SLACK_STORED = """
async def main():
    async with Engine("sqlite:///gesta.db", flows=[slack.flow()], work=False) as engine:
        await engine.admin.put_config("slack.workspace", "default", \
{"token": "xoxb-stored", "api_url": URL})

asyncio.run(main())
"""

TESTING = """
async def test_ops_hear_of_a_paid_order(gesta, client):
    gesta.sandbox.slack.next(status=429, retry_after=30)
    await client.post("/orders/7/paid")
    await gesta.settle()                                              \
# moves the clock until nothing is due
    assert [m.text for m in gesta.sandbox.slack.effects] == ["7 paid"]
"""

SUBSCRIPTION = """
@engine.on("payment.card", "captured", "failed", "unknown", name="ledger")
async def book(event: Event) -> None: ...
"""

SUBSCRIPTION_BEFORE = """
from gesta import Event, Money, Rejected

class Card(Payload):
    amount: Money

@flow("payment.card", on_unknown="manual")
async def card(payload: Card, attempt: Attempt) -> Outcome:
    return Rejected("declined")

engine = Engine("sqlite:///gesta.db", flows=[card])
"""

SUBSCRIPTION_AFTER = """
async def main():
    async with engine:
        request = await engine.submit(Card(amount=Money("49.90", "EUR")))
        print(await request.outcome(timeout=10))
    async with engine:
        # The handler gets both events before the stop or now: in the end its position is behind
        # both.
        checkpoints = engine.pipeline.environment.stores.checkpoints
        while (position := await checkpoints.position("subscription/ledger")) < 2:
            await asyncio.sleep(0.01)
        print(engine.subscriptions["ledger"].statuses, position)

asyncio.run(main())
"""


@pytest.fixture
def run_program(tmp_path):
    async def run(source: str) -> list[str]:
        (tmp_path / "program.py").write_text(source)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "program.py",
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode().splitlines()

    return run


def environment() -> dict[str, str]:
    """What a shell would give, and the sandbox in position of the world outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GESTA_")}
    return {**kept, "GESTA_ALLOW_PRIVATE": "127.0.0.1/32", "HOOK_SECRET": SECRET}


async def test_ones_own_flow_sends_once_and_answers_duplicate_to_the_same_key(
    run_program, tmp_path: Path
):
    async with SandboxServer() as server:
        url = f"URL = '{server.url}/http/receipts'\n"
        lines = await run_program(IMPORTS + url + OWN_FLOW + OWN_FLOW_MAIN)
        assert lines == ["created Done(id='sandbox_1')", "duplicate True"]
        (effect,) = server.sandbox.http.effects
        assert effect.data == {"order": "7"}
        # A second run of the program is the same request.
        lines = await run_program(IMPORTS + url + OWN_FLOW + OWN_FLOW_MAIN)
        assert lines == ["duplicate Done(id='sandbox_1')", "duplicate True"]
        assert server.sandbox.http.calls == 1
    assert {path.name for path in tmp_path.iterdir()} == {"gesta.db", "gesta.key", "program.py"}


@pytest.mark.slow
async def test_ones_own_flow_survives_a_receiver_that_loses_its_answers(run_program):
    async with SandboxServer() as server:
        server.sandbox.http.next(drop=True)
        url = f"URL = '{server.url}/http/receipts'\n"
        lines = await run_program(IMPORTS + url + OWN_FLOW + OWN_FLOW_MAIN)
        assert lines == ["created Done(id='sandbox_1')", "duplicate True"]
        (effect,) = server.sandbox.http.effects
        assert effect.receipts == 2


async def test_the_smallest_program_sends_one_signed_webhook(run_program):
    async with SandboxServer() as server:
        server.sandbox.webhook.secrets = [SECRET]
        lines = await run_program(IMPORTS + f"URL = '{server.url}/webhook/hello'\n" + SMALLEST)
        (effect,) = server.sandbox.webhook.effects
        assert (effect.type, effect.data, server.sandbox.webhook.refusals) == (
            "hello",
            {"text": "hello"},
            [],
        )
        assert lines == [f"created Done(id='{effect.id}')"]


def wrapped(lines: str) -> str:
    """Lines of a program that stand for themselves in the documentation, in the function that they
    need around them.
    """
    return "async def main():\n" + indent(lines, "    ") + "\nasyncio.run(main())\n"


@pytest.mark.slow
async def test_the_smallest_program_posts_one_slack_message(run_program):
    async with SandboxServer() as server:
        await run_program(SLACK_IMPORTS + f"URL = '{server.url}/slack/'\n" + SLACK_STORED)
        lines = await run_program(SLACK_IMPORTS + wrapped(SLACK))
        (effect,) = server.sandbox.slack.effects
        assert lines == [f"created Done(id='{effect.id}', target='C012AB3CD')"]
        assert (effect.text, effect.headers["authorization"]) == ("hello", "Bearer xoxb-stored")
        # A second run is the same request.
        assert await run_program(SLACK_IMPORTS + wrapped(SLACK)) == [
            lines[0].replace("created", "duplicate")
        ]
        assert len(server.sandbox.slack.effects) == 1


async def test_the_test_of_an_application_sees_a_throttled_message_once(gesta):
    class Client:
        """A double of an application's HTTP client: it calls the route at once."""

        async def post(self, path: str) -> None:
            number = path.split("/")[2]
            await engine.submit(
                slack.Message(channel="C012AB3CD", text=f"{number} paid"),
                key=f"order-{number}-paid",
            )

    names: dict[str, Any] = {}
    exec(TESTING, names)
    async with Engine(flows=[slack.flow(token="env:SLACK_TOKEN")]) as engine:
        await names["test_ops_hear_of_a_paid_order"](gesta, Client())
        assert gesta.sandbox.slack.calls == 2


@pytest.mark.slow
async def test_a_subscription_keeps_its_position_in_the_log(run_program):
    lines = await run_program(IMPORTS + SUBSCRIPTION_BEFORE + SUBSCRIPTION + SUBSCRIPTION_AFTER)
    assert lines == ["Rejected(reason='declined')", "('captured', 'failed', 'unknown') 2"]
