"""Slack's own client, over the attempt's HTTP: one door out, with its guard, its time limit and its knowledge of what was sent.

The client's retries are off: it would repeat a message whose answer got lost. The engine is the only one who tries again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlencode

import msgspec

from gesta.errors import MissingExtra
from gesta.flows.slack.message import NAME
from gesta.outbound_http import Http, HttpResponse

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

#: Silent. The client's own would format every message it sends, text and all, and write it wherever the root logger does.
_SILENT: Final = logging.Logger("slack_sdk", logging.CRITICAL)  # noqa: LOG001 -- outside of everybody's tree


def require_library() -> None:
    """Raise MissingExtra with the line that installs it."""
    if find_spec("slack_sdk") is None:
        raise MissingExtra(NAME, "slack-sdk", "slack")


@lru_cache(maxsize=64)
def _client_of(api_url: str) -> tuple[AsyncWebClient, str, type[Exception]]:
    """The client to copy for each attempt, the address before a method's name, and what the client raises."""
    # Imported with the first message: it takes a third of a second, and most commands send none.
    from slack_sdk.errors import SlackApiError
    from slack_sdk.web.async_client import AsyncWebClient

    # A proxy of no meaning: without one it looks for one in the environment, and ours is the only way out.
    client = AsyncWebClient(retry_handlers=[], logger=_SILENT, proxy="none")
    # Methods are given with their whole address instead: to join the two takes the client a third of its time.
    client.base_url = ""
    return client, api_url if api_url.endswith("/") else f"{api_url}/", SlackApiError


class Refused(Exception):
    """Slack answered, and it was not yes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered {response.status}")
        self.response = response


class SlackApi:
    """Slack's Web API for one attempt under one token."""

    def __init__(self, http: Http, token: str, api_url: str, timeout_seconds: float) -> None:
        client, self._address, self._error = _client_of(api_url)
        self._session = _Session(http, timeout_seconds)
        # A copy by hand: to make a client, or to let Python copy one, takes longer than all else that is done here.
        self._client = type(client).__new__(type(client))
        self._client.__dict__ |= client.__dict__ | {"token": token, "session": self._session}

    async def post(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method that changes something; raises Refused. A missing answer ends the attempt."""
        try:
            return cast("dict[str, Any]", (await self._client.api_call(self._address + method, json=arguments)).data)
        except self._error:
            raise self._refused() from None

    async def get(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask something; raises Refused. A missing answer ends the attempt."""
        try:
            answer = await self._client.api_call(self._address + method, http_verb="GET", params=arguments)
            return cast("dict[str, Any]", answer.data)
        except self._error:
            raise self._refused() from None

    def _refused(self) -> Refused:
        # The client's own text quotes the answer; what is needed stands in the answer itself.
        assert self._session.answered is not None
        return Refused(self._session.answered)


class _Session:
    """What the client takes for aiohttp's session."""

    closed = False

    def __init__(self, http: Http, timeout_seconds: float) -> None:
        self.http, self.timeout_seconds = http, timeout_seconds
        self.answered: HttpResponse | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        **_: object,
    ) -> _Exchange:
        query = f"?{urlencode(params)}" if params else ""
        return _Exchange(self, method, url + query, headers, None if json is None else msgspec.json.encode(json))


class _Exchange:
    """What the client takes for aiohttp's answer."""

    __slots__ = ("_answer", "_request", "_session", "headers", "status")

    #: Whatever the header says: the client would hand on other kinds unread.
    content_type = "application/json"

    def __init__(self, session: _Session, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._session, self._request = session, (method, url, headers, body)

    async def __aenter__(self) -> Self:
        session, (method, url, headers, body) = self._session, self._request
        self._answer = session.answered = await session.http.exchange(
            method, url, headers=headers, body=body, timeout_seconds=session.timeout_seconds
        )
        self.status, self.headers = self._answer.status, self._answer.headers
        return self

    async def __aexit__(self, *_: object) -> None:
        """The transport has closed it."""

    async def json(self) -> dict[str, Any]:
        try:
            return _decode(self._answer.body)
        except msgspec.DecodeError as error:
            # The client knows this one.
            raise json.JSONDecodeError(str(error), "", 0) from None

    async def text(self) -> str:
        return ""


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
