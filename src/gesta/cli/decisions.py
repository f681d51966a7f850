"""retry, cancel, redrive, resolve: decisions about one request or about all that match a filter."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import typer

from gesta.cli.arguments import IN_STATUS, Ttl, before, money, status, time_or_age
from gesta.cli.command import FAILED
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import (
    Json,
    print_answer,
    print_json,
    progress_bar,
    say,
    show,
    table,
    tell,
)
from gesta.domain.money import Money
from gesta.errors import BadInput

if TYPE_CHECKING:
    from gesta.api_types.bulk import BulkAction, BulkProgress, BulkRefusal, BulkSample
    from gesta.api_types.requests import Decided, Whole
    from gesta.cli.backend import Backend

#: Refused requests that are listed; the rest are counted.
REFUSALS_MAX = 20
#: Different reasons that one message names.
REASONS_MAX = 3
#: Action → what it did.
DID = {
    "resolve": "resolved",
    "retry": "retried",
    "cancel": "cancelled",
    "redrive": "redrove",
    "purge": "purged",
}
#: One decision about a request, and what to print about it.
Decide = Callable[["Backend", "Whole"], Awaitable[tuple["Decided", str]]]

ONE_CHOICE = (
    "give either an ID (with --flow where several flows have requests of this key), or at least one"
    " filter (--flow, --status, --reason, --target, --template, --since, --until), or --resume"
)

Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Use a new idempotency key although the effect may have happened: it may happen"
        " twice.",
    ),
]


def _filter(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel="Many requests", **more)


class Choosing(Protocol):
    """One request, all that match the conditions, or the rest of a run."""

    @property
    def request_id(self) -> str | None: ...
    @property
    def dry_run(self) -> bool: ...
    @property
    def rate(self) -> float | None: ...
    @property
    def resume(self) -> int | None: ...
    @property
    def group(self) -> str:
        """The group of commands, with a blank after it."""

    @property
    def conditions(self) -> dict[str, Any]: ...
    def check(self) -> None:
        """Refuse several kinds of choice together."""


RUN_HELP = "Continue a run that was stopped. RUN is its number in the audit log."
DryRun = Annotated[
    bool,
    _filter(
        "--dry-run", None, "Change nothing: count the requests that would be changed or refused."
    ),
]
Rate = Annotated[
    float | None, _filter("--rate", "N", "Requests per second. Default: 50.", min=0.1, max=1000)
]
Target = Annotated[str | None, _filter("--target", "ID", "With this target.")]
Template = Annotated[str | None, _filter("--template", "CODE", "With this template.")]
Since = Annotated[
    Any, _filter("--since", "TIME", "Created since then: 2h ago, or a time.", parser=time_or_age)
]
Until = Annotated[Any, _filter("--until", "TIME", "Created before then.", parser=time_or_age)]
Resume = Annotated[int | None, _filter("--resume", "RUN", RUN_HELP)]


@dataclass(frozen=True)
class Choice:
    """One request, or all that match every given condition."""

    group: ClassVar = ""

    request_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Id or key of one request; or use the filters below."),
    ] = None
    flow: Annotated[
        str | None,
        _filter("--flow", "FLOW", "Requests of this flow; also narrows an ID that is a key."),
    ] = None
    status: Annotated[str | None, _filter("--status", "STATUS", IN_STATUS, parser=status)] = None
    reason: Annotated[str | None, _filter("--reason", "REASON", "With this reason.")] = None
    target: Target = None
    template: Template = None
    since: Since = None
    until: Until = None
    dry_run: DryRun = False
    rate: Rate = None
    resume: Resume = None

    @property
    def conditions(self) -> dict[str, Any]:
        names = ("flow", "status", "reason", "target", "template", "since", "until")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check(self) -> None:
        """Refuse several kinds of choice together, and an empty choice."""
        is_one = self.request_id is not None
        # The flow tells the requests of one key apart, so it may stand beside an ID.
        filters = self.conditions.keys() - ({"flow"} if is_one else set())
        if sum([is_one, bool(filters), self.resume is not None]) != 1:
            raise typer.BadParameter(ONE_CHOICE)
        if is_one and (self.dry_run or self.rate is not None):
            raise typer.BadParameter("--dry-run and --rate need a filter, not an ID")
        if self.resume is not None and self.dry_run:
            raise typer.BadParameter("--dry-run needs a filter and does not go with --resume")


async def retry(call: Invocation, choice: Choice, by: By = None, as_json: Json = False) -> None:
    """Make the next attempt of a waiting request now, with the same idempotency key."""
    person = call.actor(by).user_id

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        decided = await backend.client.retry(request.id, flow=request.flow, by=person)
        return decided, "its next attempt is due now"

    await decide_about(call, choice, "retry", decide, by=person, as_json=as_json)


async def cancel(call: Invocation, choice: Choice, by: By = None, as_json: Json = False) -> None:
    """Cancel a request. A running attempt finishes first; if it succeeds, it stays `sent`."""
    person = call.actor(by).user_id

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        decided = await backend.client.cancel(request.id, flow=request.flow, by=person)
        if decided.status == "cancelled":
            return decided, "it will not be executed"
        return decided, "an attempt is running; unless it succeeds, the request is cancelled"

    await decide_about(call, choice, "cancel", decide, by=person, as_json=as_json)


async def redrive(
    call: Invocation,
    choice: Choice,
    again: Again = False,
    ttl: Ttl = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Execute a request again that failed, expired, was cancelled or is unknown.

    It is due now, whatever its --deliver-at was, and gets a new budget of attempts; the count of
    its attempts goes on. It has no time to live unless you pass --ttl.
    """
    person = call.actor(by).user_id

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        decided = await backend.client.redrive(
            request.id, flow=request.flow, ttl=ttl, again=again, by=person
        )
        return decided, "it is due now"

    more = {"ttl_seconds": None if ttl is None else ttl.total_seconds(), "again": again}
    await decide_about(call, choice, "redrive", decide, by=person, as_json=as_json, **more)


