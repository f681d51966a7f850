"""Whether the same was asked before, told by keyed digests."""

from __future__ import annotations

import hashlib
import hmac

from gesta.security.keyed_digests import Identity

SECRET = bytes(range(32))


def test_the_digest_of_a_content_is_hmac_sha256_cut_to_eight_bytes() -> None:
    for body in (b"", b'{"n":1}', b"x" * 1_000):
        assert Identity(SECRET).content(body) == hmac.new(SECRET, body, hashlib.sha256).digest()[:8]


def test_a_key_is_scoped_by_tenant_and_flow() -> None:
    name = Identity(SECRET).name
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
    assert Identity(SECRET).name("a", "x.y", "k") != Identity(bytes(32)).name("a", "x.y", "k")
    assert Identity(SECRET).content(b"{}") != Identity(bytes(32)).content(b"{}")


def test_a_subject_is_scoped_by_tenant_and_is_no_key() -> None:
    identity = Identity(SECRET)
    digests = {
        identity.subject("a", "ana"),
        identity.subject("b", "ana"),
        identity.subject("a", "bo"),
        identity.name("a", "ana", ""),
    }
    assert len(digests) == 4
    assert (
        identity.subject("a", "ana")
        == Identity(SECRET).subject("a", "ana")
        != Identity(bytes(32)).subject("a", "ana")
    )
