"""Reads a cloud's own bill, a FOCUS export, and compares it with the ledger. Writes nothing."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cloudgpu.config.money.currencies import exchange_rate
from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.reconciliation.focus_import import Record, records
from cloudgpu.core.reconciliation.reconcile import (
    LedgerTotal,
    MachineIndex,
    ResourceTotal,
    add_charge,
    add_export_row,
    gap_reasons,
)
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.reconciliation import reconciled_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.reconcile import ReconcileDocument, ReconcileHead

_GZIP = b"\x1f\x8b"
_MAX_CELL_CHARS = 1 << 20  # characters; the tags of a resource are at most some kilobytes


@dataclass(slots=True)
class ParsedExport:
    """The totals of an export by machine id of the ledger, and those of resources that are not in this ledger.

    `providers` counts the rows by provider. `begin` and `end` are the period of its usage charges.
    """

    by_id: dict[str, ResourceTotal] = field(default_factory=dict)
    providers: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    begin: datetime | None = None
    end: datetime | None = None
    other_ledger: ResourceTotal = field(default_factory=ResourceTotal)  # resources of another ledger
    unmatched: ResourceTotal = field(default_factory=ResourceTotal)  # resources of no ledger
    rates: dict[str, Currency] = field(default_factory=dict)  # by the currency's code
    accounts: set[tuple[str, str]] = field(default_factory=set)  # provider and account

    def extend_period(self, record: Record) -> None:
        """Extend the period to include a usage charge.

        Tax and purchase rows are dated with the whole month, and corrections with that of an earlier bill, so they do
        not extend it.
        """
        if record.category == "Usage" and not record.is_correction:
            self.begin = record.begin if self.begin is None else min(self.begin, record.begin)
            self.end = record.end if self.end is None else max(self.end, record.end)


def reconcile(session: Session, file: Path, provider: str | None = None) -> ReconcileDocument:
    """Return, for each machine and named resource, the ledger's amount, the export's, their difference and its reasons.

    Compared is the period of the export's usage charges. Raises InvalidRequest for a file that is not a FOCUS export,
    is cut short, has no rows of the provider, or is in a currency that has no rate.
    """
    now = session.clock()
    # Read together: a usage that ends between two reads would count twice, or not at all.
    machines, ended_usages = session.ledger.read(lambda view: (view.billable_machines(), list(view.ended_usages())))
    index = MachineIndex(session.ledger.id, machines, ended_usages)
    with _open_csv(file) as numbered_rows:
        rate_of = partial(exchange_rate, session.settings.currencies, field="BillingCurrency")
        export = _read_export(records(numbered_rows, str(file)), index, provider, rate_of)
    if provider is not None and provider not in export.providers:
        named = sorted(filter(None, export.providers))
        raise InvalidRequest(
            f"{file} has no rows of {provider}; it has rows of: {', '.join(named) or 'none'}.",
            field="--provider",
            value=provider,
            next="Name one of these, or leave out --provider.",
        )
    providers = {provider} if provider else {name for name in export.providers if name}
    other_accounts = _other_accounts(index.machines, export)
    ledger_totals = _ledger_totals(machines, ended_usages, export, providers, now)
    left_out = {id_: other_accounts[id_] for id_ in ledger_totals if id_ in other_accounts}
    ledger_totals = {id_: total for id_, total in ledger_totals.items() if id_ not in left_out}
    reasons = {
        id_: gap_reasons(ledger_totals.get(id_, LedgerTotal()), export.by_id.get(id_, ResourceTotal()), export.end, now)
        for id_ in {**ledger_totals, **export.by_id}
    }
    head: ReconcileHead = {
        "file": str(file),
        "rows": export.rows,
        "providers": sorted(providers),
        "accounts_left_out": sorted(set(left_out.values())),
        "since": None if export.begin is None else iso(export.begin),
        "until": None if export.end is None else iso(export.end),
        "as_of": iso(now),
        "rates": [str(rate) for rate in export.rates.values() if rate.code != "USD"],
    }
    return reconciled_document(
        head, index.machines, ledger_totals, export.by_id, reasons, (export.other_ledger, export.unmatched)
    )


def _read_export(
    export_records: Iterator[Record], index: MachineIndex, provider: str | None, rate_of: Callable[[str], Currency]
) -> ParsedExport:
    export = ParsedExport()
    for record in export_records:
        machine_id = index.of(record)  # empty: of another ledger; None: of no ledger
        billed_by = record.provider or _provider_of(index.machines.get(machine_id or ""))
        export.providers[billed_by] = export.providers.get(billed_by, 0) + 1
        if provider is not None and billed_by != provider:
            continue
        export.rows += 1
        export.extend_period(record)
        export.accounts.add((billed_by, record.account))
        if record.currency not in export.rates:
            export.rates[record.currency] = rate_of(record.currency)
        total_without_machine = export.other_ledger if machine_id == "" else export.unmatched
        total = export.by_id.setdefault(machine_id, ResourceTotal()) if machine_id else total_without_machine
        add_export_row(total, record, export.rates[record.currency].per_usd)
    return export


def _provider_of(machine: Machine | None) -> str:
    """Return the provider of a row that names none, as AWS's may, by its machine; empty where that is not known."""
    return "" if machine is None else str(machine.provider)


