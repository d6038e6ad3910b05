"""Reads a cloud's own bill and lays it beside the ledger's. Nothing is written."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cloudgpu.config.money.currencies import rate_of
from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.reconciliation.focus_import import Record, records
from cloudgpu.core.reconciliation.reconcile import (
    LedgerTotal,
    ResourceIndex,
    ResourceTotal,
    add_ours,
    add_theirs,
    gap_reasons,
)
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.reconciliation import reconciled_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.reconcile import ReconcileDocument, ReconcileHead

_GZIP = b"\x1f\x8b"
_WIDEST_CELL = 1 << 20  # characters; the tags of a resource are at most some kilobytes


@dataclass(slots=True)
class ParsedExport:
    """What was read of an export: sides by the resource's id, and what is of nobody here."""

    sides: dict[str, ResourceTotal] = field(default_factory=dict)
    providers: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    begin: datetime | None = None
    end: datetime | None = None
    elsewhere: ResourceTotal = field(default_factory=ResourceTotal)  # resources of another ledger
    unmatched: ResourceTotal = field(default_factory=ResourceTotal)
    rates: dict[str, Currency] = field(default_factory=dict)
    accounts: set[tuple[str, str]] = field(default_factory=set)  # by their provider

    def widen(self, record: Record) -> None:
        """Extend the period to include a usage charge.

        Tax and purchase rows are dated with the whole month, so they do not extend it.
        """
        if record.category == "Usage":
            self.begin = record.begin if self.begin is None else min(self.begin, record.begin)
            self.end = record.end if self.end is None else max(self.end, record.end)


def reconcile(session: Session, file: Path, provider: str | None = None) -> ReconcileDocument:
    """Return, for each resource, the ledger's amount, that of the cloud's export, their difference and its reasons.

    Compared is the period of the export's usage charges. Raises InvalidRequest for a file that is not a FOCUS export,
    is cut short, has no rows of the provider, or is in a currency that has no rate.
    """
    now = session.clock()
    # Read once, though an export may be long: what ends meanwhile would be in both, or in none.
    machines, ended = session.ledger.read(lambda view: (view.billable_machines(), list(view.ended_usages())))
    index = ResourceIndex(session.ledger.id, machines, ended)
    with _open_csv(file) as lines:
        read = _read_export(records(lines, str(file)), index, provider, _rates(session))
    _check_providers(read, provider, file)
    providers = {provider} if provider else set(read.providers)
    others = _other_accounts(index.rows, read)
    ours = _ledger_totals(machines, ended, read, providers, now)
    left_out = {one: others[one] for one in ours if one in others}
    ours = {one: total for one, total in ours.items() if one not in left_out}
    both = {**ours, **read.sides}
    found = {
        one: gap_reasons(ours.get(one, LedgerTotal()), read.sides.get(one, ResourceTotal()), read.end, now)
        for one in both
    }
    head: ReconcileHead = {
        "file": str(file),
        "rows": read.rows,
        "providers": sorted(providers),
        "accounts_left_out": sorted(set(left_out.values())),
        "since": None if read.begin is None else iso(read.begin),
        "until": None if read.end is None else iso(read.end),
        "as_of": iso(now),
        "rates": [str(rate) for rate in read.rates.values() if rate.code != "USD"],
    }
    return reconciled_value(head, index.rows, ours, read.sides, found, (read.elsewhere, read.unmatched))


def _read_export(
    rows: Iterator[Record], index: ResourceIndex, provider: str | None, rate: Callable[[str], Currency]
) -> ParsedExport:
    export = ParsedExport()
    for record in rows:
        export.providers[record.provider] = export.providers.get(record.provider, 0) + 1
        if provider is not None and record.provider != provider:
            continue
        export.rows += 1
        export.widen(record)
        export.accounts.add((record.provider, record.account))
        per_usd = _per_usd(export, record.currency, rate)
        whose = index.of(record)
        other = export.elsewhere if whose == "" else export.unmatched
        side = export.sides.setdefault(whose, ResourceTotal()) if whose else other
        add_theirs(side, record, per_usd)
    return export


def _per_usd(export: ParsedExport, code: str, rate: Callable[[str], Currency]) -> Decimal:
    if code not in export.rates:
        export.rates[code] = rate(code)
    return export.rates[code].per_usd


def _rates(session: Session) -> Callable[[str], Currency]:
    return lambda code: rate_of(session.settings.currencies, code, field="BillingCurrency")


def _check_providers(read: ParsedExport, provider: str | None, file: Path) -> None:
    if provider is not None and provider not in read.providers:
        there = ", ".join(sorted(read.providers)) or "none"
        raise InvalidRequest(
            f"{file} has no rows of {provider}; it has rows of: {there}.",
            field="--provider",
            value=provider,
            next="Name one of these, or leave out --provider.",
        )


def _other_accounts(machines: Mapping[str, Machine], read: ParsedExport) -> dict[str, str]:
    """Return the accounts that the export has no rows of, by what the ledger has there: it is on another bill.

    Nothing of a provider of which the export names no account that the ledger knows: a company's bill may name that of
    its payer alone.
    """
    known = {id_: (one, one.identity) for id_, one in machines.items() if one.identity is not None}
    accounts = {id_: (str(one.provider), identity.id.lower()) for id_, (one, identity) in known.items()}
    named = {account[0] for account in accounts.values() if account in read.accounts}
    return {
        id_: identity.words
        for id_, (one, identity) in known.items()
        if one.provider in named and accounts[id_] not in read.accounts and id_ not in read.sides
    }


def _ledger_totals(
    machines: Sequence[Machine],
    ended: Sequence[tuple[str, Usage]],
    read: ParsedExport,
    providers: set[str],
    now: datetime,
) -> dict[str, LedgerTotal]:
    """Return what the ledger says of each resource in the export's period, of these providers."""
    totals = dict[str, LedgerTotal]()
    if read.begin is None or read.end is None:
        return totals
    bill = period_charges(machines, ended, now, since=read.begin, until=read.end)
    for one in bill:
        if one.charge.usage.provider in providers:
            add_ours(totals.setdefault(one.machine.id, LedgerTotal()), one, now, read.begin, read.end)
    return totals


@contextmanager
def _open_csv(file: Path) -> Iterator[Iterator[tuple[int, Sequence[str]]]]:
    """Open a CSV file, gzipped or not, and give its lines with their numbers; faults become one sentence."""
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
        opened: Any = gzip.open if packed else open
        with opened(file, "rt", encoding="utf-8-sig", newline="") as text:
            yield _lines(text)
    except UnicodeDecodeError as error:
        raise _unfit(file, "is not UTF-8 text", "Export it as CSV, not as Parquet, and do not convert it.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _unfit(file, "ends in the middle, or is damaged", "Download the complete file again.") from error
    except csv.Error as error:
        raise _unfit(file, f"is not a complete CSV file: {error}", "Download the complete file again.") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise _unfit(file, f"cannot be read: {why}", "Name a FOCUS export, as CSV or gzipped CSV.") from error


def _lines(text: TextIO) -> Iterator[tuple[int, Sequence[str]]]:
    csv.field_size_limit(_WIDEST_CELL)
    reader = csv.reader(text, strict=True)
    for cells in reader:
        yield reader.line_num, cells


def _unfit(file: Path, says: str, way_out: str) -> InvalidRequest:
    return InvalidRequest(f"{file} {says}.", field="FILE", value=str(file), next=way_out)
