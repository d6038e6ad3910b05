"""`cloudgpu cost reconcile`: the ledger compared with the cloud's own bill."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, emit, open_session
from cloudgpu.cli.render import clipped, dollars, paragraph, table

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.reconcile import OtherLedgers, ReconcileDocument

MAX_NAME_WIDTH = 24  # columns of a name in the table


Form = Literal["text", "json", "csv"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A FOCUS export: CSV, may be gzipped.")],
    *,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only rows of this provider: aws, gcp or azure.")
    ] = None,
    output: Annotated[Form, typer.Option("-o", "--output", help="text, json or csv.")] = "text",
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
        emit(Format(output), document, _text(document))


def _text(document: ReconcileDocument) -> str:
    rows = [
        [
            clipped(resource["name"] or resource["id"], MAX_NAME_WIDTH),
            "?" if resource["unpriced"] and resource["ledger_usd"] == "0" else dollars(resource["ledger_usd"]),
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
    lines = [paragraph(sentence) for sentence in (*_reasons(document), *_rest_lines(document))]
    return "\n".join([_head(document), "", resources_table, "", *lines])


def _head(document: ReconcileDocument) -> str:
    from cloudgpu.core.values.times import minute_text

    if document["since"] is None or document["until"] is None:
        return paragraph(
            f"{document['file']}: {document['rows']} rows, none of them for use, so there is nothing to compare."
        )
    period = f"{minute_text(document['since'])} to {minute_text(document['until'])}"
    rates = "".join(f" {rate}." for rate in document["rates"])
    return paragraph(f"{period}, {document['rows']} rows of {', '.join(document['providers'])}.{rates}")


def _reasons(document: ReconcileDocument) -> list[str]:
    sentences = []
    for resource in document["resources"]:
        parts = [f"{part['kind']} {_with_sign(part['usd'])} ({part['why']})" for part in resource["reasons"]]
        if parts:
            sentences.append(f"{resource['name'] or resource['id']}: {'; '.join(parts)}.")
    return sentences


def _rest_lines(document: ReconcileDocument) -> list[str]:
    notes = []
    if document["unmatched"]["rows"]:
        parts = ", ".join(f"{part} {dollars(usd)}" for part, usd in document["unmatched"]["parts"].items())
        notes.append(f"{_rows(document['unmatched'])} of nothing in this ledger: {parts}.")
    if document["other_ledgers"]["rows"]:
        other = document["other_ledgers"]
        notes.append(f"{_rows(other)} of another ledger of cloudgpu: {dollars(other['usd'])}.")
    if document["accounts_left_out"]:
        where = ", ".join(document["accounts_left_out"])
        notes.append(f"The file has no rows of {where}: what the ledger has there is not compared.")
    return notes


def _rows(other_ledgers: OtherLedgers) -> str:
    return "1 row is" if other_ledgers["rows"] == 1 else f"{other_ledgers['rows']} rows are"


def _with_sign(text: str) -> str:
    amount = dollars(text)
    return amount if text == "0" or amount.startswith("-") else f"+{amount}"


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
        {**resource, "reasons": [f"{part['kind']} {part['usd']}: {part['why']}" for part in resource["reasons"]]}
        for resource in document["resources"]
    ]
    rows = [{name: row[name] for name in (*names, "reasons")} for row in rows]
    write_csv(sys.stdout, (*names, "reasons"), plain_cells(rows))
