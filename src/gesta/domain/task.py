"""The lifecycle of a task: user-defined flows and external work."""

from gesta.domain import events as e
from gesta.domain.lifecycle import lifecycle
from gesta.domain.operation import Operation

TASK = lifecycle("task", Operation("send", e.Completed, e.CompletedLate, "completed"))
