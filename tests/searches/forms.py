"""Every form in which a text may lie in bytes: as it is, escaped, encoded."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from urllib.parse import quote, quote_plus


@cache
def forms(text: str) -> frozenset[bytes]:
    plain = text.encode()
    found = {
        plain,
        plain.hex().encode(),
        plain.hex().upper().encode(),
        quote(text, safe="").encode(),
        quote(text).encode(),
        quote_plus(text).encode(),
    }
    found |= {
        json.dumps(text)[1:-1].encode(),
        json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        ascii(text)[1:-1].encode(),
    }
    # Escaped once more, as JSON inside JSON is.
    found |= {json.dumps(json.dumps(text)[1:-1])[1:-1].encode(), text.encode("utf-16-le")}
    for before in range(3):
        # Base64 depends on where in three bytes the text begins; the letters at both ends belong to
        # its neighbours, too.
        padded = bytes(before) + plain
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(padded).rstrip(b"=")
            found.add(whole[-(-before * 8 // 6) : len(padded) * 8 // 6])
    return frozenset(found)


def places(texts: dict[str, str], haystacks: dict[str, bytes]) -> list[str]:
    """Which of the texts lie where, in whatever form."""
    return [
        f"{name} in {place}"
        for place, content in haystacks.items()
        for name, text in texts.items()
        if any(form in content for form in forms(text))
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
