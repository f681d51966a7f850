"""jobs migrate, by a command: what it prints, what it leaves, what it refuses."""

import asyncio

from gesta.domain.stored_job import job_at
from gesta.testing.valkey_server import ValkeyServer
from tests.stores.redis.test_job_hashes import as_text

ID = "0a1b2c3d-0000-4000-8000-0000000000c1"
BAD = "0a1b2c3d-0000-4000-8000-0000000000c2"


def test_texts_become_hashes_and_what_cannot_be_read_is_named(cli):
    server = ValkeyServer()
    asyncio.run(server.__aenter__())
    try:
        server.command("SET", f"ae:job:{ID}", as_text(job_at(0, id=ID, name="a.b")))
        server.command("SET", f"ae:job:{BAD}", "{")
        first = cli("jobs", "migrate", server.url)
        assert (first.code, first.out) == (0, "1\n")
        assert BAD in first.err
        assert server.command("TYPE", f"ae:job:{ID}") == "+hash\r\n"  # R4-1
        assert server.command("GET", f"ae:job:{BAD}") == "$1\r\n{\r\n"
        assert cli("jobs", "migrate", server.url, "--json").json == {"hashes": 0, "left": [BAD]}
    finally:
        server.end()


def test_a_url_of_another_store_is_refused(cli):
    answer = cli("jobs", "migrate", "sqlite:///gesta.db")
    assert answer.code == 2
    assert "redis://" in answer.err
