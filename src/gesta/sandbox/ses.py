"""A double of Amazon SES v2: SendEmail with a raw letter.

It gives every letter an id of its own, and dedupes nothing, as SES does not.

`next(error="SendingPausedException")`, `next(error="TooManyRequestsException")`,
`next(status=500)`; `on("AKIA…", error=…)` is about one
account. Effects are counted by the letter's Message-ID: more than one receipt is a letter that went
out more than once.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.outbound.smtp import Envelope
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header
from gesta.sandbox.smtp import call_of
from gesta.sandbox.sns import CERTIFICATE, CONFIRM, Kind, SnsSandbox, ses_event

_PATH: Final = "/v2/email/outbound-emails"
_STATUS: Final = {
    "TooManyRequestsException": 429,
    "NotFoundException": 404,
    "AccessDeniedException": 403,
    "UnrecognizedClientException": 403,
}


class SesSandbox(Receiver):
    name = "ses"

    def __init__(self) -> None:
        super().__init__()
        self.sns = SnsSandbox()

    def serves(self, request: HttpRequest) -> bool:
        parts = urlsplit(request.url)
        return parts.path.endswith((_PATH, CERTIFICATE)) or CONFIRM in parts.query

    def report(
        self,
        kind: Kind,
        topic: str,
        *,
        permanent: bool = True,
        effect: Effect | None = None,
        people: list[str] | None = None,
        version: str = "2",
        number: int = 1,
    ) -> bytes:
        """What SNS would post about a letter, the latest unless one is given: the body of a POST to
        `/v1/reports/ses/{tenant}`.

        `number` tells two reports of a kind apart; the same number is the same report again.
        """
        letter = effect or self.effects[-1]
        outbox_id, at_ms = letter.data["tags"]["outboxId"], self.now_ms + number
        moment = (
            datetime.fromtimestamp(at_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        told = ses_event(
            kind,
            outbox_id,
            f"sandbox-{self.effects.index(letter) + 1:06d}",
            people or [letter.data["to"]],
            moment,
            f"feedback-{kind}-{number}",
            permanent=permanent,
        )
        return msgspec.json.encode(
            self.sns.envelope(told, topic, f"sns-{kind}-{number}", at_ms, version=version)
        )

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        parts = urlsplit(request.url)
        if parts.path.endswith(CERTIFICATE):
            return Reply(200, self.sns.certificate(now_ms))
        if CONFIRM in parts.query:
            self.sns.confirmed += parse_qs(parts.query).get("Token", [])
            return Reply(200)
        headers = {name.lower(): value for name, value in request.headers.items()}
        account = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if not account:
            return _error("MissingAuthenticationTokenException", 403)
        try:
            asked: dict[str, Any] = msgspec.json.decode(request.body or b"")
            raw = base64.b64decode(asked["Content"]["Raw"]["Data"], validate=True)
            to = asked["Destination"]
            copies = (*to.get("CcAddresses", ()), *to.get("BccAddresses", ()))
            call = call_of(Envelope(asked["FromEmailAddress"], to["ToAddresses"][0], copies, raw))
        except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError):
            return _error("BadRequestException", 400)
        tags = {tag["Name"]: tag["Value"] for tag in asked.get("EmailTags", ())}
        data = call.data | {"tags": tags, "configurationSet": asked.get("ConfigurationSetName", "")}
        return Call(call.key, call.type, data, call.headers, b"", call.text, (account, *call.names))

    def refusal(self, fault: Fault) -> Reply:
        name, _, text = (fault.error or "").partition(": ")
        status = fault.status or _STATUS.get(name, 400)
        return _error(
            name or ("TooManyRequestsException" if status == 429 else "InternalFailure"),
            status,
            text,
            retry_after_header(fault),
        )

    def success(self, effect: Effect) -> Reply:
        body = msgspec.json.encode({"MessageId": f"sandbox-{self.performed:06d}"})
        return Reply(200, body, {"content-type": "application/json"})


def _error(name: str, status: int, text: str = "", headers: dict[str, str] | None = None) -> Reply:
    body = msgspec.json.encode({"message": text or f"{name} of the sandbox"})
    return Reply(
        status,
        body,
        {"content-type": "application/json", "x-amzn-errortype": name} | (headers or {}),
    )
