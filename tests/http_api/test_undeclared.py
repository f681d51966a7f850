"""A channel of gesta's own that this process does not declare: the answer says how to add it,
before what is wrong with a body.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import gesta.flows
from gesta.flows.channels import CHANNELS, flow_name, module_of
from tests.http_api.served import note, served


@pytest.fixture
async def bare(tmp_path):
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", flows=[note]) as one:
        yield one


def test_the_names_are_those_of_the_channels():
    flows = {name: import_module(module_of(name)).flow() for name in CHANNELS}
    assert {name: tuple(flow.config) for name, flow in flows.items()} == CHANNELS
    assert {name: flow.name for name, flow in flows.items()} == {
        name: flow_name(name) for name in CHANNELS
    }


def test_every_module_that_makes_a_flow_is_named():
    folder = Path(gesta.flows.__file__).parent
    makers = {
        ".".join(("gesta.flows", *path.relative_to(folder).with_suffix("").parts))
        for path in folder.rglob("*.py")
        # flow.py has the decorator of that name.
        if path.name != "flow.py" and re.search(r"^def flow\(", path.read_text(), re.MULTILINE)
    }
    named = {module_of(name) for name in CHANNELS}
    assert {name.removesuffix(".__init__") for name in makers} <= named
    assert "gesta.flows.sms.__init__" in makers


@pytest.mark.parametrize("body", [{"address": "ada@example.com"}, {"addres": "ada@example.com"}])
async def test_a_list_of_a_channel_that_is_not_declared(bare, body):
    answer = await bare.call(
        "PUT", "/v1/suppression/notification.email", body, key=await bare.key()
    )
    assert answer.status == 422
    assert set(answer.body["errors"]) == {"flow"}
    assert answer.body["detail"].endswith("; add gesta.flows.email.flow() to the Engine's flows")


@pytest.mark.parametrize("body", [{"fields": {"token": "xoxb-1-a"}}, {"token": "xoxb-1-a"}])
async def test_config_of_a_channel_that_is_not_declared(bare, body):
    answer = await bare.call(
        "PUT", "/v1/config/slack.workspace/default", body, key=await bare.key()
    )
    assert answer.status == 404
    assert answer.body["detail"].endswith(
        "known: none; add gesta.flows.slack.flow() to the Engine's flows"
    )


async def test_an_unknown_name_has_no_remedy(bare):
    answer = await bare.call(
        "PUT", "/v1/config/shop.counter/default", {"fields": {}}, key=await bare.key()
    )
    assert (answer.status, answer.body["detail"][-11:]) == (404, "known: none")
