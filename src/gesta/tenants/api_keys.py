"""API keys: create, check, list and revoke.

The text of a key is `gesta_live_<id>_<secret>`, or `gesta_test_…` for a key that reaches only the
sandbox. It is shown once. The vault keeps a keyed hash of it, encrypted, under the key's id. The
id is not secret; it ends in a checksum under a secret of the installation, so a made-up id is
refused without a read of the vault.

A crash between two steps is harmless. `create` logs the key, stores it, then shows it: a crash may
leave a log entry without a key, or a listed key that was never shown. `revoke` ends the key, then
logs that: a crash may leave a revoked key without a log entry, which a second `revoke` adds.
"""

import hashlib
import re
import string
from collections.abc import Sequence
from datetime import datetime
from hmac import compare_digest
from typing import Final, get_args

import msgspec

from gesta.api_types.keys import Scope
from gesta.domain.codec import encode
from gesta.domain.events import Actor
from gesta.errors import Forbidden, InvalidRequest, NotFound, StoreError, WrongMasterKey
from gesta.flows.validation import YEARS, actor_errors, tenant_errors
from gesta.ports.vault import Encrypted, Vault
from gesta.runtime.clock import Runtime
from gesta.runtime.group_commit import GroupCommit
from gesta.runtime.redaction import scrub
from gesta.security.envelope_encryption import API_KEYS, SYSTEM, KeyRing, api_key_name
from gesta.tenants.config import KeyCreated, KeyRevoked
from gesta.tenants.config_writer import ConfigWriter

HASH_BYTES: Final = 32

_SECRET_LETTERS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: 62 to this power is just above 2 to the power of 256.
_SECRET_LENGTH: Final = 43
_SECRET_BYTES: Final = 32
_ID_LETTERS: Final = string.digits + string.ascii_lowercase
_DRAWN_LENGTH: Final = 12
_CHECK_LENGTH: Final = 6
_ID: Final = re.compile(rf"[0-9a-z]{{{_DRAWN_LENGTH + _CHECK_LENGTH}}}")
_TEXT: Final = re.compile(rf"gesta_(?:live|test)_({_ID.pattern})_[0-9A-Za-z]{{{_SECRET_LENGTH}}}")
_LENGTH: Final = len("gesta_live__") + _DRAWN_LENGTH + _CHECK_LENGTH + _SECRET_LENGTH


class KeyTexts:
    def __init__(self, secret: bytes, runtime: Runtime) -> None:
        self._runtime = runtime
        # Keyed once and then copied: keying costs as much as the digest itself.
        self._hash = hashlib.blake2b(key=secret, digest_size=HASH_BYTES, person=b"gesta api key")
        self._check = hashlib.blake2b(key=secret, digest_size=8, person=b"gesta key id")

    def new(self, *, test: bool) -> tuple[str, str]:
        """The id of a new key, and its text."""
        drawn = self._letters(_ID_LETTERS, _DRAWN_LENGTH)
        key_id = drawn + self._checksum(drawn)
        secret = self._letters(_SECRET_LETTERS, _SECRET_LENGTH)
        return key_id, f"gesta_{'test' if test else 'live'}_{key_id}_{secret}"

    def id_in(self, text: str) -> str | None:
        """The id in the text of a key, unverified; None: it cannot be a key."""
        match = _TEXT.fullmatch(text) if len(text) == _LENGTH else None
        return None if match is None else match[1]

    def is_id(self, text: str) -> bool:
        """Whether this installation created the id."""
        if _ID.fullmatch(text) is None:
            return False
        return compare_digest(self._checksum(text[:_DRAWN_LENGTH]), text[_DRAWN_LENGTH:])

    def digest(self, text: str) -> bytes:
        keyed = self._hash.copy()
        keyed.update(text.encode())
        return keyed.digest()

    def _checksum(self, drawn: str) -> str:
        keyed = self._check.copy()
        keyed.update(drawn.encode())
        return _written(int.from_bytes(keyed.digest(), "big"), _ID_LETTERS, _CHECK_LENGTH)

    def _letters(self, letters: str, length: int) -> str:
        return _written(
            int.from_bytes(self._runtime.random_bytes(_SECRET_BYTES), "big"), letters, length
        )