@dataclass(frozen=True)
class Finding:
    """What happened to a request whose outcome was unknown, and the evidence for it."""

    evidence: Annotated[
        str, typer.Option(metavar="TEXT", help="How you know, e.g. a line of the provider's log.")
    ] = ""
    succeeded: Annotated[bool, typer.Option("--succeeded", help="The effect happened.")] = False
    not_executed: Annotated[
        bool,
        typer.Option(
            "--not-executed",
            help="It did not happen; gesta tries again, with a new budget of attempts.",
        ),
    ] = False
    failed: Annotated[
        bool, typer.Option("--failed", help="It did not happen and must not be tried again.")
    ] = False
    provider_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The provider's id of the effect.")
    ] = None
    amount: Annotated[
        Money | None,
        typer.Option(
            metavar="'49.90 EUR'",
            help="What a transaction moved. Default: what was asked for.",
            parser=money,
        ),
    ] = None

    @property
    def outcome(self) -> Literal["succeeded", "not_executed", "failed"]:
        if self.succeeded + self.not_executed + self.failed != 1:
            raise typer.BadParameter("give exactly one of --succeeded, --not-executed and --failed")
        if not self.evidence.strip():
            raise typer.BadParameter("name the evidence: how do you know?", param_hint="--evidence")
        return "succeeded" if self.succeeded else "failed" if self.failed else "not_executed"


async def resolve(
    call: Invocation, choice: Choice, finding: Finding, by: By = None, as_json: Json = False
) -> None:
    """Resolve a request whose outcome is unknown: record what happened and the evidence for it.

    With --not-executed it is due now and gets a new budget of attempts; the count of its attempts
    goes on, and a transaction keeps its budget. If an attempt ends as unknown again, the policy of
    its flow decides: with `manual`, a person resolves each one.
    """
    person = call.actor(by).user_id
    if choice.resume is not None:
        more = asdict(finding)
    else:
        more = {"outcome": finding.outcome, "evidence": finding.evidence}
        if choice.request_id is None and (finding.provider_id or finding.amount is not None):
            raise typer.BadParameter("--provider-id and --amount need an ID, not a filter")

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        decided = await backend.client.resolve(
            request.id,
            finding.outcome,
            evidence=finding.evidence,
            provider_id=finding.provider_id,
            amount=finding.amount,
            flow=request.flow,
            by=person,
        )
        then = "; gesta tries again" if decided.status == "queued" else ""
        return decided, f"recorded: resolved by {person}{then}"

    await decide_about(call, choice, "resolve", decide, by=person, as_json=as_json, **more)


