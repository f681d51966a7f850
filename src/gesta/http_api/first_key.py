"""The first admin key: while none exists, `gesta serve` prints a link to a page with one button.
Only a browser on this machine can use it.

The link's token is in memory. It ends when it is used, after an hour, and when any admin key
exists.
"""

import base64
import hashlib
import re
from hmac import compare_digest
from html import escape
from ipaddress import ip_address
from string import Template
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from gesta.admin.representations import key_representation
from gesta.api_types.keys import MadeKey
from gesta.api_types.structs import Asked
from gesta.domain.events import Actor
from gesta.engine.pipeline import Pipeline
from gesta.errors import GestaError
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.api_keys import ApiKey

TOKEN_BYTES: Final = 32
LASTS_SECONDS: Final = 3_600.0
FORM: Final = "application/x-www-form-urlencoded"
HTML: Final = "text/html; charset=utf-8"
_BODY_BYTES_MAX: Final = 1_024
#: The actor in the audit log.
_ACTOR: Final = Actor("first-key link")
#: Headers of a proxy; behind one, the peer's address is not the caller's.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_NONE: Final = (
    "no first key can be created: the token is wrong, the link was used or is older than an hour,"
    " or an admin key exists. On the machine itself: gesta key create --scope admin"
)

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:4rem auto;padding:0"
    " 1rem}code,button{font-size:1rem}code{overflow-wrap:anywhere}"
)
_PAGE: Final = Template(f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>gesta: the first key</title>
<style>{_STYLE}</style>
<h1>gesta</h1>
$content
</html>
""")
_ASK: Final = Template(
    """<p>No admin key exists yet. This creates the first one, for the tenant
<code>$tenant</code>. It is shown only once.</p>
<form method="post" action="first-key"><input type="hidden" name="token" value="$token"
><button>Create the first admin key</button></form>
<p>Or by curl:</p>
<p><code>curl '$place/v1/first-key' -H 'Content-Type: application/json' \
-d '{"token": "$token"}'</code></p>"""
)
#: Characters that are safe between quotes in a shell. The caller chooses the Host header.
_PLACE: Final = re.compile(r"[\w.:\[\]/-]+", re.ASCII)
_MISPLACED: Final = {
    "token": 'not in the query; POST it to /v1/first-key in the body: {"token": "…"}'
}
_SHOW: Final = Template(
    """<p>This is the admin key of the tenant <code>$tenant</code>.
Save it now: it is not shown again.</p>
<p><code>$key</code></p>
<p>Send it as <code>Authorization: Bearer</code>. Create others with
<code>POST /v1/keys</code>; revoke it with <code>gesta key revoke $id</code>.</p>"""
)
#: The page loads and runs nothing, cannot be framed, and sends no referrer.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'sha256-"
        + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
        + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class FirstKey:
    """The offer of this process."""

    def __init__(self, pipeline: Pipeline, tenant: str) -> None:
        self._pipeline, self.tenant = pipeline, tenant
        self._token = base64.urlsafe_b64encode(pipeline.runtime.random_bytes(TOKEN_BYTES)).rstrip(
            b"="
        )
        self._until = pipeline.runtime.monotonic() + LASTS_SECONDS
        self._is_used = False

    @property
    def path(self) -> str:
        """Path and query of the link."""
        return f"/first-key?token={self._token.decode()}"

    async def fits(self, token: str) -> bool:
        """Whether this token still makes a key.

        The store is read only for the right token.
        """
        is_equal = compare_digest(token.encode(errors="replace"), self._token)
        if not is_equal or self._is_used or self._pipeline.runtime.monotonic() >= self._until:
            return False
        return not await self._pipeline.keys.any_admin()

    async def make(self, token: str) -> tuple[ApiKey, str] | None:
        """The key; None where the offer has ended."""
        if not await self.fits(token) or self._is_used:
            # Checked again: another caller may have used the token during the read.
            return None
        self._is_used = True
        try:
            return await self._pipeline.keys.create(
                self.tenant, name="first key", scopes=["admin"], actor=_ACTOR
            )
        except GestaError:
            # The caller got no key. If one was stored after all, it is an admin key and ends the
            # offer.
            self._is_used = False
            raise


class Token(Asked, frozen=True):
    token: str


class Asking(Asked, frozen=True):
    token: str = ""


async def first_key_page(call: Call) -> Answer:
    """A page with one button that makes the first admin key."""
    offer, token = _offer(call), call.query.token
    if not await offer.fits(token):
        raise _none()
    # The token was compared and tenant names are restricted, so neither needs escaping.
    place = f"{call.header('host') or ''}{call.root}"
    place = escape(place) if _PLACE.fullmatch(place) else "ADDRESS"
    return _page(_ASK.substitute(tenant=offer.tenant, token=token, place=place))


async def first_key_form(call: Call) -> Answer:
    """The first admin key on a page: the action of the button."""
    given = (
        dict(parse_qsl(call.raw.decode(errors="replace"), max_num_fields=10))
        if call.raw.count(b"&") < 10
        else {}
    )
    key, text = await _made(call, given.get("token", ""))
    return _page(_SHOW.substitute(tenant=key.tenant, key=text, id=key.id))


async def first_key(call: Call) -> Answer:
    """The first admin key, for the token of the link that `gesta serve` printed."""
    key, text = await _made(call, call.body.token)
    return Answer(MadeKey(**msgspec.structs.asdict(key_representation(key)), key=text), 201)


async def _made(call: Call, token: str) -> tuple[ApiKey, str]:
    made = await _offer(call).make(token)
    if made is None:
        raise _none()
    return made


def _offer(call: Call) -> FirstKey:
    """The offer; raises 404 unless the caller is on this machine."""
    offer = call.web.first_key
    if (
        offer is None
        or not _is_here(call.peer)
        or any(call.header(name) is not None for name in _FORWARDED)
    ):
        raise _none()
    return offer


def _is_here(peer: str) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _none() -> Problem:
    return Problem(404, "no_first_key", _NONE)


def _page(content: str) -> Answer:
    return Answer(_PAGE.substitute(content=content).encode(), 200, _HEADERS, HTML)


ROUTES = [
    Route(
        "GET",
        "/first-key",
        first_key_page,
        None,
        "Page to create the first admin key",
        "keys",
        query=Asking,
        gives=HTML,
        problems=(404,),
    ),
    Route(
        "POST",
        "/first-key",
        first_key_form,
        None,
        "Create the first admin key, from the page",
        "keys",
        takes=FORM,
        gives=HTML,
        problems=(404,),
        body_bytes_max=_BODY_BYTES_MAX,
        misplaced=_MISPLACED,
    ),
    Route(
        "POST",
        "/v1/first-key",
        first_key,
        None,
        "Create the first admin key",
        "keys",
        body=Token,
        answer=MadeKey,
        status=201,
        problems=(404,),
        body_bytes_max=_BODY_BYTES_MAX,
        example={"token": "the token of the link that gesta serve printed"},
        misplaced=_MISPLACED,
    ),
]
