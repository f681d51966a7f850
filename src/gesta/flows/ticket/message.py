"""ticket.backlog: what a request carries, and the config that a tenant stores by code."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from gesta.domain.event_message import EventMessage, has_place
from gesta.flows.flow import ConfigBody, Payload, Secret

NAME: Final = "ticket.backlog"
SPACE: Final = "backlog.space"
PROJECT: Final = "backlog.project"
DEFAULT: Final = "default"
#: Backlog's limit of a summary, which is one line.
SUMMARY_LENGTH_MAX: Final = 255
DESCRIPTION_LENGTH_MAX: Final = 60_000

Code = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Id = Annotated[int, msgspec.Meta(ge=1)]


class Ticket(Payload, frozen=True, rename="camel"):
    """An issue to create: with a summary, or from an event of Slack."""

    summary: Annotated[str, msgspec.Meta(max_length=SUMMARY_LENGTH_MAX)] | None = None
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_LENGTH_MAX)] = ""
    #: Code of a backlog.project. Without it: that of the Slack channel, of the team, or `default`.
    project: Code | None = None
    #: Code of a backlog.space.
    space: Code = DEFAULT
    #: The Slack message that asks for the issue.
    event: EventMessage | None = None


class Space(ConfigBody, frozen=True):
    """A space of Backlog and the API key to create issues with."""

    sent_to: ClassVar = {"api_key": ("host", "api_url")}

    #: example.backlog.com, example.backlog.jp or example.backlogtool.com
    host: Annotated[
        str,
        msgspec.Meta(
            pattern="^[a-z0-9-]+(\\.[a-z0-9-]+)+$", max_length=253, examples=["example.backlog.com"]
        ),
    ]
    api_key: Secret[str]
    #: Issues created per second. Backlog advises at most one.
    per_second: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 1.0
    #: Instead of https://HOST, for tests.
    api_url: (
        Annotated[
            str,
            msgspec.Meta(
                pattern="^https?://", max_length=500, examples=["https://example.backlog.com"]
            ),
        ]
        | None
    ) = None

    @property
    def url(self) -> str:
        return (self.api_url or f"https://{self.host}").rstrip("/")


class Project(ConfigBody, frozen=True):
    """Where issues go, and what kind they are.

    The code is any name, a Slack team (`T012AB3CD`) or one of its channels (`T012AB3CD.C012AB3CD`).
    """

    project_id: Id
    issue_type_id: Id
    #: 2 high, 3 normal, 4 low.
    priority_id: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    assignee_id: Id | None = None
    category_ids: tuple[Id, ...] = ()
    notified_user_ids: tuple[Id, ...] = ()


def project_codes(ticket: Ticket) -> tuple[str, ...]:
    """The codes under which the project is looked for, the most specific first."""
    if ticket.project is not None:
        return (ticket.project,)
    event = None if ticket.event is None else ticket.event.data.slack_event
    if event is None:
        return (DEFAULT,)
    return (f"{event.team}.{event.channel}", event.team, DEFAULT)


def errors_of(ticket: Ticket) -> Mapping[str, str]:
    """Field → error, for what the type cannot express."""
    if ticket.event is None:
        if ticket.summary is None or not ticket.summary.strip():
            return {"summary": "missing: a ticket needs a summary or a slackEvent"}
        if not all(one.isprintable() for one in ticket.summary):
            return {"summary": "one line without control characters"}
        return {}
    if ticket.summary is not None or ticket.description:
        return {"event": "give either a slackEvent or a summary, not both"}
    if ticket.event.data.slack_event is None:
        return {"event": "only Slack events have a text for an issue"}
    if not has_place(ticket.event.data):
        return {"event": "slackEvent has no valid channel, user or ts"}
    return {}
