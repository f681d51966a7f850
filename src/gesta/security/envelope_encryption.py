"""Encryption at rest: AES-256-GCM with a data key per tenant, which the master key wraps.

The vault stores ciphertext only.
"""

import base64
import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gesta.errors import BadSettings, StoreError, WrongMasterKey
from gesta.ports.vault import Encrypted, Vault
from gesta.runtime.clock import Runtime

KEY_BYTES = 32
NONCE_BYTES = 12
#: The owner of the installation's own vault entries; no tenant can have this name.
SYSTEM = "_gesta"
#: The prefix of the names of API keys.
API_KEYS = "api-key/"
#: The secret of the keyed digests. It is the first secret of a store, so it shows whether a master
#: key was made for the store.
IDENTITY = (SYSTEM, "identity", 1)


class MasterKey:
    """The key that wraps all other keys. It is never printed."""

    __slots__ = ("_key", "id", "where")

    def __init__(self, text: str, where: str) -> None:
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise BadSettings(
                f"master key from {where}: {KEY_BYTES} bytes in base64 are needed; for a new store"
                f" make one with: openssl rand -base64 {KEY_BYTES}"
            )
        self._key, self.where = AESGCM(key), where
        self.id = hashlib.sha256(b"gesta key id" + key).digest()[:4]

    def __repr__(self) -> str:
        return f"MasterKey(from {self.where})"

    def wrap(self, data: bytes, context: bytes, nonce: bytes) -> bytes:
        return self.id + nonce + self._key.encrypt(nonce, data, context)

    def unwrap(self, box: bytes, context: bytes) -> bytes:
        nonce, body = box[4 : 4 + NONCE_BYTES], box[4 + NONCE_BYTES :]
        try:
            if box[:4] != self.id:
                raise InvalidTag
            return self._key.decrypt(nonce, body, context)
        except InvalidTag:
            raise WrongMasterKey(self.where) from None


class KeyRing:
    """Encrypts secrets before they go to the vault, and decrypts them afterwards."""

    def __init__(self, vault: Vault, master: MasterKey, runtime: Runtime) -> None:
        self._vault, self._master, self._runtime = vault, master, runtime
        self._data_keys: dict[str, AESGCM] = {}
        self._opened: dict[tuple[str, str, int], str] = {}

    async def installation_secret(self, name: str) -> bytes:
        """A random secret of this installation, created once. The first one also proves the master
        key.
        """
        context = _wrapping_context(name)
        fresh = Encrypted(
            SYSTEM,
            name,
            1,
            self._master.wrap(self._random(KEY_BYTES), context, self._random(NONCE_BYTES)),
        )
        if await self._vault.put([fresh]) == [True]:
            return self._master.unwrap(fresh.box, context)
        held = await self._vault.get([(SYSTEM, name, 1)])
        return self._master.unwrap(held[SYSTEM, name, 1].box, context)

    async def put(self, tenant: str, name: str, version: int, secret: str) -> bool:
        """Store a version of a secret; False when that version exists already."""
        return (
            await self._vault.put([await self.encrypt(tenant, name, version, secret.encode())])
        )[0]

    async def get(self, tenant: str, name: str, version: int) -> str | None:
        """A secret in clear; None if it was destroyed.

        A version never changes, so it is decrypted once and cached.
        """
        known = self.at_hand(tenant, name, version)
        if known is not None:
            return known
        ref = (tenant, name, version)
        held = await self._vault.get([ref])
        if ref not in held:
            return None
        secret = await self.decrypt(held[ref])
        if secret is None:
            raise StoreError(
                f"the secret {tenant}/{name} v{version} cannot be decrypted: it was changed in the"
                " store"
            )
        clear = secret.decode()
        # A limit, so that a million endpoints do not fill the memory.
        if len(self._opened) > 1_000:
            self._opened.clear()
        self._opened[ref] = clear
        return clear

    def at_hand(self, tenant: str, name: str, version: int) -> str | None:
        """A cached secret in clear; None when the vault has to be read."""
        return self._opened.get((tenant, name, version))

    async def encrypt(self, tenant: str, name: str, version: int, secret: bytes) -> Encrypted:
        """A version of a secret, encrypted for the vault."""
        if tenant not in self._data_keys:
            await self._data_key(tenant)
        box = self.box_now(tenant, name, version, secret)
        assert box is not None
        return Encrypted(tenant, name, version, box)

    def box_now(self, tenant: str, name: str, version: int, secret: bytes) -> bytes | None:
        """What `encrypt` makes of it, if the key of the tenant was read before; else None."""
        key = self._data_keys.get(tenant)
        if key is None:
            return None
        nonce = self._random(NONCE_BYTES)
        return nonce + key.encrypt(nonce, secret, _context(tenant, name, version))

    async def decrypt(self, encrypted: Encrypted) -> bytes | None:
        """The secret in clear text; None if it was changed in the store. It is not cached."""
        tenant, box = encrypted.tenant, encrypted.box
        key = self._data_keys.get(tenant) or await self._data_key(tenant)
        try:
            context = _context(encrypted.tenant, encrypted.name, encrypted.version)
            return key.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            return None

    def encrypt_own(self, name: str, version: int, secret: bytes) -> Encrypted:
        """A version of a secret of the installation itself, encrypted under the master key."""
        return Encrypted(
            SYSTEM,
            name,
            version,
            self._master.wrap(secret, _wrapping_context(name), self._random(NONCE_BYTES)),
        )

    def open_own(self, encrypted: Encrypted) -> bytes:
        """The secret in clear. Raises WrongMasterKey when it was changed in the store."""
        return self._master.unwrap(encrypted.box, _wrapping_context(encrypted.name))

    async def _data_key(self, tenant: str) -> AESGCM:
        key = self._data_keys[tenant] = AESGCM(
            await self.installation_secret(data_key_name(tenant))
        )
        return key

    def _random(self, count: int) -> bytes:
        return self._runtime.random_bytes(count)


def data_key_name(tenant: str) -> str:
    """The vault name of the data key of a tenant."""
    return f"data-key/{tenant}"


def api_key_name(key_id: str, tenant: str) -> str:
    """The vault name of an API key: its prefix finds it by id, its end names the tenant."""
    return f"{API_KEYS}{key_id}/{tenant}"


def prove(master: MasterKey, encrypted: Encrypted) -> None:
    """Raise WrongMasterKey if another master key wrapped this secret of the installation."""
    if encrypted.tenant == SYSTEM and encrypted.box:
        master.unwrap(encrypted.box, _wrapping_context(encrypted.name))


def _wrapping_context(name: str) -> bytes:
    return f"{SYSTEM}|{name}".encode()


def _context(tenant: str, name: str, version: int) -> bytes:
    return f"{tenant}|{name}|{version}".encode()