def _written(number: int, letters: str, length: int) -> str:
    """The lowest digits of a number, `length` of them."""
    drawn = []
    for _ in range(length):
        number, digit = divmod(number, len(letters))
        drawn.append(letters[digit])
    return "".join(drawn)


SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: What a test key may do: the other scopes act on live requests.
TEST_SCOPES: Final = ("read", "submit")

#: A revocation by another process takes effect within this time.
FRESH_SECONDS: Final = 1.0
#: Keys in the cache.
KEPT: Final = 10_000
NAME_LENGTH_MAX: Final = 100
PAGE: Final = 500
#: No text has this hash. It makes the comparison take as long when there is no key.
_NO_HASH: Final = bytes(HASH_BYTES)


class Grant(msgspec.Struct, frozen=True):
    """What a valid key allows."""

    key_id: str
    tenant: str
    scopes: frozenset[str]
    name: str
    is_test: bool
    expires_ms: int | None

    def allows(self, scope: Scope) -> bool:
        """`admin` allows everything."""
        return scope in self.scopes or "admin" in self.scopes


class ApiKey(msgspec.Struct, frozen=True):
    """A key without its text. Times are epoch milliseconds."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    is_test: bool
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str = ""

    def is_valid(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class _Kept(msgspec.Struct, frozen=True):
    """What the vault has, encrypted. Version 1 is the key, version 2 the revoked key."""

    version: int
    key: ApiKey
    hash: bytes


class _Seen(msgspec.Struct, frozen=True):
    """What the vault had at a time of the monotonic clock; no `kept`: no such key."""

    at: float
    kept: _Kept | None = None
    grant: Grant | None = None


class ApiKeys:
    def __init__(
        self,
        *,
        vault: Vault,
        key_ring: KeyRing,
        secret: bytes,
        writer: ConfigWriter,
        runtime: Runtime,
    ) -> None:
        """`secret`: the identity secret of the installation, so that keys stay valid in a copy."""
        self._vault, self._key_ring, self._runtime = vault, key_ring, runtime
        self._config, self._writer = writer.cache, writer
        self._texts = KeyTexts(secret, runtime)
        self._seen: dict[str, _Seen] = {}
        self._asking: GroupCommit[str, _Seen] = GroupCommit(self._look, "gesta-keys")

    async def create(
        self,
        tenant: str,
        *,
        name: str,
        scopes: Sequence[str],
        expires_at: datetime | None = None,
        test: bool = False,
        actor: Actor,
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which cannot be shown again.

        Raises InvalidRequest with every error.
        """
        now = self._runtime.now_ms()
        errors = (
            tenant_errors(tenant)
            | _actor_errors(actor)
            | _key_errors(name, scopes, expires_at, now, test=test)
        )
        if errors:
            raise InvalidRequest("API key", errors)
        key_id, text = self._texts.new(test=test)
        chosen = tuple(scope for scope in SCOPES if scope in scopes)
        expires_ms = None if expires_at is None else round(expires_at.timestamp() * 1000)
        key = ApiKey(key_id, tenant, scrub(name), chosen, test, now, actor.user_id, expires_ms)
        note = KeyCreated(key.id, key.name, key.scopes, key.is_test, key.expires_ms)
        await self._writer.note(tenant, note, actor)
        if not await self._put(_Kept(1, key, self._texts.digest(text))):
            raise StoreError("the id of a new key is in use; no key was created. Try again")
        return key, text

    async def check(self, text: str) -> Grant:
        """What the key allows.

        Raises Forbidden for every text that is not a valid key, StoreError when the vault cannot be
        reached.
        """
        key_id = self._texts.id_in(text)
        if key_id is None:
            raise Forbidden
        seen = self._seen.get(key_id)
        if seen is None and not self._texts.is_id(key_id):
            # Made up, so it costs neither a read nor memory.
            raise Forbidden
        if seen is None or not self._is_fresh(seen):
            seen = await self._asking.add(key_id)
        kept, grant = seen.kept, seen.grant
        is_equal = compare_digest(self._texts.digest(text), _NO_HASH if kept is None else kept.hash)
        if (
            grant is None
            or kept is None
            or not is_equal
            or not kept.key.is_valid(self._runtime.now_ms())
        ):
            raise Forbidden
        return grant

    async def is_still_valid(self, grant: Grant) -> bool:
        """Whether a key is still valid, for long calls. Raises StoreError as `check` does."""
        seen = self._seen.get(grant.key_id)
        if seen is None or not self._is_fresh(seen):
            seen = await self._asking.add(grant.key_id)
        return seen.kept is not None and seen.kept.key.is_valid(self._runtime.now_ms())

    async def listed(self, tenant: str) -> list[ApiKey]:
        """A tenant's keys, newest first, including revoked and expired ones."""
        await self._config.refresh(tenant)
        ids = list(self._config.keys.get(tenant, ()))
        found: list[ApiKey] = []
        for start in range(0, len(ids), PAGE):
            names = [(SYSTEM, api_key_name(key_id, tenant)) for key_id in ids[start : start + PAGE]]
            held = await self._vault.newest(names)
            # A crash may leave a log entry without a key.
            found += [
                kept.key
                for name in names
                if name in held and (kept := self._open(held[name])) is not None
            ]
        return found[::-1]

    async def revoke(self, tenant: str, key_id: str, actor: Actor) -> ApiKey:
        """Revoke a key: here at once, in other processes within a second. Safe to repeat.

        Raises NotFound, also for a key of another tenant.
        """
        if errors := tenant_errors(tenant) | _actor_errors(actor):
            raise InvalidRequest("API key", errors)
        kept = await self._newest(tenant, key_id) if self._texts.is_id(key_id) else None
        if kept is None:
            raise NotFound("API key", scrub(key_id, NAME_LENGTH_MAX))
        if kept.key.revoked_ms is None:
            ended = msgspec.structs.replace(
                kept.key, revoked_ms=self._runtime.now_ms(), revoked_by=actor.user_id
            )
            revoked = _Kept(kept.version + 1, ended, kept.hash)
            # Another process may have revoked it first.
            kept = (
                revoked
                if await self._put(revoked)
                else await self._newest(tenant, key_id) or revoked
            )
        self._remember(key_id, self._runtime.monotonic(), kept)
        await self._writer.note(
            tenant,
            KeyRevoked(key_id),
            actor,
            lambda: self._config.keys.get(tenant, {}).get(key_id, False),
        )
        return kept.key

    async def any_admin(self) -> bool:
        """Whether any tenant has a valid key with the scope `admin`."""
        now, after = self._runtime.now_ms(), (SYSTEM, API_KEYS, 0)
        newest: Encrypted | None = None
        while page := await self._vault.listed(after, PAGE):
            after = (page[-1].tenant, page[-1].name, page[-1].version)
            for encrypted in page:
                is_next = newest is not None and encrypted.name != newest.name
                if is_next and self._is_admin(newest, now):
                    return True
                if encrypted.tenant != SYSTEM or not encrypted.name.startswith(API_KEYS):
                    return False
                newest = encrypted
        return self._is_admin(newest, now)

    def _is_admin(self, encrypted: Encrypted | None, now_ms: int) -> bool:
        kept = None if encrypted is None else self._open(encrypted)
        return kept is not None and "admin" in kept.key.scopes and kept.key.is_valid(now_ms)

    async def _look(self, ids: list[str]) -> list[_Seen]:
        """Read several keys together. A cached key needs no search: its tenant is known."""
        began = self._runtime.monotonic()
        before = {key_id: self._seen.get(key_id) for key_id in ids}
        answers = {
            key_id: seen
            for key_id, seen in before.items()
            if seen is not None and self._is_fresh(seen)
        }
        names = {
            key_id: (SYSTEM, api_key_name(key_id, seen.kept.key.tenant))
            for key_id, seen in before.items()
            if key_id not in answers and seen is not None and seen.kept is not None
        }
        held = await self._vault.newest(list(names.values())) if names else {}
        for key_id in before:
            if key_id not in answers:
                encrypted = (
                    held.get(names[key_id]) if key_id in names else await self._search(key_id)
                )
                answers[key_id] = self._remember(
                    key_id, began, None if encrypted is None else self._open(encrypted)
                )
        return [answers[key_id] for key_id in ids]

    async def _search(self, key_id: str) -> Encrypted | None:
        """The newest version of the key with this id, of any tenant."""
        prefix = f"{API_KEYS}{key_id}/"
        for first in await self._vault.listed((SYSTEM, prefix, 0), 1):
            if first.tenant == SYSTEM and first.name.startswith(prefix):
                return (await self._vault.newest([(SYSTEM, first.name)])).get((SYSTEM, first.name))
        return None

    def _remember(self, key_id: str, at: float, kept: _Kept | None) -> _Seen:
        before = self._seen.get(key_id)
        if (
            before is not None
            and before.kept is not None
            and kept is not None
            and before.kept.version > kept.version
        ):
            # The read began before this process revoked the key.
            return before
        if len(self._seen) >= KEPT:
            self._seen.clear()
        grant = None
        if kept is not None:
            key = kept.key
            grant = Grant(
                key.id, key.tenant, frozenset(key.scopes), key.name, key.is_test, key.expires_ms
            )
        seen = self._seen[key_id] = _Seen(at, kept, grant)
        return seen

    def _is_fresh(self, seen: _Seen) -> bool:
        return self._runtime.monotonic() - seen.at < FRESH_SECONDS

    async def _newest(self, tenant: str, key_id: str) -> _Kept | None:
        name = (SYSTEM, api_key_name(key_id, tenant))
        encrypted = (await self._vault.newest([name])).get(name)
        return None if encrypted is None else self._open(encrypted)

    async def _put(self, kept: _Kept) -> bool:
        name = api_key_name(kept.key.id, kept.key.tenant)
        return (
            await self._vault.put([self._key_ring.encrypt_own(name, kept.version, encode(kept))])
        )[0]

    def _open(self, encrypted: Encrypted) -> _Kept | None:
        """None: it was changed in the store, or moved to another name there."""
        try:
            kept = msgspec.json.decode(self._key_ring.open_own(encrypted), type=_Kept)
        except (WrongMasterKey, msgspec.DecodeError):
            return None
        # The name is part of what was encrypted; the version is not.
        return kept if encrypted.version == kept.version else None


