"""Amazon's client, without its own network and its own retries: its requests go through
`attempt.http`, like everybody's.

So the guard, the deadline and the knowledge of what was sent are the engine's, a test without
sockets has none here either, and a
missing answer ends the attempt by itself.
"""

import hashlib
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec

from gesta.domain.outcome import Retry, Unknown
from gesta.outbound.http import AttemptEnded, Http, HttpResponse

#: Clients that are kept: making one takes some milliseconds.
CLIENTS_MAX = 100
_door: ContextVar[Http] = ContextVar("gesta_aws_door")


class AwsAccount(msgspec.Struct, frozen=True):
    """Whose client it is."""

    region: str
    access_key_id: str
    secret_access_key: str
    endpoint_url: str = ""

    def __repr__(self) -> str:
        return f"AwsAccount({self.region})"


class AwsError(Exception):
    """The service said no. `code` is its own word for why."""

    def __init__(self, code: str, text: str, status: int) -> None:
        # Its text may quote an address, so it is for classifying only.
        super().__init__(f"{code} ({status})")
        self.code, self.text, self.status = code, text, status

    @property
    def detail(self) -> str:
        return (
            f"answered {self.status}: {self.code}"
            if self.code.isalnum()
            else f"answered {self.status}"
        )


class AwsClients:
    """Clients of one flow, by service and account.

    They hold no connection, so they belong to no event loop.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str, str, str, bytes], Any] = {}

    async def call(
        self,
        http: Http,
        service: str,
        account: AwsAccount,
        operation: str,
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        """What the service answers. Raises AwsError; a missing answer ends the attempt."""
        if find_spec("aiobotocore") is None:
            raise AttemptEnded(
                Retry(
                    "not_installed",
                    "Amazon's client is not installed; run: pip install 'gesta[ses]'",
                )
            )
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        before = _door.set(http)
        try:
            client = await self._client(service, account)
            answer = await getattr(client, operation)(**arguments)
            body = answer.get("Body")
            if body is not None:
                answer["Body"] = await body.read()
            return dict(answer)
        except ClientError as error:
            told, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
            raise AwsError(
                str(told.get("Code", "")),
                str(told.get("Message", "")),
                int(meta.get("HTTPStatusCode", 0)),
            ) from None
        except (BotoCoreError, ValueError) as error:
            # Not asked at all: a region or an endpoint that is none. Or an answer that is none,
            # which its parser says by a BotoCoreError, too.
            sent = "Response" in type(error).__name__
            outcome = (
                Unknown("bad_answer", type(error).__name__)
                if sent
                else Retry("bad_config", type(error).__name__)
            )
            raise AttemptEnded(outcome) from None
        finally:
            _door.reset(before)

    async def _client(self, service: str, account: AwsAccount) -> Any:
        from aiobotocore.config import AioConfig  # type: ignore[import-untyped]

        if not account.access_key_id or not account.secret_access_key:
            raise AttemptEnded(
                Retry("secret_missing", "the config has no access_key_id or secret_access_key")
            )
        digest = hashlib.sha256(account.secret_access_key.encode()).digest()
        key = (service, account.region, account.endpoint_url, account.access_key_id, digest)
        client = self._clients.get(key)
        if client is None:
            config = AioConfig(
                # One owner retries, and that is the engine.
                retries={"total_max_attempts": 1},
                # The environment of this process decides nothing about where a tenant's letters go.
                ignore_configured_endpoint_urls=True,
                s3={"addressing_style": "path"} if account.endpoint_url else {},
                # What is asked for is small, and its length and TLS are checked already.
                response_checksum_validation="when_required",
            )
            making = _session().create_client(
                service,
                region_name=account.region,
                endpoint_url=account.endpoint_url or None,
                aws_access_key_id=account.access_key_id,
                aws_secret_access_key=account.secret_access_key,
                config=config,
            )
            client = await making.__aenter__()
            client.meta.events.register("before-send", _through_the_door)
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.pop(next(iter(self._clients)))
            self._clients[key] = client
        return client


@cache
def _session() -> Any:
    """One for all clients: it keeps what it has read of Amazon's descriptions, which takes up to
    half a second the first time.
    """
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    return get_session()


async def _through_the_door(request: Any, **_: object) -> Any:
    """Botocore's own place for another way to send: what is returned here is its answer."""
    from aiobotocore.awsrequest import AioAWSResponse  # type: ignore[import-untyped]

    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    # The transport writes its own, from the body.
    headers.pop("Content-Length", None)
    body = request.body.read() if hasattr(request.body, "read") else request.body
    body = body.encode() if isinstance(body, str) else body
    response = await _door.get().exchange(request.method, request.url, body=body, headers=headers)
    return AioAWSResponse(
        request.url, response.status, dict(response.headers.items()), _Raw(response)
    )


class _Raw:
    """An answer that has been read already, as the client expects one that is still to be read."""

    def __init__(self, response: HttpResponse) -> None:
        self.url, self.content = "", self
        self._left = response.body

    async def read(self, amount: int = -1) -> bytes:
        """The next so many bytes, or the rest."""
        amount = len(self._left) if amount is None or amount < 0 else amount
        part, self._left = self._left[:amount], self._left[amount:]
        return part

    def at_eof(self) -> bool:
        return not self._left

    def close(self) -> None:
        """Nothing is open."""
