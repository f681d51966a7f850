"""Station 6 of 7 where others execute: work is handed out under leases, reported, and put right
when no report comes.

Receives requests of flows declared by flows/external.py from their lanes in the queue; hands their
outcomes to recorder.py.
"""

from gesta.worker.external.external import External
from gesta.worker.external.reports import ExternalReport, RecordFailed, RecordSent, RecordUnknown
from gesta.worker.external.work_item import Lease, Reported, WorkItem

__all__ = [
    "External",
    "Lease",
    "RecordFailed",
    "RecordSent",
    "RecordUnknown",
    "ExternalReport",
    "Reported",
    "WorkItem",
]
