"""What a user installs: the public names, the dependencies, the files of the wheel."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import gesta
from tests.architecture.source import ROOT

#: The public surface. A change here is a line in CHANGELOG.md and an upgrade path.
PUBLIC = [
    "Abort",
    "Saga",
    "StepFailed",
    "saga",
    "Actor",
    "Attempt",
    "Conflict",
    "Done",
    "Engine",
    "Erased",
    "Event",
    "Flow",
    "GestaError",
    "InDoubt",
    "InvalidRequest",
    "Money",
    "NotFound",
    "OutcomeTimeout",
    "Options",
    "Outcome",
    "Payload",
    "Personal",
    "Refused",
    "Rejected",
    "Request",
    "Retry",
    "RetryPolicy",
    "Settings",
    "Overloaded",
    "Unknown",
    "external",
    "flow",
]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_public_names_are_exactly_these():
    assert sorted(gesta.__all__) == sorted(PUBLIC)
    assert all(hasattr(gesta, name) for name in gesta.__all__)


def test_dir_lists_the_public_names_and_nothing_else_before_they_are_imported():
    listed = subprocess.run(
        [sys.executable, "-c", "import gesta; print(*dir(gesta))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(listed) == set(PUBLIC)


def test_the_core_has_at_most_15_dependencies_and_pins_none():
    assert len(PROJECT["dependencies"]) <= 15
    assert [line for line in PROJECT["dependencies"] if "==" in line] == []


def _pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def test_the_requirements_to_run_are_part_of_those_to_develop():
    run, dev = (
        _pins((ROOT / "requirements" / name).read_text()) for name in ("run.txt", "dev.txt")
    )
    assert run
    assert {name: dev.get(name) for name in run} == run


def test_every_requirement_is_pinned_and_hashed():
    for path in (ROOT / "requirements").glob("*.txt"):
        entries = re.sub(r"\\\n\s*", "", path.read_text()).splitlines()
        assert [
            line for line in entries if not re.match(r"[a-z0-9.-]+==\S+ .*--hash=sha256:", line)
        ] == [], path.name


def test_every_core_dependency_is_in_the_requirements_to_run():
    pins = _pins((ROOT / "requirements" / "run.txt").read_text())
    assert [
        line for line in PROJECT["dependencies"] if re.split(r"[<>=!;\s]", line)[0] not in pins
    ] == []


def _wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from hatchling.builders.wheel import WheelBuilder

    monkeypatch.chdir(ROOT)
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return str(wheel)


def test_the_installed_wheel_shows_the_docs(tmp_path, monkeypatch):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(_wheel(tmp_path, monkeypatch)) as archive:
        archive.extractall(installed)
    shown = subprocess.run(
        [sys.executable, "-m", "gesta", "docs", "slack"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == (ROOT / "docs" / "slack.md").read_text(encoding="utf-8")


def test_the_wheel_holds_every_file_of_the_package(tmp_path, monkeypatch):
    wheel = _wheel(tmp_path, monkeypatch)
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(
            archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith("entry_points.txt")
        )
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # `gesta docs` shows the pages.
    files |= {f"gesta/docs/{path.name}" for path in (ROOT / "docs").iterdir()}
    assert inside == files
    assert "gesta/py.typed" in inside
    assert "gesta = gesta.cli.main:main" in entry_points
    assert "gesta = gesta.testing.plugin" in entry_points
