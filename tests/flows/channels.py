"""The channels of gesta under the flow contract."""

from __future__ import annotations

import base64
from dataclasses import replace

from gesta import Engine, Flow
from gesta.engine.environment import Environment
from gesta.flows import email, slack, sms, ticket, webhook
from gesta.flows.email.aws import AwsAccount, AwsClients
from gesta.flows.flow import Payload
from gesta.sandbox import Receiver, Sandbox
from gesta.sandbox.smtp import SandboxMail
from gesta.testing.contracts.flow import (
    SLOW_SECONDS,
    THROTTLED_SECONDS,
    TIMEOUT_SECONDS,
    FlowHarness,
    Trouble,
)


class OnHttp:
    """What channels over HTTP have in common."""

    face: str
    refused: dict[str, object]

    def double(self, sandbox: Sandbox) -> Receiver:
        found = getattr(sandbox, self.face)
        assert isinstance(found, Receiver)
        return found

    def arm(self, sandbox: Sandbox, trouble: Trouble) -> None:
        faults: dict[Trouble, dict[str, object]] = {
            "permanent": self.refused,
            "throttled": {"status": 429, "retry_after": THROTTLED_SECONDS},
            "dropped": {"drop": True},
            "slow": {"slow_seconds": SLOW_SECONDS},
        }
        self.double(sandbox).next(**faults[trouble])  # type: ignore[arg-type]

    def calls(self, sandbox: Sandbox) -> int:
        return self.double(sandbox).calls

    def subject(self, number: int) -> str | None:
        return None

    def environment(self, environment: Environment, _: Sandbox) -> Environment:
        return environment


class SlackChannel(OnHttp):
    face, refused = "slack", {"error": "is_archived"}
    credential = "slack.workspace/default"

    def flow(self) -> Flow:
        return slack.flow(timeout_seconds=TIMEOUT_SECONDS)

    def payload(self, number: int) -> Payload:
        return slack.Message(channel="C012AB3CD", text=str(number))

    def effects(self, sandbox: Sandbox) -> list[int]:
        return [int(effect.text) for effect in sandbox.slack.effects]

    async def set_up(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "xoxb-first")

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.slack.on("xoxb-first", error="token_revoked")

    async def renew(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "xoxb-second")

    async def _put(self, engine: Engine, token: str) -> None:
        fields = {"token": token, "per_second": 1_000, "channel_per_second": 1_000}
        await engine.admin.put_config("slack.workspace", "default", fields)


class SmsChannel(OnHttp):
    face, refused = "twilio", {"error": "21610"}
    credential = "sms.account/default"

    def flow(self) -> Flow:
        return sms.flow(timeout_seconds=TIMEOUT_SECONDS)

    def payload(self, number: int) -> Payload:
        return sms.Message(to=f"+4915155500{number:03d}", body=str(number))

    def subject(self, number: int) -> str | None:
        return f"+4915155500{number:03d}"

    def effects(self, sandbox: Sandbox) -> list[int]:
        return [int(effect.text) for effect in sandbox.twilio.effects]

    async def set_up(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "first-token")

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.twilio.on("first-token", error="20003")

    async def renew(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "second-token")

    async def _put(self, engine: Engine, token: str) -> None:
        fields = {
            "account_sid": "AC1",
            "auth_token": token,
            "sender": "+15550100",
            "per_second": 1_000,
        }
        await engine.admin.put_config("sms.account", "default", fields)


def _secret(word: str) -> str:
    return "whsec_" + base64.b64encode(word.encode().ljust(24, b"!")).decode()


class WebhookChannel(OnHttp):
    face, refused = "webhook", {"status": 301}
    credential = "webhook.endpoint/main"

    def flow(self) -> Flow:
        return webhook.flow(timeout_seconds=TIMEOUT_SECONDS)

    def payload(self, number: int) -> Payload:
        return webhook.Message("order.paid", {"number": number}, endpoint="main")

    def effects(self, sandbox: Sandbox) -> list[int]:
        return [effect.data["number"] for effect in sandbox.webhook.effects]

    async def set_up(self, engine: Engine, sandbox: Sandbox) -> None:
        sandbox.webhook.secrets = [_secret("first")]
        await self._put(engine, "first")

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.webhook.secrets = [_secret("second")]

    async def renew(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "second")

    async def _put(self, engine: Engine, word: str) -> None:
        fields = {"url": "https://hooks.shop.example/gesta", "secret": _secret(word)}
        await engine.admin.put_config("webhook.endpoint", "main", fields)


