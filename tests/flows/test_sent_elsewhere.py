"""Who may write config, and read no secret, cannot have a stored one sent to themselves."""

from __future__ import annotations

import pytest

from gesta import Engine
from gesta.errors import BadConfig
from gesta.flows import email, slack, sms
from gesta.runtime.settings import Settings
from tests.world import URL

STORED = {
    "slack.workspace": {"token": "xoxb-1"},
    "sms.account": {"account_sid": "AC1", "auth_token": "token-1", "sender": "+15550100"},
    "email.sender": {
        "kind": "smtp",
        "from_address": "shop@example.com",
        "host": "mail.example.com",
        "user": "shop",
        "password": "secret-1",
    },
}
ELSEWHERE = [
    ("slack.workspace", "token", "api_url", "https://evil.example/api/"),
    ("sms.account", "auth_token", "api_url", "https://evil.example"),
    ("email.sender", "password", "host", "evil.example"),
]


@pytest.fixture
async def admin(gesta):
    async with Engine(
        flows=[slack.flow(), sms.flow(), email.flow()], settings=Settings(url=URL), work=False
    ) as engine:
        for kind, fields in STORED.items():
            await engine.admin.put_config(kind, "main", fields)
        yield engine.admin


@pytest.mark.parametrize(("kind", "secret", "field", "elsewhere"), ELSEWHERE)
async def test_a_stored_secret_is_not_kept_for_another_address(
    admin, kind, secret, field, elsewhere
):
    moved = {**STORED[kind], field: elsewhere}
    without = {name: value for name, value in moved.items() if name != secret}
    for given in (without, without | {secret: ""}):
        with pytest.raises(BadConfig) as refused:
            await admin.put_config(kind, "main", given)
        assert refused.value.fields == {
            secret: f"give it again: {field} changed, and a stored secret is never sent to another"
            " receiver"
        }
    (stored,) = [one for one in await admin.list_config() if one.kind == kind]
    assert getattr(stored.body, field) != elsewhere
    # Another program that knows it may send it anywhere.
    await admin.put_config(kind, "main", moved)


@pytest.mark.parametrize(("kind", "secret", "field", "elsewhere"), ELSEWHERE)
async def test_a_stored_secret_is_kept_while_the_address_stays(
    admin, kind, secret, field, elsewhere
):
    given = {name: value for name, value in STORED[kind].items() if name != secret}
    entity = await admin.put_config(kind, "main", given | {"per_second": 2.0})
    assert entity.body.per_second == 2.0
    assert len(entity.secrets[secret]) == 1


@pytest.mark.parametrize("kind", STORED)
async def test_a_rate_near_nothing_is_refused(admin, kind):
    with pytest.raises(BadConfig) as refused:
        await admin.put_config(kind, "main", STORED[kind] | {"per_second": 1e-320})
    assert list(refused.value.fields) == ["per_second"]
