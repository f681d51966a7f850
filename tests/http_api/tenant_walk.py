"""A tenant with something of everything, each with a planted mark, and a walk along every route
with the key of another tenant.

What a route is called with is made from the table: its path from the places of what was planted,
its body and query from the names of their
fields. A route whose path has a part that is unknown here, or whose calls never get past the
reading of what was sent, fails the walk: then it
has to be taught what the route wants, in PLACES or NAMES.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from gesta import Attempt, Done, Flow, Outcome, Payload, Personal, Rejected, Unknown, external
from gesta.api_types.bulk import Bulk
from gesta.domain.codec import decode_meta
from gesta.domain.commands import Rules
from gesta.domain.events import Actor
from gesta.domain.stream_names import checkpoint_of
from gesta.flows import card, slack, sms, webhook
from gesta.flows.sms.message import NAME as SMS
from gesta.http_api.route import Route
from gesta.ports.read_model import Quarantined
from gesta.tenants.templates.templates import TEMPLATE, Template
from tests.http_api.served import Reply, Served

#: Chosen so that a name built from tenant and id could be read both ways: acme + b-ID, acme-b + ID.
OWNER, INTRUDER = "acme-b", "acme"
#: Stands in whatever the owner has stored, and in nothing that the intruder sends.
MARK = "planted"
#: What the intruder has heard of: keys and codes are no secrets.
KEY, CODE, PERSON, NUMBER = "order-7", "shop", "ada@example.org", "+4915112345678"
ENDPOINT = {
    "url": "https://theirs.example/hooks",
    "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}
ALL = ("read", "submit", "execute", "operate", "admin")

#: Answers of one who never came to what was asked: nothing can be said of the rest of such a route.
AT_THE_DOOR = frozenset({400, 405, 408, 413, 415, 422, 429})


class Letter(Payload, frozen=True):
    to: Personal[str] = PERSON
    text: str = "hello"
    comes_to: str = "done"


async def send(letter: Letter, attempt: Attempt) -> Outcome:
    match letter.comes_to:
        case "failed":
            return Rejected("bad_address", f"{letter.text} detail")
        case "unknown":
            return Unknown("no_answer", f"{letter.text} detail")
        case _:
            return Done(id=f"{letter.text} provider id")


#: A flow that only the owner uses, so that its name tells of them; one that is everybody's; and one
#: that others execute.
OWNERS, COMMON, PICKED = "walk.owners", "walk.common", "walk.picked"
#: Transactions that others execute.
WIRE = "payment.wire"


#: What tells of the flows of the process, to everybody alike.
TELLS_FLOWS = frozenset({"list_flows", "openapi", "docs"})
#: A handler of a program that is gone; its place is the installation's.
HANDLER = "walk-handler"


class OwnersLetter(Letter, frozen=True):
    pass


def flows() -> list[Flow]:
    config = {TEMPLATE: Template}
    return [
        Flow(COMMON, Letter, send, Rules(), config=config),
        Flow(OWNERS, OwnersLetter, send, Rules()),
        external(PICKED, on_unknown="manual", lease_seconds=300),
        external(WIRE, on_unknown="manual", lease_seconds=300),
        card.flow(),
        slack.flow(),
        sms.flow(),
        webhook.flow(),
    ]


@dataclass
class Planted:
    """What there is of the owner's."""

    #: (flow, id) of each request.
    requests: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    #: A place in the owner's log.
    cursor: str = ""
    #: The lease of work that one of the owner's workers has in hand.
    token: str = ""
    #: The entry of a number that gets no more messages of the owner's.
    entry: str = ""
    #: A bulk run of the owner's that was stopped before its first change.
    run: str = ""

    def places(self) -> list[dict[str, str]]:
        """What the parts of a path can be called."""
        return [
            *[{"flow": flow, "id": request_id} for flow, request_id in self.requests],
            # Tenant and id together make the owner's stream, if anybody builds names without
            # looking.
            {"flow": COMMON, "id": f"b-{self.requests[0][1]}"},
            {"id": self.run},
            *[{"id": one} for one in self.keys],
            *[{"id": request_id} for _, request_id in self.requests],
            {"flow": COMMON},
            {"flow": PICKED},
            {"flow": SMS},
            {"flow": SMS, "id": self.entry},
            {"tenant": OWNER, "account": CODE, "id": self.requests[0][1]},
            {"name": HANDLER},
            {"kind": "webhook.endpoint", "code": CODE},
            {"kind": webhook.SUBSCRIPTION, "code": CODE},
            {"kind": TEMPLATE, "code": CODE},
            {"code": CODE},
            {"tenant": OWNER},
            {"tenant": OWNER, "code": CODE},
        ]

    def names(self) -> dict[str, Any]:
        """What a field of a body or a query can be called."""
        return {
            "flow": COMMON,
            "payload": {},
            "key": KEY,
            "subject": PERSON,
            "request": self.requests[0][1],
            "kind": TEMPLATE,
            "credential": f"webhook.endpoint/{CODE}",
            "fields": ENDPOINT,
            "requests": [{"flow": COMMON, "payload": {}, "key": KEY}],
            "variables": {"name": "x"},
            "action": "resolve",
            "outcome": "succeeded",
            "evidence": "none",
            "cursor": self.requests[-1][1],
            "token": self.token,
            "address": NUMBER,
            "gateway": CODE,
        }

    def headers(self) -> dict[str, str]:
        return {"Gesta-Lease": self.token}

    def marks(self) -> list[str]:
        return [
            MARK,
            OWNER,
            OWNERS,
            self.token,
            self.entry,
            *self.keys,
            *[one for _, one in self.requests],
        ]