def _actor_errors(actor: object) -> dict[str, str]:
    return {"actor": "name the actor who decides"} if actor is None else actor_errors(actor)


def _key_errors(
    name: object, scopes: Sequence[str], expires_at: object, now_ms: int, *, test: object
) -> dict[str, str]:
    errors: dict[str, str] = {}
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        errors["name"] = f"1 to {NAME_LENGTH_MAX} printable characters"
    if isinstance(scopes, str) or not scopes or not set(scopes) <= set(SCOPES):
        errors["scopes"] = f"one or more of {', '.join(SCOPES)}"
    elif test and not set(scopes) <= set(TEST_SCOPES):
        errors["scopes"] = (
            f"a test key has {' and '.join(TEST_SCOPES)} at most: the other scopes act on live"
            " requests"
        )
    if type(test) is not bool:
        errors["test"] = "true or false"
    if expires_at is not None:
        if not isinstance(expires_at, datetime) or expires_at.tzinfo is None:
            errors["expiresAt"] = "a time with a time zone, for instance 2030-01-31T09:00:00Z"
        elif expires_at.timestamp() * 1000 <= now_ms:
            errors["expiresAt"] = "is in the past"
        elif expires_at.year > YEARS[1]:
            # In UTC it might be in a year that cannot be shown.
            errors["expiresAt"] = f"in the year {YEARS[1]} at the latest"
    return errors
