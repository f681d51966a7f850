"""A fake of Stripe: payment intents, charges, refunds, payouts, a ledger and webhooks.

It treats idempotency keys as Stripe does. A key belongs to the first call that began to execute:
the answer is stored with it, a failure too, and comes back for the same body. Another body is
refused. A refusal before execution (rate limit, bad parameters, wrong API key) is not stored. A key
is forgotten after 24 hours, and then the same call is a new operation.

`advance(seconds)` moves only the clock of this fake. `visible_after_seconds` delays what a search
finds. `next(drop=True)` executes a call and drops the connection; `next(error="stored_500")` stores
a 500 without an effect, `next(error="lost_500")` with one. The sources tok_500 and tok_429 fail as
they are called, for calls that no test can announce.
"""

import hashlib
import hmac
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header
from gesta.sandbox.stripe.books import Books, StripeRefusal, missing

__all__ = ["KEY_SECONDS", "FakeStripe"]

KEY_SECONDS: Final = 86_400
_PAGE: Final = 10
_PAGE_MAX: Final = 100
_PATH: Final = re.compile(
    r"/v1/(?P<kind>payment_intents|charges|refunds|payouts|balance_transactions|events)"
    r"(?:/(?P<id>[A-Za-z0-9_]+))?(?:/(?P<act>capture|cancel))?$"
)
_KINDS: Final = {
    "payment_intents": "payment_intent",
    "charges": "charge",
    "refunds": "refund",
    "payouts": "payout",
}
_FIELD: Final = re.compile(r"^([a-z_]+)\[([^\]]*)\]$")
_QUERY: Final = re.compile(r"""^metadata\[["']([^"']+)["']\]:["']([^"']*)["']$""")
_TYPES: Final = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    402: "card_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}
_STATUSES: Final = {"lock_timeout": 429, "rate_limit": 429, "idempotency_key_in_use": 409}
#: Faults that only a call which began to execute can have.
_STORED: Final = frozenset({"stored_500", "lost_500"})

_SOURCES: Final = {"tok_500": Fault(error="stored_500"), "tok_429": Fault(status=429)}


class _Stored(msgspec.Struct):
    """The answer of a key, from the moment at which its call began to execute."""

    request: tuple[str, str, bytes]
    reply: Reply
    at: int
    #: Until then the first call is still running. Epoch milliseconds.
    busy_until_ms: int
    effect: Effect | None