def _other_accounts(machines: Mapping[str, Machine], export: ParsedExport) -> dict[str, str]:
    """Return, by the ids of machines that are not in the export, their accounts, if the export has no rows of these.

    A provider's machines are left out if the export names none of its accounts that the ledger knows: a company's bill
    may name only the account of the payer.
    """
    with_identity = {
        id_: (machine, machine.identity) for id_, machine in machines.items() if machine.identity is not None
    }
    accounts = {id_: (str(machine.provider), identity.id.lower()) for id_, (machine, identity) in with_identity.items()}
    billed_providers = {account[0] for account in accounts.values() if account in export.accounts}
    return {
        id_: identity.display_name
        for id_, (machine, identity) in with_identity.items()
        if machine.provider in billed_providers and accounts[id_] not in export.accounts and id_ not in export.by_id
    }


def _ledger_totals(
    machines: Sequence[Machine],
    ended_usages: Sequence[tuple[str, Usage]],
    export: ParsedExport,
    providers: set[str],
    now: datetime,
) -> dict[str, LedgerTotal]:
    """Return the ledger's total of each machine and named resource of these providers in the export's period."""
    totals = dict[str, LedgerTotal]()
    if export.begin is None or export.end is None:
        return totals
    for charge in period_charges(machines, ended_usages, now, since=export.begin, until=export.end):
        if charge.charge.usage.provider in providers:
            add_charge(totals.setdefault(charge.machine.id, LedgerTotal()), charge, now, export.begin, export.end)
    return totals


@contextmanager
def _open_csv(file: Path) -> Iterator[Iterator[tuple[int, Sequence[str]]]]:
    """Open a CSV file, gzipped or not, and yield its rows with their line numbers. Raises InvalidRequest."""
    try:
        with file.open("rb") as raw:
            is_gzipped = raw.read(2) == _GZIP
        open_file: Any = gzip.open if is_gzipped else open
        with open_file(file, "rt", encoding="utf-8-sig", newline="") as text:
            yield _numbered_rows(text)
    except UnicodeDecodeError as error:
        raise _unreadable_error(
            file, "is not UTF-8 text", "Export it as CSV, not as Parquet, and do not convert it."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _unreadable_error(
            file, "ends in the middle, or is damaged", "Download the complete file again."
        ) from error
    except csv.Error as error:
        raise _unreadable_error(
            file, f"is not a complete CSV file: {error}", "Download the complete file again."
        ) from error
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise _unreadable_error(file, problem, "Name a FOCUS export, as CSV or gzipped CSV.") from error


def _numbered_rows(text: TextIO) -> Iterator[tuple[int, Sequence[str]]]:
    csv.field_size_limit(_MAX_CELL_CHARS)
    reader = csv.reader(text, strict=True)
    for cells in reader:
        yield reader.line_num, cells


def _unreadable_error(file: Path, problem: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{file} {problem}.", field="FILE", value=str(file), next=remedy)
