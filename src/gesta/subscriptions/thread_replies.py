"""Replies in the thread of a Slack message that asked for an issue: the reply names the issue, or
says that there is none.

The reply is a request of `notification.slack` of its own. Its key is made of the ticket and its
outcome, so a crash between submit and checkpoint causes no second reply. Whatever happens to the
reply, the issue is never created again. A ticket that failed, was redriven and succeeded gets both
replies, in this order: the worker does not send a failure that is no longer true. A reply that
Slack refuses permanently is logged and is not a dead letter, because the issue exists.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gesta.domain.commands import Purge
from gesta.domain.status_events import REPLIES, Event, about_failed, is_reply
from gesta.errors import Conflict, GestaError, InvalidRequest, StoreError
from gesta.flows import ticket
from gesta.flows.flow import Flow, Payload
from gesta.flows.slack import NAME as SLACK
from gesta.flows.slack import Message
from gesta.intake.inbound.slack import TEAM, Team
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.ports.read_model import Key, View
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, no_job
from gesta.subscriptions.log_consumer import OWN, Log
from gesta.subscriptions.on_demand import OnDemandConsumer
from gesta.tenants.config import ConfigCache

#: Events of one read; the replies of all of them are submitted together.
BATCH = 500
#: A redrive may help such a reply, so it stays a dead letter.
_MAY_HELP = "max_attempts_exceeded"
_decode = msgspec.json.Decoder(ticket.Ticket).decode


class ThreadReplies(OnDemandConsumer):
    def __init__(
        self,
        *,
        log: Log,
        flows: Mapping[str, Flow],
        intake: Intake,
        config: ConfigCache,
        loader: Loader,
        recorder: Recorder,
    ) -> None:
        super().__init__(f"{OWN}thread-replies", "now", log, kind=TEAM, config=config)
        self._flows, self._intake = flows, intake
        self._loader, self._recorder = loader, recorder

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        words = {
            at: (word, meta)
            for at, (word, meta) in self._words(batch, (ticket.NAME, SLACK).__contains__).items()
            if (meta.flow == ticket.NAME and word in ("completed", "failed"))
            or (meta.flow == SLACK and word == "failed" and is_reply(meta.source))
        }
        events = await self._status_events(batch, words)
        if events:
            first = events[min(events)]
            if not await self._deliver(
                first.position, first.request_id, lambda: self._handle(list(events.values()))
            ):
                return 0
        return await self._pass(batch)

    async def _handle(self, events: list[Event]) -> None:
        keys: list[Key] = [(one.flow, one.tenant, one.request_id) for one in events]
        views, _ = await self._loader.load(keys)
        await self._config.refresh(*sorted({one.tenant for one in events}))
        replies = []
        for event, key in zip(events, keys, strict=True):
            view = views.get(key)
            if view is None:
                continue
            if event.flow == SLACK:
                await self._drop_refused(view)
            elif (reply := self._reply(event, view)) is not None:
                replies.append(reply)
        if replies:
            self._note(await self._intake.submit_each(replies))
            self._telemetry.handled(self.name, len(replies))

    def _reply(self, event: Event, view: View) -> tuple[Payload, Options] | None:
        """The reply to a ticket, always the same for the same outcome; None: there is none."""
        asked = _decode(view.payload).event
        slack = None if asked is None else asked.data.slack_event
        if asked is None or slack is None:
            return None
        stored = self._config.of(event.tenant).find(TEAM, slack.team)
        team = getattr(stored, "body", None)
        if not isinstance(team, Team) or not team.reply:
            return None
        is_done = event.status == "completed"
        text = team.reply_created if is_done else team.reply_failed
        if is_done:
            text = text.replace("{key}", view.state.provider_id)
            text = text.replace("{url}", view.state.target_id)
        message = Message(
            channel=slack.channel,
            text=text,
            thread_ts=asked.data.metadata.thread_ts or slack.ts,
            workspace=team.workspace,
        )
        options = Options(
            f"reply/{event.request_id}/{event.status}",
            event.tenant,
            correlation_id=event.correlation_id,
            causation_id=event.request_id,
            test=event.test,
            source=REPLIES if is_done else about_failed(event.flow, event.request_id),
        )
        return message, options

    async def _drop_refused(self, view: View) -> None:
        state = view.state
        if state.status != "failed" or state.reason == _MAY_HELP or state.purged:
            return
        self._telemetry.log.warning(
            "reply in the thread refused; the issue is not affected",
            tenant=state.tenant,
            requestId=state.id,
            reason=state.reason,
        )
        try:
            await self._recorder.apply(
                view, Purge(), self._flows[SLACK].rules, no_job, causation_id=self.name
            )
        except StoreError:
            raise
        except GestaError:
            # It was redriven or purged in between.
            return

    def _note(self, answers: Sequence[object]) -> None:
        for answer in answers:
            # A conflict: submitted before a crash, under an older form of the team's config.
            if isinstance(answer, InvalidRequest) and not isinstance(answer, Conflict):
                self._telemetry.log.error("reply in the thread refused", error=str(answer))