class EmailChannel(OnHttp):
    face, refused = "smtp", {"status": 550}
    credential = "email.sender/default"

    def flow(self) -> Flow:
        return email.flow(timeout_seconds=TIMEOUT_SECONDS)

    def payload(self, number: int) -> Payload:
        return email.Message(
            f"p{number}@example.com", "Hello", template="number", data={"number": number}
        )

    def subject(self, number: int) -> str | None:
        return f"p{number}@example.com"

    def effects(self, sandbox: Sandbox) -> list[int]:
        return [int(effect.text) for effect in self.double(sandbox).effects]

    def arm(self, sandbox: Sandbox, trouble: Trouble) -> None:
        if trouble == "throttled":
            self.double(sandbox).next(status=450, error="4.7.0")
        else:
            super().arm(sandbox, trouble)

    async def set_up(self, engine: Engine, _: Sandbox) -> None:
        await engine.admin.put_config("template", "number", {"text": "{{ number }}"})
        await self._put(engine, "first password")

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.smtp.on("first password", status=535)

    async def renew(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "second password")

    async def _put(self, engine: Engine, password: str) -> None:
        fields = {
            "kind": "smtp",
            "host": "mail.example.com",
            "user": "shop",
            "password": password,
            "from_address": "shop@example.com",
        }
        await engine.admin.put_config("email.sender", "default", fields)

    def environment(self, environment: Environment, sandbox: Sandbox) -> Environment:
        return replace(environment, mail=SandboxMail(environment.runtime, sandbox.smtp))


class SesChannel(EmailChannel):
    face, refused = "ses", {"error": "MessageRejected"}

    def arm(self, sandbox: Sandbox, trouble: Trouble) -> None:
        if trouble == "throttled":
            self.double(sandbox).next(
                error="TooManyRequestsException: Maximum sending rate exceeded."
            )
        else:
            super().arm(sandbox, trouble)

    async def set_up(self, engine: Engine, sandbox: Sandbox) -> None:
        # The first client of a process takes longer than these tests give an attempt.
        await AwsClients()._client("sesv2", AwsAccount("eu-west-1", "AKIDFIRST", "first password"))
        await super().set_up(engine, sandbox)

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.ses.on("AKIDFIRST", error="AccountSuspendedException")

    async def _put(self, engine: Engine, password: str) -> None:
        key = "AKIDFIRST" if password.startswith("first") else "AKIDSECOND"
        fields = {
            "kind": "ses",
            "region": "eu-west-1",
            "access_key_id": key,
            "secret_access_key": password,
            "from_address": "shop@example.com",
        }
        await engine.admin.put_config("email.sender", "default", fields)


class TicketChannel(OnHttp):
    face, refused = "backlog", {"error": "7"}
    credential = "backlog.space/default"

    def flow(self) -> Flow:
        return ticket.flow(timeout_seconds=TIMEOUT_SECONDS)

    def payload(self, number: int) -> Payload:
        return ticket.Ticket(str(number))

    def effects(self, sandbox: Sandbox) -> list[int]:
        return [int(effect.text) for effect in sandbox.backlog.effects]

    async def set_up(self, engine: Engine, _: Sandbox) -> None:
        project = {"project_id": 7, "issue_type_id": 8}
        await engine.admin.put_config("backlog.project", "default", project)
        await self._put(engine, "first-key")

    def revoke(self, sandbox: Sandbox) -> None:
        sandbox.backlog.on("first-key", error="11")

    async def renew(self, engine: Engine, _: Sandbox) -> None:
        await self._put(engine, "second-key")

    async def _put(self, engine: Engine, api_key: str) -> None:
        fields = {"host": "example.backlog.com", "api_key": api_key, "per_second": 1_000}
        await engine.admin.put_config("backlog.space", "default", fields)


CHANNELS: dict[str, type[FlowHarness]] = {
    "email": EmailChannel,
    "email by SES": SesChannel,
    "slack": SlackChannel,
    "sms": SmsChannel,
    "ticket": TicketChannel,
    "webhook": WebhookChannel,
}
