"""The content of an e-mail: inline, from a template, or HTML fetched by reference; with CSS inlined
and a text part.

A reference (htmlRef) has one of three schemes:

- `db:<uuid>`, or the UUID: a body stored by `store_body`, encrypted in the vault.
- `file:<path>`: a file below `<files>/<tenant>/`, where the program sets `files`.
- `s3:<key>`: an object below the prefix of the bucket in the tenant's config.

`..`, absolute paths, links that lead out and URLs are refused. A caller who may name a reference
must not read e-mails of other tenants, files of the machine, or addresses inside the network
(S2-19).
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gesta.domain.outcome import Rejected, Retry, Unknown
from gesta.errors import StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.email.aws import AwsAccount, AwsClients, AwsError
from gesta.flows.email.composing import EmailContent
from gesta.flows.email.message import DEFAULT, Message, is_subject
from gesta.flows.flow import ConfigBody, Secret
from gesta.outbound.http import AttemptEnded
from gesta.runtime.redaction import scrub

REF_LENGTH_MAX = 512
BODY_BYTES_MAX = 512 * 1024
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: One part of a path: no control character, backslash or colon.
_PART = re.compile(r"[\w .=@+()-]{1,255}")


class HtmlRef(msgspec.Struct, frozen=True):
    scheme: Literal["db", "file", "s3"]
    name: str


class MissingBody(Exception):
    """The tenant has no such body, or it cannot be one."""

    def __init__(
        self, reason: Literal["html_not_found", "html_too_large", "html_unreadable"]
    ) -> None:
        super().__init__(reason)
        self.reason = reason


def ref_error(text: str) -> str | None:
    """The error of a reference; None when it is valid."""
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
    """None when the text is no reference."""
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
    """A file below the tenant's folder. Every step is opened without following links, so no part of
    the path can be swapped.
    """
    *folders, last = (tenant, *name.split("/"))
    opened: list[int] = []
    try:
        at = os.open(files, os.O_RDONLY | os.O_DIRECTORY)
        opened.append(at)
        for folder in folders:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            opened.append(at)
        # Non-blocking: a pipe in its place would block the process until a writer comes.
        at = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        opened.append(at)
        status = os.fstat(at)
        if not stat.S_ISREG(status.st_mode):
            raise MissingBody("html_not_found")
        return bounded(_read(at))
    except OSError:
        # Missing, a link, a folder or unreadable: the same answer for all.
        raise MissingBody("html_not_found") from None
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
    """Raises MissingBody when it is too long."""
    if len(body) > BODY_BYTES_MAX:
        raise MissingBody("html_too_large")
    return body


def html_text(body: bytes) -> str:
    """Raises MissingBody when it is not text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise MissingBody("html_unreadable") from None
    if "\0" in text:
        raise MissingBody("html_unreadable")
    return text


#: Where `s3:` bodies of a tenant are; its code is `default`.
BODIES = "email.bodies"
#: Bodies of `store_body`, among the tenant's records.
BODY = "email.body"
#: A missing body may still be on its way: so many attempts look again.
MISSING_TRIES = 2
#: S3's codes for a missing object. Without the permission to list it answers 403 for that, too.
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "404", "NotFound"})


class Bodies(ConfigBody, frozen=True):
    """The bucket of `s3:` references, below `prefix`."""

    bucket: Annotated[
        str,
        msgspec.Meta(
            min_length=3, max_length=63, pattern=r"^[a-z0-9.-]+$", examples=["shop-bodies"]
        ),
    ]
    region: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$", examples=["eu-west-1"]),
    ]
    access_key_id: str
    secret_access_key: Secret[str]
    prefix: Annotated[
        str, msgspec.Meta(max_length=500, pattern=r"^([\w=@+-][\w .=@+-]*/)*$", examples=["mails/"])
    ] = ""
    endpoint_url: Annotated[
        str, msgspec.Meta(pattern=r"^(https?://[^\s/?#]+.*)?$", examples=["https://s3.example.com"])
    ] = ""

    def __repr__(self) -> str:
        return "Bodies()"


