"""One effect at a provider, executed at most once per intent: what every lifecycle is made of.

`decide.py` and `evolve.py` hold its rules: attempts, retries, unknown outcomes, cancel, redrive,
expiry. A lifecycle says which operations a request has, and what each one ends in.
"""

import msgspec

from gesta.domain.events import Succeeded


class Operation(msgspec.Struct, frozen=True, gc=False):
    """What a request asks of a provider. Its name is part of the idempotency key."""

    name: str
    #: The event of its success, and the one of a success that is learned after it was given up.
    done: type[Succeeded]
    done_late: type[Succeeded]
    #: The status that its success leads to.
    status: str
    #: False: the request is not over with it and waits for the command that opens the next one.
    is_last: bool = True


class Operations(dict[str, Operation]):
    """The operations of a lifecycle by name; a request begins with the first."""

    def __init__(self, *operations: Operation) -> None:
        super().__init__({one.name: one for one in operations})
        self.first = operations[0].name
