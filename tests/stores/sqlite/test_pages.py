"""The sweep's walk through the open requests costs what it shows: read along an index that stands,
nothing sorted, nothing read in vain.
"""

import apsw
import pytest

from gesta.ports.read_model import WANTING
from gesta.stores.sqlite.statements import sql
from gesta.testing.contracts.samples import MADE_MS, fresh_name, fresh_view
from gesta.testing.harnesses.sqlite import Harness


@pytest.mark.parametrize("rebuilt", [False, True])
async def test_a_page_is_read_along_the_index_and_not_sorted(tmp_path, rebuilt):
    harness = Harness(tmp_path)
    await harness.open()
    await harness.read_model.save([fresh_view()], [])
    if rebuilt:
        shadow = await harness.read_model.shadow()
        await shadow.save([fresh_view()])
        assert await shadow.swap([fresh_name()], 0, []) is True
    await harness.close()
    db = apsw.Connection(str(tmp_path / "gesta.db"))
    for status in WANTING:
        values = (MADE_MS, status, "acme", 1, 1, 10)
        steps = [
            str(step) for *_, step in db.execute(f"explain query plan {sql('stale_views')}", values)
        ]
        assert len(steps) == 1
        assert steps[0].startswith("SEARCH requests USING INDEX requests_")
        assert steps[0].endswith("_by_status (status=? AND (tenant,updated_at)>(?,?))")
    db.close()
