"""`cloudgpu report`: what was spent, as one page that needs no network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.money import options
from cloudgpu.cli.output import print_as_utf8
from cloudgpu.cli.render import paragraph
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.cost.report_files import ReportFormat
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.report import ReportDocument


def command(
    *,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="html, md or json.")] = "html",
    to: Annotated[str | None, typer.Option(metavar="FILE", help="Where to write it; - for stdout.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    month: Annotated[
        str | None, typer.Option(metavar="MONTH", help="A whole month: 2026-10, or last for the last complete one.")
    ] = None,
    tz: options.Tz = None,
    currency: options.Currency = None,
    rate: options.Rate = None,
    rate_date: options.RateDate = None,
    desktop: options.Desktop = None,
    work: options.Work = None,
    send: Annotated[
        bool, typer.Option("--send", help="Send it to the receivers of alerts; no file is written.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Write a report of what was spent: one page that needs no network, to keep, print or send.

    It shows the cloud's cost next to a desktop's, each day by project, and budgets. It also has machines with their
    idle time, what policies and spot saved, orphaned resources, and how old prices are. It queries no cloud: machines
    are as last seen.

    Without --to, a page goes to cloudgpu-report-DAY.html in this directory (-MONTH.html with --month), Markdown and
    JSON to stdout. Only you can read the file, and it only ever replaces an earlier report.

    --send sends the summary to every receiver of alerts, with the page attached if the receiver takes files. A receiver
    that fails is named: exit code 8.
    """
    arguments = locals()  # the options alone: there is no other local variable yet
    from cloudgpu.control.cost.report import ReportOptions, parse_report, report_document
    from cloudgpu.control.cost.report_files import ReportFormat, parse_report_format

    report_format = parse_report_format(form)
    if send:
        _check_sent(report_format, to)
    else:
        _check_one_answer(report_format, to, output)
    session = open_session()
    document = report_document(
        session, parse_report(session, **{name: arguments[name] for name in ReportOptions.__annotations__})
    )
    if send:
        _send_and_print(session, document, output)
        return
    file = _write(document, report_format, to, output)
    if file is None and (output is not Format.JSON or report_format is ReportFormat.JSON):
        return
    emit(output, document, _answer_text(document, file))


def _check_one_answer(report_format: ReportFormat, to: str | None, output: Format) -> None:
    """Refuse a report and a document for the same standard output."""
    from cloudgpu.control.cost.report_files import STDOUT, ReportFormat

    if (
        output is Format.JSON
        and report_format is not ReportFormat.JSON
        and (to == STDOUT or (to is None and report_format is ReportFormat.MARKDOWN))
    ):
        raise InvalidRequest(
            f"The report as {report_format} goes to the standard output, and so does -o json.",
            field="--output",
            value="json",
            next=f"Add --to report.{report_format}, or leave out -o json.",
        )


def _check_sent(report_format: ReportFormat, to: str | None) -> None:
    """Refuse what --send would leave out silently."""
    from cloudgpu.control.cost.report_files import ReportFormat

    for option, value in (
        ("--to", to),
        ("--format", None if report_format is ReportFormat.HTML else str(report_format)),
    ):
        if value is not None:
            raise InvalidRequest(
                f"--send sends the report to the receivers of alerts; {option} has no effect on that.",
                field=option,
                value=value,
                next="Run it twice: once to send it, once to write it.",
            )


def _send_and_print(session: Session, document: ReportDocument, output: Format) -> None:
    from cloudgpu.cli.money.budget_text import sent_text
    from cloudgpu.control.cost.report_delivery import send_report

    sent = send_report(session, document)
    nothing_sent = sent["nothing_sent"]
    emit(output, sent, sent_text(sent) if nothing_sent is None else paragraph(nothing_sent))
    if sent["failed"]:
        raise typer.Exit(8)


def _write(document: ReportDocument, report_format: ReportFormat, to: str | None, output: Format) -> Path | None:
    """Write the report, and return the file; None if standard output has the report, or the document instead."""
    from cloudgpu.control.cost.report_files import (
        STDOUT,
        ReportFormat,
        default_report_path,
        render_report,
        write_report,
    )

    if to is None and output is Format.JSON and report_format is ReportFormat.HTML:
        return None
    if to == STDOUT or (to is None and report_format is not ReportFormat.HTML):
        print_as_utf8()
        sys.stdout.write(render_report(document, report_format))
        sys.stdout.flush()
        return None
    file = default_report_path(document) if to is None else Path(to)
    write_report(render_report(document, report_format), file)
    return file


def _answer_text(document: ReportDocument, file: Path | None) -> str:
    written_text = f"Written to {file}, readable for you alone."
    return "\n".join([written_text, "", *(paragraph(sentence) for sentence in document["summary"])])