async def plant(api: Served) -> Planted:
    """Something of everything, all the owner's."""
    planted, admin, actor = Planted(), api.engine.admin, Actor(f"{MARK} person")
    for comes_to in ("done", "failed", "unknown"):
        for flow in (COMMON, OWNERS):
            payload = api.engine.payload(
                flow, {"comes_to": comes_to, "text": f"{MARK} text", "to": PERSON}
            )
            key = KEY if (flow, comes_to) == (COMMON, "done") else None
            request = await api.engine.submit(
                payload, tenant=OWNER, key=key, correlation_id=f"{MARK}-1", actor=actor
            )
            await request.outcome()
            planted.requests.append((flow, request.id))
    waits = await api.engine.submit(
        Letter(text=MARK), tenant=OWNER, deliver_at=datetime.now(UTC) + timedelta(days=9)
    )
    planted.requests.append((COMMON, waits.id))
    await admin.put_config(
        "webhook.endpoint", CODE, {**ENDPOINT, "url": f"https://{MARK}.example/hooks"}, tenant=OWNER
    )
    await admin.put_config(
        "payment.gateway",
        CODE,
        {"type": "stripe", "account": f"acct_{MARK}", "api_key": "sk_test_1"},
        tenant=OWNER,
    )
    # No request here gets this status: a notification would be a request, too.
    subscription = {"endpoint": f"{MARK} endpoint", "statuses": ["complained"]}
    await admin.put_config(webhook.SUBSCRIPTION, CODE, subscription, tenant=OWNER)
    planted.entry = (await admin.suppress(SMS, NUMBER, reason=f"{MARK} reason", tenant=OWNER)).id
    await api.engine.pipeline.environment.stores.checkpoints.begin(checkpoint_of(HANDLER), 0)
    await admin.put_config(TEMPLATE, CODE, {"text": f"{MARK} {{{{ name }}}}"}, tenant=OWNER)
    for number in range(2):
        picked = await api.engine.submit(
            api.engine.payload(PICKED, {"text": f"{MARK} {number}"}), tenant=OWNER
        )
        planted.requests.append((PICKED, picked.id))
    (item,) = await api.engine.external.take(PICKED, tenant=OWNER, limit=1, wait_seconds=20)
    planted.token = item.token
    for flow, operation in ((WIRE, "authorize"), (WIRE, "sale")):
        planted.requests.append((flow, await _transaction(api, flow, operation)))
    await admin.pause(tenant=OWNER, flow=COMMON, reason=f"{MARK} reason", actor=actor)
    await admin.pause(tenant=OWNER, credential=f"webhook.endpoint/{CODE}", reason=f"{MARK} reason")
    for name in (f"{MARK} first", f"{MARK} second"):
        made, _ = await admin.create_key(tenant=OWNER, name=name, scopes=["read"], actor=actor)
        planted.keys.append(made.id)
    await api.engine.pipeline.environment.stores.read_model.save(
        [], [Quarantined("event", OWNER, f"{MARK}-stream", 1, f"{MARK} error", 1)]
    )
    chosen = Bulk(action="redrive", flow=OWNERS)
    async with aclosing(admin.bulk(chosen, tenant=OWNER, actor=actor)) as run:
        planted.run = str((await anext(run)).id)
    planted.cursor = api.engine.pipeline.cursors.encrypt(1, f"stream/{OWNER}")
    while len(await api.engine.find(tenant=OWNER)) < len(planted.requests):
        # Lists are made of views, which follow.
        pass
    return planted


