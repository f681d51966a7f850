"""Records that a flow keeps about people: encrypted in the vault, found by keyed digests.

A record with a data subject is also encrypted under the subject's key, so that erasing the subject
erases the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gesta.errors import StoreError
from gesta.flows.personal_fields import WHOLE
from gesta.ports.vault import Encrypted, Vault
from gesta.runtime.clock import Ids, Runtime
from gesta.security.envelope_encryption import KeyRing
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import Clear, Stored, SubjectKeys

#: The kind of records that are results of requests, named by their ids. Retention removes them with
#: the request, also in a process that does not know its flow.
RESULT = "result"
#: In place of a tenant, for things that must belong to one tenant only.
OWNERS = "_owners"
#: Above every version of a record.
LAST_VERSION = 2**31 - 1
TRIES = 5
#: The first byte of a record: encrypted under the tenant's key only, or under a subject's, too.
_PLAIN, _PERSONAL = b"\0", b"\1"


class FlowRecord(msgspec.Struct, frozen=True):
    """The newest version of a record. No value: it was removed, or its subject was erased."""

    version: int
    value: bytes | None


class Records:
    def __init__(
        self,
        *,
        vault: Vault,
        key_ring: KeyRing,
        subjects: SubjectKeys,
        identity: KeyedDigests,
        runtime: Runtime,
    ) -> None:
        self.vault, self.key_ring = vault, key_ring
        self.subjects, self.identity = subjects, identity
        self.runtime, self.ids = runtime, Ids(runtime)

    def of(self, tenant: str) -> TenantRecords:
        return TenantRecords(self, tenant)

    def vault_name(self, tenant: str, kind: str, name: str) -> str:
        return f"record/{kind}/{self.identity.name(tenant, kind, name).hex()}"


class TenantRecords:
    """One tenant's records. Every call raises StoreError when the vault cannot be reached."""

    __slots__ = ("_all", "_tenant")

    def __init__(self, records: Records, tenant: str) -> None:
        self._all, self._tenant = records, tenant

    async def get(self, kind: str, name: str) -> FlowRecord | None:
        """The newest version; None: there never was one."""
        return (await self.get_many([(kind, name)]))[0]

    async def get_many(self, names: list[tuple[str, str]]) -> list[FlowRecord | None]:
        """Several records with one read of the vault."""
        keys = [(self._tenant, self._name(kind, name)) for kind, name in names]
        held = await self._all.vault.newest(keys)
        return [
            None
            if (encrypted := held.get(key)) is None
            else FlowRecord(encrypted.version, await self._open(kind, encrypted))
            for (kind, _), key in zip(names, keys, strict=True)
        ]

    async def version(self, kind: str, name: str, version: int) -> bytes | None:
        """One version of a record, if there is one."""
        ref = (self._tenant, self._name(kind, name), version)
        encrypted = (await self._all.vault.get([ref])).get(ref)
        return None if encrypted is None else await self._open(kind, encrypted)

    async def put(
        self,
        kind: str,
        name: str,
        version: int,
        value: bytes,
        *,
        about: str | None = None,
        new_keys: bool = True,
    ) -> bool:
        """Write a version, one above the newest that was read.

        False: another process was first, and nothing was written. Without `new_keys`, raises
        Erased if the data subject has no key now.
        """
        if about is None:
            return (await self.put_many(kind, [name], version, value))[0]
        key = self._name(kind, name)
        # As text, because values under a subject's key are JSON.
        text = msgspec.json.encode(value)
        clear = Clear(self._tenant, kind, f"{key}/{version}", WHOLE, text, about)
        return (await self._put([key], version, await self._personal_box(clear, new_keys)))[0]

    async def put_many(
        self, kind: str, names: Sequence[str], version: int, value: bytes
    ) -> list[bool]:
        """Like `put`, for the same value under several names, in one write of the vault."""
        return await self._put([self._name(kind, name) for name in names], version, _PLAIN + value)

    async def _personal_box(self, clear: Clear, new_keys: bool) -> bytes:  # noqa: FBT001
        """The value under its subject's key, which is made if there is none."""
        (stored,) = await self._all.subjects.encrypt([clear], new_keys=new_keys)
        return _PERSONAL + stored

    async def _put(self, keys: Sequence[str], version: int, box: bytes) -> list[bool]:
        encrypt = self._all.key_ring.encrypt
        return await self._all.vault.put(
            [await encrypt(self._tenant, key, version, box) for key in keys]
        )

    async def change(
        self,
        kind: str,
        name: str,
        decide: Callable[[bytes | None], bytes | None],
        *,
        about: str | None = None,
        new_keys: bool = True,
    ) -> FlowRecord | None:
        """Write what `decide` returns for the newest value; None leaves it. Returns the record.

        If another process writes first, the record is read again and `decide` is called again.
        `about` and `new_keys` as in `put`.
        """
        for _ in range(TRIES):
            record = await self.get(kind, name)
            value = decide(None if record is None else record.value)
            if value is None:
                return record
            version = 1 if record is None else record.version + 1
            if await self.put(kind, name, version, value, about=about, new_keys=new_keys):
                return FlowRecord(version, value)
        raise StoreError(f"a record of {kind} changed {TRIES} times at the same time; try again")

    async def put_result(self, request_id: str, value: bytes, *, about: str | None) -> None:
        """Keep the result of a request. Raises Erased if the data subject was erased."""
        await self.change(RESULT, request_id, lambda _: value, about=about, new_keys=False)

    async def result(self, request_id: str) -> bytes | None:
        """None: it has none, or its data subject was erased."""
        kept = await self.get(RESULT, request_id)
        return None if kept is None else kept.value

    async def forget(self, kind: str, name: str, *, upto: int) -> None:
        """Delete every version up to this one. A later `put` continues above it."""
        await self._delete(self._name(kind, name), upto)

    async def _delete(self, key: str, upto: int) -> None:
        await self._all.vault.delete(
            [(self._tenant, key, version) for version in range(1, upto + 1)]
        )

    async def listed(self, kind: str, after: str, limit: int) -> list[tuple[str, bytes | None]]:
        """Digest and newest value of records of a kind, by digest; no value: it was removed.

        At most `limit`, fewer where records have several versions; none: that was the last page.
        """
        prefix = f"record/{kind}/"
        start = (self._tenant, f"{prefix}{after}", LAST_VERSION if after else 0)
        page = await self._all.vault.listed(start, limit)
        # The next page begins after the last name, so this one needs the newest version of each.
        keys = [
            key
            for key in dict.fromkeys((one.tenant, one.name) for one in page)
            if key[0] == self._tenant and key[1].startswith(prefix)
        ]
        newest = await self._all.vault.newest(keys) if keys else {}
        return [(key[1].removeprefix(prefix), await self._open(kind, newest[key])) for key in keys]

    def digest(self, kind: str, name: str) -> str:
        """The name of a record where its real name must not be shown."""
        return self._name(kind, name).rpartition("/")[2]

    async def forget_digest(self, kind: str, digest: str) -> bool:
        """Delete a record by its digest. False: there is none."""
        key, held = await self._held(kind, digest)
        if held is None:
            return False
        await self._delete(key, held.version)
        return True

    async def has_digest(self, kind: str, digest: str) -> bool:
        return (await self._held(kind, digest))[1] is not None

    async def _held(self, kind: str, digest: str) -> tuple[str, Encrypted | None]:
        key = f"record/{kind}/{digest}"
        held = (await self._all.vault.newest([(self._tenant, key)])).get((self._tenant, key))
        return key, held if held is not None and held.box else None

    async def claim(self, kind: str, name: str) -> bool:
        """Whether the tenant owns a thing: the first tenant that claims it owns it forever."""
        key = self._name(kind, name, OWNERS)
        ours = await self._all.key_ring.encrypt(OWNERS, key, 1, self._tenant.encode())
        if (await self._all.vault.put([ours]))[0]:
            return True
        return await self.owner(kind, name) == self._tenant

    async def owner(self, kind: str, name: str) -> str | None:
        """The tenant that has claimed a thing; None: none has, or it cannot be read."""
        key = self._name(kind, name, OWNERS)
        held = (await self._all.vault.get([(OWNERS, key, 1)])).get((OWNERS, key, 1))
        owner = None if held is None else await self._all.key_ring.decrypt(held)
        return None if owner is None else owner.decode()

    def new_id(self) -> str:
        return self._all.ids.new()

    def random_bytes(self, count: int) -> bytes:
        return self._all.runtime.random_bytes(count)

    def _name(self, kind: str, name: str, tenant: str | None = None) -> str:
        return self._all.vault_name(tenant or self._tenant, kind, name)

    async def _open(self, kind: str, encrypted: Encrypted) -> bytes | None:
        """The value of one version; None: it was removed, or its subject was erased."""
        box = await self._all.key_ring.decrypt(encrypted) if encrypted.box else None
        if box is None or box[:1] == _PLAIN:
            return None if box is None else box[1:]
        record_id = f"{encrypted.name}/{encrypted.version}"
        (opened,) = await self._all.subjects.open_stored(
            [Stored(self._tenant, kind, record_id, box[1:])]
        )
        return msgspec.json.decode(opened, type=bytes) if isinstance(opened, bytes) else None
