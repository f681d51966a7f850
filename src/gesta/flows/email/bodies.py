"""What a letter says: its HTML fetched by reference or made from a template, made ready for mail
programs, with a text part.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gesta.domain.outcome import Rejected, Retry, Unknown
from gesta.errors import StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.email.aws import Account, AwsClients, AwsError
from gesta.flows.email.composing import Content
from gesta.flows.email.html_refs import (
    BODY_BYTES_MAX,
    HtmlRef,
    NoBody,
    bounded,
    html_text,
    read_file,
    read_ref,
)
from gesta.flows.email.keeping import BODY
from gesta.flows.email.message import DEFAULT, Message
from gesta.flows.email.rules import is_subject
from gesta.flows.flow import ConfigBody, Secret
from gesta.outbound.http import AttemptEnded
from gesta.runtime.redaction import scrub

#: Where a tenant's `s3:` bodies are; its code is `default`.
BODIES = "email.bodies"
#: A body that is not there may be on its way: so many attempts look again.
MISSING_TRIES = 2
#: S3's names for what is not there. Without the right to list, it answers 403 for that, too.
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "404", "NotFound"})


class Bodies(ConfigBody, frozen=True):
    """The bucket that a tenant's `s3:` references lead into, below `prefix`."""

    bucket: Annotated[str, msgspec.Meta(min_length=3, max_length=63, pattern=r"^[a-z0-9.-]+$")]
    region: Annotated[str, msgspec.Meta(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$")]
    access_key_id: str
    secret_access_key: Secret[str]
    prefix: Annotated[str, msgspec.Meta(max_length=500, pattern=r"^([\w=@+-][\w .=@+-]*/)*$")] = ""
    endpoint_url: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s/?#]+.*)?$")] = ""

    def __repr__(self) -> str:
        return "Bodies()"


async def content_of(
    message: Message, attempt: Attempt, files: Path | None, clients: AwsClients
) -> Content:
    """What the letter says. Ends the attempt when there is nothing to say; nothing was sent
    then.
    """
    if message.template is not None:
        return await _from_template(message, attempt)
    ref = read_ref(message.html_ref or "")
    assert ref is not None, "the rules have looked at it"
    try:
        html = html_text(bounded(await _fetched(ref, attempt, files, clients)))
    except NoBody as missing:
        if missing.reason == "html_not_found" and attempt.number <= MISSING_TRIES:
            raise AttemptEnded(
                Retry(missing.reason, f"{ref.scheme}: it may be on its way")
            ) from None
        raise AttemptEnded(Rejected(missing.reason, f"{ref.scheme}:")) from None
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None
    dressed = await attempt.templates.dress("html", html)
    return Content(message.subject, dressed["html"], dressed["text"])


async def _from_template(message: Message, attempt: Attempt) -> Content:
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
                f"template {message.template}: the letter has no fit subject",
            )
        )
    return Content(subject, html, text)


async def _fetched(
    ref: HtmlRef, attempt: Attempt, files: Path | None, clients: AwsClients
) -> bytes:
    if ref.scheme == "db":
        assert attempt.records is not None
        record = await attempt.records.get(BODY, ref.name)
        if record is None or record.value is None:
            raise NoBody("html_not_found")
        return record.value
    if ref.scheme == "file":
        if files is None:
            raise NoBody("html_not_found")
        return read_file(files, attempt.tenant, ref.name)
    return await _from_bucket(ref.name, attempt, clients)


async def _from_bucket(name: str, attempt: Attempt, clients: AwsClients) -> bytes:
    entity = attempt.config.get(BODIES, DEFAULT)
    if entity is None:
        raise NoBody("html_not_found")
    place = entity.body
    assert isinstance(place, Bodies)
    secrets = await attempt.config.secrets(BODIES, DEFAULT, "secret_access_key")
    account = Account(
        place.region, place.access_key_id, secrets[0] if secrets else "", place.endpoint_url
    )
    # One byte more than is taken tells that there is more.
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
            raise NoBody("html_not_found") from None
        raise AttemptEnded(Retry("bodies_unavailable", f"S3 {error.detail}")) from None
    except AttemptEnded as ended:
        if isinstance(ended.outcome, Unknown):
            # A question without an answer; no letter was sent by it.
            raise AttemptEnded(
                Retry(ended.outcome.reason, "S3 gave no answer; nothing was sent")
            ) from None
        raise
    body = answer["Body"]
    assert isinstance(body, bytes)
    return body