async def _transaction(api: Served, flow: str, operation: str) -> str:
    """A transaction of the owner's whose first operation has succeeded."""
    amount = {"amount": "49.90", "currency": "EUR"}
    payload = api.engine.payload(flow, {"amount": amount, "operation": operation})
    request = await api.engine.submit(payload, tenant=OWNER, correlation_id=f"{MARK}-1")
    (item,) = await api.engine.external.take(flow, tenant=OWNER, limit=1, wait_seconds=20)
    key = await api.key("execute", tenant=OWNER)
    done = {
        "type": "recordCompleted",
        "token": item.token,
        "attempts": 1,
        "providerTxnId": f"{MARK}-{operation}",
        "amount": amount,
    }
    shown = await api.call("POST", f"/v1/requests/{request.id}/outcome", done, key=key)
    assert shown.status == 200, shown.text
    return request.id


async def owners_record(api: Served) -> dict[str, Any]:
    """Everything that is on record about the owner: each stream with its version, and the keys."""
    events = api.engine.pipeline.environment.stores.events
    versions: dict[str, Any] = {}
    position = 0
    while batch := await events.follow(position, 500):
        position = batch[-1].position
        for one in batch:
            if decode_meta(one.meta).tenant == OWNER:
                versions[one.stream] = max(one.version, versions.get(one.stream, 0))
    versions["keys"] = await api.engine.admin.list_keys(OWNER)
    versions["suppressed"] = await api.engine.admin.list_suppressed(SMS, tenant=OWNER)
    versions["handlers"] = sorted(one.name for one in await api.engine.admin.handlers())
    return versions


