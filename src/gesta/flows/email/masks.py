"""What a log may show of an address or a document: enough to recognise, too little to learn
(R2-30).
"""

from __future__ import annotations

HIDDEN = "***"
HASH_SHOWN = 8


def mask_email(address: str | None) -> str | None:
    """`user@example.com` → `u***@e***.com`: first characters and the last label.

    None stays None; what is no address is hidden whole.
    """
    if address is None:
        return None
    local, _, domain = address.strip().rpartition("@")
    host, _, last_label = domain.rpartition(".")
    if not local or not host or not last_label:
        return HIDDEN
    return f"{local[0]}{HIDDEN}@{host[0]}{HIDDEN}.{last_label.lower()}"


def mask_hash(digest: str | None) -> str | None:
    """The first eight characters of a document's hash."""
    return None if digest is None else f"{digest[:HASH_SHOWN]}..."
