"""What holds a request, as the API and the command line show it."""

from __future__ import annotations

import msgspec
import pytest

from gesta.tenants.pauses import EVERYTHING, Pause, Refusal, Scope


@pytest.mark.parametrize(
    ("scope", "shown"),
    [
        (EVERYTHING, {"kind": "pause"}),
        (Scope("test.note"), {"kind": "pause", "flow": "test.note"}),
        (Scope("a.b", "acme"), {"kind": "pause", "flow": "a.b", "tenant": "acme"}),
        (
            Scope(None, "acme", "slack.workspace/main"),
            {"kind": "pause", "tenant": "acme", "name": "slack.workspace/main"},
        ),
        (
            Scope(None, "acme", "slack.workspace/main", is_refused=True),
            {"kind": "credential", "tenant": "acme", "name": "slack.workspace/main"},
        ),
    ],
)
def test_held_by_is_an_object_without_absent_parts(scope, shown):
    held = Pause(scope, "", 0, "", Refusal(1) if scope.is_refused else None).held_by
    assert msgspec.to_builtins(held) == shown
    # The `scope` of the pause in the list of pauses.
    assert str(held) == str(scope)
