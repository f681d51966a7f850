"""Keyed digests show whether the same was asked before."""

from __future__ import annotations

import hashlib
import hmac

from gesta.security.keyed_digests import KeyedDigests

SECRET = bytes(range(32))


def test_the_digest_of_a_content_is_hmac_sha256_cut_to_eight_bytes() -> None:
    for body in (b"", b'{"n":1}', b"x" * 1_000):
        assert (
            KeyedDigests(SECRET).content(body)
            == hmac.new(SECRET, body, hashlib.sha256).digest()[:8]
        )


def test_a_key_is_scoped_by_tenant_and_flow() -> None:
    name = KeyedDigests(SECRET).name
    assert (
        len(
            {
                name("a", "x.y", "k"),
                name("b", "x.y", "k"),
                name("a", "x.z", "k"),
                name("a", "x.y", "l"),
            }
        )
        == 4
    )


def test_another_installation_gives_other_digests() -> None:
    assert KeyedDigests(SECRET).name("a", "x.y", "k") != KeyedDigests(bytes(32)).name(
        "a", "x.y", "k"
    )
    assert KeyedDigests(SECRET).content(b"{}") != KeyedDigests(bytes(32)).content(b"{}")


def test_a_subject_is_scoped_by_tenant_and_is_no_key() -> None:
    identity = KeyedDigests(SECRET)
    digests = {
        identity.subject("a", "ana"),
        identity.subject("b", "ana"),
        identity.subject("a", "bo"),
        identity.name("a", "ana", ""),
    }
    assert len(digests) == 4
    assert (
        identity.subject("a", "ana")
        == KeyedDigests(SECRET).subject("a", "ana")
        != KeyedDigests(bytes(32)).subject("a", "ana")
    )
