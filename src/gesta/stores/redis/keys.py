"""Every Redis key that gesta uses is built here.

Two families. The keys of a request carry the tenant as hash tag, so that all keys of a tenant are
in one Cluster slot. The keys of a queue have BullMQ's layout below one prefix; on a Cluster the
prefix carries the hash tag, so that all queues are in one slot.
"""

import re
from binascii import crc_hqx
from functools import lru_cache

from gesta.domain.ids import TENANT, TENANT_RULE, flow_of_external_queue
from gesta.errors import BadSettings

SLOTS = 16_384
#: How long an execution lock lasts unless it is renewed (R0-15, R1-16).
LOCK_MS = 900_000

_SLACK = "notification.slack"
_EMAIL = "notification.email"
#: The queues that the documents name. BullMQ refuses a colon, so `email:send` is a logical name.
QUEUES = {_SLACK: "MessageRequestQueue", _EMAIL: "email-send"}
JOB_NAMES = {_SLACK: "send-message-request"}
_FLOWS = {name: flow for flow, name in QUEUES.items()}
_PREFIX = re.compile(r"[A-Za-z0-9._{}-]{1,64}")


def slot_of(key: str) -> int:
    """The Cluster slot of a key: CRC16 of what is between its first braces, else of all of it."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


class RequestKeys:
    """The keys of one request. `notification.slack` has the names of document 000, every other
    flow those of document 001.
    """

    __slots__ = ("_lock", "snapshot")

    def __init__(self, flow: str, tenant: str, request_id: str) -> None:
        before, self._lock = _request_names(flow, tenant)
        self.snapshot = before + request_id

    @property
    def dispatched(self) -> str:
        return f"{self.snapshot}:dispatched"

    @property
    def lock(self) -> str:
        """`send-lock` or `execute-lock`."""
        return self.snapshot + self._lock


class IndexKeys:
    """The indexes over the requests of one tenant and flow."""

    __slots__ = ("_by_status", "by_id", "flow", "tenant", "updated")

    def __init__(self, flow: str, tenant: str) -> None:
        index = f"{tenant_prefix(flow, tenant)}idx:{_profile(flow)[0]}"
        self.flow, self.tenant = flow, tenant
        self.updated = f"{index}:updated"
        #: Ours, for lists: all ids in their order.
        self.by_id = f"{index}:by-id"
        self._by_status = f"{index}:by-status:"

    def by_status(self, status: str) -> str:
        return f"{self._by_status}{status}"


@lru_cache(10_000)
def tenant_prefix(flow: str, tenant: str) -> str:
    """How every key of this tenant and flow begins."""
    if not TENANT.fullmatch(tenant):
        raise BadSettings(f"tenant: {tenant!r} cannot be used; write {TENANT_RULE}")
    return f"{flow_of_external_queue(flow)}:v1:{{{tenant}}}:"


@lru_cache(10_000)
def _request_names(flow: str, tenant: str) -> tuple[str, str]:
    """What every key of a request begins with, and how its lock ends."""
    entity, lock = _profile(flow)
    return f"{tenant_prefix(flow, tenant)}{entity}:", f":{lock}"


def _profile(flow: str) -> tuple[str, str]:
    if flow_of_external_queue(flow) == _SLACK:
        return "message-request", "send-lock"
    return "request", "execute-lock"


def queue_name(flow: str) -> str:
    """The BullMQ name of the queue of a flow or of an external queue."""
    return QUEUES.get(flow, flow)


def flow_of_queue(name: str) -> str:
    """The flow or external queue that has this BullMQ queue."""
    return _FLOWS.get(name, name)


def job_name(flow: str, kind: str) -> str:
    """BullMQ's name of a job: `execute`, `reconcile`, `execute-capture`, or the document's."""
    return JOB_NAMES.get(flow_of_external_queue(flow), kind)


def check_prefix(prefix: str, *, is_cluster: bool) -> str:
    """Raise BadSettings unless BullMQ and the Cluster can use it."""
    if not _PREFIX.fullmatch(prefix):
        raise BadSettings(
            f"url: prefix={prefix!r} cannot be used; write 1 to 64 of A-Z a-z 0-9 . _ - {{ }}"
        )
    if is_cluster and not re.search(r"\{[^{}]+\}", prefix):
        raise BadSettings(
            f"url: prefix={prefix!r} spreads a queue over several slots of the cluster; write a"
            f" part of it in braces, for instance prefix={{{prefix}}}"
        )
    return prefix


class QueueKeys:
    """BullMQ's keys of one queue (P = `<prefix>:<queue>:`), and one of ours."""

    __slots__ = ("base", "fixed", "flow")

    #: The order in which the scripts expect them, each with its type.
    FIXED = (
        ("wait", "list"),
        ("active", "list"),
        ("prioritized", "zset"),
        ("delayed", "zset"),
        ("completed", "zset"),
        ("failed", "zset"),
        ("marker", "zset"),
        ("meta", "hash"),
        ("pc", "string"),
        ("id", "string"),
        ("events", "stream"),
        ("stalled", "set"),
        ("paused", "list"),
        ("limiter", "string"),
        ("gesta:ends", "hash"),
    )

    def __init__(self, prefix: str, flow: str) -> None:
        self.flow, self.base = flow, f"{prefix}:{queue_name(flow)}:"
        self.fixed = tuple(self.base + name for name, _ in self.FIXED)

    def __getitem__(self, name: str) -> str:
        """A key by its name behind the prefix: `wait`, `marker`, a job's id."""
        return self.base + name

    def lock(self, job_id: str) -> str:
        """BullMQ's lock on a job."""
        return f"{self.base}{job_id}:lock"


