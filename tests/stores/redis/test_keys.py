"""The literal keys of documents 000 and 001, and their Cluster slots."""

import pytest
from redis.crc import key_slot

from gesta.errors import BadSettings
from gesta.stores.redis.keys import (
    IndexKeys,
    OwnKeys,
    QueueKeys,
    RequestKeys,
    check_prefix,
    flow_of_queue,
    job_name,
    queue_name,
    slot_of,
    type_of,
)

ID = "019a9c2e-0000-7000-8000-000000000001"


def test_slack_has_the_keys_of_document_000():
    keys = RequestKeys("notification.slack", "acme", ID)
    index = IndexKeys("notification.slack", "acme")
    assert keys.snapshot == f"notification.slack:v1:{{acme}}:message-request:{ID}"  # R0-10, X-1
    assert keys.dispatched == f"{keys.snapshot}:dispatched"  # R0-14
    assert keys.lock == f"{keys.snapshot}:send-lock"  # R0-15
    assert index.updated == "notification.slack:v1:{acme}:idx:message-request:updated"  # R0-12
    assert (
        index.by_status("queued")
        == "notification.slack:v1:{acme}:idx:message-request:by-status:queued"
    )  # R0-13


@pytest.mark.parametrize("flow", ["notification.email", "payment.capture", "billing.receipt"])
def test_every_other_flow_has_the_keys_of_document_001(flow):
    keys, index = RequestKeys(flow, "acme", ID), IndexKeys(flow, "acme")
    assert keys.snapshot == f"{flow}:v1:{{acme}}:request:{ID}"  # R1-12, R1-17
    assert keys.dispatched == f"{flow}:v1:{{acme}}:request:{ID}:dispatched"  # R1-15
    assert keys.lock == f"{flow}:v1:{{acme}}:request:{ID}:execute-lock"  # R1-16
    assert index.updated == f"{flow}:v1:{{acme}}:idx:request:updated"  # R1-13
    assert index.by_status("sent") == f"{flow}:v1:{{acme}}:idx:request:by-status:sent"  # R1-14


def test_all_keys_of_a_tenant_are_in_one_slot():
    flows = ("notification.slack", "notification.email", "payment.capture")
    keys = [RequestKeys(flow, "acme-corp", ID) for flow in flows]
    index = [IndexKeys(flow, "acme-corp") for flow in flows]
    names = [name for one in keys for name in (one.snapshot, one.dispatched, one.lock)]
    names += [name for one in index for name in (one.updated, one.by_status("failed"))]
    assert {slot_of(name) for name in names} == {key_slot(b"acme-corp")}  # R0-16
    assert slot_of(RequestKeys(flows[0], "globex", ID).snapshot) != key_slot(b"acme-corp")


@pytest.mark.parametrize("key", ["a", "{}b", "a{b", "{a}{b}", "x{abc}y", "é{ü}", ""])
def test_the_slot_of_a_key_is_the_one_that_redis_computes(key):
    assert slot_of(key) == key_slot(key.encode())


@pytest.mark.parametrize("tenant", ["", "a{b", "a}b", "a:b", "-a"])
def test_a_tenant_that_would_break_a_slot_is_refused(tenant):
    with pytest.raises(BadSettings, match="tenant"):
        RequestKeys("notification.slack", tenant, ID)  # S0-19


def test_queues_have_the_names_of_the_documents():
    assert queue_name("notification.slack") == "MessageRequestQueue"  # R0-5
    assert job_name("notification.slack", "execute") == "send-message-request"  # R0-6
    assert queue_name("notification.email") == "email-send"  # R2-7, S2-1
    assert queue_name("billing.receipt") == "billing.receipt"
    assert job_name("billing.receipt", "execute") == "execute"
    assert flow_of_queue("MessageRequestQueue") == "notification.slack"
    assert QueueKeys("bull", "notification.slack")["wait"] == "bull:MessageRequestQueue:wait"
    for flow in ("notification.slack", "notification.email", "@billing.receipt/acme"):
        assert ":" not in queue_name(flow)  # S2-1


def test_all_queues_of_a_tagged_prefix_are_in_one_slot():
    names = [*QueueKeys("{bull}", "a.b").fixed, *QueueKeys("{bull}", "c.d").fixed]
    names += [*OwnKeys("{bull}").fixed, OwnKeys("{bull}").lease("t")]
    assert {slot_of(name) for name in names} == {key_slot(b"bull")}


def test_a_prefix_without_a_hash_tag_is_refused_on_a_cluster():
    assert check_prefix("bull", is_cluster=False) == "bull"
    with pytest.raises(BadSettings, match=r"prefix=\{bull\}"):
        check_prefix("bull", is_cluster=True)
    with pytest.raises(BadSettings, match="prefix"):
        check_prefix("a:b", is_cluster=False)


def test_the_type_of_every_key_is_known():
    keys = RequestKeys("notification.slack", "acme", ID)
    index = IndexKeys("notification.slack", "acme")
    queue = QueueKeys("bull", "a.b")
    assert [type_of(key) for key in (keys.snapshot, keys.dispatched, keys.lock)] == [
        "hash",
        "string",
        "string",
    ]
    assert (type_of(index.updated), type_of(index.by_status("sent"))) == ("zset", "set")
    assert [type_of(key) for key in queue.fixed] == [kind for _, kind in queue.FIXED]
