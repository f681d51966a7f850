"""Slack's own client, over the attempt's HTTP: one door out, with its guard, its time limit and its knowledge of what was sent.

The client's retries are off: it would repeat a message whose answer got lost. The engine is the only one who tries again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlencode

import msgspec

from gesta.errors import MissingExtra
from gesta.flows.slack.message import NAME
from gesta.outbound_http import Http, HttpResponse

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

#: Silent. The client's own would format every message it sends, text and all, and write it wherever the root logger does.
_SILENT: Final = logging.Logger("slack_sdk", logging.CRITICAL)  # noqa: LOG001 -- outside of everybody's tree


def require_library() -> None:
    """Raise MissingExtra with the line that installs it."""
    if find_spec("slack_sdk") is None:
        raise MissingExtra(NAME, "slack-sdk", "slack")


@cache
def _client_type() -> type[AsyncWebClient]:
    # Imported with the first message: it takes a third of a second, and most commands send none.
    from slack_sdk.web.async_client import AsyncWebClient

    return AsyncWebClient


class Refused(Exception):
    """Slack answered, and it was not yes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered {response.status}")
        self.response = response


class SlackApi:
    """Slack's Web API for one attempt under one token."""

    def __init__(self, http: Http, token: str, api_url: str, timeout_seconds: float) -> None:
        self._session = _Session(http, timeout_seconds)
        self._client = _client_type()(
            token=token,
            base_url=api_url,
            session=cast("aiohttp.ClientSession", self._session),
            retry_handlers=[],
            logger=_SILENT,
            # Otherwise it looks for one in the environment; ours is the only way out.
            proxy="none",
        )

    async def post(self, method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that changes something; raises Refused. A missing answer ends the attempt."""
        return await self._call(method, "POST", json=dict(arguments))

    async def get(self, method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Ask something; raises Refused. A missing answer ends the attempt."""
        return await self._call(method, "GET", params=dict(arguments))

    async def _call(self, method: str, verb: str, **arguments: Any) -> dict[str, Any]:
        from slack_sdk.errors import SlackApiError

        try:
            answer = await self._client.api_call(method, http_verb=verb, **arguments)
        except SlackApiError:
            # Its text quotes the answer; what we need stands in the answer itself.
            assert self._session.answered is not None
            raise Refused(self._session.answered) from None
        return cast("dict[str, Any]", answer.data)


class _Session:
    """What the client takes for aiohttp's session."""

    closed = False

    def __init__(self, http: Http, timeout_seconds: float) -> None:
        self._http, self._timeout_seconds = http, timeout_seconds
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

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.answered = await self._http.exchange(method, url, headers=headers, body=body, timeout_seconds=self._timeout_seconds)
        return self.answered


class _Exchange:
    """What the client takes for aiohttp's answer."""

    #: Whatever the header says: the client would hand on other kinds unread.
    content_type = "application/json"

    def __init__(self, session: _Session, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._session, self._request = session, (method, url, headers, body)

    async def __aenter__(self) -> Self:
        self._answer = await self._session.exchange(*self._request)
        self.status, self.headers = self._answer.status, self._answer.headers
        return self

    async def __aexit__(self, *_: object) -> None:
        """The transport has closed it."""

    async def json(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self._answer.body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            # The client knows this one.
            raise json.JSONDecodeError(str(error), "", 0) from None

    async def text(self) -> str:
        return ""
