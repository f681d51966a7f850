"""The description of the API is made from the table, and what it says is so."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import jsonschema_rs
import msgspec
import pytest

from gesta import Attempt, Done, Engine, Outcome, Payload, flow
from gesta.api_types.requests import Submit
from gesta.flows import card, email, slack, sms, webhook
from gesta.flows.external import external
from gesta.http_api.app import ROUTES
from gesta.http_api.openapi import body_examples, describe, plain_path, problems_of, successes_of
from tests.http_api.served import note, served

FLOWS = {one.name: one for one in (note, slack.flow(), sms.flow(), webhook.flow(), email.flow())}
DOCUMENT = describe(ROUTES, FLOWS)


def schema_of(name):
    """A component as a schema that stands alone."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": f"#/components/schemas/{name}",
        "components": DOCUMENT["components"],
    }


def test_every_route_is_described_with_its_scope_and_all_that_can_go_wrong():
    for route in ROUTES:
        operation = DOCUMENT["paths"][plain_path(route)][route.method.lower()]
        assert operation["security"] == (
            []
            if route.scope is None
            else [{"bearer": [route.scope] if route.scope != "any" else []}]
        )
        assert set(operation["responses"]) == {
            str(status) for status in (*successes_of(route), *problems_of(route))
        }
        named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)", route.path))
    ids = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert len(ids) == len(set(ids)) == len(ROUTES)


def test_every_reference_leads_somewhere():
    def references(part):
        if isinstance(part, list):
            for one in part:
                yield from references(one)
        elif isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for one in part.values():
                yield from references(one)

    found = set(references(DOCUMENT))
    assert len(found) > 20
    for one in found:
        kind, name = one.removeprefix("#/components/").split("/")
        assert name in DOCUMENT["components"][kind], one


def test_every_component_is_a_schema_of_json_schema_2020():
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema_rs.meta.validate(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        )
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)


def test_every_example_fits_its_schema():
    tried = 0
    for route in ROUTES:
        for example in body_examples(route, FLOWS).values():
            name = DOCUMENT["paths"][plain_path(route)][route.method.lower()]["requestBody"][
                "content"
            ][route.takes]["schema"]["$ref"]
            jsonschema_rs.validate(schema_of(name.rpartition("/")[2]), example)
            tried += 1
    assert tried >= len(FLOWS) + 3


def test_a_request_is_described_by_the_payload_of_its_flow():
    assert DOCUMENT["components"]["schemas"]["FlowName"]["enum"] == sorted(FLOWS)
    fitting = {"flow": "notification.webhook", "payload": {"type": "order.paid", "data": {}}}
    jsonschema_rs.validate(schema_of("Submit"), fitting)
    for wrong in (
        {**fitting, "flow": "notification.slack"},
        {**fitting, "payload": {}},
        {**fitting, "flow": "shop.nothing"},
    ):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema_of("Submit"), wrong)


async def test_every_example_can_be_tried_as_it_is(tmp_path):
    flows = [
        note,
        slack.flow(),
        webhook.flow(),
        sms.flow(),
        card.flow(),
        external("shop.pick", on_unknown="manual"),
    ]
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}", flows=flows) as api:
        await _try_all(api)


async def _try_all(api_here):
    key = await api_here.key()
    place = (await api_here.submit(key, "refuse")).body
    flows = {"external work": "shop.pick", "suppression": "notification.sms"}
    for route in ROUTES:
        for name, example in body_examples(route, api_here.engine.flows).items():
            if "waitSeconds" in example:
                example["waitSeconds"] = 0
            if route.tag == "suppression":
                example["address"] = "+4930123456"
            path = route.path.replace("{flow}", flows.get(route.tag, "shop.note")).replace(
                "{id}", place["id"]
            )
            answer = await api_here.call(
                route.method, re.sub(r"\{\w+\}", "example", path), example, key=key
            )
            # What the example is about may not be there, or be in another state: but it was
            # understood.
            assert answer.status in {*successes_of(route), 404, 409}, (
                route.name,
                name,
                answer.text,
            )
            assert route.body is not Submit or answer.status == 202, (name, answer.text)


async def test_the_description_needs_no_key_and_lists_no_other_programs_flows(api_here):
    answer = await api_here.call("GET", "/openapi.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.body["components"]["schemas"]["FlowName"]["enum"] == sorted(api_here.engine.flows)
    assert answer.body["servers"] == [{"url": "/"}]


class Odd(Payload, frozen=True):
    number: complex


@flow("shop.odd", on_unknown="manual")
async def odd(payload: Odd, attempt: Attempt) -> Outcome:
    return Done()


@pytest.mark.parametrize("name", [name for name, one in FLOWS.items() if one.example])
async def test_the_example_of_a_channel_is_accepted_as_it_is_printed(name, tmp_path):
    async with Engine(
        f"sqlite:///{tmp_path}/examples.db", flows=list(FLOWS.values()), work=False
    ) as engine:
        assert (await engine.submit(engine.payload(name, FLOWS[name].example))).verdict == "created"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        given = dict(attrs)
        self.addresses += [given[name] for name in ("href", "src") if name in given]
        self.ids += [given["id"]] if "id" in given else []


async def test_the_page_is_one_text_without_script_or_anything_from_elsewhere(api_here):
    answer = await api_here.call("GET", "/docs")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    tags = Tags()
    tags.feed(answer.text)
    assert not {"script", "link", "img", "iframe", "form"} & set(tags.names)
    assert {one for one in tags.addresses if not one.startswith("#")} == {"openapi.json"}
    # Every link of the page leads to a place on it.
    assert {one[1:] for one in tags.addresses if one.startswith("#")} <= set(tags.ids)
    for route in ROUTES:
        assert route.name in tags.ids


async def test_the_examples_call_the_server_that_the_reader_has_reached(api_here):
    here = await api_here.call("GET", "/docs", headers={"Host": "gesta.example:8443"})
    assert "SERVER=http://gesta.example:8443\n" in here.text
    odd = await api_here.call("GET", "/docs", headers={"Host": "<b>gesta"})
    assert "SERVER=http://127.0.0.1:8420\n" in odd.text


def test_a_payload_that_has_no_schema_is_any_object():
    document = describe(ROUTES, {"shop.odd": odd})
    assert document["components"]["schemas"]["shop.odd"] == {"type": "object"}


def test_a_page_shows_no_markup_of_a_flows_words():
    from gesta.http_api.description import page_of

    document = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    document["components"]["schemas"]["FlowName"]["description"] = "<script>alert(1)</script> `<b>`"
    page = page_of(document).decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<code>&lt;b&gt;</code>" in page


async def test_the_conditions_of_a_bulk_run_have_the_names_of_the_api(api_here):
    """`dead_letters` alone was a filter in Python only: the schema refused it."""
    document = (await api_here.call("GET", "/openapi.json")).body
    bulk = document["components"]["schemas"]["Bulk"]
    names = {one for choice in bulk["anyOf"] for one in choice["required"]}
    assert "deadLetters" in names
    assert names <= set(bulk["properties"])
    assert {*re.findall(r"`(\w+)`", bulk["description"])} <= set(bulk["properties"])
