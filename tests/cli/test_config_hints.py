"""The commands that texts recommend for missing config are complete: they name every field that the
kind needs.
"""

import msgspec
import pytest

from gesta.api_types.config_commands import NEEDED, put_command
from gesta.flows import card, email, slack, sms, ticket, webhook
from gesta.flows.flow import ConfigBody
from gesta.intake.inbound import webhook as inbound_webhook
from gesta.intake.inbound.slack import flow as slack_events
from gesta.runtime.redaction import scrub

FLOWS = (
    card.flow(),
    email.flow(),
    slack.flow(),
    slack_events(),
    sms.flow(),
    ticket.flow(),
    webhook.flow(),
    inbound_webhook.flow(),
)
KINDS: dict[str, type[ConfigBody]] = {
    kind: body for flow in FLOWS for kind, body in flow.config.items()
}


@pytest.mark.parametrize("kind", sorted(NEEDED))
def test_a_recommended_command_names_every_field_that_the_kind_needs(kind):
    fields = {one.name: one.required for one in msgspec.structs.fields(KINDS[kind])}
    given = {word.partition("=")[0] for word in NEEDED[kind].split()}
    assert given <= set(fields)
    assert {name for name, is_required in fields.items() if is_required} <= given
    command = put_command(kind, "default")
    assert scrub(f"store it: {command} (or PUT)") == f"store it: {command} (or PUT)"


def test_a_code_with_blanks_is_quoted():
    assert put_command("slack.team", "a b").startswith("config put slack.team 'a b' ")
    assert put_command("shop.room", "main") == "config put shop.room main NAME=VALUE"


def test_a_put_without_fields_names_those_of_the_kind(cli):
    answer = cli("config", "put", "webhook.endpoint", "shop")
    assert answer.code == 2
    assert "gesta config put webhook.endpoint shop url=URL secret=env:HOOK_SECRET" in answer.err
    assert "it knows: url, secret" in answer.err
