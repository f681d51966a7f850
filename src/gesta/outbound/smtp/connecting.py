"""A connection to one of a name's addresses, none of which the guard refuses; in bounded time."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver

from gesta.outbound.http import PrivateAddressGuard
from gesta.outbound.smtp.transport import MailFault
from gesta.runtime.clock import Runtime, spawn


async def allowed_addresses(
    resolver: AbstractResolver, guard: PrivateAddressGuard, host: str, *, is_plain: bool
) -> list[str]:
    """The addresses of a name that may be reached. Raises MailFault when there is none."""
    try:
        found = [entry["host"] for entry in await resolver.resolve(host, 0, socket.AF_UNSPEC)]
    except (OSError, UnicodeError):
        raise MailFault("dns", sent=False) from None
    if not found:
        raise MailFault("dns", sent=False)
    refusals = [guard.refusal(address, "http" if is_plain else "https") for address in found]
    passed = [address for address, refusal in zip(found, refusals, strict=True) if refusal is None]
    if not passed:
        raise MailFault(
            "plain_smtp" if refusals[0] == "plain_http" else "private_address", sent=False
        )
    return passed


async def connected_socket(
    runtime: Runtime, addresses: Sequence[str], port: int, seconds: float
) -> socket.socket:
    """A connection to the first of these addresses that takes one.

    Raises MailFault when none does in time.
    """
    # A share each, so that one that swallows everything does not hide the others.
    share, last = seconds / len(addresses), MailFault("unreachable", sent=False)
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.settimeout(0)
        try:
            if await _connects(runtime, made, (address, port), share):
                return made
            last = MailFault("connect_timeout", sent=False)
        except OSError as error:
            last = MailFault(
                "refused" if error.errno == errno.ECONNREFUSED else "unreachable", sent=False
            )
        except BaseException:
            made.close()
            raise
        made.close()
    raise last


async def _connects(
    runtime: Runtime, made: socket.socket, address: tuple[str, int], seconds: float
) -> bool:
    """False when the time is over."""
    connecting = spawn(asyncio.get_running_loop().sock_connect(made, address), "gesta-smtp-connect")

    def give_up() -> None:
        connecting.cancel()

    timer = runtime.call_later(seconds, give_up)
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        if connecting.cancelled():
            return False
        # We are the ones who were cut off.
        connecting.cancel()
        raise
    finally:
        timer.cancel()
    return True
