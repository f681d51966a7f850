"""Puts a bug in the place of a function of the domain, wherever a lifecycle holds that function."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.task import TASK


def plant(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, bug: Any) -> None:
    original = getattr(where, name)
    monkeypatch.setattr(where, name, bug)
    for lifecycle in (NOTIFICATION, TASK):
        for table in (lifecycle.decisions, lifecycle.folds):
            for key, held in table.items():
                if held is original:
                    monkeypatch.setitem(cast("dict[Any, Any]", table), key, bug)
