"""The issue of a ticket: summary, description, and the marker by which it is found again.

Text of a Slack message is hostile: it may contain control characters, markup, or the marker of
another message.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gesta.domain.event_message import SlackEvent
from gesta.flows.attempt import Attempt
from gesta.flows.ticket.message import (
    DESCRIPTION_LENGTH_MAX,
    SUMMARY_LENGTH_MAX,
    Project,
    Ticket,
)
from gesta.intake.inbound.slack import KEYWORD, TEAM, Team, message_key
from gesta.intake.inbound.slack_text import after_keyword, plain

DEFAULT_SUMMARY: Final = "Slackから登録されたタスク"
#: A line that looks like a marker of ours.
_MARKER: Final = re.compile(r"^(?=\s*(?:slack|gesta):\S+\s*$)", re.MULTILINE)
#: Everything below a blank except tab and line feed, and what XML does not know.
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_CUT: Final = "…"


class Issue(NamedTuple):
    summary: str
    description: str
    #: A line of the description that no other issue has.
    marker: str


def issue_of(ticket: Ticket, attempt: Attempt) -> Issue:
    event = None if ticket.event is None else ticket.event.data.slack_event
    if event is None:
        marker = f"gesta:{attempt.tenant}/{attempt.request_id}"
        said = _harmless(ticket.description)
        return Issue(
            _one_line(ticket.summary or DEFAULT_SUMMARY), f"{said}\n\n{marker}".lstrip(), marker
        )
    stored = attempt.config.get(TEAM, event.team)
    team = stored.body if stored is not None and isinstance(stored.body, Team) else None
    keyword, match = (KEYWORD, "prefix") if team is None else (team.keyword, team.match)
    found = after_keyword(event.text, keyword, match)  # type: ignore[arg-type]
    said = _harmless(plain(event.text if found is None else found)).strip()
    marker = message_key(event.team, event.channel, event.ts)
    first = next((line for line in said.splitlines() if line.strip()), "")
    return Issue(
        _one_line(first) or DEFAULT_SUMMARY,
        "\n".join((said[:DESCRIPTION_LENGTH_MAX], "", *_source(event, team), marker)).lstrip(),
        marker,
    )


def form_of(issue: Issue, project: Project) -> list[tuple[str, str]]:
    """The fields of the request, to be form-encoded: Backlog does not read JSON."""
    fields = [
        ("projectId", str(project.project_id)),
        ("summary", issue.summary),
        ("issueTypeId", str(project.issue_type_id)),
        ("priorityId", str(project.priority_id)),
        ("description", issue.description),
    ]
    if project.assignee_id is not None:
        fields.append(("assigneeId", str(project.assignee_id)))
    fields += [("categoryId[]", str(one)) for one in project.category_ids]
    fields += [("notifiedUserId[]", str(one)) for one in project.notified_user_ids]
    return fields


def has_marker(description: object, marker: str) -> bool:
    """Whether a description has the marker as a line of its own: a search finds parts of it too."""
    return isinstance(description, str) and marker in (
        line.strip() for line in description.splitlines()
    )


def _source(event: SlackEvent, team: Team | None) -> list[str]:
    at = datetime.fromtimestamp(int(event.ts.partition(".")[0]), UTC)
    host = f"{team.domain}.slack.com" if team is not None and team.domain else "slack.com"
    return [
        f"Slack: https://{host}/archives/{event.channel}/p{event.ts.replace('.', '')}",
        f"User: {event.user}",
        f"Channel: {event.channel}",
        f"Time: {at:%Y-%m-%dT%H:%M:%SZ}",
    ]


def _harmless(text: str) -> str:
    """Without control characters, and with lines that look like a marker quoted."""
    return _MARKER.sub("> ", _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _one_line(text: str) -> str:
    line = " ".join(_CONTROL.sub("", text).split())
    return line if len(line) <= SUMMARY_LENGTH_MAX else line[: SUMMARY_LENGTH_MAX - 1] + _CUT
