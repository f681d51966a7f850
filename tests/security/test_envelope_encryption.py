from __future__ import annotations

import base64

import pytest

from gesta.errors import BadSettings, StoreError, WrongMasterKey
from gesta.ports.vault import Encrypted
from gesta.runtime.clock import ManualRuntime
from gesta.security.envelope_encryption import KeyRing, MasterKey
from gesta.stores.memory.vault import MemoryVault

KEY, OTHER = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


def key_ring(vault: MemoryVault, key: str = KEY, seed: int = 0) -> KeyRing:
    return KeyRing(vault, MasterKey(key, "the test"), ManualRuntime(seed=seed))


async def boxes(
    vault: MemoryVault, refs: list[tuple[str, str, int]]
) -> dict[tuple[str, str, int], Encrypted]:
    return await vault.get(refs)


async def test_a_secret_comes_out_as_it_went_in_and_the_vault_never_sees_it():
    vault = MemoryVault()
    assert await key_ring(vault).put("acme", "slack/main", 1, "xoxb-secret ✓") is True
    assert await key_ring(vault, seed=1).get("acme", "slack/main", 1) == "xoxb-secret ✓"
    (encrypted,) = (await boxes(vault, [("acme", "slack/main", 1)])).values()
    assert b"xoxb" not in encrypted.box  # R1-42
    assert repr(encrypted) == "Encrypted(acme/slack/main v1)"


async def test_a_version_never_changes_once_it_is_written():
    vault = MemoryVault()
    first = key_ring(vault)
    await first.put("acme", "n", 1, "one")
    assert await first.put("acme", "n", 1, "two") is False
    assert await key_ring(vault, seed=1).get("acme", "n", 1) == "one"


async def test_a_missing_or_destroyed_secret_is_none():
    vault = MemoryVault()
    await key_ring(vault).put("acme", "n", 1, "one")
    await vault.delete([("acme", "n", 1)])
    assert await key_ring(vault).get("acme", "n", 1) is None
    assert await key_ring(vault).get("acme", "n", 2) is None


async def test_another_master_key_opens_nothing_and_the_error_names_the_cause():
    vault = MemoryVault()
    secret = await key_ring(vault).installation_secret("identity")
    with pytest.raises(
        WrongMasterKey, match="the master key from the test does not decrypt this store's vault"
    ):
        await key_ring(vault, OTHER, seed=1).installation_secret("identity")
    assert await key_ring(vault, seed=2).installation_secret("identity") == secret


async def test_a_box_moved_to_another_tenant_name_or_version_does_not_open():
    vault = MemoryVault()
    await key_ring(vault).put("acme", "n", 1, "one")
    await key_ring(vault, seed=1).put("other", "n", 1, "two")
    (encrypted,) = (await boxes(vault, [("acme", "n", 1)])).values()
    await vault.put(
        [
            Encrypted("other", "stolen", 1, encrypted.box),
            Encrypted("acme", "moved", 1, encrypted.box),
            Encrypted("acme", "n", 2, encrypted.box),
        ]
    )
    for ref in (("other", "stolen", 1), ("acme", "moved", 1), ("acme", "n", 2)):
        with pytest.raises(StoreError, match="cannot be decrypted"):
            await key_ring(vault, seed=2).get(*ref)


async def test_a_damaged_secret_is_reported_without_its_content():
    vault = MemoryVault()
    await key_ring(vault).put("acme", "n", 1, "one")
    await vault.put([Encrypted("acme", "n", 2, b"short")])
    with pytest.raises(StoreError, match="acme/n v2 cannot be decrypted"):
        await key_ring(vault, seed=1).get("acme", "n", 2)


async def test_the_same_secret_encrypted_twice_looks_different():
    vault = MemoryVault()
    keeper = key_ring(vault)
    await keeper.put("acme", "n", 1, "one")
    await keeper.put("acme", "n", 2, "one")
    first, second = (await boxes(vault, [("acme", "n", 1), ("acme", "n", 2)])).values()
    assert first.box != second.box


async def test_two_processes_that_start_at_once_agree_on_one_installation_secret():
    vault = MemoryVault()
    assert await key_ring(vault, seed=1).installation_secret("identity") == await key_ring(
        vault, seed=2
    ).installation_secret("identity")


@pytest.mark.parametrize(
    "text", ["", "short", base64.b64encode(bytes(31)).decode(), "ä" * 44, "!" * 44, KEY + KEY]
)
def test_a_master_key_that_is_none_is_refused_with_the_way_to_make_one(text):
    with pytest.raises(
        BadSettings,
        match=(
            "32 bytes in base64 are needed; for a new store make one with: openssl rand -base64 32"
        ),
    ) as refusal:
        MasterKey(text, "GESTA_MASTER_KEY")
    assert "GESTA_MASTER_KEY" in str(refusal.value)
    assert text == "" or text not in str(refusal.value)


def test_a_master_key_is_not_printed():
    assert repr(MasterKey(KEY + "\n", "gesta.key")) == "MasterKey(from gesta.key)"


async def test_many_opened_secrets_do_not_fill_the_memory():
    vault = MemoryVault()
    keeper = key_ring(vault)
    for version in range(1, 1_200):
        await keeper.put("acme", "n", version, str(version))
        assert await keeper.get("acme", "n", version) == str(version)
    assert len(keeper._opened) <= 1_001
