"""`cloudgpu export`: the bill of a period for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session, tell
from cloudgpu.cli.money.options import Since, Tz, Until
from cloudgpu.cli.output import print_as_utf8
from cloudgpu.control.cost.exports import ExportFormat, export, parse_export_period
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.reconcile import ExportDocument


def command(
    *,
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="focus: FOCUS 1.0 CSV; csv: plain columns; json: one document."),
    ] = ExportFormat.FOCUS,
    since: Since = None,
    until: Until = None,
    tz: Tz = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Write what everything has cost, a row per resource, day and price, for other programs.

    `--format focus` is the FinOps Open Cost and Usage Specification 1.0 as CSV. Estimates are marked in extra columns
    (x_Estimate, x_LowCost, x_HighCost, x_PriceMissing). The rows add up to the ledger's total of the period. --since,
    --until and --tz are as for cost. With --out, `-o json` lists what was written.
    """
    if output is Format.JSON and out is None:
        raise InvalidRequest(
            "The export itself goes to stdout.", field="--output", value="json", next="Add --out FILE, or leave out -o."
        )
    session = open_session()
    if out is None:
        print_as_utf8()
    exported = export(session, form, parse_export_period(session, since, until, tz), out, sys.stdout)
    if out is None:
        sys.stdout.flush()
        tell(_answer_text(exported))
    else:
        emit(output, exported, _answer_text(exported))
    if exported["unpriced"]:
        tell(f"{exported['unpriced']} lines have no price: what they cost is missing from the sum, and is not zero.")


def _answer_text(exported: ExportDocument) -> str:
    from cloudgpu.cli.render import dollars

    file_text = f" written to {exported['file']}" if exported["file"] else ""
    range_text = ""
    if exported["low_usd"] != exported["high_usd"]:
        range_text = f" (between {dollars(exported['low_usd'])} and {dollars(exported['high_usd'])})"
    lines_noun = "line" if exported["rows"] == 1 else "lines"
    return f"{exported['rows']} {lines_noun}, {dollars(exported['usd'])}{range_text}{file_text}."