@dataclass(frozen=True)
class Completed:
    """One call of a walk."""

    route: Route
    path: str
    body: dict[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether the path names something that only the owner can have.
    is_theirs: bool = False

    def __str__(self) -> str:
        return f"{self.route.method} {self.path} {self.body or ''}"

    def words(self) -> list[str]:
        """What the caller said themselves, and may hear again."""
        given = [
            self.path,
            *re.split(r"[/?&=]", self.path),
            *_texts(self.body),
            *self.headers.values(),
        ]
        return sorted({one for one in given if len(one) > 3}, key=len, reverse=True)


#: A part of a path, in Starlette's words.
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def calls_of(route: Route, planted: Planted) -> list[Completed]:
    """Every call that the walk makes of a route."""
    parts = set(_PART.findall(route.path))
    places = [place for place in planted.places() if set(place) == parts] if parts else [{}]
    assert places, (
        f"the walk does not know what {parts} of {route.path} can be: teach it, in Planted.places"
    )
    names = planted.names()
    headers = {name: value for name, value in planted.headers().items() if name in route.headers}
    queries = [""] + [
        f"?{urlencode({one.encode_name: names[one.encode_name]})}"
        for one in msgspec.structs.fields(route.query)
        if isinstance(names.get(one.encode_name), str)
    ]
    return [
        Completed(route, _path(route, place) + query, body, headers, is_theirs="id" in place)
        for place in places
        for query in queries
        for body in _bodies(route, names)
    ]


def _path(route: Route, place: Mapping[str, str]) -> str:
    return _PART.sub(lambda part: quote(place[part[1]], safe=""), route.path)


def _bodies(route: Route, names: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    if route.body is None:
        return [None]
    example = dict(route.example or {})
    fields = msgspec.structs.fields(route.body)
    least = {
        one.encode_name: names[one.encode_name]
        for one in fields
        if one.required and one.encode_name in names
    } | example
    most = example | {
        one.encode_name: names[one.encode_name] for one in fields if one.encode_name in names
    }
    bodies = [least] if least == most else [least, most]
    # Nothing will come, so the test does not wait for it.
    return [body | {"waitSeconds": 0} if "waitSeconds" in body else body for body in bodies]


async def walk(api: Served, routes: Sequence[Route], planted: Planted) -> None:
    """Call every route with the intruder's key; raises with the first that shows or changes
    something of the owner's.
    """
    key = await api.key(*ALL, tenant=INTRUDER)
    before = await owners_record(api)
    for route in routes:
        statuses = set()
        for sent in calls_of(route, planted):
            reply = await _called(api, sent, key, planted)
            statuses.add(reply.status)
            assert reply.status < 500 or reply.status == 503, (
                f"{sent} answered {reply.status}: {reply.text}"
            )
            assert reply.status >= 300 or not sent.is_theirs, (
                f"{sent} answered {reply.status} for something of another tenant"
            )
            refuse_marks(sent, reply, planted)
        assert statuses - AT_THE_DOOR, (
            f"{route.method} {route.path} was never really called ({statuses}): teach the walk what"
            " it wants"
        )
        if route.gives == "text/event-stream":
            # The owner itself did something, so that there was something to hear.
            before = await owners_record(api)
        after = await owners_record(api)
        assert after == before, (
            f"{route.method} {route.path} changed something of another tenant:"
            f" {[(name, now) for name, now in after.items() if before.get(name) != now]}"
        )


async def _called(api: Served, sent: Completed, key: str, planted: Planted) -> Reply:
    if sent.route.gives == "text/event-stream":
        return await _listened(api, sent, key, planted)
    raw = None if sent.route.takes == "application/json" else b"x=1"
    return await api.call(
        sent.route.method, sent.path, sent.body, key=key, raw=raw, headers=sent.headers
    )


async def _listened(api: Served, sent: Completed, key: str, planted: Planted) -> Reply:
    """What is heard until something of the listener's own comes, or of the owner's."""
    headers = {"Authorization": f"Bearer {key}"}
    async with api.session.get(
        api.address + sent.path, headers=headers | {"Last-Event-ID": planted.cursor}
    ) as answer:
        assert answer.status == 400, f"{sent} goes on from a place of another tenant"
    async with api.session.get(api.address + sent.path, headers=headers) as answer:
        if answer.status != 200:
            return Reply(answer.status, answer.headers, None, await answer.text())
        heard = await answer.content.readuntil(b"\n\n")
        theirs = await api.engine.submit(Letter(text=MARK), tenant=OWNER)
        planted.requests.append((COMMON, theirs.id))
        # The flow is paused for the owner: once the request is held, nothing more happens to it.
        while not (await api.engine.admin.look_up(theirs.id, OWNER)).state.held:
            await asyncio.sleep(0.01)
        own = await api.engine.submit(Letter(text="own"), tenant=INTRUDER)
        if "request=" not in sent.path:
            while own.id.encode() not in heard and theirs.id.encode() not in heard:
                heard += await answer.content.readuntil(b"\n\n")
        return Reply(200, answer.headers, None, heard.decode())


def refuse_marks(sent: Completed, reply: Reply, planted: Planted) -> None:
    """Raise where an answer has something in it that only the owner should know."""
    shown = reply.text + "".join(f"\n{name}: {value}" for name, value in reply.headers.items())
    for word in sent.words():
        shown = shown.replace(word, "")
    # The flows of a process are not secret; what is shown of requests is.
    hidden = [one for one in planted.marks() if one != OWNERS or sent.route.name not in TELLS_FLOWS]
    for mark in hidden:
        assert mark not in shown, f"{sent} shows {mark!r} of another tenant: {reply.text}"
