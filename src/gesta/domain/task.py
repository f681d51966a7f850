"""A task is done once: the lifecycle of flows that users define, and of external work."""

from gesta.domain import events as e
from gesta.domain.lifecycle import lifecycle
from gesta.domain.operation import Operation

TASK = lifecycle("task", Operation("send", e.Completed, e.CompletedLate, "completed"))
