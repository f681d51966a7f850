"""reconcile: compare the ledger of a gateway with gesta's transactions."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_json, say, show, table, tell

if TYPE_CHECKING:
    from gesta.api_types.transactions import FindingRepresentation, ReconciliationRepresentation

COLUMNS = ("class", "row", "request", "operation", "gateway", "record", "corrected")


def _moment(text: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write it like 2027-01-31 or 2027-01-31T12:00:00+01:00"
        ) from None
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


Since = Annotated[
    datetime | None,
    typer.Option(
        "--from",
        metavar="TIME",
        parser=_moment,
        help="Rows created from this time on, in UTC unless it has an offset. Default: 3 days"
        " before --to.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option("--to", metavar="TIME", parser=_moment, help="Rows created before. Default: now."),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


async def reconcile(
    call: Invocation,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="CODE", help="Code of the payment.gateway config.")
    ],
    since: Since = None,
    until: Until = None,
    by: By = None,
    as_csv: AsCsv = False,
    as_json: Json = False,
) -> None:
    """Compare a gateway's ledger with gesta's record, and correct the record.

    You may repeat it: gesta makes each correction only once.
    """
    async with call.backend() as backend:
        report = await backend.client.reconcile(gateway, since, until, by=call.actor(by).user_id)
    if as_json:
        print_json(report)
    elif as_csv:
        _print_csv(report)
    elif report.findings:
        show(table(COLUMNS, [_row(one) for one in report.findings]))
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items())
    tell(f"{report.rows} rows of the ledger: {counts or 'nothing'}")
    tell(f"{report.corrections} corrective events appended")


def _row(one: FindingRepresentation) -> list[str]:
    return [
        one.kind,
        one.row,
        one.request_id,
        f"{one.operation}:{one.intent}" if one.operation else "",
        "" if one.found is None else str(one.found),
        "" if one.recorded is None else str(one.recorded),
        "yes" if one.corrected else "",
    ]


def _print_csv(report: ReconciliationRepresentation) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(one) for one in report.findings)
    for line in out.getvalue().splitlines():
        say(line)
