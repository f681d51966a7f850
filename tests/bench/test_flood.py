"""`gesta bench --flood` measures one tenant beside another. How fast the machine is, no test asks."""

import msgspec
import pytest

from gesta.bench.command import run_flood_bench
from gesta.cli.main import main

MEASURED = (
    "quiet_p50_ms quiet_p99_ms flooded_p50_ms flooded_p99_ms factor flood_requests flood_done samples fsync_ms cores".split()
)
TOLD = "is_within file_system python".split()


def small_run(tmp_path, **options):
    return run_flood_bench(requests=300, quiet_seconds=0.5, flood_seconds=1.0, folder=str(tmp_path), **options)


@pytest.mark.slow
def test_it_prints_every_figure_and_removes_its_files(tmp_path, capsys):
    assert small_run(tmp_path, json=True) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    assert set(figures) == {*MEASURED, *TOLD}
    assert all(figures[name] > 0 for name in MEASURED)
    # The executor takes 50 ms, and nobody is faster.
    assert min(figures["quiet_p50_ms"], figures["flooded_p50_ms"]) >= 50
    assert figures["is_within"] is (figures["factor"] <= 2)
    assert (figures["flood_requests"], figures["samples"]) == (300, 20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_people_get_a_table_with_the_verdict(tmp_path, capsys):
    assert small_run(tmp_path) == 0
    printed = capsys.readouterr().out
    assert "within 2" in printed
    assert "300 requests of another tenant" in printed


def test_a_flood_goes_with_no_other_measurement(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--flood", "--batch", "--folder", str(tmp_path)])
    assert ended.value.code == 2
