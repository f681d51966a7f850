"""ticket.backlog: an issue in Backlog, from a Slack message or from a program.

Backlog's answer, and the outcome:

- 201: Done, with the key of the issue as id.
- Rate limited (429, code 13): not created. The space's limit is closed for all processes until
  `X-RateLimit-Reset`; the request waits and uses up no attempt. The same if an answer says that no
  call remains.
- 401, codes 11 and 12: requests of the space are held until its API key changes.
- Codes 2 to 10: Rejected with a reason of gesta.
- Code 1, 5xx, a lost answer: Unknown. Backlog is searched for the marker in the description.
- No connection: Retry, three attempts in all.
- No space or no project is stored: the request is held until it is.

Backlog has no idempotency key. The marker is searched before an issue is created again, whatever
the reason. The window for a duplicate: the issue was created, its answer was lost, and a person
removed the marker before Backlog was searched; or Backlog's search does not show it within
ASK_AFTER_SECONDS.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from gesta.domain.commands import Rules
from gesta.domain.event_message import (
    AGE_ALARM_SECONDS,
    DEAD_LETTER_RETENTION_SECONDS,
    DEAD_LETTERS_ALARM,
    DEPTH_ALARM,
    TRIES_MAX,
    VISIBILITY_SECONDS,
)
from gesta.domain.outcome import Done, Outcome, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused, Postponed
from gesta.flows.flow import ConfigBody, Executor, Flow, QueueAlarms
from gesta.flows.ticket.backlog import (
    MEANINGS,
    OTHER,
    Backlog,
    is_used_up,
    meaning_of,
    outcome_of,
    wait_seconds,
)
from gesta.flows.ticket.issue import form_of, issue_of
from gesta.flows.ticket.message import (
    NAME,
    PROJECT,
    SPACE,
    Project,
    Space,
    Ticket,
    errors_of,
    project_codes,
)
from gesta.intake.inbound.slack import TEAM, Team
from gesta.outbound.http import HttpResponse, ProviderRefusal
from gesta.outbound.rate_limits import Limit
from gesta.tenants.config import TenantConfig

__all__ = ["NAME", "Project", "Space", "Ticket", "flow"]

#: An issue that Backlog created just before the connection broke is found by then.
ASK_AFTER_SECONDS: Final = 30.0
#: A try ends before the visibility of its message would.
DEADLINE_SECONDS: Final = 45.0
#: Three tries in all, and the waits between them: an outage of five minutes makes no dead letters.
RETRY: Final = RetryPolicy(
    attempts=TRIES_MAX, schedule_seconds=(float(VISIBILITY_SECONDS), 5.0 * VISIBILITY_SECONDS)
)
_REASONS: Final = frozenset(
    {
        *(reason for _, reason in MEANINGS.values()),
        OTHER,
        "space_missing",
        "project_missing",
        "not_created",
        "bad_answer",
    }
)


def flow(*, timeout_seconds: float = 20.0, concurrency: int = 20) -> Flow:
    """The channel. Spaces and projects are config: `backlog.space`, `backlog.project`."""
    return Flow(
        NAME,
        Ticket,
        _executor(timeout_seconds),
        Rules(RETRY, "reconcile", ask_after_seconds=ASK_AFTER_SECONDS),
        _reconciler(timeout_seconds),
        timeout_seconds=max(DEADLINE_SECONDS, 2 * timeout_seconds),
        concurrency=concurrency,
        config={SPACE: Space, PROJECT: Project, TEAM: Team},
        dead_letter_seconds=DEAD_LETTER_RETENTION_SECONDS,
        example={"summary": "Replace the printer", "description": "On the second floor"},
        target=lambda ticket: project_codes(ticket)[0],
        credential=lambda ticket: f"{SPACE}/{ticket.space}",
        check=_check,
        tags=_tags,
        reasons=_REASONS,
        clear_texts=True,
        alarms=frozenset({OTHER}),
        queue_alarms=QueueAlarms(DEPTH_ALARM, AGE_ALARM_SECONDS, DEAD_LETTERS_ALARM),
        effects="attempt",
        stand_ins=_stand_ins,
    )


def _executor(timeout_seconds: float) -> Executor:
    async def execute(ticket: Ticket, attempt: Attempt) -> Outcome:
        space, backlog = await _space(ticket, attempt, timeout_seconds)
        project, issue = _project(ticket, attempt), issue_of(ticket, attempt)
        await attempt.limits.take(_limit(ticket, space))
        try:
            if attempt.number > 1:
                key = await backlog.find(issue.marker, project.project_id)
                if key is not None:
                    return _done(key, space, "found by its marker")
            key, response = await backlog.create(form_of(issue, project))
        except ProviderRefusal as refused:
            return await _ending(refused.response, ticket, attempt, space)
        if is_used_up(response):
            await attempt.limits.close(_limit(ticket, space).name, _wait(response, attempt))
        if not key:
            return Unknown("bad_answer", "Backlog accepted it but returned no issue")
        return _done(key, space)

    return execute


def _reconciler(timeout_seconds: float) -> Executor:
    async def reconcile(ticket: Ticket, attempt: Attempt) -> Outcome:
        space, backlog = await _space(ticket, attempt, timeout_seconds)
        project, issue = _project(ticket, attempt), issue_of(ticket, attempt)
        try:
            key = await backlog.find(issue.marker, project.project_id)
        except ProviderRefusal as refused:
            outcome = await _ending(refused.response, ticket, attempt, space)
            # A refused question does not resolve the outcome.
            return outcome if isinstance(outcome, Done) else Unknown(outcome.reason, outcome.detail)
        if key is None:
            return Retry("not_created", "Backlog has no issue with the marker")
        return _done(key, space, "found by its marker")

    return reconcile


def _done(key: str, space: Space, detail: str = "") -> Done:
    return Done(key, f"https://{space.host}/view/{key}" if key else "", detail)


async def _space(ticket: Ticket, attempt: Attempt, timeout_seconds: float) -> tuple[Space, Backlog]:
    stored = attempt.config.get(SPACE, ticket.space)
    if stored is None:
        raise ConfigMissing(SPACE, ticket.space, "space_missing")
    assert isinstance(stored.body, Space)
    keys = await attempt.config.secrets(SPACE, ticket.space, "api_key")
    if not keys:
        raise CredentialRefused(
            f"{SPACE}/{ticket.space}", SECRET_MISSING, "the vault has no api_key"
        )
    return stored.body, Backlog(
        attempt.http, stored.body.url, keys[0], timeout_seconds=timeout_seconds
    )


def _project(ticket: Ticket, attempt: Attempt) -> Project:
    codes = project_codes(ticket)
    for code in codes:
        stored = attempt.config.get(PROJECT, code)
        if stored is not None:
            assert isinstance(stored.body, Project)
            return stored.body
    raise ConfigMissing(PROJECT, codes[-1], "project_missing")


def _limit(ticket: Ticket, space: Space) -> Limit:
    return Limit(f"backlog/{ticket.space}", space.per_second)


async def _ending(
    response: HttpResponse, ticket: Ticket, attempt: Attempt, space: Space
) -> Outcome:
    """The ending of an attempt that Backlog refused. Limits and refused keys concern all requests
    of the space.
    """
    meaning, reason = meaning_of(response) or (None, "")
    if meaning == "credential":
        raise CredentialRefused(
            f"{SPACE}/{ticket.space}", reason, f"Backlog answered {response.status}"
        )
    if meaning == "throttled":
        await _throttled(attempt, _limit(ticket, space), _wait(response, attempt))
    return outcome_of(response)


def _wait(response: HttpResponse, attempt: Attempt) -> float:
    return wait_seconds(response, attempt.http.retry_after(response), attempt.at_ms)


async def _throttled(attempt: Attempt, limit: Limit, seconds: float) -> NoReturn:
    await attempt.limits.close(limit.name, seconds)
    raise Postponed(seconds)


async def _check(ticket: Ticket, _: TenantConfig, __: Any) -> Mapping[str, str]:
    return errors_of(ticket)


def _tags(ticket: Ticket, _: str) -> Mapping[str, str]:
    tags = {"spaceCode": ticket.space, "projectCode": project_codes(ticket)[0]}
    return tags if ticket.event is None else tags | {"messageId": ticket.event.message_id}


def _stand_ins(_: Ticket) -> Mapping[str, ConfigBody]:
    return {SPACE: Space("sandbox.backlog.com", ""), PROJECT: Project(1, 1)}
