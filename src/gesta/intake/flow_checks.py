"""Checks of a payload against the tenant's config, before the request is accepted: errors refuse
it, warnings say why it will be held or fail.
"""

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from gesta.api_types.requests import SubmitWarning
from gesta.domain.hold_words import hold_words
from gesta.domain.stream_names import INSTALLATION
from gesta.flows.deferrals import missing_text
from gesta.flows.flow import Flow, Payload
from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.tenants.config import ConfigCache, TenantConfig
from gesta.tenants.pauses import NOT_SET
from gesta.tenants.templates.templates import Templates

MISSING = "config_missing"
#: Tenants whose config is kept ready for checks.
TENANTS_KEPT = 1_000


def may_warn(flow: Flow) -> bool:
    """Whether something other than a pause may be a warning for a request of this flow."""
    return flow.credential is not None or flow.url is not None


class FlowChecks:
    def __init__(
        self,
        config: ConfigCache,
        templates: Callable[[TenantConfig], Templates],
        *,
        executed: Iterable[str],
        guard: PrivateAddressGuard | None,
    ) -> None:
        """`executed`: the flows that a worker of this process executes."""
        #: A pause may be a warning for a request of any flow.
        self.pauses = config.pauses
        self._config, self._templates, self._executed = config, templates, frozenset(executed)
        self._guard = guard
        self._ready: dict[str, tuple[TenantConfig, Templates]] = {}
        #: Tenants whose pauses were read here. A worker reads them with every batch of jobs.
        self._read: set[str] = set()

    async def errors(self, flow: Flow, payload: Payload, tenant: str) -> dict[str, str]:
        """Field → error.

        This process may have read an old version of the config: a payload is refused only by the
        current one.
        """
        assert flow.check is not None
        if not self._config.version(tenant):
            # A process that only submits reads it here for the first time.
            await self._config.refresh(tenant)
        if not await flow.check(payload, *self._of(tenant)):
            return {}
        await self._config.refresh(tenant)
        return dict(await flow.check(payload, *self._of(tenant)))

    async def warnings(
        self, flow: Flow, payload: Payload, tenant: str, *, test: bool
    ) -> tuple[SubmitWarning, ...]:
        """What holds the request; if nothing does, why it will fail. As far as this process has
        read.
        """
        if flow.name not in self._executed and tenant not in self._read:
            await self._config.refresh(INSTALLATION, tenant)
            if len(self._read) >= TENANTS_KEPT:
                self._read.clear()
            self._read.add(tenant)
        held = self._held(flow, payload, tenant, test=test)
        if held and held[0].code == MISSING:
            await self._config.refresh(tenant)
            held = self._held(flow, payload, tenant, test=test)
        # A test reaches only the sandbox.
        if held or test or not (not_allowed := self._not_allowed(flow, payload, tenant)):
            return held
        # A pause that this process has not read yet is the nearer cause.
        await self._config.refresh(INSTALLATION, tenant)
        return self._held(flow, payload, tenant, test=test) or not_allowed

    def _held(
        self, flow: Flow, payload: Payload, tenant: str, *, test: bool
    ) -> tuple[SubmitWarning, ...]:
        # A test uses stand-ins for secrets and missing config.
        credential = None if test else _credential(flow, payload)
        held = self._paused(flow, tenant, credential)
        if held or credential is None:
            return held
        return self._without(flow, tenant, credential)

    def _not_allowed(self, flow: Flow, payload: Payload, tenant: str) -> tuple[SubmitWarning, ...]:
        """A URL with an address instead of a name, if this process may not call the address."""
        if flow.url is None or self._guard is None:
            return ()
        url = flow.url(payload, self._of(tenant)[0])
        scheme, host = address_of(url or "")
        refusal = self._guard.refusal(host, scheme) if host else None
        if refusal is None:
            return ()
        if flow.name in self._executed:
            text = (
                f"the request will fail ({refusal}) if this process executes it, which may not call"
                f" {host}: set GESTA_ALLOW_PRIVATE for it and restart it"
            )
        else:
            text = (
                f"the request will fail ({refusal}) unless the process that executes it may call"
                f" {host}: this needs GESTA_ALLOW_PRIVATE there, and this process does not have it"
            )
        return (SubmitWarning(refusal, text),)

    def _paused(self, flow: Flow, tenant: str, credential: str | None) -> tuple[SubmitWarning, ...]:
        pauses = self.pauses
        if pauses.is_empty:
            return ()
        pause = pauses.covering(tenant, flow.name, lambda: credential)
        if pause is None:
            return ()
        code = {"pause": "paused", "credential": "credential_refused"}.get(pause.kind)
        reason = f": {pause.reason}" if pause.reason else ""
        words = hold_words(str(pause.scope))
        cause = f"a pause of {words}" if pause.kind == "pause" else words
        return (SubmitWarning(code or MISSING, f"the request is held because of {cause}{reason}"),)

    def _without(self, flow: Flow, tenant: str, credential: str) -> tuple[SubmitWarning, ...]:
        """What is wrong if the credential is neither stored nor declared."""
        kind, _, name = credential.partition("/")
        if kind not in self._config.kinds or self._of(tenant)[0].find(kind, name) is not None:
            return ()
        declared = self.pauses.declared.get(credential)
        if declared == NOT_SET and flow.name in self._executed:
            names = " and ".join(
                text for text in flow.declared[credential] if text.startswith("env:")
            )
            text = f"{names} is not set: the request is held until the program runs with it"
            return (SubmitWarning("credential_missing", text),)
        if declared is not None:
            return ()
        return (SubmitWarning(MISSING, missing_text(kind, name)),)

    def _of(self, tenant: str) -> tuple[TenantConfig, Templates]:
        """The tenant's config and templates, the same ones until the config changes."""
        known = self._ready.get(tenant)
        if known is None or not self._config.is_newest(known[0]):
            if len(self._ready) >= TENANTS_KEPT:
                self._ready.clear()
            config = self._config.of(tenant)
            known = self._ready[tenant] = config, self._templates(config)
        # Secrets that an earlier check opened would only accumulate here.
        known[0].opened.clear()
        return known


def address_of(url: str) -> tuple[str, str]:
    """Scheme and address of a URL; no address if it has a name, which only the worker resolves."""
    try:
        parts = urlsplit(url)
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
        return parts.scheme, str(ip_address(host))
    except ValueError:
        return "", ""


def _credential(flow: Flow, payload: Payload) -> str | None:
    try:
        named: object = None if flow.credential is None else flow.credential(payload)
        return named if isinstance(named, str) else None
    except Exception:  # noqa: BLE001 -- the flow's own function; the attempt shows its error
        return None
