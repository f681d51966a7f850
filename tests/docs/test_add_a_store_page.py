"""The page about new stores lists what a store must implement."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from typing import Any

from gesta import ports
from gesta.ports.eager_dispatch import EagerDispatch
from gesta.ports.job_store import JobClaims, JobStore
from gesta.ports.stores import PORTS, methods_of
from tests.docs.test_docs import ROOT

ROWS = re.compile(r"^\| `(\w+)` \| ([\w, ]+) \|", re.MULTILINE)
MOST_METHODS = 8
#: The worker offers its slots to a store; stores/job_results.py makes the others for all stores.
NOT_BY_A_STORE = (EagerDispatch, JobClaims, JobStore)


def protocols() -> dict[str, Any]:
    """All that the modules of gesta.ports define, but those that only join others."""
    homes = [
        import_module(f"gesta.ports.{one.name}") for one in pkgutil.iter_modules(ports.__path__)
    ]
    return {
        name: one
        for home in homes
        for name, one in vars(home).items()
        if getattr(one, "_is_protocol", False) and one.__module__ == home.__name__
        if methods_of(one)
    }


def test_the_page_lists_the_methods_of_every_port():
    listed = ROWS.findall((ROOT / "docs" / "add-a-store.md").read_text())
    wanted = {
        name: methods_of(one) for name, one in protocols().items() if one not in NOT_BY_A_STORE
    }
    assert {name: methods.split(", ") for name, methods in listed} == wanted
    assert len(listed) == len(wanted)
    assert set(PORTS.values()) <= {*protocols().values()}


def test_no_port_has_more_than_eight_methods():
    sizes = {name: len(methods_of(one)) for name, one in protocols().items()}
    assert len(sizes) >= len(PORTS)
    assert {name: size for name, size in sizes.items() if size > MOST_METHODS} == {}