class FakeStripe(Receiver):
    """The fake behind api.stripe.com.

    `effects` has one entry for each movement: authorize, sale, capture, cancel, refund, payout.
    `on("pm_1", …)` matches a means of payment, `on("capture", …)` a kind of call.
    """

    name = "stripe"

    def __init__(self, account: str = "acct_sandbox") -> None:
        super().__init__()
        self.books = Books(account)
        #: The API keys it takes; empty: every one.
        self.api_keys: list[str] = []
        self.visible_after_seconds = 0
        self._ahead_seconds = 0.0
        self._stored: dict[str, _Stored] = {}

    def serves(self, request: HttpRequest) -> bool:
        return _PATH.search(urlsplit(request.url).path) is not None and any(
            name.lower() == "stripe-version" for name in request.headers
        )

    def advance(self, seconds: float) -> None:
        """Move the clock of this fake: keys and authorizations expire, the ledger settles."""
        self._ahead_seconds += seconds

    @property
    def now(self) -> int:
        """Epoch seconds at the latest call."""
        return int(self.now_ms / 1_000 + self._ahead_seconds)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return self.books.ledger

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.books.events

    def webhook(
        self, url: str, secret: str, number: int = -1, late_seconds: int = 0
    ) -> HttpRequest:
        """The signed delivery of one event, by default the latest.

        One at a time, so that a test chooses order, delay and repeats. A later delivery of the same
        event is signed anew.
        """
        if not self.events:
            raise LookupError("there is no event yet")
        body, at_seconds = msgspec.json.encode(self.events[number]), self.now - late_seconds
        signed = f"{at_seconds}.".encode() + body
        digest = hmac.digest(secret.encode(), signed, hashlib.sha256).hex()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Stripe-Signature": f"t={at_seconds},v1={digest}",
            "User-Agent": "Stripe/1.0",
        }
        return HttpRequest("POST", url, headers, body)

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        parts = urlsplit(request.url)
        api_key = headers.get("authorization", "").removeprefix("Bearer ")
        if not api_key or (self.api_keys and api_key not in self.api_keys):
            return _error(401, "", "Invalid API Key provided")
        found = _PATH.search(parts.path)
        if found is None:
            return _error(404, "", f"Unrecognized request URL ({request.method}: {parts.path}).")
        body = request.body or b""
        is_read = request.method == "GET"
        sent = _form(parts.query if is_read else body.decode(errors="replace"))
        act = found["act"] or ("get" if is_read else _act(found["kind"], sent))
        names = (api_key, str(sent.get("payment_method") or sent.get("source") or ""))
        data = sent | {"_kind": found["kind"], "_id": found["id"]}
        key = None if is_read else headers.get("idempotency-key")
        return Call(key, act, data, headers, body, parts.path, names)

    def _fault_of(self, call: Call) -> Fault:
        return _SOURCES.get(call.names[1]) or super()._fault_of(call)

    def _reply_to(self, call: Call, fault: Fault) -> Reply:
        if fault.is_refusal and fault.error not in _STORED:
            return self.refusal(fault)
        return self._read_only(call) if call.type == "get" else self._executed(call, fault)

    def refusal(self, fault: Fault) -> Reply:
        status = fault.status or _STATUSES.get(fault.error or "", 400)
        reply = _error(status, fault.error or "", "refused by the sandbox")
        return msgspec.structs.replace(reply, headers=reply.headers | retry_after_header(fault))

    def success(self, effect: Effect) -> Reply:
        # A copy of now: the object may change before the key is used again.
        body = msgspec.json.encode(effect.data["object"])
        return Reply(200, body, {"content-type": "application/json"})

    def _executed(self, call: Call, fault: Fault) -> Reply:
        path = (call.type, call.text, call.body)
        known = None if call.key is None else self._stored.get(call.key)
        if known is not None and self.now < known.at + KEY_SECONDS:
            if known.request != path:
                return _error(
                    400,
                    "",
                    "Keys for idempotent requests can only be used with the same parameters they"
                    " were first used with.",
                    type="idempotency_error",
                )
            if self.now_ms < known.busy_until_ms:
                return _error(
                    409, "idempotency_key_in_use", "There is currently another in-progress request"
                )
            if known.effect is not None:
                known.effect.receipts += 1
            return msgspec.structs.replace(
                known.reply, headers=known.reply.headers | {"idempotent-replayed": "true"}
            )
        count = len(self.effects)
        try:
            reply = self._perform_for(call, fault)
        except StripeRefusal as refusal:
            reply = _refused(refusal)
            if refusal.status != 402 and refusal.code.startswith("parameter_"):
                # Validation failed, so nothing began to execute and the key is still free.
                return reply
        if call.key is not None:
            effect = self.effects[-1] if len(self.effects) > count else None
            busy = self.now_ms + int(fault.slow_seconds * 1_000)
            self._stored[call.key] = _Stored(path, reply, self.now, busy, effect)
        return reply

    def _perform_for(self, call: Call, fault: Fault) -> Reply:
        if fault.error == "stored_500":
            return _error(500, "", "An unknown error occurred", type="api_error")
        answer = self._act(call)
        effect = Effect(
            call.key or f"stripe-{self.calls}", call.type, call.data, call.headers, call.text
        )
        effect.data = call.data | {"object": answer, "at": self.now}
        reply = self.success(effect)
        if answer.get("status") != "requires_action":
            self.effects.append(effect)
            self.performed += 1
            if self.kept is not None:
                del self.effects[: -self.kept]
        if fault.error == "lost_500":
            return _error(500, "", "An unknown error occurred", type="api_error")
        return reply

    def _act(self, call: Call) -> dict[str, Any]:
        books, sent, now, name = self.books, call.data, self.now, call.data["_id"]
        match call.data["_kind"], call.type:
            case "payment_intents", "authorize" | "sale":
                answer = books.create_intent(sent, now)
            case "payment_intents", "capture":
                answer = books.capture_intent(name, sent, now)
            case "payment_intents", "cancel":
                answer = books.cancel_intent(name, now, sent.get("cancellation_reason"))
            case "charges", "authorize" | "sale":
                answer = books.create_charge(sent, now)
            case "charges", "capture":
                answer = books.capture_charge(name, sent, now)
            case "refunds", _:
                answer = books.create_refund(sent, now)
            case "payouts", _:
                answer = books.create_payout(sent, now)
            case _:
                raise StripeRefusal(404, "", "Unrecognized request URL")
        return self._expanded(answer, sent)

    def _read_only(self, call: Call) -> Reply:
        try:
            found = self._found(call.data)
        except StripeRefusal as refusal:
            return _refused(refusal)
        return Reply(200, msgspec.json.encode(found), {"content-type": "application/json"})

    def _found(self, asked: dict[str, Any]) -> dict[str, Any]:
        kind, name, now = asked["_kind"], asked["_id"], self.now
        for intent in self.books.of_kind("payment_intent"):
            self.books.expire(intent, now)
        if name == "search":
            return {"object": "search_result", "has_more": False, "data": self._searched(asked)}
        if kind == "balance_transactions":
            rows = [row | _settled(row, now) for row in reversed(self.ledger)]
            return self._page(rows, asked)
        if kind == "events":
            return self._page(list(reversed(self.events)), asked)
        if name is not None:
            return self._expanded(self.books.get(_KINDS[kind], name), asked)
        wanted = [
            one
            for one in reversed(list(self.books.of_kind(_KINDS[kind])))
            if all(one.get(part) == asked.get(part, one.get(part)) for part in _PARENTS)
        ]
        return self._page(wanted, asked)

    def _searched(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        query = _QUERY.match(asked.get("query", ""))
        if query is None:
            raise StripeRefusal(400, "search_query_invalid", "The search query is malformed.")
        return [
            self._expanded(one, asked, "data.")
            for one in self.books.of_kind(_KINDS[asked["_kind"]])
            if one["metadata"].get(query[1]) == query[2]
            and self.now >= one["created"] + self.visible_after_seconds
        ]

    def _page(self, found: list[dict[str, Any]], asked: dict[str, Any]) -> dict[str, Any]:
        created = asked.get("created", {})
        rows = [
            row
            for row in found
            if int(created.get("gte", 0)) <= row["created"] < int(created.get("lt", 2**53))
        ]
        if after := asked.get("starting_after"):
            names = [row["id"] for row in rows]
            if after not in names:
                raise missing(asked["_kind"], after)
            rows = rows[names.index(after) + 1 :]
        limit = min(int(asked.get("limit", _PAGE)), _PAGE_MAX)
        return {
            "object": "list",
            "url": f"/v1/{asked['_kind']}",
            "has_more": len(rows) > limit,
            "data": [self._expanded(row, asked, "data.") for row in rows[:limit]],
        }

    def _expanded(
        self, one: dict[str, Any], asked: dict[str, Any], prefix: str = ""
    ) -> dict[str, Any]:
        """The object with the objects that the caller wants in place of their ids."""
        wanted = [
            name.removeprefix(prefix)
            for name in asked.get("expand", {}).values()
            if name.startswith(prefix)
        ]
        inside = {
            name: self.books.objects[one[name]]
            for name in wanted
            if isinstance(one.get(name), str) and one[name] in self.books.objects
        }
        return one | inside


_PARENTS: Final = ("payment_intent", "charge")


def _act(kind: str, sent: dict[str, Any]) -> str:
    if kind in ("refunds", "payouts"):
        return kind.removesuffix("s")
    is_held = sent.get("capture_method") == "manual" or sent.get("capture") == "false"
    return "authorize" if is_held else "sale"


def _settled(row: dict[str, Any], now: int) -> dict[str, str]:
    return {"status": "available" if now >= row["available_on"] else "pending"}


def _form(text: str) -> dict[str, Any]:
    """`metadata[a]=1` → {"metadata": {"a": "1"}}."""
    found: dict[str, Any] = {}
    for number, (name, value) in enumerate(parse_qsl(text, keep_blank_values=True)):
        nested = _FIELD.match(name)
        if nested is None:
            found[name] = value
        else:
            found.setdefault(nested[1], {})[nested[2] or str(number)] = value
    return found


def _refused(refusal: StripeRefusal) -> Reply:
    return _error(refusal.status, refusal.code, str(refusal), **refusal.extra)


def _error(status: int, code: str, text: str, **extra: Any) -> Reply:
    kind = extra.pop("type", _TYPES.get(status, "api_error"))
    error = {"type": kind, "message": text} | ({"code": code} if code else {}) | extra
    body = msgspec.json.encode({"error": error})
    return Reply(status, body, {"content-type": "application/json"})
