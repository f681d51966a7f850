"""Slack's own client, over the attempt's HTTP: one door out, with its guard, its time limit and its knowledge of what was sent.

The client's retries are off: it would repeat a message whose answer got lost. The engine is the only one who tries again.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast
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


def library_client() -> tuple[AsyncWebClient, type[Exception]]:
    """The client to copy for each attempt, and what it raises."""
    return _library()


@lru_cache(maxsize=1)
def _library() -> tuple[AsyncWebClient, type[Exception]]:
    # Imported with the first message: it takes a third of a second, and most commands send none.
    from slack_sdk.errors import SlackApiError
    from slack_sdk.web.async_client import AsyncWebClient

    class Client(AsyncWebClient):
        """Slack's client with the attempt's HTTP in the place of its own."""

        sender: _Sender

        async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
            return await self.sender.send(http_verb, api_url, req_args)

    # A proxy of no meaning: without one it looks for one in the environment, and ours is the only way out.
    return Client(retry_handlers=[], logger=_SILENT, proxy="none"), SlackApiError


class Refused(Exception):
    """Slack answered, and it was not yes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered {response.status}")
        self.response = response


class SlackApi:
    """Slack's Web API for one attempt under one token."""

    __slots__ = ("_address", "_client", "_error", "_sender")

    #: Where the client comes from; a bench that is to measure no client gives its own.
    library = staticmethod(library_client)

    def __init__(self, http: Http, token: str, api_url: str, timeout_seconds: float) -> None:
        client, self._error = self.library()
        self._address, self._sender = api_url, _Sender(http, timeout_seconds)
        # A copy by hand: to make a client, or to let Python copy one, takes longer than all else that is done here.
        self._client = object.__new__(type(client))
        self._client.__dict__ = {**client.__dict__, "token": token, "sender": self._sender}

    async def post(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method that changes something; raises Refused. A missing answer ends the attempt."""
        # The whole address is the client's base: to join the two and to look the method up among retired ones takes it a third of its time.
        self._client.base_url = self._address + method
        try:
            return cast("dict[str, Any]", (await self._client.api_call("", json=arguments)).data)
        except self._error:
            raise self._refused() from None

    async def get(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask something; raises Refused. A missing answer ends the attempt."""
        self._client.base_url = self._address + method
        try:
            return cast("dict[str, Any]", (await self._client.api_call("", http_verb="GET", params=arguments)).data)
        except self._error:
            raise self._refused() from None

    def _refused(self) -> Refused:
        # The client's own text quotes the answer; what is needed stands in the answer itself.
        assert self._sender.answered is not None
        return Refused(self._sender.answered)


class _Sender:
    """Sends what the client has put together. It knows no client: the two would keep each other alive long after the attempt."""

    __slots__ = ("_http", "_timeout_seconds", "answered")

    def __init__(self, http: Http, timeout_seconds: float) -> None:
        self._http, self._timeout_seconds = http, timeout_seconds
        self.answered: HttpResponse | None = None

    async def send(self, method: str, url: str, arguments: dict[str, Any]) -> dict[str, Any]:
        json, params = arguments["json"], arguments["params"]
        answer = self.answered = await self._http.exchange(
            method,
            f"{url}?{urlencode(params)}" if params else url,
            headers=arguments["headers"],
            body=None if json is None else msgspec.json.encode(json),
            timeout_seconds=self._timeout_seconds,
        )
        try:
            data = _decode(answer.body)
        except msgspec.DecodeError:
            # To the client an answer without content is a no; what is behind it, answers.py tells.
            data = {}
        return {"data": data, "headers": answer.headers, "status_code": answer.status}


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
