"""A tenant with something of everything, each with a planted word in it, beside a tenant that tries
to get at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gesta import (
    Actor,
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Rejected,
    Unknown,
    external,
)
from gesta.domain.commands import Rules
from gesta.flows.external import LEASE_SECONDS_MAX
from gesta.flows.flow import ConfigBody, Secret
from gesta.tenants.suppression import Addresses
from gesta.tenants.templates.templates import TEMPLATE, Template
from gesta.worker.external import WorkItem

#: Chosen so that a name built from tenant and id could be read both ways: acme + b-ID, acme-b + ID.
OWNER, INTRUDER = "acme-b", "acme"
WORD = "planted"
PERSON = f"{WORD} person"


class Letter(Payload, frozen=True):
    to: Personal[str] = PERSON
    text: str = f"{WORD} text"
    comes_to: str = "done"


class Parcel(Payload, frozen=True):
    """Executed by others, each tenant's by its own."""

    text: str = f"{WORD} text"


class Account(ConfigBody, frozen=True):
    url: str
    token: Secret[str]


async def send(letter: Letter, attempt: Attempt) -> Outcome:
    match letter.comes_to:
        case "done":
            return Done(id=f"{WORD} provider id")
        case "failed":
            return Rejected("bad_address", f"{WORD} detail")
        case _:
            return Unknown("no_answer", f"{WORD} detail")


KIND, CODE = "shop.account", f"{WORD}-code"
FIELDS = {"url": f"https://{WORD}.example.com", "token": f"{WORD} token"}


ADDRESSES = Addresses("shop.suppressed", str.lower, lambda _: "***")


PARCELS = "shop.parcel"


def flows() -> list[Flow]:
    return [
        Flow(
            "shop.letter",
            Letter,
            send,
            Rules(),
            config={KIND: Account, TEMPLATE: Template},
            addresses=ADDRESSES,
        ),
        external(PARCELS, on_unknown="manual", payload=Parcel),
    ]


engine = Engine("sqlite:///gesta.db", flows=flows())
APP = "tests.searches.other_tenant:engine"


@dataclass(frozen=True)
class Planted:
    #: What its request comes to → its id.
    ids: dict[str, str]
    #: The id of its API key.
    key_id: str
    #: The id of its entry in the list of those who get no letters.
    entry_id: str
    #: Work that a worker of the owner has leased; another parcel waits.
    item: WorkItem

    @property
    def names(self) -> list[str]:
        """What an intruder may call things: by their ids, and by ids that make up for the
        difference between the tenants.
        """
        return [
            self.key_id,
            f"{self.key_id}/{OWNER}",
            self.entry_id,
            *self.ids.values(),
            *(f"{OWNER.removeprefix(INTRUDER)[1:]}-{one}" for one in self.ids.values()),
        ]


async def plant(engine: Engine) -> Planted:
    """One request of every kind and an account, all the owner's."""
    await engine.admin.put_config(KIND, CODE, dict(FIELDS), tenant=OWNER)
    await engine.admin.put_config(TEMPLATE, CODE, {"text": f"{WORD} text"}, tenant=OWNER)
    entry = await engine.admin.suppress("shop.letter", PERSON, reason=WORD, tenant=OWNER)
    ids = {}
    for comes_to in ("done", "failed", "unknown"):
        request = await engine.submit(
            Letter(comes_to=comes_to), key=f"{WORD} {comes_to}", tenant=OWNER
        )
        await request.outcome()
        ids[comes_to] = request.id
    later = datetime.now(UTC) + timedelta(days=365)
    waiting = await engine.submit(
        Letter(), key=f"{WORD} waiting", tenant=OWNER, deliver_at=later, correlation_id=WORD
    )
    key, _ = await engine.admin.create_key(
        name=f"{WORD} key", scopes=["admin"], tenant=OWNER, actor=Actor(WORD)
    )
    await engine.submit(Parcel(), tenant=OWNER)
    (item,) = await engine.external.take(
        PARCELS, tenant=OWNER, wait_seconds=10, lease_seconds=LEASE_SECONDS_MAX
    )
    await engine.submit(Parcel(), tenant=OWNER)
    return Planted({**ids, "waiting": waiting.id}, key.id, entry.id, item)


async def all_of_the_owner(engine: Engine, planted: Planted) -> list[Any]:
    """Everything that is on record about the owner."""
    return [
        *[await engine.history(one, tenant=OWNER) for one in planted.ids.values()],
        await engine.find(tenant=OWNER),
        await engine.admin.list_config(OWNER),
        await engine.admin.list_suppressed("shop.letter", tenant=OWNER),
        await engine.admin.dead_letters(OWNER),
        await engine.admin.counts(OWNER),
        await engine.admin.list_keys(OWNER),
    ]
