"""What a Redis URL may say."""

import pytest

from gesta.errors import BadSettings
from gesta.stores.redis.connection import address_of


def test_one_server_has_the_prefix_of_bullmq():
    address = address_of("redis://127.0.0.1/3")
    assert (address.nodes, address.prefix) == ((("127.0.0.1", 6379),), "bull")
    assert (address.database, address.is_cluster, address.is_tls) == (3, False, False)


def test_a_cluster_has_a_prefix_with_a_hash_tag():
    address = address_of("redis+cluster://127.0.0.1:7001,127.0.0.1:7002")
    assert address.nodes == (("127.0.0.1", 7001), ("127.0.0.1", 7002))
    assert (address.is_cluster, address.prefix) == (True, "{bull}")


def test_the_displayed_name_has_no_password():
    address = address_of("rediss://user:s%40cret@redis.example.org:6380?prefix=mail")
    assert (address.username, address.password) == ("user", "s@cret")
    assert address.name == "rediss://redis.example.org:6380?prefix=mail"


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("redis://", "names no Redis server"),
        ("redis://redis.example.org", "rediss://"),  # R2-29
        ("redis+cluster://127.0.0.1,redis.example.org", "rediss"),  # R2-29
        ("redis://127.0.0.1,127.0.0.1:7001", "redis\\+cluster"),
        ("redis://127.0.0.1:port", "[Pp]ort"),
        ("redis://127.0.0.1/x", "not a database"),
        ("redis+cluster://127.0.0.1/1", "not a database"),
        ("redis://127.0.0.1?pool=3", "unknown parameter 'pool'"),
        ("redis://127.0.0.1?prefix=a:b", "prefix"),
        ("redis+cluster://127.0.0.1?prefix=bull", "slots"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_what_is_wrong(url, error):
    with pytest.raises(BadSettings, match=error):
        address_of(url)
