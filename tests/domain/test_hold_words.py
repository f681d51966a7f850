"""The name under which jobs are held is readable for people."""

import pytest

from gesta.domain.hold_words import hold_words
from gesta.tenants.pauses import EVERYTHING, Scope


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (EVERYTHING, "everything"),
        (Scope(tenant="acme"), "tenant acme"),
        (Scope(flow="shop.note"), "flow shop.note of all tenants"),
        (Scope(flow="shop.note", tenant="acme"), "flow shop.note of tenant acme"),
        (
            Scope(tenant="acme", credential="slack.workspace/my ops"),
            "credential slack.workspace/my ops of tenant acme",
        ),
        (
            Scope(tenant="acme", credential="slack.workspace/ops", is_refused=True),
            "credential slack.workspace/ops of tenant acme (refused or missing)",
        ),
        (
            Scope(flow="shop.note", tenant="acme", credential="shop.account/main"),
            "credential shop.account/main of flow shop.note of tenant acme",
        ),
    ],
    ids=str,
)
def test_every_scope_has_words_without_a_colon(scope, words):
    assert hold_words(str(scope)) == words
    assert ":" not in words
