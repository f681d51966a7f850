"""Requests that other programs wrote to the outbox: what becomes of a row, and what is kept of one
that does not fit its flow.
"""

from __future__ import annotations

import msgspec
import pytest

from gesta import Engine, Flow, Payload, Personal
from gesta.domain.commands import Rules
from gesta.domain.events import Created
from gesta.intake.submit import Invalid
from gesta.ports.event_store import Append
from gesta.ports.outbox import Raw
from gesta.security.field_encryption import MARK
from tests.world import URL, Provider

ROW = "4be0643f-1d98-4b5c-9a2e-7d3e0b1f2a11"


class Letter(Payload, frozen=True):
    text: str
    own: str | None = None


class Secret(Payload, frozen=True):
    text: Personal[str]


@pytest.fixture
async def engine(gesta):
    run, rules = Provider().execute, Rules()
    letter = Flow("test.letter", Letter, run, rules, request_id=lambda one: one.own)
    async with Engine(
        URL, flows=[letter, Flow("test.secret", Secret, run, rules)], work=False
    ) as engine:
        yield engine


async def prepared(engine: Engine, payload: str, flow: str = "test.letter") -> Append | Invalid:
    (one,) = await engine.pipeline.intake.prepare([Raw(ROW, flow, "acme", 1_000, payload)])
    return one


def kept(one: Append | Invalid) -> bytes:
    assert isinstance(one, Invalid)
    known = one.append.events[0].known
    assert known is not None
    assert isinstance(known.event, Created)
    return bytes(known.event.payload)


async def test_of_an_invalid_row_the_payload_is_kept_for_the_operator(engine):
    assert kept(await prepared(engine, '{"text": 7}')) == b'{"text": 7}'


@pytest.mark.parametrize(
    ("flow", "payload"),
    [
        # Nothing in clear of a flow with personal fields, no forged cipher text, nothing huge.
        ("test.secret", '{"text": 7}'),
        ("test.letter", f'{{"text": 7, "x": "{MARK.decode()}"}}'),
        ("test.letter", f'{{"text": 7, "x": "{"x" * 262_144}"}}'),
        ("test.letter", '{"text": ' + "[" * 100_000),
    ],
    ids=["personal", "forged", "too long", "too deep"],
)
async def test_of_an_invalid_row_nothing_is_kept_that_may_not_be_stored(engine, flow, payload):
    assert kept(await prepared(engine, payload, flow)) == b"{}"


async def test_a_row_that_brings_its_own_id_claims_it_for_all_tenants(engine):
    raw = msgspec.json.encode(Letter("hello", ROW)).decode()
    ours, theirs = await engine.pipeline.intake.prepare(
        [Raw(ROW, "test.letter", tenant, 1_000, raw) for tenant in ("acme", "globex")]
    )
    assert isinstance(ours, Append)
    assert isinstance(theirs, Append)
    assert ours.claim is not None
    assert theirs.claim is not None
    assert ours.claim.name == theirs.claim.name
    # The content differs by tenant: the second caller gets a conflict, and no request of the first.
    assert ours.claim.content != theirs.claim.content