async def content_of(
    message: Message, attempt: Attempt, files: Path | None, clients: AwsClients
) -> EmailContent:
    """The subject and the parts of the e-mail. Ends the attempt when it has no content; nothing was
    sent by then.
    """
    if message.template is not None:
        return await _from_template(message, attempt)
    if message.html_ref is None:
        if message.html is None:
            return EmailContent(message.subject, "", message.text or "")
        inlined = await attempt.templates.dress("html", message.html)
        return EmailContent(message.subject, inlined["html"], message.text or inlined["text"])
    ref = read_ref(message.html_ref or "")
    assert ref is not None, "the rules have looked at it"
    try:
        html = html_text(bounded(await _fetched(ref, attempt, files, clients)))
    except MissingBody as missing:
        if missing.reason == "html_not_found" and attempt.number <= MISSING_TRIES:
            raise AttemptEnded(
                Retry(missing.reason, f"{ref.scheme}: it may be on its way")
            ) from None
        raise AttemptEnded(Rejected(missing.reason, f"{ref.scheme}:")) from None
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None
    dressed = await attempt.templates.dress("html", html)
    return EmailContent(message.subject, dressed["html"], dressed["text"])


async def _from_template(message: Message, attempt: Attempt) -> EmailContent:
    assert message.template is not None
    rendered = await attempt.templates.render(message.template, message.data, message.locale)
    parts = rendered.parts
    html, text = "", parts.get("text", "")
    for markup in ("mjml", "html"):
        if markup in parts:
            if len(parts[markup].encode()) > BODY_BYTES_MAX:
                raise AttemptEnded(Rejected("html_too_large", f"template {message.template}"))
            dressed: Mapping[str, str] = await attempt.templates.dress(markup, parts[markup])
            html, text = dressed["html"], text or dressed["text"]
            break
    if not html and not text.strip():
        raise AttemptEnded(
            Rejected(
                "template_render_failed", f"template {message.template} has no html, mjml or text"
            )
        )
    subject = message.subject or parts.get("subject", "").strip()
    if not is_subject(subject):
        raise AttemptEnded(
            Rejected(
                "template_render_failed",
                f"template {message.template}: the e-mail has no valid subject",
            )
        )
    return EmailContent(subject, html, text)


async def _fetched(
    ref: HtmlRef, attempt: Attempt, files: Path | None, clients: AwsClients
) -> bytes:
    if ref.scheme == "db":
        assert attempt.records is not None
        record = await attempt.records.get(BODY, ref.name)
        if record is None or record.value is None:
            raise MissingBody("html_not_found")
        return record.value
    if ref.scheme == "file":
        if files is None:
            raise MissingBody("html_not_found")
        return read_file(files, attempt.tenant, ref.name)
    return await _from_bucket(ref.name, attempt, clients)


async def _from_bucket(name: str, attempt: Attempt, clients: AwsClients) -> bytes:
    entity = attempt.config.get(BODIES, DEFAULT)
    if entity is None:
        raise MissingBody("html_not_found")
    place = entity.body
    assert isinstance(place, Bodies)
    secrets = await attempt.config.secrets(BODIES, DEFAULT, "secret_access_key")
    account = AwsAccount(
        place.region, place.access_key_id, secrets[0] if secrets else "", place.endpoint_url
    )
    # One byte more than allowed shows that the body is too long.
    arguments: dict[str, Any] = {
        "Bucket": place.bucket,
        "Key": f"{place.prefix}{name}",
        "Range": f"bytes=0-{BODY_BYTES_MAX}",
    }
    try:
        answer = await clients.call(attempt.http, "s3", account, "get_object", arguments)
    except AwsError as error:
        if error.code == "InvalidRange":
            # An empty object has no first byte.
            return b""
        if error.code in _MISSING:
            raise MissingBody("html_not_found") from None
        raise AttemptEnded(Retry("bodies_unavailable", f"S3 {error.detail}")) from None
    except AttemptEnded as ended:
        if isinstance(ended.outcome, Unknown):
            # The answer to a read is missing; no e-mail was sent.
            raise AttemptEnded(
                Retry(ended.outcome.reason, "S3 gave no answer; nothing was sent")
            ) from None
        raise
    body = answer["Body"]
    assert isinstance(body, bytes)
    return body
