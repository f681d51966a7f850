"""CPF and CNPJ, with validate-docbr as oracle; the hash that stands for them; the masks."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validate_docbr import CNPJ, CPF

from gesta import Engine
from gesta.errors import BadInput
from gesta.flows import email
from tests.flows.email.jobs import HASH

KEY = bytes(range(32))


def is_document(text: str) -> bool:
    try:
        email.normal_document(text)
    except BadInput:
        return False
    return True


@given(st.text("0123456789", min_size=9, max_size=9))
def test_a_cpf_is_accepted_exactly_when_the_oracle_accepts_it(stem):
    digits = [digit for digit in range(100) if is_document(f"{stem}{digit:02d}")]
    assert digits == [
        digit for digit in range(100) if CPF().validate(f"{stem}{digit:02d}")
    ]  # S2-15
    assert len(digits) == (0 if len(set(stem)) == 1 and digits == [] else 1)


@given(st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=12, max_size=12))
def test_a_cnpj_is_accepted_exactly_when_the_oracle_accepts_it_with_letters_too(stem):
    digits = [digit for digit in range(100) if is_document(f"{stem}{digit:02d}")]
    assert digits == [
        digit for digit in range(100) if CNPJ().validate(f"{stem}{digit:02d}")
    ]  # S2-15


@pytest.mark.parametrize(
    "text",
    [
        "111.111.111-11",
        "00000000000",
        "00.000.000/0000-00",
        "123",
        "",
        "123.456.789-00",
        "12.ABC.345/01DE-36",
        "１２３４５６７８９０９",
    ],
)
def test_an_invalid_document_is_refused_without_being_quoted(text):
    with pytest.raises(BadInput) as refused:
        email.normal_document(text)
    assert not text or text not in str(refused.value)  # R2-6


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("529.982.247-25", "52998224725"),
        (" 529 982 247 25 ", "52998224725"),
        ("11.222.333/0001-81", "11222333000181"),
        ("12.abc.345/01de-35", "12ABC34501DE35"),
    ],
)
def test_one_document_has_one_spelling(text, normal):
    assert email.normal_document(text) == normal  # S2-15


def test_the_hash_is_an_hmac_of_the_one_spelling():
    found = email.document_hash("529.982.247-25", KEY)
    assert found == hmac.new(KEY, b"52998224725", hashlib.sha256).hexdigest()  # S2-14
    assert len(found) == 64  # R2-6
    assert found != hashlib.sha256(b"52998224725").hexdigest()


async def test_each_tenant_has_a_key_of_its_own_which_can_be_rotated(gesta):
    async with Engine("memory://documents", flows=[email.flow()]) as engine:
        first = await email.hash_document(engine, "529.982.247-25")
        assert await email.hash_document(engine, "52998224725") == first
        assert (
            await email.hash_document(engine, "529.982.247-25", tenant="other")
        ).hash != first.hash  # S2-14
        assert await email.rotate_document_key(engine) == first.key_id + 1
        second = await email.hash_document(engine, "529.982.247-25")
        assert second.hash != first.hash
        assert await email.document_hashes(engine, "529.982.247-25") == [
            second,
            first,
        ]  # S2-14: the key id is kept for rotation
    async with Engine("memory://documents", flows=[email.flow()]) as engine:
        assert await email.hash_document(engine, "529.982.247-25") == second


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("user@example.com", "u***@e***.com"),
        ("a@b.co", "a***@b***.co"),
        ("ana@mail.example.com.br", "a***@m***.br"),
        ("ana@X.COM", "a***@X***.com"),
        ("nobody", "***"),
        ("@example.com", "***"),
        ("a@localhost", "***"),
        ("", "***"),
        (None, None),
    ],
)
def test_an_address_is_masked(address, masked):
    assert email.mask_email(address) == masked  # R2-30, S2-21


def test_a_hash_is_masked():
    assert email.mask_hash(HASH) == "a3c7b8d9..."  # R2-30
    assert email.mask_hash(None) is None  # S2-21: never `undefined...`
