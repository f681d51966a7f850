"""The SQL function for programs of any language: what they ask is checked, encrypted and done as
anything else, and they see nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from gesta import Attempt, Done, Flow, Outcome, Payload, Personal, Rejected
from gesta.domain.commands import Rules
from gesta.domain.events import Created
from gesta.domain.ids import UUID7
from gesta.intake.payload_type import PAYLOAD_BYTES_MAX
from gesta.stores.postgresql.address import address_of
from tests.stores.postgresql.places import drained, engine_at, fresh_url, projected

SECRET = "ana.maria@example.com"


class Letter(Payload, frozen=True):
    to: Personal[str]
    pages: int = 1


async def post(payload: Letter, attempt: Attempt) -> Outcome:
    return Done(id=f"{len(payload.to)} {payload.pages}")


LETTER = Flow("test.letter", Letter, post, Rules(on_unknown="resend"))


class Plain(Payload, frozen=True):
    text: str


async def say(payload: Plain, attempt: Attempt) -> Outcome:
    return Done(id=payload.text)


PLAIN = Flow("test.plain", Plain, say, Rules(on_unknown="resend"))


def asked(url: str, arguments: str, *values: object) -> str:
    """One call in a transaction of its own, by a program that has nothing of gesta; the id."""
    address = address_of(url)
    with psycopg.connect(address.server) as connection:
        row = connection.execute(
            f'select "{address.schema}".gesta_submit({arguments})', values
        ).fetchone()
        assert row is not None
        return str(row[0])


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    address = address_of(url)
    with psycopg.connect(address.server) as connection:
        return connection.execute(statement.replace("{schema}", f'"{address.schema}"')).fetchall()


async def test_a_request_from_plain_sql_is_executed_once():
    url = await fresh_url()
    async with engine_at(url, PLAIN) as engine:
        at = datetime.now(UTC) + timedelta(seconds=1)
        first = asked(
            url,
            "'test.plain', %s, key => 'k', tenant => 'acme', deliver_at => %s, ttl => '1 hour',"
            " priority => 2, correlation_id => 'c-1'",
            '{"text": "hello"}',
            at,
        )
        assert UUID7.fullmatch(first)
        again = asked(url, """'test.plain', '{"text": "hello"}', key => 'k', tenant => 'acme'""")
        other = asked(url, """'test.plain', '{"text": "bye"}', key => 'k', tenant => 'acme'""")
        request = await drained(engine, first, "acme")
        assert await request.outcome() == Done("hello")
        state = (await request.view()).state
        assert (state.key, state.priority, state.correlation_id) == ("k", 2, "c-1")
        created = (await engine.history(first, tenant="acme"))[0][1]
        assert isinstance(created, Created)
        assert created.deliver_at == int(at.timestamp() * 1000)
        assert created.expires_at == int(at.timestamp() * 1000) + 3_600_000
        late = await (await drained(engine, again, "acme")).outcome()
        assert late == Rejected("duplicate", f"request {first} has the same key and content")
        foe = await (await drained(engine, other, "acme")).outcome()
        assert foe == Rejected(
            "conflict", f"the key was used before for request {first} with other content"
        )
        # The same key from here leads there: one key, however it was asked.
        assert (await engine.submit(Plain("hello"), key="k", tenant="acme")).id == first


async def test_a_rollback_leaves_no_request():
    url = await fresh_url()
    async with engine_at(url, PLAIN, work=False):
        address = address_of(url)
        with psycopg.connect(address.server) as connection:
            connection.execute(
                f"""select "{address.schema}".gesta_submit('test.plain', '{{"text": "x"}}')"""
            )
            connection.rollback()
        assert rows(url, "select 1 from {schema}.outbox") == []


async def test_personal_data_is_encrypted_when_it_is_appended():
    url = await fresh_url()
    async with engine_at(url, LETTER, work=False):
        request_id = asked(url, "'test.letter', %s", f'{{"to": "{SECRET}", "pages": 3}}')
        assert SECRET in str(rows(url, "select payload from {schema}.outbox"))
    async with engine_at(url, LETTER) as engine:
        request = await drained(engine, request_id)
        assert await request.outcome() == Done(f"{len(SECRET)} 3")
        assert rows(url, "select 1 from {schema}.outbox") == []
        for table in ("events", "requests", "jobs", "quarantined"):
            stored = rows(
                url,
                f"select encode(convert_to(t::text, 'UTF8'), 'escape') from {{schema}}.{table} t",
            )
            found = [
                row for row in stored if SECRET in str(row) or SECRET.encode().hex() in str(row)
            ]
            assert found == [], table
        assert b"$encrypted" in (await request.view()).payload
        assert await request.payload() == Letter(SECRET, 3)
        assert await engine.erase(SECRET) == 1


async def test_an_invalid_payload_becomes_a_dead_letter_without_personal_data():
    url = await fresh_url()
    async with engine_at(url, LETTER) as engine:
        request_id = asked(
            url,
            "'test.letter', %s, key => 'k'",
            f'{{"to": "{SECRET}", "pages": "many", "more": 1}}',
        )
        request = await drained(engine, request_id)
        outcome = await request.outcome()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "invalid_request"
        assert "pages: expected 'int', got 'str'" in outcome.detail
        assert "more: unknown field" in outcome.detail
        assert (await request.view()).payload == b"{}"
        await projected(engine)
        [letter] = await engine.admin.dead_letters()
        assert letter.failure.reason == "invalid_request"
        # It has taken no key: the same may be asked again, and rightly.
        assert (await engine.submit(Letter(SECRET), key="k")).verdict == "created"


@pytest.mark.parametrize(
    ("payload", "kept"),
    [
        ('{"text": 7}', b'{"text": 7}'),
        ('{"text": {"$encrypted": "AAAA"}}', b"{}"),
        (f'{{"text": "{"x" * PAYLOAD_BYTES_MAX}"}}', b"{}"),
        ('{"text": 1e400}', None),
    ],
    ids=["wrong type", "forged", "too large", "no number"],
)
async def test_a_bad_payload_never_stops_the_others(payload, kept):
    url = await fresh_url()
    async with engine_at(url, PLAIN) as engine:
        bad = asked(url, "'test.plain', %s", payload)
        good = asked(url, """'test.plain', '{"text": "good"}'""")
        assert await (await drained(engine, good)).outcome() == Done("good")
        request = await drained(engine, bad)
        outcome = await request.outcome()
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "invalid_request"
        assert kept is None or (await request.view()).payload == kept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'Test', '{}'", "flow: write kind.name"),
        ("'test.plain', '[]'", "payload: must be a JSON object"),
        ("'test.plain', null", "payload: must be a JSON object"),
        ("'test.plain', '{}', key => ''", "key: a string"),
        ("'test.plain', '{}', key => repeat('k', 513)", "key: a string"),
        ("'test.plain', '{}', tenant => 'a b'", "tenant: 1 to 63"),
        ("'test.plain', '{}', priority => 11", "priority: a whole number"),
        ("'test.plain', '{}', ttl => '0'", "ttl: a positive interval"),
        ("'test.plain', '{}', deliver_at => 'infinity'", "deliver_at"),
        ("'test.plain', '{}', correlation_id => ''", "correlation_id: a string"),
        ("'test.plain', jsonb_build_object('text', repeat('x', 600000))", "payload: too large"),
    ],
)
async def test_visible_errors_are_refused_immediately(arguments, words):
    url = await fresh_url()
    async with engine_at(url, PLAIN, work=False):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=re.escape(words)):
            asked(url, arguments)


async def test_a_role_that_may_only_execute_it_submits_and_reads_nothing():
    url = await fresh_url()
    address = address_of(url)
    schema = f'"{address.schema}"'
    async with engine_at(url, PLAIN) as engine:
        role = f"app_{address.schema}"
        with psycopg.connect(address.server, autocommit=True) as connection:
            connection.execute(f"create role {role} login")
        with psycopg.connect(
            address.server.replace("postgres@", f"{role}@"), autocommit=True
        ) as connection:

            def refused(statement: str) -> None:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)

            call = f"""select {schema}.gesta_submit('test.plain', '{{"text": "granted"}}')"""
            refused(call)
            with psycopg.connect(address.server, autocommit=True) as owner:
                owner.execute(f"grant usage on schema {schema} to {role}")
                refused(call)
                owner.execute(f"grant execute on function {schema}.gesta_submit to {role}")
            # Names that it makes itself lead nowhere: the function looks for them in the system's
            # schema only.
            connection.execute("create temp table outbox (id uuid)")
            connection.execute("set search_path = pg_temp")
            row = connection.execute(call).fetchone()
            for table in ("outbox", "events", "claims", "requests", "vault", "jobs"):
                refused(f"select * from {schema}.{table}")
                refused(f"delete from {schema}.{table}")
            refused(f"select {schema}.defer(null, null, null, null, null, null, null, null, null)")
        assert row is not None
        assert await (await drained(engine, str(row[0]))).outcome() == Done("granted")


async def test_requests_of_an_undeclared_flow_wait_and_are_reported():
    url = await fresh_url()
    async with engine_at(url, PLAIN) as engine:
        asked(url, """'test.unheard_of', '{"text": "x"}'""")
        known = asked(url, """'test.plain', '{"text": "known"}'""")
        assert await (await drained(engine, known)).outcome() == Done("known")
        outbox = engine.pipeline.environment.stores.outbox
        assert outbox is not None
        [left] = await outbox.standing()
        assert (left.flow, left.is_raw, left.count) == ("test.unheard_of", True, 1)
