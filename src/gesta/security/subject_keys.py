"""Encryption keys of data subjects: one per person, in the vault.

Destroying a key erases the person from an immutable log. A data subject is identified by a keyed
digest only. Keys are read from the vault for every batch and never cached, so that a destroyed key
is never used again.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from gesta.domain.events import Event
from gesta.domain.outcome import ENCRYPTED_TEXT, Rejected, Retry
from gesta.errors import Erased, StoreError
from gesta.flows.personal_fields import Plan
from gesta.ports.read_model import Key, View, key_of
from gesta.ports.vault import Encrypted, Vault
from gesta.runtime.clock import Runtime
from gesta.security.envelope_encryption import KEY_BYTES, NONCE_BYTES, KeyRing
from gesta.security.field_encryption import (
    ENCRYPTED_TEXTS,
    EncryptedField,
    context_of,
    decrypt,
    decrypt_text,
    encrypt,
    encrypt_text,
    encrypted_field,
    encrypted_text,
    replace_encrypted,
)
from gesta.security.keyed_digests import KeyedDigests

#: Tenant, digest.
Subject = tuple[str, bytes]
#: A key in the vault: tenant, name, version.
Ref = tuple[str, str, int]
#: The path of free texts about a request; no field of a payload has it.
TEXTS = "@texts"
#: A payload's JSON in clear, or the outcome of an attempt that cannot read it.
Readable = bytes | Rejected | Retry

ERASED = Rejected("subject_erased", "a data subject was erased; nothing was called")
KEY_MISSING = Retry(
    "key_missing",
    "the vault does not have the key of an encrypted field; was it restored from an older copy?",
)
DAMAGED = Rejected(
    "bad_payload",
    "an encrypted field of the stored payload cannot be decrypted: it was changed, or moved from"
    " another request",
)


class Clear(msgspec.Struct, frozen=True, gc=False):
    """A payload to be stored, with its personal data still in clear."""

    tenant: str
    flow: str
    request_id: str
    plan: Plan
    body: bytes
    #: The data subject; None: each personal part is its own data subject.
    about: str | None
    #: Path prefixes of parts about other people: each such part is its own data subject.
    apart: tuple[str, ...] = ()


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A payload from `encrypt`, and the request to which it belongs."""

    tenant: str
    flow: str
    request_id: str
    body: bytes


class _Key(msgspec.Struct, frozen=True, gc=False):
    version: int
    cipher: AESGCM


