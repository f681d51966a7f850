"""Delivery receipts: what providers report about messages they accepted.

`Flow.reports` verifies a posted report and reads it; the recorder appends its events. The id of the
request travels with the message and comes back under the provider's signature, so no index by
provider ids exists. A repeated report is recognised by the provider's id of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gesta.domain.commands import RecordReceipt
from gesta.domain.ids import TENANT
from gesta.errors import InvalidSignature, StoreError
from gesta.flows.flow import Flow
from gesta.outbound.http import AttemptEnded, HttpRequest, HttpResponse, Transport
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, no_job
from gesta.runtime.clock import Runtime
from gesta.runtime.settings import Settings
from gesta.runtime.telemetry import Telemetry
from gesta.tenants.config import ConfigCache, TenantConfig
from gesta.tenants.flow_records import Records
from gesta.tenants.suppression import suppress

#: SNS takes no message above 256 KB; Twilio's are a few hundred bytes.
BODY_BYTES_MAX = 300 * 1024
#: A certificate, or the answer to a confirmation.
FETCH_SECONDS = 10.0
FETCHED_BYTES_MAX = 64 * 1024


def report_address(settings: Settings) -> str:
    """The URL below which providers report; empty where `public_url` is not set."""
    return "" if settings.public_url is None else f"{settings.public_url}/v1/reports"


class Incoming(msgspec.Struct, frozen=True):
    """A posted report, not verified yet."""

    tenant: str
    #: The parts of the path behind the tenant.
    parts: tuple[str, ...]
    #: One value of each header, by its name in lower case.
    header: Callable[[str], str | None]
    body: bytes

    def __repr__(self) -> str:
        return f"Incoming({self.tenant}, {len(self.body)} bytes)"


class ProviderReport(msgspec.Struct, frozen=True):
    """A verified report, and the addresses that must get no more messages."""

    request_id: str
    report: RecordReceipt
    #: Addresses in clear: they go to the suppression list and nowhere else.
    suppress: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ProviderReport({self.request_id}, {self.report.kind})"


@dataclass(frozen=True)
class ReportContext:
    """What a flow may use to verify a report."""

    config: TenantConfig
    now_ms: int
    #: `{public_url}/v1/reports`; empty where providers are not asked to report.
    address: str
    #: For trials: further hosts that certificates may come from; empty: only the provider's own
    #: hosts.
    scratch_url: str
    #: One GET through the guard; raises TransportError.
    fetch: Callable[[str], Awaitable[HttpResponse]]


#: The posted request → the reports in it. Raises InvalidSignature if the provider did not sign it.
Read = Callable[[Incoming, ReportContext], Awaitable[Sequence[ProviderReport]]]


@dataclass(frozen=True)
class Reporting:
    """How a flow's provider reports. `provider`: its name in the path."""

    provider: str
    read: Read


class ReportResult(msgspec.Struct, frozen=True):
    """How many reports were new, known already, and about no request of this tenant."""

    new: int = 0
    known: int = 0
    strange: int = 0


@dataclass(frozen=True)
class Reach:
    """The URLs of ReportContext, and the transport to fetch with."""

    address: str
    scratch_url: str
    transport: Transport


class Reports:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        config: ConfigCache,
        loader: Loader,
        recorder: Recorder,
        records: Records,
        reach: Reach,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._flows = {
            flow.reports.provider: flow for flow in flows.values() if flow.reports is not None
        }
        self._config, self._loader, self._recorder, self._records = (
            config,
            loader,
            recorder,
            records,
        )
        self._reach, self._runtime, self._telemetry = reach, runtime, telemetry

    async def take(
        self,
        provider: str,
        tenant: str,
        parts: Sequence[str],
        header: Callable[[str], str | None],
        body: bytes,
    ) -> ReportResult:
        """Verify and record.

        Raises InvalidSignature, always the same, for a report that is not genuine; StoreError if
        the provider has to repeat it.
        """
        flow = self._flows.get(provider)
        if flow is None or flow.reports is None or not TENANT.fullmatch(tenant):
            raise InvalidSignature
        await self._config.refresh(tenant)
        if self._config.version(tenant) == 0:
            # An unknown tenant: its name is not kept, or callers could fill the memory with names.
            self._config.forget(tenant)
        context = ReportContext(
            self._config.of(tenant),
            self._runtime.now_ms(),
            self._reach.address,
            self._reach.scratch_url,
            self._fetch,
        )
        try:
            found = await flow.reports.read(Incoming(tenant, tuple(parts), header, body), context)
        except AttemptEnded as ended:
            # What a config says of a vault that is out of reach, in the words of an attempt.
            raise StoreError(f"a report cannot be verified now: {ended.outcome.detail}") from None
        counts = {"new": 0, "known": 0, "strange": 0}
        for one in found:
            counts[await self._record(flow, tenant, one)] += 1
        if found:
            self._telemetry.reported(flow.name, counts["new"])
        return ReportResult(**counts)

    async def _record(self, flow: Flow, tenant: str, found: ProviderReport) -> str:
        view = await self._loader.one((flow.name, tenant, found.request_id))
        if view is not None and found.report.report in view.state.reports:
            return "known"
        # Before the event: after a crash in between, the provider reports again and the report is
        # not yet known.
        assert flow.addresses is not None or not found.suppress
        for address in found.suppress:
            if flow.addresses is not None and flow.addresses.normal(address) is not None:
                reason = (
                    f"{found.report.kind}: {found.report.reason}"
                    if found.report.reason
                    else found.report.kind
                )
                await suppress(
                    self._records.of(tenant),
                    flow.addresses,
                    address,
                    reason,
                    self._runtime.now_ms(),
                    f"report of {flow.name}",
                )
        if view is None:
            # Removed by retention, or of another tenant: the answer does not say which.
            return "strange"
        applied = await self._recorder.apply(
            view, found.report, flow.rules, no_job, causation_id=found.report.report
        )
        return "new" if applied.events else "known"

    async def _fetch(self, url: str) -> HttpResponse:
        response = await self._reach.transport.send(
            HttpRequest("GET", url, {}, None, FETCH_SECONDS)
        )
        if not response.is_whole or len(response.body) > FETCHED_BYTES_MAX:
            raise InvalidSignature
        return response
