import pytest

from tests.architecture.layers import (
    KNOWN_CHANNELS,
    check_adapters,
    check_contracts,
    check_domain,
    check_flows,
    check_stations,
)
from tests.architecture.source import ROOT, plant


def test_the_domain_is_pure():
    assert check_domain(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import os.path",
        "from asyncio import sleep",
        "import aiohttp",
        "from gesta import errors",
        "from gesta.runtime.clock import Runtime",
        "from .. import runtime",
        "def late():\n    import random",
    ],
)
def test_an_impure_import_in_the_domain_is_found(tmp_path, line):
    assert len(check_domain(plant(tmp_path, {"src/gesta/domain/lifecycle.py": line}))) == 1


def test_pure_imports_in_the_domain_are_left_alone(tmp_path):
    text = (
        "import msgspec\nfrom msgspec.structs import replace\nfrom gesta.domain import events\nfrom"
        " . import ids\nfrom typing import Any"
    )
    assert check_domain(plant(tmp_path, {"src/gesta/domain/lifecycle.py": text})) == []


def test_flows_know_no_adapter_and_no_other_flow():
    assert check_flows(ROOT) == []  # R1-55


@pytest.mark.parametrize(
    "line",
    [
        "from gesta.stores.memory.event_store import MemoryEventStore",
        "import gesta.stores",
        "from gesta.flows import slack",
        "from gesta.flows.slack import Message",
        "from . import slack",
        "from .slack import Message",
    ],
)
def test_a_flow_that_knows_an_adapter_or_another_flow_is_found(tmp_path, line):
    root = plant(
        tmp_path,
        {
            "src/gesta/flows/__init__.py": "",
            "src/gesta/flows/slack.py": "class Message: ...",
            "src/gesta/flows/webhook.py": line,
        },
    )
    assert len(check_flows(root)) == 1


def test_a_flow_may_use_what_flows_share_and_its_own_folder(tmp_path):
    text = (
        "from gesta.flows.flow import Flow\nfrom gesta.flows import flow\nfrom"
        " gesta.flows.payment.ledger import Ledger\nimport aiohttp"
    )
    root = plant(
        tmp_path,
        {
            "src/gesta/flows/__init__.py": "from gesta.flows.flow import Flow",
            "src/gesta/flows/flow.py": "class Flow: ...",
            "src/gesta/flows/payment/__init__.py": text,
            "src/gesta/flows/payment/ledger.py": "",
        },
    )
    assert check_flows(root) == []


def test_no_station_knows_a_channel():
    # R1-55: only the executor differs per channel; the stations before and behind it know nothing
    # of it, but for what is listed.
    assert check_stations(ROOT) == []
    assert {place for place, _ in KNOWN_CHANNELS} == {
        "src/gesta/engine/pipeline.py",
        "src/gesta/subscriptions/status_webhooks.py",
        "src/gesta/admin/admin.py",
        "src/gesta/admin/doctor/collect.py",
        "src/gesta/http_api/endpoints.py",
    }


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("worker/pool.py", "from gesta.flows import slack"),
        ("worker/pool.py", "from gesta.flows.slack.message import Message"),
        ("intake.py", "from gesta.flows.webhook import Message"),
        ("projector/follow.py", "def late():\n    from ..flows import webhook"),
        # The exception is for the webhook alone.
        (
            "telling.py",
            (
                "from gesta.flows.webhook import Message\nfrom gesta.flows.slack import Message as"
                " Other"
            ),
        ),
    ],
)
def test_a_station_that_knows_a_channel_is_found(tmp_path, place, line):
    root = plant(
        tmp_path,
        {
            "src/gesta/__init__.py": "",
            "src/gesta/flows/__init__.py": "",
            "src/gesta/flows/flow.py": "class Flow: ...",
            "src/gesta/flows/webhook.py": "class Message: ...",
            "src/gesta/flows/slack/__init__.py": "class Message: ...",
            "src/gesta/flows/slack/message.py": "class Message: ...",
            f"src/gesta/{place}": line,
        },
    )
    assert len(check_stations(root)) == 1


def test_stations_may_use_what_flows_share_and_programs_any_channel(tmp_path):
    files = {
        "src/gesta/flows/__init__.py": "",
        "src/gesta/flows/flow.py": "class Flow: ...",
        "src/gesta/flows/external.py": "",
        "src/gesta/flows/webhook.py": "from gesta.flows import flow",
        "src/gesta/intake/submit.py": (
            "from gesta.flows.flow import Flow\nfrom gesta.flows import external"
        ),
        "src/gesta/demo/shop.py": "from gesta.flows import webhook",
    }
    assert check_stations(plant(tmp_path, files)) == []


def test_an_exception_that_is_no_longer_needed_is_found(tmp_path):
    root = plant(
        tmp_path,
        {"src/gesta/flows/webhook.py": "", "src/gesta/subscriptions/status_webhooks.py": ""},
    )
    assert check_stations(root) == [
        (
            "src/gesta/subscriptions/status_webhooks.py no longer needs gesta.flows.webhook: remove the"
            " exception"
        )
    ]


def test_adapters_know_ports_and_domain_and_never_each_other():
    assert check_adapters(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "from gesta.stores.memory.read_model import MemoryViews",
        "from gesta.stores import memory",
        "from ..memory import views",
        "from gesta.worker.pool import Pool",
        "from gesta import Engine",
        "from gesta.flows.flow import Flow",
    ],
)
def test_an_adapter_that_knows_a_station_or_another_adapter_is_found(tmp_path, line):
    root = plant(
        tmp_path,
        {
            "src/gesta/__init__.py": "",
            "src/gesta/stores/__init__.py": "",
            "src/gesta/stores/memory/__init__.py": "",
            "src/gesta/stores/memory/read_model.py": "",
            "src/gesta/stores/sqlite/__init__.py": "",
            "src/gesta/stores/sqlite/read_model.py": line,
        },
    )
    assert len(check_adapters(root)) == 1


def test_an_adapter_may_use_ports_domain_and_its_own_folder(tmp_path):
    text = (
        "import apsw\nfrom gesta.ports.read_model import Views\nfrom gesta.domain import ids\nfrom"
        " . import database\nfrom gesta.errors import GestaError"
    )
    root = plant(
        tmp_path,
        {
            "src/gesta/stores/__init__.py": "",
            "src/gesta/stores/sqlite/__init__.py": "",
            "src/gesta/stores/sqlite/database.py": "",
            "src/gesta/stores/sqlite/read_model.py": text,
        },
    )
    assert check_adapters(root) == []


def test_contracts_know_no_adapter():
    assert check_contracts(ROOT) == []


def test_a_contract_that_knows_an_adapter_is_found(tmp_path):
    root = plant(
        tmp_path,
        {"src/gesta/testing/contracts/read_model.py": "from gesta.stores.memory import views"},
    )
    assert check_contracts(root) == [
        (
            "src/gesta/testing/contracts/read_model.py:1: a contract may not know an adapter:"
            " gesta.stores.memory.read_model"
        )
    ]