async def decide_about(
    call: Invocation,
    choice: Choosing,
    action: BulkAction,
    decide: Decide,
    *,
    by: str,
    as_json: bool,
    **more: Any,
) -> None:
    choice.check()
    async with call.backend() as backend:
        if choice.request_id is None:
            await decide_about_many(backend, choice, action, by=by, as_json=as_json, **more)
            return
        found = await backend.decidable(choice.request_id, choice.conditions.get("flow"))
        decided, text = await decide(backend, found)
        document: dict[str, Any] = {"id": decided.id, "status": decided.status}
        if decided.held_by is not None:
            document["heldBy"] = decided.held_by
            text += f"; it is held: {call.place.resuming(decided.held_by.advice)}"
        print_answer(document, decided.status, text, as_json=as_json)
        if decided.status == "queued":
            await backend.warn_if_idle()


async def decide_about_many(
    backend: Backend, choice: Choosing, action: BulkAction, *, by: str, as_json: bool, **more: Any
) -> None:
    from gesta.api_types.bulk import Bulk

    if choice.resume is not None:
        if given := [name for name, value in more.items() if value]:
            names = ", ".join(
                f"--{name.removesuffix('_seconds').replace('_', '-')}" for name in given
            )
            raise typer.BadParameter(
                f"--resume continues the run as it was started; leave out {names}"
            )
        run = backend.client.resume_bulk(
            choice.resume,
            action,
            dead_letters="dead_letters" in choice.conditions,
            rate=choice.rate,
            by=by,
        )
    else:
        now_ms, conditions = backend.now_ms(), dict(choice.conditions)
        for name in conditions.keys() & {"since", "until"}:
            conditions[name] = before(now_ms, conditions[name])
        if choice.rate is not None:
            more["rate"] = choice.rate
        asked = Bulk(action=action, dry_run=choice.dry_run, **conditions, **more)
        if asked.flow is not None and (hint := _how_to_get(backend, asked.flow)):
            raise BadInput(hint)
        run = backend.client.bulk(asked, by=by)
    followed = await _follow(backend, choice, run)
    last, sample, refusals = followed.last, followed.first.sample, followed.refusals
    if as_json:
        print_json(
            {
                "action": last.action,
                "run": last.id,
                "dryRun": choice.dry_run,
                "matched": last.matched,
                "done": last.done,
                "refused": last.refused,
                "sample": sample,
                "refusals": refusals,
            }
        )
    else:
        _print_run(backend, followed, choice)
        if not last.matched and choice.resume is None:
            await _tell_others(backend, choice, action)
    if last.refused:
        raise typer.Exit(FAILED)
    if action not in ("cancel", "purge") and last.done:
        await _warn_if_held(backend, sample)
        await backend.warn_if_idle()


async def _warn_if_held(backend: Backend, sample: list[BulkSample]) -> None:
    """Name what holds requests of a run, each hold once."""
    held: dict[str, str] = {}
    for one in sample:
        request = await backend.client.get(one.id, flow=one.flow)
        if request.status == "queued" and request.held_by is not None:
            held.setdefault(request.held_by.advice, one.id)
    for advice, request_id in held.items():
        text = backend.call.place.resuming(advice)
        tell(f"held, for instance {request_id}: {text}", "yellow")


@dataclass
class Followed:
    """What a run reported."""

    first: BulkProgress
    last: BulkProgress
    refusals: list[BulkRefusal]


async def _follow(
    backend: Backend, choice: Choosing, run: AsyncGenerator[BulkProgress]
) -> Followed:
    """Read a run to its end. If a person stops it, say how far it came and how to continue it."""
    first = await anext(run)
    followed = Followed(first, first, list(first.refusals))
    command = f"{choice.group}{first.action} --resume {first.id}"
    resume = backend.call.place.command(command)
    if first.id is not None:
        tell(f"run {first.id} of the audit log; if it is stopped, continue it with: {resume}")
    try:
        with progress_bar(first.action) as report:
            async for progress in run:
                followed.last = progress
                followed.refusals += progress.refusals
                report(progress.done + progress.refused, progress.matched)
    except CancelledError:
        done, matched = followed.last.done, first.matched
        # The last decisions may not have been reported yet.
        tell(f"stopped: {DID[first.action]} at least {done} of {matched}; to continue: {resume}")
        raise
    return followed


