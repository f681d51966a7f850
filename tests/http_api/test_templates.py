"""/v1/templates: previews with every missing variable, and test sends that are requests like any
other.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta.http_api import templates

PREVIEW, TEST = "/v1/templates/welcome/preview", "/v1/templates/welcome/test"


async def _put(api, tenant: str = "default", **parts: str) -> None:
    fields = parts or {
        "text": "Hello {{ name }}",
        "subject": "For {{ name }} {{ city|default('') }}",
    }
    await api.engine.admin.put_config("template", "welcome", fields, tenant=tenant)


async def test_a_preview_fills_in_the_nearest_locale(api):
    key = await api.key("read")
    await _put(api)
    await api.engine.admin.put_config("template", "welcome@pt", {"text": "Olá {{ name }}"})
    plain = await api.call("POST", PREVIEW, {"variables": {"name": "Ada"}}, key=key)
    assert (plain.status, plain.body["code"], plain.body["parts"]["text"]) == (
        200,
        "welcome",
        "Hello Ada",
    )
    near = await api.call(
        "POST", PREVIEW, {"variables": {"name": "Ada"}, "locale": "pt-BR"}, key=key
    )
    assert (near.body["code"], near.body["parts"]) == ("welcome@pt", {"text": "Olá Ada"})
    # A version counts the changes of its own entity.
    assert (near.body["version"], plain.body["version"]) == (1, 1)
    assert await api.engine.find() == []


async def test_all_missing_variables_are_reported_together(api_here):
    await _put(api_here, text="{{ a }} {{ b.c }} {{ d|default('x') }} {{ e }}")
    answer = await api_here.call(
        "POST", PREVIEW, {"variables": {"e": 1}}, key=await api_here.key("read")
    )
    assert (answer.status, set(answer.body["errors"])) == (422, {"variables.a", "variables.b.c"})


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({"variables": []}, {"variables"}),
        ({"locale": ""}, {"locale"}),
        ({"locale": "x" * 36}, {"locale"}),
        ({"vars": {}}, {"vars"}),
        ({"variables": {"n": 10**9}}, {"text"}),
    ],
    ids=["list", "no-locale", "long-locale", "unknown", "too-much"],
)
async def test_an_impossible_preview_is_reported(api_here, body, errors):
    await _put(
        api_here,
        text=(
            "{% for x in range(n|default(1)) %}{% for y in range(n|default(1)) %}x{% endfor %}{%"
            " endfor %}"
        ),
    )
    answer = await api_here.call("POST", PREVIEW, body, key=await api_here.key("read"))
    assert (answer.status, set(answer.body["errors"])) == (422, errors)


async def test_a_template_of_another_tenant_is_not_there(api):
    await _put(api)
    theirs = await api.key(tenant="acme")
    for path, body in (
        (PREVIEW, {"variables": {"name": "x"}}),
        (TEST, {"flow": "notification.slack"}),
    ):
        answer = await api.call("POST", path, body, key=theirs)
        assert (answer.status, answer.body["code"]) == (404, "not_found")
    assert await api.engine.find(tenant="acme") == []


async def test_previews_leave_room_for_others_and_for_what_is_sent(api_here):
    await _put(api_here)
    key, previews = await api_here.key("read"), api_here.web.previews
    for busy in ({"default": templates.TENANTS_MAX}, {"acme": templates.PREVIEWS_MAX}):
        previews.update(busy)
        answer = await api_here.call("POST", PREVIEW, {"variables": {"name": "x"}}, key=key)
        assert (answer.status, answer.body["code"], answer.headers["Retry-After"]) == (
            503,
            "too_many_previews",
            "1",
        )
        previews.clear()
    previews.update({"acme": templates.TENANTS_MAX})
    bad = [api_here.call("POST", PREVIEW, {}, key=key) for _ in range(templates.TENANTS_MAX)]
    assert [one.status for one in await asyncio.gather(*bad)] == [422] * templates.TENANTS_MAX
    assert previews == {"acme": templates.TENANTS_MAX}


async def test_a_test_send_goes_out_by_the_flow_and_is_marked(api):
    admin, key = await api.key(), await api.key("submit", "read")
    await _put(api)
    workspace = {"fields": {"token": "xoxb-1-sandbox"}}
    assert (
        await api.call("PUT", "/v1/config/slack.workspace/default", workspace, key=admin)
    ).status == 200
    body = {
        "flow": "notification.slack",
        "destination": {"channel": "C012AB3CD"},
        "variables": {"name": "Ada"},
    }
    made = await api.call("POST", f"{TEST}?wait=20s", body, key=key)
    assert made.status == 202, made.text
    shown = await api.call("GET", made.headers["Location"], key=key)
    assert (shown.body["status"], shown.body["correlationId"]) == (
        "sent",
        "test:template/welcome",
    ), shown.text
    assert [effect.text for effect in api.sandbox.slack.effects] == ["Hello Ada"]


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (
            {"flow": "notification.slack", "destination": {"channel": "C012AB3CD"}},
            {"variables.name"},
        ),
        ({"flow": "notification.sms", "variables": {"name": "x"}}, {"destination.to"}),
        (
            {"flow": "notification.slack", "destination": {"template": "other", "data": {}}},
            {"destination.template", "destination.data"},
        ),
        ({"flow": "notification.slack", "destination": {"colour": 1}}, {"destination.colour"}),
        ({"flow": "shop.note"}, {"flow"}),
        ({"flow": "shop.nothing"}, {"flow"}),
        ({}, {"flow"}),
    ],
)
async def test_every_error_of_a_test_send_is_reported_under_the_callers_names(
    api_here, body, errors
):
    await _put(api_here)
    answer = await api_here.call("POST", TEST, body, key=await api_here.key("submit"))
    assert (answer.status, set(answer.body["errors"])) == (422, errors)
    assert await api_here.engine.find() == []


async def test_each_takes_its_scope(api_here):
    await _put(api_here)
    assert (
        await api_here.call("POST", PREVIEW, {}, key=await api_here.key("submit"))
    ).status == 403
    assert (
        await api_here.call("POST", TEST, {"flow": "x"}, key=await api_here.key("read", "operate"))
    ).status == 403
