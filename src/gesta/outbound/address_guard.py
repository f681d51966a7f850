"""Which addresses an outgoing request may reach: the public internet, and what the operator names
beside it.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

Network = IPv4Network | IPv6Network
Refusal = Literal["private_address", "plain_http"]

#: IPv4 that is not the public internet, from IANA's special-purpose registry; written out, because
#: `is_global` of the standard library differs between Python versions.
_CLOSED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier networks; 100.100.100.200 is a cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's platform channel on a public address
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # 192.0.0.192 is a cloud's metadata
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
#: All of public IPv6. Outside of it lie loopback, link-local, unique local, multicast, IPv4-mapped
#: and NAT64 addresses.
_OPEN_V6 = IPv6Network("2000::/3")
#: The parts of it that are not: tunnels that carry an IPv4 address inside (Teredo, 6to4), protocol
#: and documentation ranges.
_CLOSED_V6 = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)


class PrivateAddressGuard:
    """Refuses addresses that are not public.

    `allow` names networks that may be reached anyway, also without TLS.

    IPv6 addresses that contain an IPv4 address (mapped, NAT64, 6to4) are always refused, because a
    public host has another address, too. A network that needs NAT64 can allow `64:ff9b::/96`.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allowed: tuple[Network, ...] = tuple(ip_network(text) for text in allow)

    def refusal(self, address: str, scheme: str) -> Refusal | None:
        """Why a connection to this address may not be made; None when it may."""
        try:
            parsed = ip_address(address)
        except ValueError:
            # 127.1, 0x7f000001, a name: whatever the system would make of it, it was not checked.
            return "private_address"
        if any(parsed in network for network in self._allowed):
            return None
        if not _is_public(parsed):
            return "private_address"
        return None if scheme == "https" else "plain_http"


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)
