"""Reconciles the transactions of a tenant with the ledger of its account at a gateway.

Reads the ledger page by page, compares it with the record (reconciliation.py), appends corrective
events, and keeps the report as a stream. A correction is identified by the gateway's id of the row,
so overlapping windows and repeated runs add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from gesta.domain.codec import encode, event_types
from gesta.domain.commands import Rules
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import event_id
from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.domain.stream_names import reconciliation_stream, request_stream
from gesta.domain.transaction.commands import Correct
from gesta.domain.transaction.events import Corrected, Moved
from gesta.domain.transaction.funds import funds_of
from gesta.errors import BadConfig, NotFound
from gesta.flows.flow import Flow
from gesta.flows.payment.gateway import (
    GATEWAY,
    Connection,
    Gateway,
    GatewayAccount,
    LedgerRow,
    Window,
)
from gesta.outbound.http import Http
from gesta.payments.reconciliation import FINE, Books, Finding, Movement, compare
from gesta.ports.event_store import Append, Appended, EventStore, NewEvent, Recorded
from gesta.ports.read_model import Filter, Key, ReadModel, View
from gesta.projector.batch_fold import CONFIG
from gesta.requests.loader import Loader
from gesta.requests.recorder import Origin, Recorder, no_job
from gesta.runtime.component import Process
from gesta.tenants.config import ConfigCache

#: Transactions that began this long before the window may have moved money in it.
LOOK_BACK_MS = 60 * 86_400_000
PAGE = 200
#: The longest window of one run.
WINDOW_MAX = timedelta(days=92)
REPORT = "reconciliation.ReportKept.v1"
#: Classes in which the gateway has moved money that gesta has not recorded.
_EXECUTED = ("missing_local", "status")


class Report(msgspec.Struct, frozen=True):
    """One run: what was compared, and all differences."""

    gateway: str
    tenant: str
    from_ms: int
    to_ms: int
    rows: int
    #: Class → number of rows and movements.
    counts: dict[str, int]
    #: All findings that are not matches.
    findings: tuple[Finding, ...]
    #: Corrective events that this run has appended.
    corrections: int = 0

    @property
    def differs(self) -> bool:
        return any(one.kind not in FINE for one in self.findings)


class Reconciler:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        events: EventStore,
        read_model: ReadModel,
        loader: Loader,
        recorder: Recorder,
        config: ConfigCache,
        http: Callable[[], Http],
        process: Process,
    ) -> None:
        self._flows, self._events, self._read_model = flows, events, read_model
        self._loader, self._recorder, self._config = loader, recorder, config
        self._http, self._process = http, process

    async def run(
        self,
        code: str,
        window: Window,
        *,
        gateways: Sequence[Gateway],
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> Report:
        """Compare, correct, and store the report. Raises NotFound, BadConfig and ListingFailed."""
        gateway, connection = await self._connect(code, tenant, gateways)
        rows = await _ledger(gateway, connection, window)
        books = await self._books(code, tenant, rows, window)
        findings = compare(rows, books, window.from_ms, window.to_ms)
        corrected, corrections = await self._correct(code, tenant, findings, actor)
        counts: dict[str, int] = {}
        for one in corrected:
            counts[one.kind] = counts.get(one.kind, 0) + 1
        report = Report(
            code,
            tenant,
            window.from_ms,
            window.to_ms,
            len(rows),
            dict(sorted(counts.items())),
            tuple(one for one in corrected if one.kind != "matched"),
            corrections,
        )
        await self._keep(report, connection.account.type, actor)
        return report

    async def _connect(
        self, code: str, tenant: str, gateways: Sequence[Gateway]
    ) -> tuple[Gateway, Connection]:
        await self._config.refresh(tenant)
        config = self._config.of(tenant)
        entity = config.get(GATEWAY, code)
        if entity is None:
            raise NotFound("config", f"{GATEWAY}/{code}")
        account = entity.body
        assert isinstance(account, GatewayAccount)
        gateway = next((one for one in gateways if one.type == account.type), None)
        if gateway is None:
            known = ", ".join(sorted({one.type for one in gateways})) or "none"
            text = f"this process knows no gateway {account.type!r}, only: {known}"
            raise BadConfig(GATEWAY, code, {"type": text})
        keys = await config.secrets(GATEWAY, code, "api_key")
        if not keys:
            raise BadConfig(GATEWAY, code, {"api_key": "the vault has none; put it again"})
        return gateway, Connection(self._http(), code, account, keys[0])

    async def _books(
        self, code: str, tenant: str, rows: Sequence[LedgerRow], window: Window
    ) -> Books:
        """The transactions that rows name, and those that may have moved money in the window."""
        states = {
            state.id: state
            for flow in self._flows.values()
            if flow.lifecycle.name == "transaction"
            for state in await self._recent(flow, tenant, window.from_ms - LOOK_BACK_MS)
            # A test request moved no money, so no gateway has a row of it.
            if funds_of(state).gateway == code and not state.test
        }
        named: list[Key] = [
            (row.reference.flow, tenant, row.reference.request_id)
            for row in rows
            if row.reference is not None
            and row.reference.tenant == tenant
            and row.reference.request_id not in states
            and row.reference.flow in self._flows
        ]
        found, _ = await self._loader.load(list(dict.fromkeys(named)))
        states |= {view.state.id: view.state for view in found.values()}
        movements: list[Movement] = []
        listed = list(states.values())
        for start in range(0, len(listed), PAGE):
            part = {
                request_stream(state.flow, tenant, state.id): state
                for state in listed[start : start + PAGE]
            }
            for recorded in await self._events.read([(name, 0) for name in part]):
                movement = _movement(recorded, part[recorded.stream])
                movements += [] if movement is None else [movement]
        return Books(states, movements, tenant)

    async def _recent(self, flow: Flow, tenant: str, since_ms: int) -> list[State]:
        """Those created since then. Ids that gesta makes are in the order of time; of a flow whose
        callers choose them, every transaction is read.
        """
        found: list[State] = []
        before: str | None = None
        while True:
            chosen = Filter(tenant, flow.name, before_id=before, limit=PAGE)
            page = await self._read_model.find(chosen)
            recent = [view.state for view in page if view.state.created_at >= since_ms]
            found += recent
            if len(page) < PAGE or (len(recent) < len(page) and flow.request_id is None):
                return found
            before = page[-1].state.id

    async def _correct(
        self, code: str, tenant: str, findings: Sequence[Finding], actor: Actor | None
    ) -> tuple[list[Finding], int]:
        """The findings; those that their transaction already records are marked."""
        wanted = [one for one in findings if one.kind not in FINE and one.request_id]
        views, _ = await self._loader.load(
            list(dict.fromkeys((one.flow, tenant, one.request_id) for one in wanted))
        )
        marked, appended = [], 0
        for one in findings:
            key = (one.flow, tenant, one.request_id)
            if one.kind in FINE or key not in views:
                marked.append(one)
                continue
            views[key], count = await self._apply(code, one, views[key], actor)
            appended += count
            marked.append(msgspec.structs.replace(one, corrected=True))
        return marked, appended

    async def _apply(
        self, code: str, one: Finding, view: View, actor: Actor | None
    ) -> tuple[View, int]:
        command = Correct(
            row=one.name,
            finding=one.kind,
            result="executed" if one.kind in _EXECUTED and not one.moved_back else "conflict",
            evidence=_evidence(code, one),
            operation=one.operation,
            intent=one.intent,
            amount=None if one.found is None else one.found.minor,
            payment_id=one.payment_id,
            movement_id=one.movement_id,
        )
        flow = self._flows.get(one.flow)
        # The same id in every run, so a recorded event is never appended twice.
        cause = blake2b(
            f"reconcile/{code}/{one.request_id}/{one.name}".encode(), digest_size=16
        ).digest()
        applied = await self._recorder.apply(
            view,
            command,
            Rules() if flow is None else flow.rules,
            no_job,
            causation_id=f"reconciliation/{code}",
            origin=Origin(actor, cause),
        )
        return applied.view, len(applied.events)

    async def _keep(self, report: Report, kind: str, actor: Actor | None) -> None:
        """Append the report to its own stream, unless the last one there says the same."""
        stream = reconciliation_stream(
            kind, report.tenant, f"{report.gateway}-{report.from_ms}-{report.to_ms}"
        )
        content = encode(msgspec.structs.replace(report, corrections=0))
        last = await self._events.read_back(stream, None, 1)
        if last and last[0].data == content:
            return
        now = self._process.runtime.now_ms()
        meta = Meta(report.tenant, CONFIG, stream, now, stream, stream, actor=actor)
        new = NewEvent(event_id(self._process.ids.new_bytes(), 0), REPORT, content, encode(meta))
        version = last[0].version if last else 0
        (verdict,) = await self._events.append([Append(stream, version, (new,))])
        if not isinstance(verdict, Appended):
            self._process.telemetry.log.info(
                "another run has already stored its report", stream=stream
            )


def window_errors(since: datetime, until: datetime) -> dict[str, str]:
    """Argument → its error, for a window."""
    given: dict[str, Any] = {"since": since, "until": until}
    errors = {
        name: "a datetime with a time zone, for instance datetime.now(UTC)"
        for name, moment in given.items()
        if not isinstance(moment, datetime) or moment.tzinfo is None
    }
    if not errors and not timedelta(0) < until - since <= WINDOW_MAX:
        errors["until"] = f"after `since`, by at most {WINDOW_MAX.days} days"
    return errors


async def _ledger(gateway: Gateway, connection: Connection, window: Window) -> list[LedgerRow]:
    rows: list[LedgerRow] = []
    cursor: str | None = None
    while True:
        page = await gateway.list(window, connection, cursor)
        rows += page.rows
        if page.next is None:
            return rows
        cursor = page.next


#: Event of a movement → its operation; that of `Completed` is the transaction's first one.
_OPERATION = {
    "Authorized": "authorization",
    "Reserved": "reservation",
    "Captured": "capture",
    "Posted": "posting",
    "Voided": "void",
    "Refunded": "refund",
    "Reversed": "reversal",
}


def _movement(recorded: Recorded, state: State) -> Movement | None:
    """The movement that an event records, if any."""
    try:
        event: Any = event_types(state.flow).decode(recorded.type, recorded.data)
        meta = msgspec.json.decode(recorded.meta, type=Meta)
    except ValueError:
        # The projector has quarantined it.
        return None
    funds = funds_of(state)
    if isinstance(event, Moved):
        operation = _OPERATION.get(type(event).__name__, funds.first)
    elif isinstance(event, Corrected):
        operation = event.operation
    else:
        return None
    if operation == "reversal" and not funds.captured:
        # It released an authorization, which moves no money.
        operation = "void"
    return Movement(
        state.flow,
        state.id,
        operation,
        event.intent,
        Money.of_minor(event.amount, funds.currency),
        meta.occurred_at,
        event.provider_id or funds.payment_id,
        event.movement_id,
    )


def _evidence(code: str, one: Finding) -> str:
    if one.moved_back:
        return f"row {one.row} of the ledger of {code}: the gateway moved {one.found} back"
    if one.row:
        return f"row {one.row} of the ledger of {code}: {one.found}"
    return f"the ledger of {code} has no row for it"
