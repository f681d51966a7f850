import pytest

from tests.architecture import layers
from tests.architecture.source import ROOT, plant


def test_imports_go_down_only():
    # R1-55: intake, projector, worker and stores are the same for all channels, because none of
    # them may import one.
    assert layers.check_rooms(ROOT) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("worker/pool.py", "from gesta.projector.projector import Projector"),
        ("worker/pool.py", "import gesta.intake.submit"),
        ("worker/pool.py", "def f():\n    from gesta.engine.engine import Engine"),
        ("worker/pool.py", "from gesta.flows.webhook import Message"),
        ("stores/sqlite/vault.py", "from gesta.requests.recorder import Recorder"),
        ("flows/flow.py", "from gesta.tenants.config import Entity"),
        ("tenants/config.py", "from gesta.flows.attempt import Attempt"),
        ("engine/engine.py", "from gesta.admin.admin import Admin"),
        ("worker/pool.py", "from gesta import Engine"),
        ("worker/pool.py", "def f():\n    import gesta\n    return gesta.Engine"),
        ("lobby/door.py", "x = 1"),
    ],
)
def test_an_import_upwards_or_between_siblings_is_found(tmp_path, place, line):
    known = dict.fromkeys(
        [
            "src/gesta/__init__.py",
            "src/gesta/projector/projector.py",
            "src/gesta/intake/submit.py",
            "src/gesta/engine/engine.py",
            "src/gesta/flows/webhook.py",
            "src/gesta/flows/attempt.py",
            "src/gesta/requests/recorder.py",
            "src/gesta/tenants/config.py",
            "src/gesta/admin/admin.py",
        ],
        "",
    )
    found = layers.check_rooms(plant(tmp_path, {**known, f"src/gesta/{place}": line}))
    assert len(found) == 1
    assert found[0].startswith(f"src/gesta/{place}")


def test_imports_down_inside_a_room_and_for_type_checkers_are_left_alone(tmp_path):
    text = (
        "from typing import TYPE_CHECKING\nfrom gesta.requests.recorder import Recorder\n"
        "from gesta.worker.lease import Lease\n"
        "if TYPE_CHECKING:\n    from gesta.engine.engine import Engine\n"
    )
    files = {
        "src/gesta/worker/pool.py": text,
        "src/gesta/worker/lease.py": "",
        "src/gesta/requests/recorder.py": "",
        "src/gesta/engine/engine.py": "",
    }
    assert layers.check_rooms(plant(tmp_path, files)) == []


def test_no_channel_knows_another():
    assert layers.check_channels(ROOT) == []


def test_a_channel_that_knows_another_is_found(tmp_path):
    files = {
        "src/gesta/flows/slack/__init__.py": "from gesta.flows.sms.twilio import Twilio",
        "src/gesta/flows/sms/twilio.py": "from gesta.flows.sms.message import Message",
        "src/gesta/flows/sms/message.py": "from gesta.flows.flow import Payload",
    }
    assert layers.check_channels(plant(tmp_path, files)) == [
        (
            "src/gesta/flows/slack/__init__.py:1: a channel may not know another one:"
            " gesta.flows.sms.twilio.Twilio"
        )
    ]


def test_no_store_knows_another():
    assert layers.check_stores(ROOT) == []


def test_a_store_that_knows_another_is_found(tmp_path):
    files = {
        "src/gesta/stores/shared.py": "",
        "src/gesta/stores/sqlite/__init__.py": "",
        "src/gesta/stores/memory/__init__.py": "import gesta.stores.shared",
        "src/gesta/stores/memory/vault.py": "from gesta.stores.sqlite import sql",
    }
    assert layers.check_stores(plant(tmp_path, files)) == [
        (
            "src/gesta/stores/memory/vault.py:1: a store may not know another store:"
            " gesta.stores.sqlite.sql"
        )
    ]


def test_the_client_knows_the_types_of_the_api_and_the_errors_alone():
    assert layers.check_client(ROOT) == []


def test_a_client_that_knows_the_server_is_found(tmp_path):
    files = {
        "src/gesta/client/client.py": "from gesta.http_api.app import Web",
        "src/gesta/http_api/app.py": "",
    }
    assert len(layers.check_client(plant(tmp_path, files))) == 1


def test_the_domain_is_pure():
    assert layers.check_domain(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        "import asyncio",
        "from gesta.errors import GestaError",
        "def f():\n    import time",
        "from gesta import errors",
    ],
)
def test_an_impure_import_in_the_domain_is_found(tmp_path, line):
    assert len(layers.check_domain(plant(tmp_path, {"src/gesta/domain/a.py": line}))) == 1


def test_pure_imports_in_the_domain_are_left_alone(tmp_path):
    text = "import math\nimport msgspec\nfrom gesta.domain.ids import id_text\n"
    assert layers.check_domain(plant(tmp_path, {"src/gesta/domain/a.py": text})) == []


def test_the_pipeline_knows_no_lifecycle_by_name():
    assert layers.check_lifecycles(ROOT) == []


@pytest.mark.parametrize(
    ("place", "line", "is_found"),
    [
        (
            "worker/preflight.py",
            "from gesta.domain.notification.lifecycle import NOTIFICATION",
            True,
        ),
        ("intake/submit.py", "from gesta.domain.task import TASK", True),
        ("requests/recorder.py", "from gesta.domain.operation.decide import DECISIONS", True),
        ("worker/preflight.py", "from gesta.domain.lifecycles import lifecycle_of", False),
        ("flows/slack/__init__.py", "from gesta.domain.notification import lifecycle", False),
        ("domain/codec.py", "from gesta.domain.notification import lifecycle", False),
    ],
)
def test_an_import_of_a_lifecycle_is_found(tmp_path, place, line, is_found):
    found = layers.check_lifecycles(plant(tmp_path, {f"src/gesta/{place}": line}))
    assert len(found) == is_found
