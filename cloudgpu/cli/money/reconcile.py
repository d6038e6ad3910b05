"""`cloudgpu cost reconcile`: the ledger compared with the cloud's own bill."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, emit, open_session
from cloudgpu.cli.render import clipped, dollars, paragraph, table

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.reconcile import OtherLedgers, ReconcileDocument, ReconciledResource

MAX_NAME_WIDTH = 24  # columns of a name in the table


ReconcileFormat = Literal["text", "json", "csv"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A FOCUS export: CSV, may be gzipped.")],
    *,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only rows of this provider: aws, gcp or azure.")
    ] = None,
    output: Annotated[ReconcileFormat, typer.Option("-o", "--output", help="text, json or csv.")] = "text",
) -> None:
    """Compare the ledger with a cloud's own bill, resource by resource, and show why they differ.

    FILE is a FOCUS export from AWS, Google Cloud or Azure (docs/focus.md says where to get it). Rows are matched by
    cloudgpu's tags and by the cloud's ids, for the period of the file. Nothing is changed. A file in another currency
    needs its rate under [currencies] of config.toml.
    """
    from cloudgpu.control.cost.reconcile import reconcile

    document = reconcile(open_session(), file, provider)
    if output == "csv":
        _write_csv(document)
    else:
        emit(Format(output), document, _reconcile_text(document))


def _reconcile_text(document: ReconcileDocument) -> str:
    rows = [
        [
            clipped(resource["name"] or resource["id"], MAX_NAME_WIDTH),
            "?" if _is_unknown(resource) else dollars(resource["ledger_usd"]),
            dollars(resource["bill_usd"]),
            _with_sign(resource["discrepancy_usd"]),
            resource["likely_reason"],
        ]
        for resource in document["resources"]
    ]
    total = [
        "total",
        dollars(document["ledger_usd"]),
        dollars(document["bill_usd"]),
        _with_sign(document["discrepancy_usd"]),
        "",
    ]
    resources_table = table([*rows, total], ["NAME", "OURS", "THEIRS", "GAP", "LIKELY"], right=(1, 2, 3))
    lines = [paragraph(sentence) for sentence in (*_reason_sentences(document), *_uncompared_lines(document))]
    return "\n".join([_headline(document), "", resources_table, "", *lines])


def _is_unknown(resource: ReconciledResource) -> bool:
    """Return whether nothing of a resource has a price in the ledger."""
    return resource["unpriced"] and resource["ledger_high_usd"] == "0"


def _headline(document: ReconcileDocument) -> str:
    from cloudgpu.core.values.times import minute_text

    if document["since"] is None or document["until"] is None:
        return paragraph(
            f"{document['file']}: {document['rows']} rows, none of them for use, so there is nothing to compare."
        )
    period = f"{minute_text(document['since'])} to {minute_text(document['until'])}"
    rates = "".join(f" {rate}." for rate in document["rates"])
    return paragraph(f"{period}, {document['rows']} rows of {', '.join(document['providers'])}.{rates}")


def _reason_sentences(document: ReconcileDocument) -> list[str]:
    sentences = []
    for resource in document["resources"]:
        reasons = [f"{reason['kind']} {_with_sign(reason['usd'])} ({reason['why']})" for reason in resource["reasons"]]
        if reasons:
            sentences.append(f"{resource['name'] or resource['id']}: {'; '.join(reasons)}.")
    return sentences


def _uncompared_lines(document: ReconcileDocument) -> list[str]:
    notes = []
    if document["unmatched"]["rows"]:
        parts = ", ".join(f"{category} {dollars(usd)}" for category, usd in document["unmatched"]["parts"].items())
        notes.append(f"{_rows_text(document['unmatched'])} of nothing in this ledger: {parts}.")
    if document["other_ledgers"]["rows"]:
        other_ledgers = document["other_ledgers"]
        notes.append(f"{_rows_text(other_ledgers)} of another ledger of cloudgpu: {dollars(other_ledgers['usd'])}.")
    if document["accounts_left_out"]:
        accounts_text = ", ".join(document["accounts_left_out"])
        notes.append(f"The file has no rows of {accounts_text}: what the ledger has there is not compared.")
    return notes


def _rows_text(rows: OtherLedgers) -> str:
    return "1 row is" if rows["rows"] == 1 else f"{rows['rows']} rows are"


def _with_sign(usd: str) -> str:
    amount = dollars(usd)
    return amount if usd == "0" or amount.startswith("-") else f"+{amount}"


def _write_csv(document: ReconcileDocument) -> None:
    from cloudgpu.views.exports.plain import plain_cells, write_csv

    names = (
        "id",
        "name",
        "provider",
        "ledger_usd",
        "ledger_low_usd",
        "ledger_high_usd",
        "bill_usd",
        "discrepancy_usd",
        "likely_reason",
    )
    rows: list[dict[str, object]] = [
        {
            **resource,
            **(dict.fromkeys(("ledger_usd", "ledger_low_usd", "ledger_high_usd")) if _is_unknown(resource) else {}),
            "reasons": [f"{reason['kind']} {reason['usd']}: {reason['why']}" for reason in resource["reasons"]],
        }
        for resource in document["resources"]
    ]
    rows = [{name: row[name] for name in (*names, "reasons")} for row in rows]
    write_csv(sys.stdout, (*names, "reasons"), plain_cells(rows))
