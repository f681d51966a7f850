"""One effect at a provider, executed at most once per intent: the building block of every
lifecycle.

`decide.py` and `evolve.py` hold its rules: attempts, retries, unknown outcomes, cancel, redrive,
expiry. A lifecycle defines which operations a request has, and the status that each one leads to.
"""

import msgspec

from gesta.domain.events import Succeeded


class Operation(msgspec.Struct, frozen=True, gc=False):
    """What a request asks of a provider. Its name is part of the idempotency key."""

    name: str
    #: The event of its success, and the event of a success that became known after the operation
    #: was given up.
    done: type[Succeeded]
    done_late: type[Succeeded]
    #: The status that its success leads to.
    status: str
    #: False: the request does not end with it and waits for the command that opens the next
    #: operation.
    is_last: bool = True


class Operations(dict[str, Operation]):
    """The operations of a lifecycle by name; a request begins with the first."""

    def __init__(self, *operations: Operation) -> None:
        super().__init__({one.name: one for one in operations})
        self.first = operations[0].name
