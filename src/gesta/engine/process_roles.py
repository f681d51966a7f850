"""Which components a process runs: all of them, as `gesta serve` does, or some beside other
processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gesta.domain.ids import covers
from gesta.errors import BadFlow
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import Flow

#: The projector also runs handlers: both follow the log.
Part = Literal["projector", "worker", "sweeper"]


@dataclass(frozen=True)
class Work:
    """The components that a process runs, and the flows that its worker executes."""

    parts: frozenset[Part]
    #: What its worker takes: names of flows, or `kind.*` for all of a kind. Empty: every flow that
    #: is declared.
    flows: tuple[str, ...] = ()
    #: Whether it serves the HTTP API.
    serves_api: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """What it runs, as it reports itself to the store."""
        return (*(("api",) if self.serves_api else ()), *sorted(self.parts))

    def taken_of(self, declared: Mapping[str, Flow]) -> dict[str, Flow]:
        """The flows that its worker executes; external ones are left out.

        Raises where a pattern matches no flow: the worker would be idle without a sign of it.
        """
        ours = {name: flow for name, flow in declared.items() if not flow.is_external}
        for pattern in self.flows:
            if not any(covers(pattern, name) for name in declared):
                raise unknown_flow(pattern, declared)
            if not any(covers(pattern, name) for name in ours):
                raise BadFlow(
                    pattern,
                    "is an external flow: its workers lease work over HTTP, and no worker of"
                    " gesta executes it",
                )
        if not self.flows:
            return ours
        return {
            name: flow
            for name, flow in ours.items()
            if any(covers(pattern, name) for pattern in self.flows)
        }


EVERYTHING = Work(frozenset({"projector", "worker", "sweeper"}))
NOTHING = Work(frozenset())
