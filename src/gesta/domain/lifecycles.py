"""Which lifecycle a flow has, from its name alone: every process must read events the same way.

A flow of a kind listed here has the lifecycle of that kind; every other flow is a task. A flow may
declare another lifecycle (`Flow(lifecycle=…)`). A process that does not declare such a flow cannot
know that, so such a lifecycle must name its first event differently: that process quarantines the
events instead of misreading them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gesta.domain.events import Created
from gesta.domain.inbound import INBOUND
from gesta.domain.lifecycle import EVENT_NAMES, Lifecycle
from gesta.domain.notification.lifecycle import NOTIFICATION, SLACK
from gesta.domain.saga.lifecycle import SAGA
from gesta.domain.task import TASK
from gesta.domain.transaction.lifecycle import TRANSACTION

_OF_KIND = {
    "notification": NOTIFICATION,
    "payment": TRANSACTION,
    "saga": SAGA,
    "inbound": INBOUND,
}
_ALL = (NOTIFICATION, TASK, TRANSACTION, SAGA, INBOUND)


class _OfFlow(dict[str, Lifecycle]):
    """Flow → its lifecycle: those that differ from their kind's, and those that were asked for."""

    def __missing__(self, flow: str) -> Lifecycle:
        found = self[flow] = _OF_KIND.get(flow.partition(".")[0], TASK)
        return found


_OF_FLOW = _OfFlow({"notification.slack": SLACK})

#: Every public status that gesta itself uses.
STATUSES = tuple(dict.fromkeys(status for one in _ALL for status in one.statuses))
if TYPE_CHECKING:
    Status = str
else:
    #: A status in the types of HTTP API and CLI.
    Status = Literal[STATUSES]


#: The lifecycle of a flow, whether this process declares the flow or not. Asked several times per
#: request, so it is the look-up itself and not a function around it.
lifecycle_of = _OF_FLOW.__getitem__


def declare(flow: str, lifecycle: Lifecycle) -> None:
    """Give a flow a lifecycle of its own. Raises ValueError if its events could be misread."""
    known = lifecycle_of(flow)
    if lifecycle is known:
        return
    if lifecycle.event_names[Created] == EVENT_NAMES[Created]:
        raise ValueError("this lifecycle must name its first event differently")
    if known.event_names[Created] != EVENT_NAMES[Created]:
        raise ValueError(f"the flow has the lifecycle {known.name} already")
    _OF_FLOW[flow] = lifecycle
