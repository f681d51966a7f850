"""Which parts of a payload are personal, and the form of an encrypted field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gesta import Payload, Personal
from gesta.domain.codec import canonical
from gesta.flows.personal_fields import personal_fields, plan_of, subject_name
from gesta.security.field_encryption import (
    MARK,
    context_of,
    decrypt,
    encrypt,
    encrypted_field,
    forged,
    is_encrypted,
    replace_encrypted,
)

T = TypeVar("T")
Name = NewType("Name", Personal[str])
KEY = AESGCM(bytes(32))


class Person(msgspec.Struct, rename="camel"):
    full_name: Personal[str]
    role: str = "reader"


class Tagged(msgspec.Struct, tag="tagged"):
    name: Personal[str]


class Other(msgspec.Struct, tag="other"):
    code: str


class Row(msgspec.Struct, array_like=True):
    code: str
    name: Personal[str]


class Box(msgspec.Struct, Generic[T]):
    held: T


class Node(msgspec.Struct):
    name: Personal[str]
    inner: Node | None = None


class Loop(msgspec.Struct):
    """Contains itself."""

    inner: Loop | None = None


@dataclasses.dataclass
class Card:
    name: Personal[str]


class Entry(TypedDict):
    name: Personal[str]


class Pair(NamedTuple):
    code: str
    name: Personal[str]


def parts_of(kind: type[msgspec.Struct], value: msgspec.Struct) -> dict[str, Any]:
    """Path → value of everything that would be encrypted."""
    found: dict[str, Any] = {}
    plan = plan_of(kind)
    if plan is not None:

        def note(raw: bytes, path: str) -> bytes:
            found[path] = msgspec.json.decode(raw)
            return raw

        body = canonical(value)
        # What is not replaced stays byte for byte.
        assert plan.replace(body, "", note) == body
    return found


@pytest.mark.parametrize(
    ("hint", "value", "encrypted"),
    [
        (Personal[str], "Ana", {"/f": "Ana"}),
        (Personal[int], 42, {"/f": 42}),
        (Annotated[Personal[str], msgspec.Meta(max_length=9)], "Ana", {"/f": "Ana"}),
        (Personal[str] | None, "Ana", {"/f": "Ana"}),
        (Personal[str | None], "Ana", {"/f": "Ana"}),  # type: ignore[misc]
        (Personal[str] | None, None, {}),
        (Personal[str], "", {}),
        (Name, "Ana", {"/f": "Ana"}),
        (list[Personal[str]], ["Ana", "Bo"], {"/f/0": "Ana", "/f/1": "Bo"}),
        (Sequence[Personal[str]], ["Ana"], {"/f/0": "Ana"}),
        (tuple[Personal[str], ...], ("Ana",), {"/f/0": "Ana"}),
        (set[Personal[str]], {"Ana"}, {"/f/0": "Ana"}),
        (Personal[list[str]], ["Ana"], {"/f": ["Ana"]}),
        (dict[str, Personal[str]], {"a/b~": "Ana"}, {"/f/a~1b~0": "Ana"}),
        (Mapping[str, list[Personal[str]]], {"a": ["Ana"]}, {"/f/a/0": "Ana"}),
        (Person, Person("Ana"), {"/f/fullName": "Ana"}),
        (Personal[Person], Person("Ana"), {"/f": {"fullName": "Ana", "role": "reader"}}),
        (Person | None, Person("Ana"), {"/f/fullName": "Ana"}),
        (dict[str, list[Person]], {"a": [Person("Ana")]}, {"/f/a/0/fullName": "Ana"}),
        (Node, Node("Ana", Node("Bo")), {"/f/name": "Ana", "/f/inner/name": "Bo"}),
        # The type does not show what a value is, so all of it goes.
        (Personal[str] | int, 7, {"/f": 7}),
        (Tagged | Other, Other("x"), {"/f": {"type": "other", "code": "x"}}),
        (dict[Personal[str], int], {"Ana": 1}, {"/f": {"Ana": 1}}),
        (tuple[str, Personal[str]], ("x", "Ana"), {"/f": ["x", "Ana"]}),
        (Row, Row("x", "Ana"), {"/f": ["x", "Ana"]}),
        (Box[Personal[str]], Box("Ana"), {"/f": {"held": "Ana"}}),
        (Card, Card("Ana"), {"/f": {"name": "Ana"}}),
        (Entry, {"name": "Ana"}, {"/f": {"name": "Ana"}}),
        (Pair, Pair("x", "Ana"), {"/f": ["x", "Ana"]}),
        # These contain no personal data.
        (str, "Ana", {}),
        (Any, {"name": "Ana"}, {}),
        (dict[str, Other], {"a": Other("x")}, {}),
        (Loop, Loop(Loop()), {}),
    ],
)
def test_every_marked_part_is_found_at_its_path(hint, value, encrypted):
    kind = msgspec.defstruct("Letter", [("code", str), ("f", hint)], bases=(Payload,), frozen=True)
    assert parts_of(kind, kind("c-1", value)) == encrypted  # R1-43
    marked = hint not in (str, Any, Loop) and "Other]" not in str(hint)
    assert personal_fields(kind) == ({"f"} if marked else frozenset())
    assert (plan_of(kind) is None) is not marked


def test_the_subject_of_a_payload_is_encrypted_even_unmarked():
    class Letter(Payload, frozen=True, rename={"subject": "who"}):
        text: str
        subject: str
        address: Personal[str] = ""

    class Mail(Payload, frozen=True):
        to: Personal[str]
        subject: Personal[str]

    class Topic(Payload, frozen=True):
        subject: str

    class Plain(Payload, frozen=True):
        text: str

        @property
        def subject(self) -> str:
            return self.text

    class Listed(Payload, frozen=True, array_like=True):
        subject: str
        address: Personal[str] = ""

    assert parts_of(Letter, Letter("hello", "customer-42")) == {"/who": "customer-42"}
    assert parts_of(Listed, Listed("customer-42")) == {"": ["customer-42", ""]}
    assert plan_of(Plain) is None
    # Of a person's message the subject line, itself marked, is a field like any other; without a
    # personal field it says nothing about anybody.
    assert [subject_name(kind) for kind in (Letter, Plain, Listed, Mail)] == [
        "subject",
        "subject",
        "subject",
        None,
    ]
    assert parts_of(Mail, Mail("ana@example.com", "Hello Ana")) == {
        "/to": "ana@example.com",
        "/subject": "Hello Ana",
    }
    assert plan_of(Topic) is None


CONTEXT = context_of("acme", "a.b", "r-1", "/to")
SUBJECT = bytes(range(16))


def test_an_encrypted_field_opens_only_under_its_key_and_at_its_path():
    raw = encrypt(b'"Ana"', CONTEXT, SUBJECT, 3, KEY, bytes(12))
    field = encrypted_field(raw)
    assert is_encrypted(raw)
    assert (field.subject, field.key_version) == (SUBJECT, 3)
    assert decrypt(field, CONTEXT, KEY) == b'"Ana"'
    assert b"Ana" not in raw
    assert set(msgspec.json.decode(raw)) == {"$encrypted"}
    others = [
        ("other", "a.b", "r-1", "/to"),
        ("acme", "a.c", "r-1", "/to"),
        ("acme", "a.b", "r-2", "/to"),
        ("acme", "a.b", "r-1", "/cc"),
    ]
    for place in others:
        with pytest.raises(ValueError, match="moved from another request or field"):
            decrypt(field, context_of(*place), KEY)
    with pytest.raises(ValueError, match="changed"):
        decrypt(field, CONTEXT, AESGCM(bytes([1]) * 32))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"$encrypted":"AAAA"}',
        b'{"$encrypted":"!"}',
        b'{"$encrypted":"' + b"A" * 80 + b'"}',
        b'{"$encrypted":"',
    ],
)
def test_a_malformed_encrypted_field_raises(raw):
    with pytest.raises(ValueError):  # noqa: PT011 -- base64's own words or ours
        encrypted_field(raw)


def test_encrypted_fields_are_found_in_the_json_and_the_rest_is_unchanged():
    raw = encrypt(b'"Ana"', CONTEXT, SUBJECT, 1, KEY, bytes(12))
    body = (
        b'{"n":123456789012345678901234567890,"x":1.0,"text":"$encrypted","list":[1,{"deep":'
        + raw
        + b'}],"to":'
        + raw
        + b"}"
    )
    found: list[str] = []

    def open_it(_: bytes, path: str) -> bytes:
        found.append(path)
        return b'"Ana"'

    assert replace_encrypted(body, open_it) == body.replace(raw, b'"Ana"')
    assert found == ["/list/1/deep", "/to"]
    assert replace_encrypted(raw, open_it) == b'"Ana"'


def test_a_payload_in_clear_cannot_pretend_to_be_encrypted():
    for value in ({"$encrypted": "x"}, {"a": [{"$encrypted": 1}]}):
        assert forged(canonical({"ok": 1, "data": value})) == {
            "data": (
                "an object in a payload may not have the key '$encrypted':"
                " it marks encrypted fields"
            )
        }
    for harmless in (
        "$encrypted",
        '"$encrypted":',
        ["$encrypted"],
        {"encrypted": 1},
        {"a$encrypted": 1},
    ):
        assert MARK not in canonical({"data": harmless})
