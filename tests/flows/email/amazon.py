"""SES and S3 for tests: moto's own server in a process of its own, on a free port, ended by its
id.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import msgspec

REGION = "eu-west-1"
ACCOUNT = {"access_key_id": "AKIDTEST", "secret_access_key": "secret", "region": REGION}
_STARTS_WITHIN_SECONDS = 60


@contextmanager
def moto_server() -> Iterator[str]:
    """Its URL. It says on which port it listens; a server that does not start is a failure."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        url = ""
        for line in process.stderr:
            if "Running on http" in line:
                url = line.split()[-1]
                break
        assert url, "moto_server ended before it listened"
        deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
        while not _answers(url):
            assert time.monotonic() < deadline, "moto_server does not answer"
        yield url
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/moto-api/data.json", timeout=5):
            return True
    except (URLError, OSError):
        return False


def sent_messages(url: str) -> list[dict[str, Any]]:
    """The e-mails that moto's SES accepted."""
    with urlopen(f"{url}/moto-api/data.json", timeout=30) as answer:
        data = msgspec.json.decode(answer.read())
    return [
        *data.get("sesv2", {}).get("RawMessage", []),
        *data.get("ses", {}).get("RawMessage", []),
    ]


def forget_all(url: str) -> None:
    with urlopen(Request(f"{url}/moto-api/reset", method="POST"), timeout=30):
        pass


def client_of(service: str, url: str) -> Any:
    from botocore.session import get_session  # type: ignore[import-untyped]

    return get_session().create_client(
        service,
        REGION,
        endpoint_url=url,
        aws_access_key_id="AKIDTEST",
        aws_secret_access_key="secret",
    )


async def in_thread(act: Any, **arguments: Any) -> Any:
    return await asyncio.to_thread(act, **arguments)
