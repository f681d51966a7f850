"""`gesta serve` prints a link that makes the first admin key, where there is none and only this
machine can come.
"""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request

import pytest

LINK = r"(http://127\.0\.0\.1:\d+)/first-key\?token=([\w-]{43})"


def post(url: str, body: bytes, kind: str) -> str:
    asked = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_the_link_works_once_and_is_not_printed_again(start, cli):
    serving = start("serve", "--log-level", "debug")
    serving.wait_for("ready")
    found = re.search(LINK, serving.heard)
    assert found is not None
    address, token = found.groups()
    with urllib.request.urlopen(f"{address}/first-key?token={token}", timeout=20) as page:
        assert "<button>" in page.read().decode()
    shown = post(
        f"{address}/first-key", f"token={token}".encode(), "application/x-www-form-urlencoded"
    )
    (text,) = re.findall(r"gesta_live_\w+", shown)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(f"{address}/v1/first-key", f'{{"token": "{token}"}}'.encode(), "application/json")
    (line,) = cli("key", "list", "--json").items
    assert (line["scopes"], line["createdBy"]) == (["admin"], "first-key link")
    said = serving.end(signal.SIGTERM)
    assert said.err.count(token) == 1
    assert text not in said.out + said.err
    again = start("serve")
    again.wait_for("ready")
    assert "first-key" not in again.end(signal.SIGTERM).err


@pytest.mark.slow
def test_beyond_this_machine_no_link_is_printed(start):
    serving = start("serve", "--host", "0.0.0.0")
    serving.wait_for("ready")
    assert "first-key" not in serving.end(signal.SIGTERM).err
