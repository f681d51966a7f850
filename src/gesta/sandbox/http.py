"""A fake of any HTTP API that honours Idempotency-Key, for flows of users."""

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Effect, Receiver, Reply


class FakeHttpApi(Receiver):
    """The fake behind every URL that no other fake takes. It answers `{"id": …}`, the same for the
    same key.
    """

    name = "http"

    def serves(self, request: HttpRequest) -> bool:
        return True

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.body or b""
        text = body.decode(errors="replace")
        try:
            data = msgspec.json.decode(body)
        except msgspec.MsgspecError:
            data = text
        path = "/" + request.url.partition("://")[2].partition("/")[2]
        return Call(
            headers.get("idempotency-key"), f"{request.method} {path}", data, headers, body, text
        )

    def success(self, effect: Effect) -> Reply:
        number = self.performed
        return Reply(
            200,
            msgspec.json.encode({"id": f"sandbox_{number}"}),
            {"content-type": "application/json"},
        )
