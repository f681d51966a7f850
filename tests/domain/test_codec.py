"""Stored for ever: the names and bytes of events.

What is pinned here may gain fields, but must be read for as long as gesta exists.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.domain import codec
from gesta.domain import events as e
from gesta.domain.codec import EventTypes, decode_meta, encode, event_types
from gesta.domain.notification.lifecycle import NOTIFICATION
from tests.domain.story import ID, T0, Story, meta

evolve = NOTIFICATION.evolve

WEBHOOK = "notification.webhook"
SLACK = "notification.slack"

FULL_CREATED = (
    b'{"id":"01890a5d-ac96-774b-bcce-b302099a8057","flow":"notification.webhook",'
    b'"payload":{"url":"https://a.example","n":[1,2.5]},'
    b'"operation":"capture","intent":2,"status":"validated","key":"order-7",'
    b'"deliverAt":1700000060000,"expiresAt":1700003660000,'
    b'"priority":1}'
)
#: The full set of fields, the bytes of each event with them, and the bytes of the smallest one.
#: Never edit a line: add one.
STORED: list[tuple[str, bytes, e.Event]] = [
    (
        "notification.webhook.RequestCreated.v1",
        FULL_CREATED,
        e.Created(
            ID,
            WEBHOOK,
            msgspec.Raw(b'{"url":"https://a.example","n":[1,2.5]}'),
            "capture",
            2,
            "validated",
            "order-7",
            1700000060000,
            1700003660000,
            1,
        ),
    ),
    (
        "notification.webhook.RequestCreated.v1",
        b'{"id":"01890a5d-ac96-774b-bcce-b302099a8057","flow":"notification.webhook","payload":{}}',
        e.Created(ID, WEBHOOK, msgspec.Raw(b"{}"), "send", 1, "queued", None, None, None, 5),
    ),
    (
        "notification.webhook.RequestUpdated.v1",
        (
            b'{"change":"redrive","status":"queued","intent":2,"dueAt":1700000000001,'
            b'"expiresAt":1700000000002}'
        ),
        e.Updated("redrive", "queued", 2, 1700000000001, 1700000000002),
    ),
    (
        "notification.webhook.RequestUpdated.v1",
        b'{"change":"cancel_requested"}',
        e.Updated("cancel_requested", None, None, None, None),
    ),
    ("notification.webhook.RequestUpdated.v1", b'{"change":"purged"}', e.Updated("purged")),
    (
        "notification.webhook.RequestUpdated.v1",
        b'{"change":"retry","dueAt":3}',
        e.Updated("retry", due_at=3),
    ),
    (
        "notification.webhook.AttemptStarted.v1",
        b'{"attempt":1,"key":"acme:x:send:1"}',
        e.AttemptStarted(1, "acme:x:send:1"),
    ),
    (
        "notification.webhook.AttemptFailed.v1",
        b'{"attempt":1,"reason":"http_503","detail":"busy","nextAttemptAt":1700000001000}',
        e.AttemptFailed(1, "http_503", "busy", 1700000001000),
    ),
    (
        "notification.webhook.AttemptFailed.v1",
        b'{"attempt":2,"reason":"http_503"}',
        e.AttemptFailed(2, "http_503", "", None),
    ),
    (
        "notification.webhook.Sent.v1",
        b'{"attempts":1,"providerMessageId":"p-1","targetId":"t-1","detail":"accepted"}',
        e.Sent(1, "p-1", "t-1", "accepted"),
    ),
    ("notification.webhook.Sent.v1", b'{"attempts":1}', e.Sent(1, "", "", "")),
    (
        "notification.webhook.SentLate.v1",
        b'{"attempts":4,"providerMessageId":"p-1","targetId":"t-1","detail":"accepted"}',
        e.SentLate(4, "p-1", "t-1", "accepted"),
    ),
    ("notification.webhook.SentLate.v1", b'{"attempts":4}', e.SentLate(4, "", "", "")),
    (
        "notification.webhook.Failed.v1",
        b'{"reason":"max_attempts_exceeded","attempts":5,"retryable":true,"lastError":"http_503"}',
        e.Failed("max_attempts_exceeded", 5, retryable=True, last_error="http_503"),
    ),
    (
        "notification.webhook.Failed.v1",
        b'{"reason":"gone","attempts":1}',
        e.Failed("gone", 1, retryable=False, last_error=""),
    ),
    (
        "notification.webhook.OutcomeUnknown.v1",
        (
            b'{"attempt":1,"reason":"timeout","policy":"resend","detail":"no end after 30'
            b' s","nextAt":1700000001000}'
        ),
        e.OutcomeUnknown(1, "timeout", "resend", "no end after 30 s", 1700000001000),
    ),
    (
        "notification.webhook.OutcomeUnknown.v1",
        b'{"attempt":1,"reason":"timeout","policy":"manual"}',
        e.OutcomeUnknown(1, "timeout", "manual"),
    ),
    (
        "notification.webhook.OutcomeResolved.v1",
        (
            b'{"result":"not_executed","by":"provider","evidence":"no'
            b' trace","nextAttemptAt":1700000001000}'
        ),
        e.OutcomeResolved("not_executed", "provider", "no trace", next_attempt_at=1700000001000),
    ),
    (
        "notification.webhook.OutcomeResolved.v1",
        b'{"result":"not_executed","by":"ann","evidence":"no trace","newBudget":true}',
        e.OutcomeResolved("not_executed", "ann", "no trace", new_budget=True),
    ),
    (
        "notification.webhook.OutcomeResolved.v1",
        b'{"result":"executed","by":"ann","evidence":"seen"}',
        e.OutcomeResolved("executed", "ann", "seen", "", next_attempt_at=None),
    ),
    ("notification.webhook.Expired.v1", b'{"attempts":2}', e.Expired(2)),
    ("notification.webhook.Cancelled.v1", b'{"attempts":0}', e.Cancelled(0)),
    (
        "notification.webhook.Cancelled.v1",
        b'{"attempts":0,"reason":"duplicate","detail":"of 1"}',
        e.Cancelled(0, "duplicate", "of 1"),
    ),
    (
        "notification.webhook.Delivered.v1",
        b'{"report":"r-1","providerMessageId":"p-1","reportedAt":1700000060000}',
        e.Delivered("r-1", "p-1", 1700000060000),
    ),
    ("notification.webhook.Delivered.v1", b'{"report":"r-1"}', e.Delivered("r-1")),
    (
        "notification.webhook.Bounced.v1",
        (
            b'{"report":"r-1","reason":"no_mailbox","permanent":true,"providerMessageId":"p-1",'
            b'"reportedAt":1700000060000}'
        ),
        e.Bounced(
            "r-1",
            "no_mailbox",
            permanent=True,
            provider_message_id="p-1",
            reported_at=1700000060000,
        ),
    ),
    (
        "notification.webhook.Bounced.v1",
        b'{"report":"r-1","reason":"no_mailbox"}',
        e.Bounced("r-1", "no_mailbox"),
    ),
    (
        "notification.webhook.Complained.v1",
        b'{"report":"r-1","reason":"abuse","providerMessageId":"p-1","reportedAt":1700000060000}',
        e.Complained("r-1", "abuse", "p-1", 1700000060000),
    ),
    ("notification.webhook.Complained.v1", b'{"report":"r-1"}', e.Complained("r-1")),
]

STORED_META = (
    b'{"tenant":"acme","flow":"notification.webhook",'
    b'"requestId":"01890a5d-ac96-774b-bcce-b302099a8057","occurredAt":1700000000000,'
    b'"correlationId":"correlation-1","causationId":"cause-1","source":"test",'
    b'"actor":{"userId":"u-1","roles":["admin"]},'
    b'"schemaVersion":1}'
)


def test_the_events_of_a_channel_have_these_names():
    # R1-11: …Created.v1, …Updated.v1, …Sent.v1, …Failed.v1
    assert set(event_types(WEBHOOK).name_of.values()) == {
        "notification.webhook.RequestCreated.v1",
        "notification.webhook.RequestUpdated.v1",
        "notification.webhook.AttemptStarted.v1",
        "notification.webhook.AttemptFailed.v1",
        "notification.webhook.Sent.v1",
        "notification.webhook.SentLate.v1",
        "notification.webhook.Failed.v1",
        "notification.webhook.OutcomeUnknown.v1",
        "notification.webhook.OutcomeResolved.v1",
        "notification.webhook.Expired.v1",
        "notification.webhook.Cancelled.v1",
        "notification.webhook.Delivered.v1",
        "notification.webhook.Bounced.v1",
        "notification.webhook.Complained.v1",
    }


def test_the_events_of_slack_have_the_names_of_the_document():
    # R1-11, S1-7: …MessageRequestCreated.v1, …MessageSent.v1, …MessageFailed.v1 (design.md section
    # 4), …SentLate.v1
    assert set(event_types(SLACK).name_of.values()) == {
        "notification.slack.MessageRequestCreated.v1",
        "notification.slack.MessageRequestUpdated.v1",
        "notification.slack.AttemptStarted.v1",
        "notification.slack.AttemptFailed.v1",
        "notification.slack.MessageSent.v1",
        "notification.slack.MessageSentLate.v1",
        "notification.slack.MessageFailed.v1",
        "notification.slack.OutcomeUnknown.v1",
        "notification.slack.OutcomeResolved.v1",
        "notification.slack.Expired.v1",
        "notification.slack.Cancelled.v1",
        "notification.slack.Delivered.v1",
        "notification.slack.Bounced.v1",
        "notification.slack.Complained.v1",
    }


@pytest.mark.parametrize(("name", "data", "event"), STORED)
def test_a_stored_event_decodes_and_encodes_to_the_same_bytes(
    name: str, data: bytes, event: e.Event
):
    types = event_types(WEBHOOK)
    assert types.decode(name, data) == event
    assert types.name_of[type(event)] == name
    assert encode(event) == data


def test_every_event_is_pinned():
    assert {type(event) for _, _, event in STORED} == set(NOTIFICATION.event_names)


def test_every_event_carries_these_seven():
    # R1-44: tenant, actor, correlationId, causationId, occurredAt, source, schemaVersion
    fields = set(msgspec.json.decode(encode(meta(T0))))
    assert fields >= {
        "tenant",
        "actor",
        "correlationId",
        "causationId",
        "occurredAt",
        "source",
        "schemaVersion",
    }
    read = decode_meta(STORED_META)
    assert read == e.Meta(
        "acme", WEBHOOK, ID, T0, "correlation-1", "cause-1", "test", e.Actor("u-1", ("admin",)), 1
    )
    assert encode(read) == STORED_META


def test_an_event_without_an_actor_has_the_field_with_null():
    # R1-44: the field is there even when no person decided
    without_actor = msgspec.structs.replace(meta(T0), actor=None)
    assert b'"actor":null' in encode(without_actor)
    assert decode_meta(encode(without_actor)) == without_actor


def test_an_actor_is_a_user_and_its_roles():
    # R1-7: actor = {userId, roles?[]}
    assert encode(e.Actor("u-1", ("admin", "ops"))) == b'{"userId":"u-1","roles":["admin","ops"]}'
    assert encode(e.Actor("u-1")) == b'{"userId":"u-1"}'


def test_the_payload_is_kept_byte_by_byte():
    payload = b'{"b":1.50,"a":"\\u00e9 \xc3\xa9","n":12345678901234567890}'
    read = event_types(WEBHOOK).decode(
        "notification.webhook.RequestCreated.v1",
        encode(e.Created(ID, WEBHOOK, msgspec.Raw(payload))),
    )
    assert isinstance(read, e.Created)
    assert bytes(read.payload) == payload


_texts = st.sampled_from(("", "x", 'q"uo\\te', "é→𝄞", "\x00\n", "null"))
_times = st.sampled_from((None, 0, 1, 1_700_000_000_000, 2**53))
_counts = st.sampled_from((0, 1, 99))
_events = st.one_of(
    st.builds(
        e.Created,
        _texts,
        _texts,
        st.just(msgspec.Raw(b"{}")),
        key=st.one_of(st.none(), _texts),
        deliver_at=_times,
    ),
    st.builds(
        e.Updated,
        st.sampled_from(("retry", "redrive", "cancel_requested", "purged")),
        intent=_times,
        due_at=_times,
    ),
    st.builds(e.AttemptStarted, _counts, _texts),
    st.builds(e.AttemptFailed, _counts, _texts, _texts, _times),
    st.builds(e.Sent, _counts, _texts, detail=_texts),
    st.builds(e.SentLate, _counts, _texts, detail=_texts),
    st.builds(e.Failed, _texts, _counts, retryable=st.booleans(), last_error=_texts),
    st.builds(e.OutcomeUnknown, _counts, _texts, _texts, _texts, _times),
    st.builds(
        e.OutcomeResolved,
        st.sampled_from(("executed", "not_executed", "rejected")),
        _texts,
        _texts,
        _texts,
        _times,
    ),
    st.builds(e.Expired, _counts),
    st.builds(e.Cancelled, _counts),
)


@given(event=_events, flow=st.sampled_from((WEBHOOK, SLACK, "billing.receipt")))
def test_every_event_comes_back_as_it_was(event: e.Event, flow: str):
    if flow == "billing.receipt" and isinstance(event, e.Succeeded):
        # What a task has in their place.
        done = {e.Sent: e.Completed, e.SentLate: e.CompletedLate}[type(event)]
        event = done(**msgspec.structs.asdict(event))
    types = event_types(flow)
    assert types.decode(types.name_of[type(event)], encode(event)) == event


def test_fields_of_a_later_version_are_passed_over():
    assert event_types(WEBHOOK).decode(
        "notification.webhook.Sent.v1", b'{"attempts":1,"novelty":{"x":1}}'
    ) == e.Sent(1)


@pytest.mark.parametrize(
    "name",
    [
        "notification.webhook.Sent.v2",
        "notification.webhook.Sent.v0",
        "notification.webhook.Sent.v",
        "notification.webhook.Sent.vx",
        "notification.webhook.Sent.v²",
        "notification.webhook.Sent",
        "notification.webhook.Levitated.v1",
        "notification.slack.Sent.v1",
        "",
    ],
)
def test_an_unknown_type_is_skipped_and_only_counts(name: str):
    assert event_types(WEBHOOK).decode(name, b'{"attempts":1}') is None
    state = Story().state
    assert evolve(state, None, meta(T0 + 1)) == msgspec.structs.replace(state, version=2)


def test_an_older_version_is_lifted_step_by_step(monkeypatch: pytest.MonkeyPatch):
    def first(old: dict[str, object]) -> dict[str, object]:
        return {"cause": old["reason"], "attempts": old["attempts"]}

    def second(old: dict[str, object]) -> dict[str, object]:
        return {"reason": f"lifted {old['cause']}", "attempts": old["attempts"]}

    versions: dict[type[e.Event], int] = {**codec.VERSIONS, e.Failed: 3}
    monkeypatch.setattr(codec, "VERSIONS", versions)
    monkeypatch.setattr(codec, "UPCASTERS", {(e.Failed, 1): first, (e.Failed, 2): second})
    types = EventTypes(WEBHOOK)
    assert types.name_of[e.Failed] == "notification.webhook.Failed.v3"
    assert types.decode(
        "notification.webhook.Failed.v1", b'{"reason":"gone","attempts":1}'
    ) == e.Failed("lifted gone", 1)
    assert types.decode(
        "notification.webhook.Failed.v2", b'{"cause":"gone","attempts":1}'
    ) == e.Failed("lifted gone", 1)
    assert types.decode(
        "notification.webhook.Failed.v3", b'{"reason":"gone","attempts":1}'
    ) == e.Failed("gone", 1)
    assert types.decode("notification.webhook.Failed.v4", b"{}") is None


def test_a_damaged_event_is_an_error_and_not_an_unknown_one():
    with pytest.raises(msgspec.ValidationError):
        event_types(WEBHOOK).decode("notification.webhook.Sent.v1", b'{"attempts":"many"}')


def test_the_names_of_a_flow_are_made_once():
    assert event_types(WEBHOOK) is event_types(WEBHOOK)
