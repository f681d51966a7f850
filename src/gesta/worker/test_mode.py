"""The world of test requests: what their executors are given instead of the real one.

Nothing they do reaches anybody but the sandbox.

HTTP and letters go to doubles in this process. No secret is opened: a stand-in takes the place of
each. Of config that the tenant has, all the
rest counts; of a kind of which it has stored nothing at all, the flow's own stand-in does, so that
a newcomer's first message is sent.
Nothing is written beside the request's own events: no rate limit of the live requests is used up,
no endpoint switched off, nobody noted.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from gesta.flows.flow import ConfigBody, Flow
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import Limit, Limits
from gesta.outbound.smtp import Mail
from gesta.runtime.clock import Runtime
from gesta.sandbox import Sandbox, SandboxTransport
from gesta.sandbox.smtp import SandboxMail
from gesta.tenants.config import Entity, TenantConfig
from gesta.tenants.flow_records import Records, TenantRecords

T = TypeVar("T")
P = ParamSpec("P")

#: Effects that each double remembers, so that a repeat under the same key is known as one.
KEPT = 50
#: In the form of a webhook's secret, the only one whose form anybody looks at.
STAND_IN = "whsec_" + base64.b64encode(b"a stand-in: no secret at all").decode()


class SandboxMode:
    """One for the process, whosever the requests are: what the doubles know, they tell to the
    holder of the same key alone.
    """

    def __init__(self, records: Records, runtime: Runtime) -> None:
        self.sandbox = Sandbox(kept=KEPT)
        self._transport = SandboxTransport(runtime, self.sandbox)
        self._records, self._runtime = records, runtime
        self._mail = SandboxMail(runtime, self.sandbox.smtp)
        self.limits = NoLimits()

    def http(self) -> Http:
        return Http(self._transport, self._runtime)

    def mail(self) -> Mail:
        return Mail(self._mail, self._runtime)

    def records(self, tenant: str) -> TenantRecords:
        return UnchangedRecords(self._records, tenant)


class SandboxConfig(TenantConfig):
    """The tenant's config without its secrets, and with a stand-in for each kind of which nothing
    is stored.
    """

    __slots__ = ("_stand_ins",)

    def __init__(self, real: TenantConfig, stand_ins: Mapping[str, ConfigBody]) -> None:
        super().__init__(real.tenant, real.snapshot, real._writer)  # noqa: SLF001 -- the same
        self._stand_ins = stand_ins

    def get(self, kind: str, code: str) -> Entity | None:
        stored = super().get(kind, code)
        if (
            stored is not None
            or kind not in self._stand_ins
            or any(kind == known for known, _ in self._entities)
        ):
            # Whoever has stored some of a kind has to be told of a code that is none of them, as a
            # live request would be.
            return stored
        return Entity(kind, code, self._stand_ins[kind], {}, 0)

    def derived(
        self,
        key: object,
        make: Callable[Concatenate[TenantConfig, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        # Made anew: what is kept was made of the config as live requests see it.
        return make(self, *args, **named)

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        return [STAND_IN]

    def secrets_at_hand(self, kind: str, code: str, field: str) -> list[str] | None:
        return [STAND_IN]

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """What a double says is no reason."""

    def reference(self, text: str) -> str:
        return STAND_IN


def sandbox_config(real: TenantConfig, flow: Flow, payload: object) -> TenantConfig:
    """What an attempt at a test is given for its tenant's config."""
    return SandboxConfig(real, {} if flow.stand_ins is None else flow.stand_ins(payload))


class NoLimits(Limits):
    """The doubles take any number at once."""

    __slots__ = ()

    def __init__(self) -> None:
        """There are no tokens."""

    async def take(self, *limits: Limit) -> None:
        """At once."""

    async def close(self, name: str, seconds: float) -> None:
        """Live requests are not to wait for what a double said."""


class UnchangedRecords(TenantRecords):
    """The tenant's records as they are. What is written is taken and forgotten."""

    __slots__ = ()

    async def put(
        self, kind: str, name: str, version: int, value: bytes, *, about: str | None = None
    ) -> bool:
        return True

    async def forget(self, kind: str, name: str, *, upto: int) -> None:
        """It stays."""

    async def claim(self, kind: str, name: str) -> bool:
        return await self.owner(kind, name) in (None, self._tenant)