class OwnKeys:
    """Our own keys over all queues of a prefix."""

    __slots__ = ("base", "fixed")

    #: jobs: live jobs as `<id> <flow>`. flows: every flow that has had a job. leases: token → end.
    #: holds: [tenant, scope] → number of held jobs. fences: kind → fence.
    FIXED = (
        ("jobs", "zset"),
        ("flows", "set"),
        ("leases", "zset"),
        ("holds", "hash"),
        ("fences", "hash"),
    )

    def __init__(self, prefix: str) -> None:
        self.base = f"{prefix}:gesta:"
        self.fixed = tuple(self.base + name for name, _ in self.FIXED)

    def __getitem__(self, name: str) -> str:
        return self.base + name

    def lease(self, token: str) -> str:
        """The jobs that a token holds, as `<id> <flow>`."""
        return f"{self.base}lease:{token}"

    def held(self, scope: str) -> str:
        """The jobs that are held under a scope, as `<id> <flow>`."""
        return f"{self.base}held:{scope}"

    def external(self, external_queues: str) -> str:
        """External leases of the queues whose names begin so: `<id> <queue>` → end."""
        return f"{self.base}external:{external_queues}"


#: What the keys of jobs begin with; documents and .NET services know no other.
JOB_PREFIX = "ae"


class JobKeys:
    """The keys of the job store. Layout `shared`: `ae:job:<id>` and `ae:jobs:queue`, as .NET has
    them. Layout `cluster`: below `{ae}`, so that all are in one slot.
    """

    __slots__ = ("base", "fixed")

    #: inprogress: id → end of the claim, ms. claims: id → worker and token. turns: name → turn.
    FIXED = (
        ("jobs:queue", "zset"),
        ("jobs:inprogress", "zset"),
        ("jobs:claims", "hash"),
        ("jobs:counts", "hash"),
        ("jobs:turns", "zset"),
        ("job:", "none"),
    )

    def __init__(self, layout: str, prefix: str = JOB_PREFIX) -> None:
        self.base = f"{prefix}:" if layout == "shared" else f"{{{prefix}}}:"
        self.fixed = tuple(self.base + name for name, _ in self.FIXED)

    def __getitem__(self, name: str) -> str:
        return self.base + name

    def job(self, job_id: str) -> str:
        return f"{self.base}job:{job_id}"


_TYPES = dict((*QueueKeys.FIXED, *OwnKeys.FIXED, *JobKeys.FIXED[:-1]))


def type_of(key: str) -> str | None:
    """The type that a key of ours has to have; None where any other program may use the name."""
    if ":v1:{" in key:
        last = key.rpartition(":")[2]
        if ":idx:" in key:
            return "zset" if last == "updated" else "set"
        return "string" if last in ("dispatched", "send-lock", "execute-lock") else "hash"
    for name, kind in _TYPES.items():
        if key.endswith(f":{name}"):
            return kind
    return None
