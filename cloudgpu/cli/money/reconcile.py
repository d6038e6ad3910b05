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

    value = reconcile(open_session(), file, provider)
    if output == "csv":
        _write_csv(value)
    else:
        emit(Format(output), value, _text(value))


def _text(value: ReconcileDocument) -> str:
    rows = [
        [
            clipped(resource["name"] or resource["id"], MAX_NAME_WIDTH),
            "?" if resource["unpriced"] and resource["ledger_usd"] == "0" else dollars(resource["ledger_usd"]),
            dollars(resource["bill_usd"]),
            _with_sign(resource["discrepancy_usd"]),
            resource["likely_reason"],
        ]
        for resource in value["resources"]
    ]
    total = [
        "total",
        dollars(value["ledger_usd"]),
        dollars(value["bill_usd"]),
        _with_sign(value["discrepancy_usd"]),
        "",
    ]
    resources_table = table([*rows, total], ["NAME", "OURS", "THEIRS", "GAP", "LIKELY"], right=(1, 2, 3))
    lines = [paragraph(sentence) for sentence in (*_reasons(value), *_rest_lines(value))]
    return "\n".join([_head(value), "", resources_table, "", *lines])


def _head(value: ReconcileDocument) -> str:
    from cloudgpu.core.values.times import minute_text

    if value["since"] is None or value["until"] is None:
        return paragraph(
            f"{value['file']}: {value['rows']} rows, none of them for use, so there is nothing to compare."
        )
    period = f"{minute_text(value['since'])} to {minute_text(value['until'])}"
    rates = "".join(f" {rate}." for rate in value["rates"])
    return paragraph(f"{period}, {value['rows']} rows of {', '.join(value['providers'])}.{rates}")


def _reasons(value: ReconcileDocument) -> list[str]:
    sentences = []
    for resource in value["resources"]:
        parts = [f"{part['kind']} {_with_sign(part['usd'])} ({part['why']})" for part in resource["reasons"]]
        if parts:
            sentences.append(f"{resource['name'] or resource['id']}: {'; '.join(parts)}.")
    return sentences


def _rest_lines(value: ReconcileDocument) -> list[str]:
    notes = []
    if value["unmatched"]["rows"]:
        parts = ", ".join(f"{part} {dollars(usd)}" for part, usd in value["unmatched"]["parts"].items())
        notes.append(f"{_rows(value['unmatched'])} of nothing in this ledger: {parts}.")
    if value["other_ledgers"]["rows"]:
        other = value["other_ledgers"]
        notes.append(f"{_rows(other)} of another ledger of cloudgpu: {dollars(other['usd'])}.")
    if value["accounts_left_out"]:
        where = ", ".join(value["accounts_left_out"])
        notes.append(f"The file has no rows of {where}: what the ledger has there is not compared.")
    return notes


def _rows(value: OtherLedgers) -> str:
    return "1 row is" if value["rows"] == 1 else f"{value['rows']} rows are"


def _with_sign(text: str) -> str:
    amount = dollars(text)
    return amount if text == "0" or amount.startswith("-") else f"+{amount}"


def _write_csv(value: ReconcileDocument) -> None:
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
        for resource in value["resources"]
    ]
    rows = [{name: row[name] for name in (*names, "reasons")} for row in rows]
    write_csv(sys.stdout, (*names, "reasons"), plain_cells(rows))
