"""Test mode: what executors of test requests get, so that they reach the sandbox only.

HTTP and e-mail go to fakes in this process. Placeholders replace all secrets. The tenant's other
config is used; if nothing of a kind is stored, the flow's placeholder is used. Nothing is written
except the request's own events: no rate limit is used up, no endpoint disabled, no address
suppressed.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from gesta.flows.flow import ConfigBody, Flow
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import Limit, Limits
from gesta.outbound.smtp import Mail
from gesta.runtime.clock import Runtime
from gesta.sandbox import Sandbox, SandboxTransport
from gesta.sandbox.smtp import SandboxMail
from gesta.security.subject_keys import Clear
from gesta.tenants.config import Entity, TenantConfig
from gesta.tenants.flow_records import Records, TenantRecords

T = TypeVar("T")
P = ParamSpec("P")

#: Effects that each fake remembers, so that it recognises a repeat under the same key.
KEPT = 50
#: In the form of a webhook secret, the only kind whose form is checked.
STAND_IN = "whsec_" + base64.b64encode(b"a stand-in: no secret at all").decode()


class SandboxMode:
    """One for all tenants of the process: the fakes answer by the key of a request."""

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
    """The tenant's config without its secrets, and with a placeholder for each kind of which
    nothing is stored.
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
            # A tenant that has stored config of this kind gets an error for a wrong code, as in
            # live mode.
            return stored
        return Entity(kind, code, self._stand_ins[kind], {}, 0)

    def derived(
        self,
        key: object,
        make: Callable[Concatenate[TenantConfig, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        # Not cached: the cache was made from the config of live requests.
        return make(self, *args, **named)

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        return [STAND_IN]

    def secrets_at_hand(self, kind: str, code: str, field: str) -> list[str] | None:
        return [STAND_IN]

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """An answer of a fake disables nothing."""

    def reference(self, text: str) -> str:
        return STAND_IN


def sandbox_config(real: TenantConfig, flow: Flow, payload: object) -> TenantConfig:
    """The config for an attempt of a test request."""
    return SandboxConfig(real, {} if flow.stand_ins is None else flow.stand_ins(payload))


class NoLimits(Limits):
    """The fakes accept any number."""

    __slots__ = ()

    def __init__(self) -> None:
        """There are no tokens."""

    def take_now(self, *limits: Limit) -> bool:
        return True

    async def take(self, *limits: Limit) -> None:
        """At once."""

    async def close(self, name: str, seconds: float) -> None:
        """An answer of a fake must not delay live requests."""


class UnchangedRecords(TenantRecords):
    """The tenant's records, read-only: writes are dropped."""

    __slots__ = ()

    async def _personal_box(self, clear: Clear, new_keys: bool) -> bytes:  # noqa: FBT001
        # No key is made for the subject.
        return b""

    async def _put(self, keys: Sequence[str], version: int, box: bytes) -> list[bool]:
        return [True] * len(keys)

    async def _delete(self, key: str, upto: int) -> None:
        """It stays."""

    async def claim(self, kind: str, name: str) -> bool:
        return await self.owner(kind, name) in (None, self._tenant)
