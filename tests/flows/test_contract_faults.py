"""The flow contract sees what it is there for: each promise fails for a channel that breaks it on
purpose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import pytest

from gesta import Attempt, Flow, Outcome
from gesta.domain.outcome import Done, Rejected, Retry, Unknown
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.flows.flow import Payload
from gesta.outbound.http import AttemptEnded
from gesta.testing.contracts import flow as contract
from gesta.testing.contracts.flow import FlowContract, Stage, staged
from tests.flows.channels import SlackChannel, SmsChannel, WebhookChannel


def broken(channel: type, change: Callable[[Flow], Flow]) -> object:
    """A channel whose flow was changed for the worse."""

    class Broken(channel):  # type: ignore[misc]
        def flow(self) -> Flow:
            return change(super().flow())

    return Broken()


def twice(flow: Flow) -> Flow:
    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        await flow.execute(payload, msgspec.structs.replace(attempt, key=f"{attempt.key}-again"))
        return await flow.execute(payload, attempt)

    return replace(flow, execute=execute)


def stubborn(flow: Flow) -> Flow:
    """Takes a no for a not yet."""

    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        outcome = await flow.execute(payload, attempt)
        return Retry(outcome.reason) if isinstance(outcome, Rejected) else outcome

    return replace(flow, execute=execute)


def hasty(flow: Flow) -> Flow:
    """Retries at once and ignores Retry-After."""

    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        try:
            return await flow.execute(payload, attempt)
        except Postponed:
            return await flow.execute(payload, msgspec.structs.replace(attempt, limits=NoLimits()))

    return replace(flow, execute=execute)


class NoLimits:
    async def take(self, *_: object) -> None: ...

    async def close(self, *_: object) -> None: ...


def confident(flow: Flow) -> Flow:
    """Takes a lost answer for a failure."""

    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        try:
            return await flow.execute(payload, attempt)
        except AttemptEnded as ended:
            outcome = ended.outcome
            return Retry(outcome.reason) if isinstance(outcome, Unknown) else outcome

    return replace(flow, execute=execute)


def prodigal(flow: Flow) -> Flow:
    """Uses up attempts on a refused credential."""

    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        try:
            return await flow.execute(payload, attempt)
        except CredentialRefused as refused:
            return Rejected(refused.reason)

    return replace(flow, execute=execute)


def nameless(flow: Flow) -> Flow:
    async def execute(payload: Payload, attempt: Attempt) -> Outcome:
        outcome = await flow.execute(payload, attempt)
        return Done("") if isinstance(outcome, Done) else outcome

    return replace(flow, execute=execute)


class Forgetful(SmsChannel):
    """Declares no data subject."""

    def subject(self, number: int) -> str | None:
        return None


PLANTED = [
    (broken(SlackChannel, twice), FlowContract.test_what_is_asked_for_happens_once),
    (broken(SlackChannel, nameless), FlowContract.test_what_is_asked_for_happens_once),
    (
        broken(SmsChannel, stubborn),
        FlowContract.test_what_the_provider_will_never_take_is_a_dead_letter_after_one_call,
    ),
    (
        broken(SlackChannel, hasty),
        FlowContract.test_a_throttled_request_waits_without_a_slot,
    ),
    (
        broken(SlackChannel, confident),
        FlowContract.test_a_connection_that_breaks_after_the_effect_makes_no_second_one,
    ),
    (
        broken(SmsChannel, confident),
        FlowContract.test_an_answer_that_comes_too_late_makes_no_second_effect,
    ),
    (
        broken(WebhookChannel, prodigal),
        FlowContract.test_a_refused_credential_holds_requests_until_it_changes,
    ),
    (Forgetful(), FlowContract.test_nothing_is_sent_to_a_person_who_was_erased),
]


@pytest.mark.slow
@pytest.mark.parametrize(("channel", "promise"), PLANTED)
async def test_a_broken_channel_is_found(
    monkeypatch, channel, promise: Callable[[FlowContract, Stage], Awaitable[None]]
):
    monkeypatch.setattr(contract, "PATIENCE_SECONDS", 3.0)
    async with staged(channel, "memory:planted") as stage:
        with pytest.raises(AssertionError):
            await promise(FlowContract(), stage)


async def test_a_worker_that_does_not_look_before_it_calls_is_found(monkeypatch):
    monkeypatch.setattr("gesta.worker.attempt.examine", lambda *_: "execute")
    async with staged(SlackChannel(), "memory:planted") as stage:
        with pytest.raises(AssertionError):
            await FlowContract().test_a_job_that_is_delivered_again_changes_nothing(stage)
