"""Exports the charges of a period for other programs: as FOCUS, plain CSV or JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cloudgpu.control.cost.cost import with_slurm_tariffs
from cloudgpu.control.inputs.periods import Moment, parse_period_request
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.billing.line_items import LineItem, line_items
from cloudgpu.core.jobs.shares import machine_assignments
from cloudgpu.core.values.money import ZERO, Money, usd
from cloudgpu.core.values.times import iso
from cloudgpu.core.values.typed import parse_member
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.exports import focus, plain as exports

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.reconcile import ExportDocument


class ExportFormat(StrEnum):
    """The formats of an export."""

    FOCUS = "focus"
    CSV = "csv"
    JSON = "json"


def parse_export_format(name: str) -> ExportFormat:
    """Return the format with this name. Raises InvalidRequest for an unknown name."""
    return parse_member(ExportFormat, name, "form of a bill", "--format")


@dataclass(slots=True)
class ExportTotals:
    """Totals of an export: its rows, the sum of their amounts, and how many have no price, or an estimated one.

    `low` and `high` are the sums of what each row costs at least and at most.
    """

    rows: int = 0
    amount: Money = ZERO
    low: Money = ZERO
    high: Money = ZERO
    unpriced: int = 0
    estimates: int = 0

    def count(self, item: LineItem) -> LineItem:
        """Count one row; return its item."""
        self.rows += 1
        self.amount += item.amount
        self.low += item.low
        self.high += item.high
        self.unpriced += item.price_interval is None
        self.estimates += item.is_estimate
        return item


@dataclass(frozen=True, slots=True)
class ExportPeriod:
    """The period [since, until) of an export, as of `now`. None: unlimited."""

    since: datetime | None
    until: datetime | None
    now: datetime

    def document(self) -> dict[str, Any]:
        """Return the period as plain values."""
        since, until = (moment and iso(moment) for moment in (self.since, self.until))
        return {"since": since, "until": until, "as_of": iso(self.now)}


def export(
    session: Session, form: ExportFormat, period: ExportPeriod, out: Path | None, stream: TextIO | None = None
) -> ExportDocument:
    """Write the charges of a period to `out`, else to `stream` (default: stdout); return the document of `export`.

    A file is written completely or not at all. Raises InvalidRequest if it cannot be written.
    """
    totals = ExportTotals()
    items = map(totals.count, _items(session, period))
    if out is None:
        _write(stream or sys.stdout, form, items, session.ledger.id, period)
    else:
        with _atomic_file(out) as file:
            _write(file, form, items, session.ledger.id, period)
    return {
        "file": None if out is None else str(out),
        "format": str(form),
        "since": None if period.since is None else iso(period.since),
        "until": None if period.until is None else iso(period.until),
        "as_of": iso(period.now),
        "rows": totals.rows,
        "unpriced": totals.unpriced,
        "estimates": totals.estimates,
        "usd": usd(totals.amount),
        "low_usd": usd(totals.low),
        "high_usd": usd(totals.high),
    }


def _items(session: Session, period: ExportPeriod) -> Iterator[LineItem]:
    """Yield the line items of all charges in the period."""
    since = iso(period.since) if period.since else ""
    machines, ended_usages = session.ledger.read(
        lambda view: (view.billable_machines(), list(view.ended_usages(since)))
    )
    charges = period_charges(
        with_slurm_tariffs(session, machines), ended_usages, period.now, since=period.since, until=period.until
    )
    assignments = machine_assignments(all_jobs(session).values())
    return line_items(charges, period.now, since=period.since, until=period.until, assigned=assignments)


def _write(file: TextIO, form: ExportFormat, items: Iterator[LineItem], ledger_id: str, period: ExportPeriod) -> None:
    """Write the line items to an open file in this format; `ledger_id` is the id of the ledger."""
    if form is ExportFormat.FOCUS:
        columns = (*focus.COLUMNS, *focus.OWN_COLUMNS)
        exports.write_csv(file, columns, (focus.focus_row(item, ledger_id) for item in items))
    elif form is ExportFormat.CSV:
        exports.write_csv(file, exports.COLUMNS, exports.plain_cells(exports.charge_document(item) for item in items))
    else:
        _write_json(file, (exports.charge_document(item) for item in items), period.document())


def _write_json(file: TextIO, charges: Iterable[Mapping[str, Any]], period_document: Mapping[str, Any]) -> None:
    """Write one JSON document, a charge per line, without collecting the charges in memory."""
    file.write(json.dumps(period_document)[:-1] + ', "charges": [')
    separator = "\n"
    for charge in charges:
        file.write(separator + json.dumps(charge, ensure_ascii=False))
        separator = ",\n"
    file.write("\n]}\n")


@contextmanager
def _atomic_file(out: Path) -> Iterator[TextIO]:
    """Open a temporary file that replaces `out` once it is written; a device or a pipe is written to directly."""
    try:
        is_special = out.exists() and not out.is_file()
        out_file = out if is_special else out.resolve()
        temporary = out_file.with_name(f".{out_file.name}.{os.getpid()}")
        file = (out if is_special else temporary).open("w", encoding="utf-8", newline="")
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, or no name; links in a circle
        raise _unwritable_error(out, error) from error
    try:
        with file:
            yield file
        if not is_special:
            temporary.replace(out_file)
    except OSError as error:
        raise _unwritable_error(out, error) from error
    finally:
        if not is_special:
            temporary.unlink(missing_ok=True)


def _unwritable_error(out: Path, error: Exception) -> InvalidRequest:
    why = (getattr(error, "strerror", None) or str(error)).lower()
    return InvalidRequest(
        f"{out} cannot be written: {why}.",
        field="--out",
        value=str(out),
        next="Name a file in an existing directory that you can write to.",
    )


def parse_export_period(session: Session, since: Moment | None, until: Moment | None, tz: str | None) -> ExportPeriod:
    """Return the period as of the session's clock. Raises InvalidRequest for an invalid time, or an empty period.

    Days begin at midnight in the time zone `tz` (None: that of the settings).
    """
    now = session.clock()
    request = parse_period_request(session.settings, now, {"since": since, "until": until, "tz": tz})
    return ExportPeriod(request.since, request.until, now)
