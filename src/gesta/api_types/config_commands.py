"""The command that stores a config entity, for texts about one that is missing or refused."""

import shlex
from collections.abc import Mapping

#: Kind of config → the fields that it needs, with what to write in their place. Only texts, so that
#: no channel is imported for an error.
NEEDED: Mapping[str, str] = {
    "backlog.project": "project_id=NUMBER issue_type_id=NUMBER priority_id=3",
    "backlog.space": "host=NAME.backlog.com api_key=env:BACKLOG_API_KEY",
    "email.bodies": "bucket=NAME region=NAME access_key_id=ID secret_access_key=env:AWS_SECRET",
    "email.sender": "kind=smtp host=HOST user=NAME password=env:SMTP_PASSWORD from_address=ADDRESS",
    "inbound.webhook": "secret=env:SHOP_SECRET flow=FLOW",
    "payment.gateway": "type=stripe account=ACCOUNT api_key=env:STRIPE_KEY",
    "slack.channel": "channel_id=ID",
    "slack.team": "signing_secret=env:SLACK_SIGNING_SECRET",
    "slack.workspace": "token=env:SLACK_TOKEN",
    "sms.account": "account_sid=SID auth_token=env:TWILIO_TOKEN sender=NUMBER",
    "template": "text=@FILE",
    "webhook.endpoint": "url=URL secret=env:HOOK_SECRET",
    "webhook.subscription": "endpoint=CODE",
}


def resume_command(flow: str | None, tenant: str | None, credential: str | None) -> str:
    """`resume` of exactly this pause."""
    given = {"tenant": tenant, "flow": flow, "credential": credential}
    named = [f"--{name} {shlex.quote(value)}" for name, value in given.items() if value is not None]
    return f"resume {' '.join(named) or '--everything'}"


def put_command(kind: str, code: str) -> str:
    """`config put`, with the fields that the kind needs; the name of the program is not in it."""
    return f"config put {kind} {shlex.quote(code)} {NEEDED.get(kind, 'NAME=VALUE')}"
