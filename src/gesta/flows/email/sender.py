"""Who sends a tenant's letters: config of kind `email.sender`, by code."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from gesta.domain.outcome import Rejected, Retry
from gesta.flows.attempt import Attempt
from gesta.flows.flow import ConfigBody, Secret
from gesta.outbound.http import AttemptEnded
from gesta.outbound.rate_limits import PerSecond
from gesta.tenants.config import not_stored

SENDER = "email.sender"
#: Letters a second for one sender unless its config says otherwise (R2-35).
PER_SECOND = 100.0


class Sender(ConfigBody, frozen=True):
    """An account that letters are handed in with.

    `kind` says how: by SMTP (`host` …) or by Amazon SES (`region` …).
    """

    # Amazon's secret signs and is never sent.
    sent_to: ClassVar = {"password": ("host",)}

    kind: Literal["smtp", "ses"]
    from_address: Annotated[
        str, msgspec.Meta(min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")
    ]
    from_name: Annotated[
        str, msgspec.Meta(max_length=100, pattern=r"^((?!=\?)[^\x00-\x1f\x7f-\x9f])*$")
    ] = ""
    #: SMTP.
    host: Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[A-Za-z0-9.:-]*$")] = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: Secret[str] = ""
    #: SES.
    region: Annotated[str, msgspec.Meta(max_length=40, pattern=r"^[a-z0-9-]*$")] = ""
    access_key_id: str = ""
    secret_access_key: Secret[str] = ""
    configuration_set: str = ""
    #: SNS topics that report on this sender's letters; no other is believed.
    report_topics: list[
        Annotated[
            str,
            msgspec.Meta(
                max_length=256, pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$"
            ),
        ]
    ] = msgspec.field(default_factory=list)
    #: Another address than Amazon's own, for a trial.
    endpoint_url: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s/?#]+.*)?$")] = ""
    per_second: PerSecond = PER_SECOND

    def __repr__(self) -> str:
        return f"Sender({self.kind})"


def credential(code: str) -> str:
    """What a refused account is held under."""
    return f"{SENDER}/{code}"


def sender_of(attempt: Attempt, code: str) -> Sender:
    """The account that a letter names. Ends the attempt when the tenant has none of that code."""
    entity = attempt.config.get(SENDER, code)
    if entity is None:
        raise AttemptEnded(Rejected("sender_missing", not_stored(SENDER, code)))
    sender = entity.body
    assert isinstance(sender, Sender)
    if (sender.kind == "smtp" and not sender.host) or (sender.kind == "ses" and not sender.region):
        needed = "host" if sender.kind == "smtp" else "region"
        raise AttemptEnded(Retry("bad_config", f"the {SENDER} has no {needed}; put it again"))
    return sender


async def secret_of(attempt: Attempt, code: str, field: str) -> str:
    """The newest version of a sender's secret, empty when it has none."""
    found = await attempt.config.secrets(SENDER, code, field)
    return found[0] if found else ""