async def _tell_others(backend: Backend, choice: Choosing, action: BulkAction) -> None:
    """The reasons that are there, if no request has the one that was asked for."""
    from gesta.admin.bulk import STATUSES

    chosen, is_letter = choice.conditions, "dead_letters" in choice.conditions
    query = {name: chosen.get(name) for name in ("flow", "reason")}
    if not is_letter:
        query["status"] = chosen.get("status") or STATUSES[action][0]
    others = await backend.others("dead-letters" if is_letter else "requests", query=query)
    if others:
        tell(others.removeprefix("; "))


def _print_run(backend: Backend, followed: Followed, choice: Choosing) -> None:
    first, last, refusals = followed.first, followed.last, followed.refusals
    changed = last.matched - last.refused if choice.dry_run else last.done
    say(str(changed))
    if choice.dry_run:
        rows = [(one.id, one.flow, one.status, one.reason or "") for one in first.sample]
        if rows:
            show(table(("id", "flow", "status", "reason"), rows, folded=("reason",)))
        if len(rows) < last.matched:
            tell(f"{len(rows)} of {last.matched} shown")
        summary, refused = f"would {last.action} {changed} of {last.matched}", "would be refused"
    else:
        summary, refused = f"{DID[last.action]} {changed} of {last.matched}", "refused"
        if first.done:
            summary += f", {first.done} of them before the run was resumed"
    reasons = Counter(_reason(backend, one) for one in refusals)
    if last.refused:
        summary += f"; {last.refused} {refused}: {_most(reasons)}"
    tell(summary + ("; nothing was changed" if choice.dry_run else ""))
    if refusals:
        columns = (refused, "flow", "reason") if len(reasons) > 1 else (refused, "flow")
        refused_rows = _refused_rows(backend, refusals, reasons)
        show(table(columns, [row[: len(columns)] for row in refused_rows], folded=("reason",)))
        if len(refused_rows) < last.refused:
            tell(f"{len(refused_rows)} of {last.refused} shown")


def _refused_rows(
    backend: Backend, refusals: list[BulkRefusal], reasons: Counter[str]
) -> list[tuple[str, str, str]]:
    """Id, flow and reason of the first refusals by reason; a reason is in its first row only."""
    order = [reason for reason, _ in reasons.most_common()]
    explained = [(_reason(backend, one), one) for one in refusals]
    explained.sort(key=lambda pair: order.index(pair[0]))
    seen: set[str] = set()
    rows = []
    for reason, one in explained[:REFUSALS_MAX]:
        rows.append((one.id, one.flow, "" if reason in seen else reason))
        seen.add(reason)
    return rows


def _reason(backend: Backend, one: BulkRefusal) -> str:
    if one.code == "unknown_flow" and (hint := _how_to_get(backend, one.flow)):
        return hint
    return one.detail.removeprefix(f"request {one.id}: ")


def _most(reasons: Counter[str]) -> str:
    """Why requests were refused, the most frequent reason first."""
    most = reasons.most_common(REASONS_MAX)
    if len(reasons) == 1:
        return most[0][0]
    named = [f"{text} ({count})" for text, count in most]
    return ", ".join(named + ["and other reasons"] * (len(reasons) > REASONS_MAX))


def _how_to_get(backend: Backend, flow: str) -> str:
    """What to do about a flow that this process does not declare; empty if it does, or if a server
    executes the command.
    """
    if backend.engine is None or flow in backend.engine.flows:
        return ""
    from gesta.cli.flows import how_to_get

    known = ", ".join(sorted(backend.engine.flows)) or "none"
    remedy = how_to_get(flow, backend.engine.settings)
    return f"flow {flow!r} is not declared here; {remedy}. Declared here: {known}"