class SubjectKeys:
    def __init__(
        self, *, vault: Vault, key_ring: KeyRing, identity: KeyedDigests, runtime: Runtime
    ) -> None:
        self._vault, self._key_ring, self._identity, self._runtime = (
            vault,
            key_ring,
            identity,
            runtime,
        )

    async def encrypt(self, payloads: Sequence[Clear], *, new_keys: bool = True) -> list[bytes]:
        """The payloads with their personal data encrypted.

        New keys are durable when this returns. A key that is never used does no harm. Without
        `new_keys`, raises Erased if a data subject has no key now.
        """
        parts = [(one, raw, path) for one in payloads for raw, path in _personal_parts(one)]
        subjects = {self._subject(one, raw, path) for one, raw, path in parts}
        if not new_keys:
            held = await self._vault.newest([(tenant, _name(one)) for tenant, one in subjects])
            if sum(bool(one.box) for one in held.values()) < len(subjects):
                raise Erased(payloads[0].request_id)
        keys = await self._keys_to_encrypt(subjects)
        return [
            one.plan.replace(one.body, "", partial(self._encrypted, keys, one)) for one in payloads
        ]

    def _subject(self, one: Clear, raw: bytes, path: str) -> Subject:
        text = one.about
        if text is None or any(
            path == place or path.startswith(f"{place}/") for place in one.apart
        ):
            text = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
        return one.tenant, self._identity.subject(one.tenant, text)

    def _encrypted(self, keys: Mapping[Subject, _Key], one: Clear, raw: bytes, path: str) -> bytes:
        subject = self._subject(one, raw, path)
        key, context = keys[subject], context_of(one.tenant, one.flow, one.request_id, path)
        return encrypt(
            raw,
            context,
            subject[1],
            key.version,
            key.cipher,
            self._runtime.random_bytes(NONCE_BYTES),
        )

    async def _keys_to_encrypt(self, wanted: set[Subject]) -> dict[Subject, _Key]:
        """The newest key of each data subject, created where there is none.

        A version that was destroyed is never created again.
        """
        keys: dict[Subject, _Key] = {}
        while wanted:
            held = await self._vault.newest([(tenant, _name(digest)) for tenant, digest in wanted])
            fresh: dict[Subject, tuple[Encrypted, _Key]] = {}
            # Sorted, so that tests with seeded randomness give the same keys.
            for subject in sorted(wanted):
                tenant, name = subject[0], _name(subject[1])
                newest = held.get((tenant, name))
                secret = (
                    await self._key_ring.decrypt(newest)
                    if newest is not None and newest.box
                    else None
                )
                if newest is not None and secret is not None:
                    keys[subject] = _Key(newest.version, AESGCM(secret))
                else:
                    version, secret = (
                        1 if newest is None else newest.version + 1,
                        self._runtime.random_bytes(KEY_BYTES),
                    )
                    fresh[subject] = (
                        await self._key_ring.encrypt(tenant, name, version, secret),
                        _Key(version, AESGCM(secret)),
                    )
            written = (
                await self._vault.put([encrypted for encrypted, _ in fresh.values()])
                if fresh
                else []
            )
            keys |= {
                subject: key
                for (subject, (_, key)), ours in zip(fresh.items(), written, strict=True)
                if ours
            }
            # Another process created the other keys first: use those.
            wanted = wanted - keys.keys()
        return keys

    async def open(self, views: Sequence[View]) -> list[Readable]:
        """Each payload in clear, with one read of the vault for all.

        Raises StoreError when the vault cannot be reached.
        """
        return await self.open_stored([_stored(view) for view in views])

    async def open_stored(self, stored: Sequence[Stored]) -> list[Readable]:
        """The same for payloads from `encrypt`."""
        keys = await self._keys_to_open({ref for one in stored for ref in _refs(one)})
        return [self._opened(one, keys) for one in stored]

    async def erased(self, view: View) -> frozenset[str]:
        """The paths of the fields that are unreadable because their data subject was erased."""
        stored = _stored(view)
        keys, found = await self._keys_to_open(set(_refs(stored))), set()

        def note(raw: bytes, path: str) -> bytes:
            if keys[_ref(stored, encrypted_field(raw))] is ERASED:
                found.add(path)
            return raw

        with suppress(ValueError):
            replace_encrypted(stored.body, note)
        return frozenset(found)

    async def is_erased(self, view: View) -> bool:
        """Whether any field is erased; False during an outage: the attempt checks again."""
        try:
            return bool(await self.erased(view))
        except StoreError:
            return False

    def _opened(self, stored: Stored, keys: Mapping[Ref, AESGCM | Rejected | Retry]) -> Readable:
        missing: list[Rejected | Retry] = []

        def clear(raw: bytes, path: str) -> bytes:
            field = encrypted_field(raw)
            key = keys[_ref(stored, field)]
            if isinstance(key, AESGCM):
                return decrypt(
                    field, context_of(stored.tenant, stored.flow, stored.request_id, path), key
                )
            missing.append(key)
            return raw

        try:
            body = replace_encrypted(stored.body, clear)
        except ValueError:
            return DAMAGED
        # Erasure is final, so it takes precedence over a missing key.
        return min(missing, key=lambda end: end is not ERASED) if missing else body

    async def _keys_to_open(self, refs: set[Ref]) -> dict[Ref, AESGCM | Rejected | Retry]:
        keys: dict[Ref, AESGCM | Rejected | Retry] = {}
        for ref, encrypted in (await self._vault.get(list(refs))).items() if refs else ():
            secret = await self._key_ring.decrypt(encrypted)
            keys[ref] = KEY_MISSING if secret is None else AESGCM(secret)
        missing = refs - keys.keys()
        # A key that the vault never had was lost, not erased.
        newest = await self._vault.newest([ref[:2] for ref in missing]) if missing else {}
        for ref in missing:
            known = newest.get(ref[:2])
            keys[ref] = ERASED if known is not None and known.version >= ref[2] else KEY_MISSING
        return keys

    async def encrypt_texts(self, view: View, texts: Sequence[str]) -> list[str]:
        """Free texts about a request, as they may be stored.

        They are encrypted under the keys of everyone the payload is about, so that erasing a person
        needs no search in texts. If the payload is about no person, they stay as they are. If a key
        is gone, or the vault does not answer, they are dropped, so that the outcome itself is not
        lost.
        """
        state = view.state
        refs = sorted(set(_refs(_stored(view))))
        if not refs or not any(texts):
            return list(texts)
        try:
            keys = await self._keys_to_open(set(refs))
        except StoreError:
            return [""] * len(texts)
        layers = [
            (_digest(ref[1]), ref[2], key) for ref in refs if isinstance(key := keys[ref], AESGCM)
        ]
        if len(layers) < len(refs):
            return [""] * len(texts)
        context = context_of(state.tenant, state.flow, state.id, TEXTS)
        return [
            text and encrypt_text(text, context, layers, self._runtime.random_bytes(NONCE_BYTES))
            for text in texts
        ]

    async def open_texts(self, requests: Sequence[tuple[Key, Sequence[str]]]) -> list[list[str]]:
        """The texts of some requests in clear text, with one read of the vault for all."""
        refs = {
            (key[1], _name(subject), version)
            for key, texts in requests
            for text in texts
            for found in ENCRYPTED_TEXTS.finditer(text)
            for subject, version in _parts(found[1])
        }
        keys: dict[Ref, AESGCM | Rejected | Retry] = {}
        with suppress(StoreError):
            keys = await self._keys_to_open(refs)
        return [
            [ENCRYPTED_TEXTS.sub(partial(_text_in_clear, keys, key), text) for text in texts]
            for key, texts in requests
        ]

    async def open_views(self, views: Sequence[View]) -> list[View]:
        """The views with their texts in clear, to be shown and never to be stored."""
        if not any(
            ENCRYPTED_TEXT in view.state.detail or ENCRYPTED_TEXT in view.state.target_id
            for view in views
        ):
            return list(views)
        texts = await self.open_texts(
            [(key_of(view.state), (view.state.detail, view.state.target_id)) for view in views]
        )
        return [
            View(replace(view.state, detail=detail, target_id=target), view.payload)
            for view, (detail, target) in zip(views, texts, strict=True)
        ]

    async def open_events(self, key: Key, events: Sequence[Event | None]) -> list[Event | None]:
        """The events of a request with their texts in clear."""
        found = [
            {}
            if event is None
            else {
                name: value
                for name, value in msgspec.structs.asdict(event).items()
                if isinstance(value, str) and ENCRYPTED_TEXT in value
            }
            for event in events
        ]
        if not any(found):
            return list(events)
        opened = await self.open_texts([(key, tuple(texts.values())) for texts in found])
        return [
            event if event is None else replace(event, **dict(zip(names, texts, strict=True)))
            for event, names, texts in zip(events, found, opened, strict=True)
        ]

    async def destroy(self, tenant: str, text: str) -> tuple[str, int] | None:
        """Destroy every key of a data subject: its digest, and how many keys there were.

        None when nothing was ever encrypted for it.
        """
        digest = self._identity.subject(tenant, text)
        name = _name(digest)
        newest = (await self._vault.newest([(tenant, name)])).get((tenant, name))
        if newest is None:
            return None
        refs = [(tenant, name, version) for version in range(1, newest.version + 1)]
        held = await self._vault.get(refs)
        # Also when no key is left: an earlier erasure may have been interrupted before the store
        # removed the last trace.
        await self._vault.delete(refs)
        return digest.hex(), len(held)


