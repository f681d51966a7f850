"""Fields of any shape are searched, too: what JSON cannot hold must not become null on the way to
the receiver.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from gesta import Engine, InvalidRequest
from gesta.flows import webhook


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), "not a number"),
        (float("inf"), "not a number"),
        (datetime(2026, 1, 1), "time zone"),
    ],
)
async def test_a_value_that_would_be_stored_as_something_else_is_refused_by_its_path(
    gesta, value: Any, error: str
):
    async with Engine(
        flows=[webhook.flow(url="https://example.com/hook", secret="env:HOOK")]
    ) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(webhook.Message(type="order.paid", data={"order": {"at": value}}))
        assert await engine.find() == []
    assert list(refused.value.fields) == ["data['order']['at']"]
    assert error in refused.value.fields["data['order']['at']"]
