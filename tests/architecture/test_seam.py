import pytest

from tests.architecture.seam import EXCEPTIONS, check_environment, check_exceptions, check_seam
from tests.architecture.source import ROOT, plant


def test_time_chance_threads_and_tasks_come_from_the_runtime():
    assert check_seam(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "import secrets",
        "import threading",
        "from concurrent.futures import ThreadPoolExecutor",
        "import concurrent.futures",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "import os\nos.urandom(16)",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import date\ndate.today()",
        "import asyncio\nasyncio.sleep(1)",
        "import asyncio as a\na.create_task(x())",
        "from asyncio import ensure_future",
        "import asyncio\nasyncio.to_thread(f)",
        "import asyncio\nasyncio.wait_for(f, 1)",
        "import asyncio\nasync def f():\n    async with asyncio.timeout(1): ...",
        "import asyncio\nasyncio.gather(a(), b())",
        "def f(group):\n    group.create_task(x())",
        "import asyncio\nasyncio.get_running_loop().call_later(1, f)",
        "def f(self):\n    self._loop.call_at(1, f)",
        "def f(loop):\n    return loop.time()",
        "def f(loop):\n    loop.run_in_executor(None, f)",
        "from cryptography.hazmat.primitives.ciphers.aead import AESGCM\nAESGCM.generate_key(256)",
    ],
)
def test_going_round_the_runtime_is_found(tmp_path, text):
    assert len(check_seam(plant(tmp_path, {"src/gesta/worker/pool.py": text}))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nevent = asyncio.Event()",
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)",
        (
            "from gesta.runtime.clock import sleep, spawn\ndef f(runtime):\n   "
            " runtime.call_later(1, f)\n    spawn(g(), 'g')"
        ),
        "import asyncio\nasyncio.get_running_loop().create_future()",
        "import os\nos.replace('a', 'b')",
        "def f(time):\n    return time.hour",
    ],
)
def test_code_without_time_or_randomness_is_accepted(tmp_path, text):
    assert check_seam(plant(tmp_path, {"src/gesta/worker/pool.py": text})) == []


def test_only_the_runtime_itself_is_free(tmp_path):
    assert (
        check_seam(
            plant(tmp_path, {"src/gesta/runtime/clock.py": "import time, random, threading"})
        )
        == []
    )


def test_a_benchmark_may_measure_time_but_not_sleep(tmp_path):
    measured = "import time\nstart = time.perf_counter()"
    assert check_seam(plant(tmp_path, {"benchmarks/run.py": measured})) == []
    assert (
        len(check_seam(plant(tmp_path, {"benchmarks/run.py": measured + "\ntime.sleep(1)"}))) == 1
    )


def test_every_exception_has_a_reason_and_is_needed():
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())
    assert check_exceptions(ROOT) == []


def test_an_exception_that_nothing_needs_is_found(tmp_path):
    assert len(check_exceptions(plant(tmp_path, {"benchmarks/run.py": "import json"}))) == 1
    assert check_exceptions(plant(tmp_path, {"benchmarks/run.py": "import time"})) == []


def test_only_the_settings_read_the_environment():
    assert check_environment(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['GESTA_URL']",
        "import os\nurl = os.environ.get('GESTA_URL')",
        "import os\nos.getenv('GESTA_URL')",
        "from os import environ\nenviron['GESTA_URL']",
        "from os import getenv as read\nread('GESTA_URL')",
        "import typer\nurl = typer.Option(envvar='GESTA_URL')",
    ],
)
def test_a_second_reader_of_the_environment_is_found(tmp_path, text):
    assert check_environment(plant(tmp_path, {"src/gesta/cli/main.py": text}))
    assert (
        check_environment(plant(tmp_path / "other", {"src/gesta/runtime/settings.py": text})) == []
    )
