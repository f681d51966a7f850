"""htmlRef: where the HTML of a letter is found.

One way for each scheme, each of them inside what belongs to the tenant.

| reference                  | what it names
|
|----------------------------|----------------------------------------------------------------------------------|
| `db:<uuid>`, or the UUID   | a body that `store_body` has put, sealed in the vault under the
tenant           |
| `file:<path>`              | a file below `<files>/<tenant>/`, where the program says what `files`
is         |
| `s3:<key>`                 | an object below the prefix of the bucket that the tenant's config
names          |

There is no way up (`..`), no absolute path, no link that leads out, and no URL: whoever may name a
reference must not be able to read
other tenants' letters, the machine's files, or addresses inside the network (S2-19).
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Literal

import msgspec

#: Longer references are no references.
REF_LENGTH_MAX = 512
BODY_BYTES_MAX = 512 * 1024
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: One part of a path: no control character, no backslash, no colon.
_PART = re.compile(r"[\w .=@+()-]{1,255}")


class HtmlRef(msgspec.Struct, frozen=True):
    """A reference that was read."""

    scheme: Literal["db", "file", "s3"]
    name: str


class NoBody(Exception):
    """There is no such body for this tenant; or it cannot be one, which no second look would
    change.
    """

    def __init__(
        self, reason: Literal["html_not_found", "html_too_large", "html_unreadable"]
    ) -> None:
        super().__init__(reason)
        self.reason = reason


def ref_fault(text: str) -> str | None:
    """What is wrong with a reference; None when it is one."""
    if not text.strip():
        return "must not be empty"
    if len(text) > REF_LENGTH_MAX:
        return f"at most {REF_LENGTH_MAX} characters"
    return (
        None
        if read_ref(text) is not None
        else "db:<uuid>, file:<path> or s3:<key>; relative, without '..' and not a URL"
    )


def read_ref(text: str) -> HtmlRef | None:
    """The reference that a text is; None when it is none."""
    if _UUID.fullmatch(text):
        return HtmlRef("db", text.lower())
    scheme, colon, name = text.partition(":")
    if not colon or len(text) > REF_LENGTH_MAX:
        return None
    if scheme == "db":
        return HtmlRef("db", name.lower()) if _UUID.fullmatch(name) else None
    if scheme in ("file", "s3") and _is_path(name):
        return HtmlRef("file" if scheme == "file" else "s3", name)
    return None


def _is_path(name: str) -> bool:
    parts = name.split("/")
    return all(_PART.fullmatch(part) is not None and part.strip(" .") != "" for part in parts)


def read_file(files: Path, tenant: str, name: str) -> bytes:
    """The file below the tenant's folder.

    Every step is opened without following links, so nothing can be swapped under our feet.
    """
    *folders, last = (tenant, *name.split("/"))
    opened: list[int] = []
    try:
        at = os.open(files, os.O_RDONLY | os.O_DIRECTORY)
        opened.append(at)
        for folder in folders:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            opened.append(at)
        # Not blocking: a pipe in the place of the file would keep the whole process waiting for a
        # writer.
        at = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        opened.append(at)
        status = os.fstat(at)
        if not stat.S_ISREG(status.st_mode):
            raise NoBody("html_not_found")
        return bounded(_read(at))
    except OSError:
        # Missing, a link, a folder, or closed to us: for whoever asked it is not there.
        raise NoBody("html_not_found") from None
    finally:
        for one in reversed(opened):
            os.close(one)


def _read(descriptor: int) -> bytes:
    parts, size = [], 0
    while size <= BODY_BYTES_MAX and (part := os.read(descriptor, BODY_BYTES_MAX + 1 - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def bounded(body: bytes) -> bytes:
    """The body; raises NoBody when it is longer than a letter may be."""
    if len(body) > BODY_BYTES_MAX:
        raise NoBody("html_too_large")
    return body


def html_text(body: bytes) -> str:
    """The body as text; raises NoBody when it is none: half a character, a zero, an image."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise NoBody("html_unreadable") from None
    if "\0" in text:
        raise NoBody("html_unreadable")
    return text
