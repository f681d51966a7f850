"""A statement with a limit keeps it, whichever plan the server chooses."""

from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import connect, end
from gesta.stores.postgresql.statements import Statements
from gesta.testing.contracts.token_buckets import fresh_bucket, times
from gesta.testing.harnesses.postgresql import Harness, SharedServer


async def test_forgetting_buckets_exceeded_its_limit_with_a_nested_loop(tmp_path):
    """The server evaluated the subquery with the limit once per row, and deleted all buckets."""
    harness = Harness(tmp_path)
    await harness.open()
    connection = await connect(address_of(await SharedServer.url()))
    try:
        for _ in range(5):
            await times(harness, fresh_bucket(), 1)
        harness.runtime.advance(10)
        for other_plan in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
            await connection.execute(f"set enable_{other_plan} = off")
        text, now = Statements(harness._schema)("forget_buckets"), float(harness.runtime.now_ms())
        assert [len(await connection.fetch(text, now, 2)) for _ in range(4)] == [2, 2, 1, 0]
    finally:
        await end(connection)
        await harness.close()
