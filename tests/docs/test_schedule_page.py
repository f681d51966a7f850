"""The program of the page about schedules does what the page says."""

from datetime import UTC, datetime

from gesta.engine.environment import Wiring
from gesta.runtime.clock import ManualRuntime
from tests.docs.test_docs import ROOT, program


async def test_the_program_of_the_schedule_page_reports_at_seven_in_berlin(gesta, capsys):
    assert Wiring.wire == gesta.wire
    # A Friday evening: the next report is due on Monday.
    gesta.runtime = ManualRuntime(round(datetime(2027, 1, 15, 18, tzinfo=UTC).timestamp() * 1000))
    engine = program(ROOT / "docs" / "schedules.md", "@engine.every")["engine"]
    async with engine:
        await gesta.settle(days=0)
        for _ in range(3 * 24):
            gesta.advance(3600)
            await gesta.settle(days=0)
        (view,) = await engine.find()
    assert view.state.key == "schedule/daily/2027-01-18T06:00Z"
    assert capsys.readouterr().out == "report of 2027-01-18\n"
