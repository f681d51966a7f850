"""Amazon's client over `attempt.http`, without its own network and retries.

So the engine's guard and deadline apply, tests need no sockets, and a missing answer ends the
attempt.
"""

import hashlib
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

import msgspec

from gesta.domain.outcome import Retry, Unknown
from gesta.outbound.http import AttemptEnded, Http, HttpResponse

#: Clients in the cache: creating one takes some milliseconds.
CLIENTS_MAX = 100
_door: ContextVar[Http] = ContextVar("gesta_aws_door")


class AwsAccount(msgspec.Struct, frozen=True):
    region: str
    access_key_id: str
    secret_access_key: str
    endpoint_url: str = ""

    def __repr__(self) -> str:
        return f"AwsAccount({self.region})"


class AwsError(Exception):
    """The service refused the call. `code` is its error code."""

    def __init__(self, code: str, text: str, status: int) -> None:
        # Its text may quote an address, so it is only used to classify.
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
    """Clients of one flow, by service and account. They hold no connection and belong to no event
    loop.
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
        """The answer. Raises AwsError; a missing answer ends the attempt."""
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
            failure, meta = (
                error.response.get("Error", {}),
                error.response.get("ResponseMetadata", {}),
            )
            raise AwsError(
                str(failure.get("Code", "")),
                str(failure.get("Message", "")),
                int(meta.get("HTTPStatusCode", 0)),
            ) from None
        except (BotoCoreError, ValueError) as error:
            # The call was not made, because region or endpoint are invalid; or the answer could not
            # be parsed.
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
                # Only the engine retries.
                retries={"total_max_attempts": 1},
                # The environment of this process must not decide where the e-mails of a tenant go.
                ignore_configured_endpoint_urls=True,
                s3={"addressing_style": "path"} if account.endpoint_url else {},
                # Requests are small, and TLS and their length are checked already.
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
    """Shared by all clients: it caches Amazon's service descriptions, which take up to half a
    second to read.
    """
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    return get_session()


async def _through_the_door(request: Any, **_: object) -> Any:
    """Botocore's hook to replace sending: it takes the returned value as the answer."""
    from aiobotocore.awsrequest import AioAWSResponse  # type: ignore[import-untyped]

    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    # The transport sets it from the body.
    headers.pop("Content-Length", None)
    body = request.body.read() if hasattr(request.body, "read") else request.body
    body = body.encode() if isinstance(body, str) else body
    response = await _door.get().exchange(request.method, request.url, body=body, headers=headers)
    return AioAWSResponse(
        request.url, response.status, dict(response.headers.items()), _Raw(response)
    )


class _Raw:
    """A complete answer with the interface of one that is still being read."""

    def __init__(self, response: HttpResponse) -> None:
        self.url, self.content = "", self
        self._left = response.body

    async def read(self, amount: int = -1) -> bytes:
        amount = len(self._left) if amount is None or amount < 0 else amount
        part, self._left = self._left[:amount], self._left[amount:]
        return part

    def at_eof(self) -> bool:
        return not self._left

    def close(self) -> None:
        """Nothing is open."""