def _name(digest: bytes) -> str:
    return f"subject/{digest.hex()}"


def _digest(name: str) -> bytes:
    return bytes.fromhex(name.removeprefix("subject/"))


def _stored(view: View) -> Stored:
    return Stored(view.state.tenant, view.state.flow, view.state.id, view.payload)


def _parts(body: str) -> tuple[tuple[bytes, int], ...]:
    try:
        return encrypted_text(body).subjects
    except ValueError:
        return ()


def _text_in_clear(
    keys: Mapping[Ref, AESGCM | Rejected | Retry], key: Key, found: re.Match[str]
) -> str:
    flow, tenant, request_id = key
    try:
        text = encrypted_text(found[1])
        held = [keys.get((tenant, _name(subject), version)) for subject, version in text.subjects]
        if ERASED in held:
            return "[erased]"
        usable = [one for one in held if isinstance(one, AESGCM)]
        if len(usable) == len(held):
            return decrypt_text(text, context_of(tenant, flow, request_id, TEXTS), usable)
    except ValueError:
        pass
    return "[unreadable]"


def _ref(stored: Stored, field: EncryptedField) -> Ref:
    return stored.tenant, _name(field.subject), field.key_version


def _refs(stored: Stored) -> list[Ref]:
    """The keys under which a payload is encrypted. Unreadable fields are reported on opening."""
    found: list[Ref] = []

    def note(raw: bytes, _path: str) -> bytes:
        found.append(_ref(stored, encrypted_field(raw)))
        return raw

    with suppress(ValueError):
        replace_encrypted(stored.body, note)
    return found


def _personal_parts(one: Clear) -> list[tuple[bytes, str]]:
    found: list[tuple[bytes, str]] = []

    def note(raw: bytes, path: str) -> bytes:
        found.append((raw, path))
        return raw

    one.plan.replace(one.body, "", note)
    return found
