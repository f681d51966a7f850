"""A fake of a gateway with a plain JSON API, its description, and its harness for the contract.

Unlike Stripe it stores only successes under a key, makes an object of its own for each movement,
and signs its webhooks as Standard Webhooks prescribes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from gesta.flows.payment.gateway import Delivery, Gateway, GatewayAccount
from gesta.flows.payment.http_gateway import HttpGateway
from gesta.outbound.http import Headers, HttpRequest, HttpResponse, TransportError
from gesta.outbound.signatures import sign
from gesta.runtime.clock import Runtime
from gesta.sandbox.receiver import Call, Effect, Receiver, Reply, retry_after_header

URL = "https://pay.example/api"
SECRET = "whsec_" + "c2VjcmV0" * 4
MOVE = {"amount": "{units}", "currency": "{currency}", "reference": "{reference}"}
#: The whole gateway, as an operator stores it.
OPTIONS: dict[str, Any] = {
    "operations": {
        "authorize": {"path": "/payments", "body": MOVE | {"card": "{source}", "hold": True}},
        "sale": {"path": "/payments", "body": MOVE | {"card": "{source}"}},
        "capture": {"path": "/payments/{target}/captures", "body": MOVE},
        "void": {"path": "/payments/{target}/voids", "body": {"reference": "{reference}"}},
        "refund": {"path": "/payments/{target}/refunds", "body": MOVE},
    },
    "statuses": {"done": "succeeded", "waiting": "pending", "no": "declined"},
    "look_up": {"path": "/movements?reference={reference}"},
    "ledger": {
        "path": "/ledger?from={from}&to={to}&after={cursor}",
        "kinds": {"sale": "charge", "capture": "charge", "refund": "refund"},
    },
    "webhook": {},
    "answer": {"id": "payment", "movement_id": "id"},
    "key_lifetime_seconds": 604_800,
    "contradictions": ["already_done", "key_reused"],
    "soft_declines": ["no_funds"],
    "exponents": {"MGA": 0},
}
_PAGE = 50


class PlainGateway(Receiver):
    name = "plain"

    def __init__(self) -> None:
        super().__init__()
        self.movements: list[dict[str, Any]] = []
        self.keys: dict[str, tuple[bytes, Reply]] = {}

    def serves(self, request: HttpRequest) -> bool:
        return request.url.startswith(URL)

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        parts = urlsplit(request.url)
        path = parts.path.removeprefix("/api/").split("/")
        data = dict(parse_qsl(parts.query)) | msgspec.json.decode(request.body or b"{}")
        names = (request.headers["Authorization"].removeprefix("Bearer "),)
        key = request.headers.get("Idempotency-Key")
        return Call(key, request.method, data | {"_path": path}, {}, request.body or b"", "", names)

    def receive(self, request: HttpRequest, now_ms: int) -> Reply:
        self.calls += 1
        self.now_ms = now_ms
        call = self.read(request, now_ms)
        assert isinstance(call, Call)
        fault = self._fault_of(call)
        if fault.status is not None:
            return Reply(fault.status, b"{}", retry_after_header(fault))
        reply = self._listed(call) if call.type == "GET" else self._moved(call)
        return msgspec.structs.replace(reply, drop=fault.drop)

    def success(self, effect: Effect) -> Reply:
        raise AssertionError(effect)

    def _moved(self, call: Call) -> Reply:
        assert call.key is not None
        body, known = self.keys.get(call.key, (b"", None))
        if known is not None:
            return known if body == call.body else _refusal(409, "key_reused")
        reply = self._move(call.data, *call.data["_path"][1:])
        if reply.status < 300:
            self.keys[call.key] = (call.body, reply)
        return reply

    def _move(self, sent: dict[str, Any], payment: str = "", what: str = "") -> Reply:
        kind = what.removesuffix("s") or ("authorize" if sent.get("hold") else "sale")
        of = [one for one in self.movements if one["payment"] == payment]
        held = sum(one["amount"] for one in of if one["type"] == "authorize")
        taken = sum(one["amount"] for one in of if one["type"] in ("capture", "sale"))
        if sent.get("card") == "declined":
            return _refusal(402, "no_funds")
        if kind in ("capture", "void") and any(one["type"] in ("capture", "void") for one in of):
            return _refusal(422, "already_done")
        if kind == "capture" and sent["amount"] > held:
            return _refusal(422, "too_much")
        if kind == "refund" and sent["amount"] > taken:
            return _refusal(422, "too_much")
        number = len(self.movements) + 1
        made = {
            "id": f"m{number}",
            "payment": payment or f"p{number}",
            "type": kind,
            "status": "done",
            "amount": sent.get("amount", held),
            "currency": sent.get("currency", "EUR"),
            "reference": sent["reference"],
            "created": self.now_ms // 1_000,
        }
        self.movements.append(made)
        return Reply(201, msgspec.json.encode(made))

    def _listed(self, call: Call) -> Reply:
        if call.data["_path"] == ["movements"]:
            found = [one for one in self.movements if one["reference"] == call.data["reference"]]
            return Reply(200, msgspec.json.encode({"data": found}))
        rows = [
            one | {"movement": one["id"], "fee": 0, "status": "available"} | _signed(one)
            for one in self.movements
            if one["type"] in ("sale", "capture", "refund")
            and int(call.data["from"]) <= one["created"] < int(call.data["to"])
        ]
        start = int(call.data.get("after") or 0)
        more = {"next": str(start + _PAGE)} if len(rows) > start + _PAGE else {}
        return Reply(200, msgspec.json.encode({"data": rows[start : start + _PAGE]} | more))


def _signed(one: dict[str, Any]) -> dict[str, Any]:
    return {"amount": -one["amount"]} if one["type"] == "refund" else {}


def _refusal(status: int, code: str) -> Reply:
    return Reply(status, msgspec.json.encode({"error": {"code": code}}))


class PlainTransport:
    def __init__(self, fake: PlainGateway, runtime: Runtime) -> None:
        self._fake, self._runtime = fake, runtime

    async def send(self, request: HttpRequest) -> HttpResponse:
        reply = self._fake.receive(request, self._runtime.now_ms())
        if reply.drop:
            raise TransportError("reset", sent=True)
        return HttpResponse(reply.status, Headers(reply.headers.items()), reply.body)

    async def close(self) -> None:
        """Nothing is open."""


class PlainHarness:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.fake = runtime, PlainGateway()
        self.gateway: Gateway = HttpGateway()
        self.transport = PlainTransport(self.fake, runtime)
        self.account = GatewayAccount("http", "shop 1", "", api_url=URL, options=OPTIONS)
        self.api_key, self.webhook_secret = "k-1", SECRET
        self.source, self.declined_source = "card-1", "declined"

    def movements(self) -> list[str]:
        return [one["type"] for one in self.fake.movements]

    def lose_next(self) -> None:
        self.fake.next(drop=True)

    def fail_next(self, status: int, retry_after: int | None = None) -> None:
        self.fake.next(status=status, retry_after=retry_after)

    def refuse(self, api_key: str) -> None:
        self.fake.on(api_key, status=401)

    def wrong_amount(self, body: bytes) -> bytes:
        return msgspec.json.encode(msgspec.json.decode(body) | {"amount": 1})

    def webhook(self) -> Delivery:
        event = {"type": "payment.done", "timestamp": "2026-01-02T03:04:05Z"}
        body = msgspec.json.encode(event | {"data": self.fake.movements[-1]})
        seconds, name = self.runtime.now_ms() // 1_000, f"evt_{len(self.fake.movements)}"
        headers = {
            "webhook-id": name,
            "webhook-timestamp": str(seconds),
            "webhook-signature": sign([SECRET], name, seconds, body),
        }
        return Delivery(headers, body)
