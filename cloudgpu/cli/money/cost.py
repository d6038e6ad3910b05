"""`cloudgpu cost`: the cost of machines and retained resources, and the check of the ledger."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Verbose, Yes, colour_for, confirm, emit, open_session, tell
from cloudgpu.cli.money.options import Currency, Rate, RateDate, Since, Tz, Until
from cloudgpu.cli.output import write_json
from cloudgpu.cli.terminal import is_terminal
from cloudgpu.errors import InvalidRequest, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.inputs.periods import CostRequest
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.setup.ledger import VerifyDocument


CostFormat = Literal["text", "json", "csv"]


def command(
    *,
    by: Annotated[
        str,
        typer.Option(
            metavar="GROUP",
            help="instance, project, owner, account, provider, region, market, resource, day, week, month or job.",
        ),
    ] = "instance",
    owner: Annotated[str | None, typer.Option(metavar="TEXT", help="Only this owner's machines.")] = None,
    since: Since = None,
    until: Until = None,
    tz: Tz = None,
    currency: Currency = None,
    rate: Rate = None,
    rate_date: RateDate = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the ledger's hash chain; repair it if a part is missing.")
    ] = False,
    chart: Annotated[
        bool, typer.Option("--chart", help="Draw what each of the last 31 days cost, in place of the table.")
    ] = False,
    verbose: Verbose = False,
    yes: Yes = False,
    output: Annotated[
        CostFormat, typer.Option("-o", "--output", help="text; json: exactly one document; csv: the groups.")
    ] = "text",
) -> None:
    """Show what machines, disks, addresses and images have cost so far, and what still costs money.

    Each group shows its billed machine hours, the on-demand price of the same hours, and what you saved. What has no
    price is named, and is in no sum. -v shows every group, the range of each inexact amount with its reasons, and the
    projections. On a terminal, and with -v, a line shows what each of the last 31 days cost.

    --verify recomputes the hash chain and the head record. If the ledger was cut short or restored from an old copy, it
    queries every account, records what is there, and allows launches again.
    """
    arguments = locals()  # the options alone: there is no other local variable yet
    from cloudgpu.control.inputs.periods import CostOptions, parse_cost
    from cloudgpu.control.reaper.reaper import rare_garbage_collection

    options = {name: arguments[name] for name in CostOptions.__annotations__}
    if chart and (verify or output != "text"):
        _refuse_chart("--verify" if verify else f"-o {output}")
    if verify:
        _check_only_verify(options | {"by": "" if by == "instance" else by, "output": "csv" if output == "csv" else ""})
    with rare_garbage_collection():
        session = open_session()
        if verify:
            session.check_ledger_exists(os.environ)
            _verify_ledger(session, output, yes=yes)
            return
        request = parse_cost(session.settings, session.clock(), **options)
        _print_costs(session, request, output, verbose=verbose, chart=chart)


def _refuse_chart(other_option: str) -> None:
    raise InvalidRequest(
        f"--chart draws in the terminal, and {other_option} is given too.",
        field="--chart",
        value=None,
        next="Leave one of them out; -o json has the same days as numbers, under days.",
    )


def _check_only_verify(typed_options: dict[str, str | None]) -> None:
    """Refuse what --verify would leave out silently: it is about the whole ledger."""
    for name, value in typed_options.items():
        if not value:
            continue
        option = f"--{name.replace('_', '-')}"
        raise InvalidRequest(
            f"--verify checks the whole ledger, and has no use for {option} {value}.",
            field=option,
            value=value,
            next="Run: cloudgpu cost --verify",
        )


def _print_costs(session: Session, request: CostRequest, output: CostFormat, *, verbose: bool, chart: bool) -> None:
    from cloudgpu.cli.money.cost_text import cost_text
    from cloudgpu.control.cost.cost import cost_document
    from cloudgpu.views.cost import to_csv

    # The last days are read only if they are shown, so that a pipe's table is fast for a long history.
    reads_days = output == "json" or (output == "text" and (verbose or chart or is_terminal(sys.stdout)))
    document = cost_document(session, request, days=reads_days)
    if output == "json":
        write_json(document)
    elif output == "csv":
        sys.stdout.buffer.write(to_csv(document).encode())  # its line ends are not the terminal's
    else:
        text = cost_text(document, request.currency, verbose=verbose, chart=chart)
        sys.stdout.write(colour_for(text, sys.stdout) + "\n")
    sys.stdout.flush()


def _verify_ledger(session: Session, output: CostFormat, *, yes: bool) -> None:
    from cloudgpu.control.setup.ledger_admin import verify_document

    def agree(problem: str) -> None:
        tell(problem)
        confirm(
            "Query every account, record what is there, and use the ledger as it is now?",
            yes=yes,
            why="This accepts a ledger that may be incomplete",
        )

    document = verify_document(session, agree=agree)
    intact_text = f"The ledger is whole: {document['lines']} lines, every hash right."
    output_format = Format.JSON if output == "json" else Format.TEXT
    emit(output_format, document, _repaired_text(document) if document["settled"] else intact_text)
    if document.get("unanswered"):
        raise typer.Exit(ProviderUnavailable.exit_code)


def _repaired_text(document: VerifyDocument) -> str:
    """Return that the ledger is repaired, the accounts that answered, and what is still unknown."""
    from cloudgpu.cli.machine_text import account_lines
    from cloudgpu.cli.render import paragraph

    unknown_lines = [
        paragraph(f"Not queried: {unanswered_scope['scope']}. What runs there is not known: {unanswered_scope['why']}.")
        for unanswered_scope in document["unanswered"]
    ]
    return "\n".join(["The ledger is repaired; launches work again.", *account_lines(document), *unknown_lines])
