"""`cloudgpu policy backtest`: what a policy would have done with the machines of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.render import clipped, dollars, labelled_lines, paragraph, short_duration, table
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import minute_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.backtest import Amount, BacktestDocument, ReplayedStop, ReplayedWork

MAX_NAME_WIDTH = 20  # columns of a machine's name in the table


def command(
    policy: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="A policy's file (with a / or .yaml), or its name.")
    ],
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From this day, time or duration back on; at most 90d.")
    ] = "30d",
    machine: Annotated[str | None, typer.Option("--machine", metavar="NAME", help="Only this machine.")] = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often the reaper would have run.")] = "10m",
    output: Output = Format.TEXT,
) -> None:
    """Replay recorded activity under a policy: what it would have stopped and saved, and which work it would have lost.

    Reads the samples that the reaper stored on this computer, and runs, prices, holds and leases from the ledger. The
    rules are those of a real run. Only time in which nobody used a machine counts as saved. Nothing is changed, and no
    cloud is queried.
    """
    from cloudgpu.control.policies.backtest import build_backtest_document

    document = build_backtest_document(open_session(), policy, since=since, machine=machine, every=every)
    emit(output, document, backtest_text(document))


def backtest_text(document: BacktestDocument) -> str:
    """Return what is not known, what was saved, and each stop, in 80 columns."""
    parts = [paragraph(_headline(document)), paragraph(_coverage_text(document))]
    if document["hours"]:
        parts.append(_totals_text(document))
    if document["stops"]:
        parts.append(_stops_table(document))
    stops_at_work = [stop for stop in document["stops"] if stop["work"] and stop["work"]["under_way"]]
    parts += [paragraph(_killed_work_text(stop, stop["work"])) for stop in stops_at_work if stop["work"]]
    parts += [paragraph(note) for note in document["notes"]] if document["hours"] else []
    return "\n\n".join(parts)


def _headline(document: BacktestDocument) -> str:
    period = f"{minute_text(document['since'])} to {minute_text(document['until'])}"
    return (
        f"The policy {document['policy']} ({document['file']}) from {period}, a run every "
        f"{short_duration(document['every_s'])}."
    )


def _coverage_text(document: BacktestDocument) -> str:
    if not document["hours"]:
        return "No machine ran in that time, so there is nothing to replay."
    ran_text = f"{short_duration(document['hours'] * 3600)} that {counted(len(document['machines']), 'machine')} ran"
    unsampled_share = document["unsampled_share"]
    if unsampled_share is not None and unsampled_share >= 1:
        return (
            f"Of the {ran_text} no samples are kept here: nobody knows how they were used, and nothing is "
            "ended for that."
        )
    if not unsampled_share:
        return f"Of the {ran_text} there are samples for all."
    return (
        f"For {unsampled_share:.1%} of the {ran_text} there are no samples here: how they were used then is not "
        "known, and nothing is ended for idle time there."
    )


def _totals_text(document: BacktestDocument) -> str:
    savings, cost = document["savings"], document["cost"]
    actual_ends = sum(len(machine["actual_ends"]) for machine in document["machines"])
    return labelled_lines(
        [
            ("recorded", _amount_text(cost)),
            (
                "saved",
                _amount_text(savings)
                + _percent_text(savings["usd"], cost["usd"])
                + f", {short_duration(document['off_hours'] * 3600)} off",
            ),
            ("would cost", _amount_text(document["would_have_cost"])),
            ("ends", f"{document['ends']} that it would have made; {counted(actual_ends, 'run')} really ended"),
            ("starts", _restarts_text(document)),
            ("killed", _killed_text(document)),
        ]
    )


def _restarts_text(document: BacktestDocument) -> str | None:
    if not document["restarts"]:
        return None

    return (
        f"{counted(document['restarts'], 'time')} somebody came back and would have had to start it again: that takes "
        f"minutes, and is billed at least {dollars(document['restarts_usd'], 4)} in all (in the sums above)"
    )


def _killed_text(document: BacktestDocument) -> str:
    if not document["killed"]:
        return "no work that was under way, as far as samples tell"
    return (
        f"work under way {counted(document['killed'], 'time')}, {short_duration(document['killed_hours'] * 3600)} of it"
    )


def _stops_table(document: BacktestDocument) -> str:
    rows = [
        [
            clipped(stop["name"], MAX_NAME_WIDTH),
            f"{stop['at'][:16].replace('T', ' ')}",
            f"{stop['do']} ({stop['rule']})",
            short_duration(stop["off_s"]),
            dollars(stop["savings"]["usd"]),
            _work_text(stop),
        ]
        for stop in document["stops"]
    ]
    return table(rows, ["NAME", "AT (UTC)", "WOULD", "OFF", "SAVED", "THEN"], right=(3, 4))


def _work_text(stop: ReplayedStop) -> str:
    work = stop["work"]
    if work is not None:
        return "KILLED work" if work["under_way"] else "used again"
    if stop["unsampled_s"] >= stop["off_s"] > 0:
        return "not known"
    return "not used" if not stop["unsampled_s"] else "partly known"


def _killed_work_text(stop: ReplayedStop, work: ReplayedWork) -> str:
    return (
        f"{stop['name']}: {', '.join(work['what'])} was running at {minute_text(stop['at'])} and kept running for "
        f"{short_duration(work['seconds'])} until {minute_text(work['until'])}; it would have been ended then ("
        f"{stop['rule']}: {stop['why']})."
    )


def _amount_text(amount: Amount) -> str:
    if amount["usd"] is None:
        return "? (no price is known)"
    amount_text = dollars(amount["usd"])
    if amount["low_usd"] != amount["high_usd"]:
        amount_text += f" ({dollars(amount['low_usd'])} to {dollars(amount['high_usd'])})"
    return amount_text + (" and what has no known price" if amount["unpriced"] else "")


def _percent_text(part: str | None, total: str | None) -> str:
    return f" ({float(part) / float(total):.0%})" if part and total and float(total) else ""
