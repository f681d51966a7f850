"""A fake of a Standard Webhooks receiver: verifies messages, remembers their ids, acts once for
each.
"""

from collections.abc import Sequence

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.outbound.signatures import BadSignature, verify
from gesta.sandbox.receiver import Call, Effect, Receiver, Reply


class FakeWebhookReceiver(Receiver):
    """The fake behind every webhook endpoint. With secrets it refuses messages that none of them
    signed.
    """

    name = "webhook"

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self.secrets = list(secrets)
        #: The reasons of refused messages, in order.
        self.refusals: list[str] = []

    def serves(self, request: HttpRequest) -> bool:
        return any(name.lower() == "webhook-id" for name in request.headers)

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.body or b""
        if self.secrets:
            try:
                verify(self.secrets, headers, body, now_ms / 1000)
            except BadSignature as bad:
                self.refusals.append(bad.reason)
                return Reply(401)
        try:
            message = msgspec.json.decode(body, type=dict)
            return Call(
                headers["webhook-id"],
                message["type"],
                message["data"],
                headers,
                body,
                body.decode(),
            )
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
            self.refusals.append("bad_body")
            return Reply(400)

    def success(self, effect: Effect) -> Reply:
        return Reply(204)
