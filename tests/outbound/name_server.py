"""A name server on a UDP socket that never answers for some names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

A_RECORD = 1


class NameServer(asyncio.DatagramProtocol):
    """Answers 127.0.0.1 for names below `good`, nothing for names below `dead`, else NXDOMAIN."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        host, port = transport.get_extra_info("sockname")[:2]
        self.address = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], 12
        while size := data[at]:
            labels.append(data[at + 1 : at + 1 + size].decode().lower())
            at += 1 + size
        name, kind, question = ".".join(labels), data[at + 2], data[12 : at + 5]
        self.asked[name] += 1
        if labels[-1] == "dead":
            return
        is_known = labels[-1] == "good"
        records = b""
        if is_known and kind == A_RECORD:
            # A pointer to the name in the question, type A, class IN, 60 s, four bytes.
            records = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"
        flags = b"\x81\x80" if is_known else b"\x81\x83"
        counts = b"\x00\x01" + len(records[:1]).to_bytes(2, "big") + b"\x00\x00\x00\x00"
        self._transport.sendto(data[:2] + flags + counts + question + records, addr)


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()
        # The socket is closed at the loop's next turn.
        await asyncio.sleep(0)
