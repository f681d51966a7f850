"""Station 2, a part of it: what a flow's own check says of a payload, before it is accepted.

It may look into the tenant's config and templates.
"""

from collections.abc import Callable

from gesta.flows.flow import Flow, Payload
from gesta.tenants.config import ConfigCache, TenantConfig
from gesta.tenants.templates.templates import Templates

#: Tenants whose config is kept at hand.
TENANTS_KEPT = 1_000


class FlowChecks:
    def __init__(self, config: ConfigCache, templates: Callable[[TenantConfig], Templates]) -> None:
        self._config, self._templates = config, templates
        self._at_hand: dict[str, tuple[TenantConfig, Templates]] = {}

    async def errors(self, flow: Flow, payload: Payload, tenant: str) -> dict[str, str]:
        """Field → error.

        What this process has read of the config may be old: nobody is ever refused by that.
        """
        assert flow.check is not None
        if not self._config.version(tenant):
            # Read for the first time: a process that only submits never does it elsewhere.
            await self._config.refresh(tenant)
        return (
            await self.again(flow, payload, tenant)
            if await flow.check(payload, *self._of(tenant))
            else {}
        )

    async def again(self, flow: Flow, payload: Payload, tenant: str) -> dict[str, str]:
        """The same with the config as it is now, of one that is at fault by what was at hand."""
        assert flow.check is not None
        await self._config.refresh(tenant)
        return dict(await flow.check(payload, *self._of(tenant)))

    def at_hand(self, tenant: str) -> tuple[TenantConfig, Templates] | None:
        """What a check looks into, as far as this process has read it; None: not yet."""
        return self._of(tenant) if self._config.version(tenant) else None

    def _of(self, tenant: str) -> tuple[TenantConfig, Templates]:
        """The same ones until the config changes: a check only looks."""
        known = self._at_hand.get(tenant)
        if known is None or not self._config.is_newest(known[0]):
            if len(self._at_hand) >= TENANTS_KEPT:
                self._at_hand.clear()
            config = self._config.of(tenant)
            known = self._at_hand[tenant] = config, self._templates(config)
        # Secrets that an earlier check has opened: they would only gather here.
        known[0].opened.clear()
        return known
