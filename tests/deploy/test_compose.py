"""The form of deploy/compose.yaml. Docker itself is not run."""

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from gesta.runtime.settings import NAMES

ROOT = Path(__file__).parents[2]
STACK = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
SERVICES = STACK["services"]
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9]+)*")


def test_the_stack_has_these_services():
    assert SERVICES.keys() == {"api", "worker", "postgres", "valkey", "kurrentdb"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_and_every_service_is_checked_and_restarted(name):
    service = SERVICES[name]
    assert PINNED.fullmatch(service["image"])
    assert service["healthcheck"].keys() >= {"test", "interval", "timeout", "retries"}
    assert service["restart"] == "unless-stopped"


def test_the_image_of_gesta_is_built_on_a_pinned_python():
    first = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8").splitlines()[0]
    assert PINNED.fullmatch(first.removeprefix("FROM "))


def test_the_data_of_every_server_is_in_a_declared_volume():
    used = {
        volume.partition(":")[0]
        for name in ("postgres", "valkey", "kurrentdb")
        for volume in SERVICES[name]["volumes"]
        if not volume.startswith("./")
    }
    assert used == STACK["volumes"].keys()


def test_valkey_writes_every_command_to_disk_drops_no_key_and_speaks_tls_only():
    command = SERVICES["valkey"]["command"]
    for option in ("--appendonly yes", "--maxmemory-policy noeviction", "--port 0"):
        assert option in command


@pytest.mark.parametrize("name", ["api", "worker"])
def test_every_variable_is_a_setting_and_no_secret_is_written_down(name):
    settings = SERVICES[name]["environment"]
    assert {one.removeprefix("GESTA_").lower() for one in settings} <= set(NAMES)
    assert settings["GESTA_MASTER_KEY"].startswith("${GESTA_MASTER_KEY:?")
    for value in (settings["GESTA_URL"], settings["GESTA_QUEUE_URL"], settings["GESTA_VIEWS_URL"]):
        assert re.search(r":\$\{[A-Z_]+:\?", value)
    assert settings["GESTA_QUEUE_URL"].startswith("rediss://")


def test_gesta_waits_until_its_databases_answer():
    for name in ("api", "worker"):
        assert SERVICES[name]["depends_on"] == {
            "postgres": {"condition": "service_healthy"},
            "valkey": {"condition": "service_healthy"},
        }


def test_kurrentdb_is_started_on_request_only_and_has_a_certificate():
    service = SERVICES["kurrentdb"]
    assert service["profiles"] == ["kurrentdb"]
    assert "KURRENTDB_CERTIFICATE_FILE" in service["environment"]
    assert "KURRENTDB_INSECURE" not in service["environment"]
