"""Slack's own client, over the attempt's HTTP: one door out, with its guard, its time limit and its
knowledge of what was sent.

The client's retries are off: it would repeat a message whose answer got lost. The engine is the
only one who tries again.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import urlencode

import msgspec

from gesta.errors import MissingExtra
from gesta.flows.slack.message import NAME
from gesta.outbound.http import Http, HttpResponse

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

#: Silent. The client's own would format every message it sends, text and all, and write it wherever
#: the root logger does.
_SILENT: Final = logging.Logger("slack_sdk", logging.CRITICAL)  # noqa: LOG001 -- outside of everybody's tree


def require_library() -> None:
    """Raise MissingExtra with the line that installs it."""
    if find_spec("slack_sdk") is None:
        raise MissingExtra(NAME, "slack-sdk", "slack")


@lru_cache(maxsize=64)
def client_of(address: str) -> tuple[AsyncWebClient, type[Exception]]:
    """The client that calls the method at this address for everybody, and what it raises."""
    # Imported with the first message: it takes a third of a second, and most commands send none.
    from slack_sdk.errors import SlackApiError
    from slack_sdk.web.async_client import AsyncWebClient

    class Client(AsyncWebClient):
        """Slack's client with the attempt's HTTP in the place of its own."""

        async def _request(
            self, *, http_verb: str, api_url: str, req_args: dict[str, Any]
        ) -> dict[str, Any]:
            return await _CALLER.get().send(http_verb, api_url, req_args)

    # The whole address is its base: to join base and method, and to look that up among retired
    # ones, takes it a third of its time.
    # A proxy of no meaning: without one it looks for one in the environment, and ours is the only
    # way out.
    client = Client(retry_handlers=[], logger=_SILENT, proxy="none")
    client.base_url = address
    return client, SlackApiError


class SlackRefusal(Exception):
    """Slack answered, and it was not yes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered {response.status}")
        self.response = response


class SlackApi:
    """Slack's Web API for one attempt under one token."""

    __slots__ = ("_address", "_answered", "_http", "_timeout_seconds", "_token")

    #: Where clients come from; a bench that is to measure no client gives its own.
    client_of: ClassVar[staticmethod[[str], tuple[AsyncWebClient, type[Exception]]]] = staticmethod(
        client_of
    )

    def __init__(self, http: Http, token: str, api_url: str, timeout_seconds: float) -> None:
        """`api_url` up to the slash before a method's name."""
        self._http, self._token, self._address, self._timeout_seconds = (
            http,
            token,
            api_url,
            timeout_seconds,
        )
        self._answered: HttpResponse | None = None

    async def post(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a method that changes something; raises Refused. A missing answer ends the attempt.

        The arguments are this call's own.
        """
        client, error = self.client_of(self._address + method)
        _CALLER.set(self)
        arguments["token"] = self._token
        try:
            answer = await client.api_call("", json=arguments)
        except error:
            raise self._refused() from None
        data: dict[str, Any] = answer.data  # type: ignore[assignment]
        return data

    async def get(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask something; raises Refused. A missing answer ends the attempt."""
        client, error = self.client_of(self._address + method)
        _CALLER.set(self)
        try:
            answer = await client.api_call(
                "", http_verb="GET", params={**arguments, "token": self._token}
            )
            return cast("dict[str, Any]", answer.data)
        except error:
            raise self._refused() from None

    def _refused(self) -> SlackRefusal:
        # The client's own text quotes the answer; what is needed stands in the answer itself.
        assert self._answered is not None
        return SlackRefusal(self._answered)

    async def send(self, method: str, url: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the client has put together, and what it wants to know of the answer."""
        json, params = arguments["json"], arguments["params"]
        answer = self._answered = await self._http.exchange(
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


#: Whose call it is that a client is about to send: clients are everybody's, tokens and what was
#: sent are the attempt's.
_CALLER: Final[ContextVar[SlackApi]] = ContextVar("gesta_slack_caller")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
