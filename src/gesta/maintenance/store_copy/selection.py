"""What of a store is copied: everything, or one tenant's part.

Whose an event is stands in its metadata: names are never parsed.
"""

from __future__ import annotations

from dataclasses import dataclass

from gesta.domain.codec import decode_meta
from gesta.domain.events import Meta
from gesta.ports.event_store import Recorded
from gesta.ports.job_queue import Job
from gesta.ports.stores import Stores
from gesta.ports.vault import Encrypted
from gesta.security.envelope_encryption import API_KEYS, IDENTITY, SYSTEM, data_key_name
from gesta.tenants.pauses import EVERYTHING, Scope

#: Rows read and written at once.
PAGE = 2_000


@dataclass(frozen=True)
class Home:
    """A store and its URL as people may read it."""

    stores: Stores
    url: str


@dataclass(frozen=True)
class Selection:
    tenant: str | None = None

    @property
    def scope(self) -> Scope:
        """What is paused, so that nothing of it is begun."""
        return EVERYTHING if self.tenant is None else Scope(tenant=self.tenant)

    def has_event(self, recorded: Recorded) -> bool:
        if self.tenant is None:
            return True
        meta = meta_of(recorded)
        return meta is not None and meta.tenant == self.tenant

    def has_secret(self, encrypted: Encrypted) -> bool:
        if self.tenant is None or encrypted.tenant == self.tenant:
            return True
        if encrypted.tenant != SYSTEM:
            return False
        if encrypted.name.startswith(API_KEYS):
            # No tenant's name has a slash, so none is the end of another's.
            return encrypted.name.endswith(f"/{self.tenant}")
        return encrypted.name in (IDENTITY[1], data_key_name(self.tenant))

    def has_job(self, job: Job) -> bool:
        return self.tenant in (None, job.tenant)


def meta_of(recorded: Recorded) -> Meta | None:
    """None for an event that cannot be read; it is nobody's."""
    try:
        return decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
    except ValueError:
        return None
