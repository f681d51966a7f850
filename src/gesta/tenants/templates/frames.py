"""What goes through the socket between a renderer and its child: frames of msgpack, each after its
length.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gesta.tenants.templates.press import Fault, Names, Sheet

#: Length of a frame, big-endian.
HEAD_BYTES = 4
#: No frame is longer: a child that claims so has lost its mind.
FRAME_BYTES_MAX = 64 * 1024 * 1024

Task = Literal["render", "variables", "dress"]
Answer = Sheet | Names | Fault


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Do this with that template, once for each of these: most orders follow one for the same
    template.
    """

    number: int
    task: Task
    data: list[bytes]


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Orders, what the child has to know before, and what it may forget afterwards.

    It answers for each piece of data, in order, in one or more frames.
    """

    #: As bytes: half a character in one source must not keep the others from being written.
    learn: dict[int, dict[str, bytes]]
    forget: list[int]
    orders: list[Order]


_encoder = msgspec.msgpack.Encoder()
read_batch = msgspec.msgpack.Decoder(Batch).decode
read_answers = msgspec.msgpack.Decoder(list[Answer]).decode


def frame(content: Batch | list[Answer]) -> bytes:
    body = _encoder.encode(content)
    return len(body).to_bytes(HEAD_BYTES, "big") + body
