"""The page about new stores lists what a store must implement."""

from __future__ import annotations

import re

from gesta.ports.event_store import EventRemoval
from gesta.ports.read_model import Shadow
from gesta.ports.stores import PORTS, methods_of
from gesta.ports.view_positions import ViewPositions
from tests.docs.test_docs import ROOT

ROWS = re.compile(r"^\| `(\w+)` \| ([\w, ]+) \|", re.MULTILINE)
MOST_METHODS = 8


def test_the_page_lists_the_methods_of_every_port():
    listed = ROWS.findall((ROOT / "docs" / "add-a-store.md").read_text())
    protocols = [*PORTS.values(), Shadow, ViewPositions, EventRemoval]
    assert {name: methods.split(", ") for name, methods in listed} == {
        protocol.__name__: methods_of(protocol) for protocol in protocols
    }
    assert len(listed) == len(protocols)


def test_no_port_has_more_than_eight_methods():
    assert {
        protocol.__name__: len(methods_of(protocol))
        for protocol in PORTS.values()
        if len(methods_of(protocol)) > MOST_METHODS
    } == {}
