"""External workers: they lease requests over HTTP and report the outcomes.

A lease that ends without a report makes the request unknown.
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
