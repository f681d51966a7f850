"""What gesta sends is what redis-py would send."""

from __future__ import annotations

import pytest
from redis.asyncio import Connection

from gesta.stores.redis.packing import PackingConnection

CALLS = [
    ("EVALSHA", "0" * 40, 0),
    ("EVALSHA", "0" * 40, 2, "bull:q:wait", "bull:q:active", 1, "", b"\x82\xff\r\n", "end"),
    ("EVALSHA", "0" * 40, 1, "bull:q:é日", b"", "x" * 10_000, -1, b"y" * 10_000),
    ("EVALSHA", "0" * 40, 1, "bull:q:\udcff", "plain"),
    ("SCRIPT LOAD", "return 1"),
    ("HSET", "key", "field", b"\xff"),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]) + str(len(call)))
def test_a_packed_command_is_the_one_of_redis_py(call):
    ours, theirs = (
        b"".join(
            kind(decode_responses=True, encoding_errors="surrogateescape").pack_commands([call] * 2)
        )
        for kind in (PackingConnection, Connection)
    )
    assert ours == theirs
