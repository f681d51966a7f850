"""`make bench --http` measures the API beside its bounds. How fast the machine is, no test
asks.
"""

import msgspec
import pytest

from benchmarks import over_http
from benchmarks.command import run_http_bench

RATES = "single single_keyed single_beside single_beside_keyed batch batch_keyed".split()


@pytest.mark.slow
def test_it_prints_every_rate_beside_its_bound_and_counts_every_request(tmp_path, capsys):
    assert run_http_bench(requests=128, folder=str(tmp_path), json=True) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert set(figures) == {
        "requests",
        "connections",
        "bare_runs",
        "in_process_runs",
        "in_process_keyed_runs",
        "errors",
        *RATES,
    }
    assert (figures["requests"], figures["connections"], figures["errors"]) == (128, 64, [])
    for name in RATES:
        beside = {"batch": "in_process_runs", "batch_keyed": "in_process_keyed_runs"}.get(
            name, "bare_runs"
        )
        bound = sum(figures[beside]) / 2
        assert figures[name]["ratio"] == pytest.approx(
            figures[name]["requests_per_second"] / bound, rel=0.05
        )
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_table(tmp_path, capsys, monkeypatch):
    rate = over_http.Rate(requests_per_second=10.0, ratio=0.5, p50_ms=1.0, p99_ms=2.0)
    figures = over_http.HttpFigures(
        requests=64,
        connections=64,
        bare_runs=[20.0, 20.0],
        in_process_runs=[20.0, 20.0],
        in_process_keyed_runs=[20.0, 20.0],
        errors=[],
        **dict.fromkeys(RATES, rate),
    )

    async def measured(*_: object) -> over_http.HttpFigures:
        return figures

    monkeypatch.setattr(over_http, "measure_http", measured)
    assert run_http_bench(requests=64, folder=str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "beside the pipeline" in printed
    assert "10 per second, 0.50 of it" in printed
    assert "every request done once" in printed
