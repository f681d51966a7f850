"""One Redis server or Cluster: the URL, the connections, the scripts, and its errors as ours.

redis-py repeats a command by itself after a timeout, which would run a script twice. Its retries
are off: a call is sent once, and its caller knows what repeating it means.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from redis import exceptions
from redis.asyncio import Redis as Client
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gesta.errors import BadSettings, StoreError
from gesta.runtime.clock import Runtime, is_cancelled, sleep
from gesta.stores.redis.errors import is_wrong_type, raise_as_store_error, refused, wrong_type
from gesta.stores.redis.keys import OwnKeys, check_prefix, type_of
from gesta.stores.redis.packing import PackingConnection, PackingSSLConnection

EXAMPLE = "redis://127.0.0.1:6379 or rediss://user:password@host:6379"
SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")
PORT = 6379
#: How long the server may take to answer a script, and to accept a connection.
TIMEOUT_SECONDS = 10.0
CONNECT_SECONDS = 5.0
#: A blocking command may take this much longer than it blocks.
BLOCK_MARGIN_SECONDS = 5.0
#: Calls at a time; more wait for their turn.
CONNECTIONS = 32
_FAILURES = (exceptions.RedisError, exceptions.RedisClusterException, OSError)


@dataclass(frozen=True, kw_only=True)
class Address:
    """What a URL says. `name` is for people: without a password."""

    nodes: tuple[tuple[str, int], ...]
    name: str
    prefix: str
    is_cluster: bool = False
    is_tls: bool = False
    username: str | None = None
    password: str | None = None
    database: int = 0
    #: A file with the certificates of the authorities to trust; None: those of the system.
    ca: str | None = None


def address_of(url: str) -> Address:
    """Raises BadSettings that names what is wrong, and never the password."""
    try:
        parts = urlsplit(url)
        *_, where = parts.netloc.rpartition("@")
        nodes = tuple(_node(one) for one in where.split(","))
    except ValueError as error:
        raise BadSettings(f"url: {error}; write {EXAMPLE}") from None
    is_cluster = parts.scheme.endswith("+cluster")
    if parts.scheme not in SCHEMES or not where:
        raise BadSettings(f"url: it names no Redis server; write {EXAMPLE}")
    if len(nodes) > 1 and not is_cluster:
        raise BadSettings("url: several servers are a cluster; write redis+cluster://host1,host2")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - {"prefix", "ca"}:
        raise BadSettings(f"url: unknown parameter {min(unknown)!r}; known are prefix, ca")
    default = "{bull}" if is_cluster else "bull"
    prefix = check_prefix(options.get("prefix", default), is_cluster=is_cluster)
    database = parts.path.strip("/") or "0"
    if not database.isascii() or not database.isdigit() or (is_cluster and database != "0"):
        raise BadSettings(
            f"url: {parts.path!r} is not a database; write a number, or none for a cluster"
        )
    path = "" if database == "0" else f"/{database}"
    address = Address(
        nodes=nodes,
        name=f"{parts.scheme}://{where}{path}?prefix={prefix}",
        prefix=prefix,
        is_cluster=is_cluster,
        is_tls=parts.scheme.startswith("rediss"),
        username=None if not parts.username else unquote(parts.username),
        password=None if not parts.password else unquote(parts.password),
        database=int(database),
        ca=options.get("ca"),
    )
    return _with_tls_or_loopback(address)


def _node(text: str) -> tuple[str, int]:
    one = urlsplit(f"//{text}")
    return one.hostname or "127.0.0.1", one.port or PORT


def _with_tls_or_loopback(address: Address) -> Address:
    """R2-29: nothing crosses a network in clear text."""
    far = [host for host, _ in address.nodes if not _is_loopback(host)]
    if far and not address.is_tls:
        raise BadSettings(
            f"url: {far[0]} is on another machine, and redis:// sends everything in clear"
            " text; write"
            " rediss:// (a cluster: rediss+cluster://)"
        )
    return address


def host_name(host: str) -> str:
    """The host in one spelling: this machine has several."""
    return "127.0.0.1" if _is_loopback(host.lower()) else host.lower().rstrip(".")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Script(NamedTuple):
    """A Lua script and its SHA1, by which the server knows it."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """`lua/<name>.lua`. A line `--- include <file>` is replaced by `lua/<file>.lua`."""
    folder = files(__package__).joinpath("lua")
    lines = folder.joinpath(f"{name}.lua").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("--- include "):
            included = folder.joinpath(f"{line.split()[-1]}.lua")
            lines[number] = included.read_text(encoding="utf-8")
    text = "\n".join(lines)
    # Redis names scripts by their SHA1; it protects nothing here.
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


Arg = str | bytes | int


class Call(NamedTuple):
    """A script with its keys, which are all in one slot, and its arguments."""

    script: Script
    keys: Sequence[str]
    args: Sequence[Arg]
    #: The answer is bytes: what another program wrote need not be text.
    as_bytes: bool = False


class Redis:
    """Connections to one server or Cluster. Nothing of redis-py's leaves it but values."""

    def __init__(self, address: Address, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._client = self._connect(timeout_seconds)
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._blocking: Client | RedisCluster | None = None

    async def close(self) -> None:
        await self._client.aclose()
        if self._blocking is not None:
            await self._blocking.aclose()

    async def call(self, call: Call) -> Any:
        """The answer of one script."""
        (answer,) = await self.calls([call])
        return answer

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of several scripts, sent at once. Raises the first error after all have
        ended.
        """
        answers = await self._send(calls)
        # A restart, a failover or SCRIPT FLUSH. These calls did not run, the others did.
        await self._send_again(calls, answers, _without_script(answers))
        return await self._checked(calls, answers)

    async def calls_in_order(self, calls: Sequence[Call]) -> list[Any]:
        """As `calls`, for scripts that may run twice: on each node, what one has written is there
        when a later one runs.
        """
        answers = await self._send(calls)
        if _without_script(answers):
            # All of them: the server may have lost what the others wrote, too.
            await self._send_again(calls, answers, range(len(calls)))
        return await self._checked(calls, answers)

    async def _send_again(
        self, calls: Sequence[Call], answers: list[Any], numbers: Sequence[int]
    ) -> None:
        if numbers:
            await self._load({calls[n].script for n in numbers})
            again = await self._send([calls[n] for n in numbers])
            for n, answer in zip(numbers, again, strict=True):
                answers[n] = answer

    async def _checked(self, calls: Sequence[Call], answers: list[Any]) -> list[Any]:
        for answer, call in zip(answers, calls, strict=True):
            if isinstance(answer, BaseException):
                await self._fail(answer, call.keys)
        return answers

    async def command(self, *parts: Arg) -> Any:
        """One command; on a Cluster it goes to the node of its first key."""
        try:
            async with self._turns:
                return await self._client.execute_command(*parts)
        except _FAILURES as error:
            raise_as_store_error(self.address.name, error)

    async def commands(self, commands: Iterable[Sequence[Any]]) -> list[Any]:
        """The answers of several commands, sent at once; each is about one key."""
        try:
            async with self._turns:
                return list(await self._pipeline(commands).execute())
        except _FAILURES as error:
            await self._ask_who_has_which_slot()
            raise_as_store_error(self.address.name, error)

    def _pipeline(self, commands: Iterable[Sequence[Any]], **options: object) -> Any:
        """One request to each node, without a transaction."""
        is_cluster = isinstance(self._client, RedisCluster)
        pipe = self._client.pipeline() if is_cluster else self._client.pipeline(transaction=False)
        for parts in commands:
            pipe.execute_command(*parts, **options)
        return pipe

    async def block(self, seconds: float, *parts: Arg) -> Any:
        """A command that waits on the server up to so many seconds, on a connection of its own."""
        if self._blocking is None:
            self._blocking = self._connect(seconds + BLOCK_MARGIN_SECONDS)
        try:
            return await self._blocking.execute_command(*parts)
        except _FAILURES as error:
            raise_as_store_error(self.address.name, error)

    async def on_primaries(self, *parts: str) -> list[Any]:
        """The answers of every primary to a command without a key."""
        try:
            if not isinstance(self._client, RedisCluster):
                return [await self.command(*parts)]
            _ = await self._client.initialize()
            return [
                await self._client.execute_command(*parts, target_nodes=[node])
                for node in self._client.get_primaries()
            ]
        except _FAILURES as error:
            raise_as_store_error(self.address.name, error)

    async def check(self) -> None:
        """Refuse a server that may drop keys: a job or a view would be lost without an error."""
        for memory in await self.on_primaries("INFO", "memory"):
            policy = str(_memory(memory).get("maxmemory_policy", "noeviction"))
            if policy != "noeviction":
                raise refused(
                    self.address.name,
                    f"maxmemory-policy is {policy}, so the server deletes keys when memory is"
                    " short",
                    "Set it to noeviction: CONFIG SET maxmemory-policy noeviction",
                )

    async def now_ms(self) -> int:
        """The time of the server that has the keys of the prefix."""
        return int(
            await self.call(Call(script("time"), [OwnKeys(self.address.prefix)["jobs"]], []))
        )

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        """Answers and errors, in the order of the calls."""
        commands = [
            ("EVALSHA", one.script.sha, len(one.keys), *one.keys, *one.args) for one in calls
        ]
        # redis-py's name for answers that are not decoded.
        options = {"NEVER_DECODE": True} if any(one.as_bytes for one in calls) else {}
        try:
            async with self._turns:
                pipe = self._pipeline(commands, **options)
                return list(await pipe.execute(raise_on_error=False))
        except _FAILURES as error:
            await self._ask_who_has_which_slot()
            raise_as_store_error(self.address.name, error)

    async def _ask_who_has_which_slot(self) -> None:
        """With the next call. redis-py's pipeline does not notice a failover by itself."""
        if isinstance(self._client, RedisCluster):
            await self._client.aclose()

    async def _load(self, scripts: set[Script]) -> None:
        for one in scripts:
            await self.on_primaries("SCRIPT LOAD", one.text)

    async def _fail(self, error: BaseException, keys: Sequence[str]) -> None:
        """Raise it in our words; where a key has the wrong type, with the name of that key."""
        if is_wrong_type(error):
            found = [(key, await self.command("TYPE", key), type_of(key)) for key in keys]
            wrong = [
                (key, kind, wanted)
                for key, kind, wanted in found
                if wanted is not None and kind not in ("none", wanted)
            ]
            raise wrong_type(self.address.name, wrong) from error
        raise_as_store_error(self.address.name, error)

    def _connect(self, timeout_seconds: float) -> Client | RedisCluster:
        address = self.address
        options: dict[str, Any] = {
            "username": address.username,
            "password": address.password,
            "socket_timeout": timeout_seconds,
            "socket_connect_timeout": CONNECT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": True,
            # A job of another program may hold any bytes: they fail where that job is read.
            "encoding_errors": "surrogateescape",
            "protocol": 2,
        }
        if address.is_tls:
            options |= {"ssl": True, "ssl_ca_certs": address.ca}
        if address.is_cluster:
            nodes = [ClusterNode(host, port) for host, port in address.nodes]
            return RedisCluster(startup_nodes=nodes, **options)
        ((host, port),) = address.nodes
        client = Client(
            host=host,
            port=port,
            db=address.database,
            # Twice the calls at a time: a cancelled call gives its connection back late.
            max_connections=2 * CONNECTIONS,
            **options,
        )
        client.connection_pool.connection_class = (
            PackingSSLConnection if address.is_tls else PackingConnection
        )
        return client


def _memory(answer: Any) -> dict[str, Any]:
    """INFO as redis-py parses it, which depends on how it was asked."""
    if isinstance(answer, dict):
        return answer
    pairs = (line.partition(":") for line in str(answer).splitlines())
    return {name: value for name, _, value in pairs}


#: How often the clock is measured again.
MEASURE_SECONDS = 5.0


class ServerClock:
    """The server's clock, measured against our own monotonic one."""

    def __init__(self, redis: Redis, runtime: Runtime) -> None:
        self._redis, self._runtime = redis, runtime
        self._ahead_ms = 0.0

    def now_ms(self) -> int:
        return int(self._runtime.monotonic() * 1000 + self._ahead_ms)

    async def measure(self) -> None:
        before = self._runtime.monotonic()
        server_ms = await self._redis.now_ms()
        took = self._runtime.monotonic() - before
        self._ahead_ms = server_ms - (before + took / 2) * 1000

    async def keep(self) -> None:
        """For ever: clocks drift, are set, and change with a failover."""
        # redis-py may turn a cancellation into a timeout of its own.
        while not is_cancelled():
            await sleep(self._runtime, MEASURE_SECONDS)
            try:
                await self.measure()
            except StoreError:
                # Until the server answers, our own clock carries on from the last answer.
                continue


def _without_script(answers: Sequence[Any]) -> list[int]:
    """Which of these calls the server could not run, because it does not have the script."""
    return [n for n, one in enumerate(answers) if isinstance(one, exceptions.NoScriptError)]
