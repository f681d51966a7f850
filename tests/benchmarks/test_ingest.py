"""`make bench --ingest` measures Slack events beside its bound. How fast the machine is, no test
asks.
"""

import msgspec
import pytest

from benchmarks.command import run_ingest_bench


@pytest.mark.slow
def test_it_prints_the_rate_beside_its_bound_and_counts_every_event(tmp_path, capsys):
    assert run_ingest_bench(requests=128, folder=str(tmp_path), json=True) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert (figures["events"], figures["connections"], figures["errors"]) == (128, 64, [])
    bound = sum(figures["bare_runs"]) / 2
    rate = figures["ingest"]["requests_per_second"]
    assert figures["ingest"]["ratio"] == pytest.approx(rate / bound, rel=0.05)
    assert figures["half"]["requests_per_second"] <= rate
    assert list(tmp_path.iterdir()) == []
