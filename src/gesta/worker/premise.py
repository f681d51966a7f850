"""Replies that may have become untrue: a reply says that a request failed, but the request was
redriven and succeeded before the reply was sent.

This check runs before each attempt, so it also covers retries and redrives of the reply.
"""

from typing import Final

from gesta.domain.commands import Cancel
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.status_events import premise_of
from gesta.errors import StoreError
from gesta.flows.deferrals import Decided, Postponed
from gesta.requests.recorder import Recorder

#: The source of requests that callers submitted. They have no premise.
OF_CALLERS: Final = "gesta"
#: While the other request is being executed, a reply waits this long before it checks again.
WAIT_SECONDS: Final = 60.0
STORE_SECONDS: Final = 1.0
OUTDATED: Final = "outdated"


async def check_premise(state: State, recorder: Recorder) -> None:
    """Return if the reply may be sent. Raises Decided if it is no longer true, Postponed if that is
    not known yet.
    """
    premise = premise_of(state.source)
    if premise is None or state.in_doubt:
        return
    try:
        found = await recorder.states(state.tenant, [premise])
    except StoreError:
        raise Postponed(STORE_SECONDS) from None
    about = found[0] if found else None
    if about is not None and about.phase in ("open", "unknown"):
        raise Postponed(WAIT_SECONDS)
    if about is None or about.status in lifecycle_of(about.flow).success:
        # One that retention has removed may have succeeded.
        raise Decided(Cancel(reason=OUTDATED, detail=f"{premise[0]} {premise[1]} did not fail"))
