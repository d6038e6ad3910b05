"""`cloudgpu reap`: one run, quiet when nothing happened."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.machine_text import account_lines
from cloudgpu.cli.render import paragraph
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import duration_text
from cloudgpu.views.machines import queried_accounts_document

if TYPE_CHECKING:
    from datetime import timedelta

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.reaper.decisions import Decision
    from cloudgpu.core.reaper.result import GivenWarning, ReaperRun


def command(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show for each machine, signal by signal, why it counts as idle or in use."),
    ] = False,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="P", help="Apply this policy to all machines.")
    ] = None,
    max_stops: Annotated[
        int | None, typer.Option("--max-stops", metavar="N", help="Stop at most this many machines for idle time. (20)")
    ] = None,
    nightly: Annotated[
        bool, typer.Option("--nightly", help="A full run, with disks and images, and always a summary.")
    ] = False,
    cron: Annotated[
        bool, typer.Option("--cron", help="As cron runs it: a full run once a night; with --nightly only that.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="How often you run it, so that warnings come in time. (10m)"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show each step, even if nothing happens.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Run the reaper once: stop idle and expired machines, warn, renew leases, and prove each stop.

    Prints nothing if nothing happened. Exit code 8 if a part did not answer or a policy cannot be resolved (all other
    machines are handled), 9 if a stop could not be proved. If another run is at work, this one does nothing. Jobs
    continue, too: interrupted ones start again, results of ended ones are fetched and their machines end.
    """
    from cloudgpu.control.jobs.watch import continue_jobs
    from cloudgpu.control.reaper.notify import notify_if_ledger_away
    from cloudgpu.control.reaper.reaper import ReapOptions, reap
    from cloudgpu.control.session.base import report_nothing
    from cloudgpu.core.reaper.decide import MAX_IDLE_STOPS
    from cloudgpu.core.reaper.result import ReaperRun

    session = open_session(warn_overdue=False)
    if cron:
        session.check_home_exists()
    session.check_ever_used(os.environ)
    with notify_if_ledger_away(session) if cron else nullcontext():
        session.ledger.check_in_use()
        full_run = _is_full_run(session, nightly=nightly, cron=cron)
    if cron and nightly and not full_run:
        not_due = ReaperRun(session.clock(), busy="No full run is due: tonight's has been made.")
        _show(not_due, output, explain=explain, verbose=verbose)
        return
    if not verbose:
        session.report, session.report_waits = report_nothing, session.report
    max_idle_stops = MAX_IDLE_STOPS if max_stops is None else max_stops
    options = ReapOptions(
        dry_run=dry_run,
        policy=policy,
        max_stops=max_idle_stops,
        sweep=full_run,
        cron=cron,
        interval=_interval(every),
    )
    run = continue_jobs(session, reap(session, options), os.environ)
    if cron:
        run = run.without_accounts_queried_elsewhere()
    _show(run, output, explain=explain, verbose=verbose or full_run or dry_run)
    if run.exit_code:
        raise typer.Exit(run.exit_code)


def _interval(every: str | None) -> timedelta:
    """Return how often runs come, as `--every` says."""
    from cloudgpu.core.reaper.decide import RUN_INTERVAL

    if every is None:
        return RUN_INTERVAL
    from cloudgpu.control.inputs.launch_request import (
        parse_optional_duration,
    )  # loads what reads a whole launch request

    return parse_optional_duration(every, "--every") or RUN_INTERVAL


def _is_full_run(session: Session, *, nightly: bool, cron: bool) -> bool:
    """Return whether the run checks disks and images, too: with --nightly, and from cron once a night."""
    if not cron:
        return nightly
    from cloudgpu.config.files.user_files import zone_of
    from cloudgpu.control.scheduler.due import is_sweep_due
    from cloudgpu.control.session.guarding import home_id
    from cloudgpu.control.session.last_run import read_last_run
    from cloudgpu.errors import LedgerUnavailable

    try:
        last_run = read_last_run(session.ledger)
    except LedgerUnavailable:
        return nightly  # the run itself finds that out, and tells owners
    zone = zone_of(session.settings.tz)
    return is_sweep_due(last_run, home_id(session), zone, session.clock(), nightly=nightly)


def _show(run: ReaperRun, output: Format, *, explain: bool, verbose: bool) -> None:
    """Print the run: all of it as JSON, else what happened on stdout and problems on stderr."""
    from cloudgpu.views.reaper import explanations, run_document

    if output is Format.JSON:
        emit(output, run_document(run, explain=explain), "")
        return
    if explain and run.views:
        from cloudgpu.cli.machines.why_text import why_texts

        emit(output, None, why_texts(explanations(run), run.begun_at) + "\n")
    emit(output, None, run_text(run, verbose=verbose))
    problems = problems_text(run)
    if problems:
        sys.stderr.write(problems + "\n")


_DONE_TEXTS = {
    ReaperAction.STOP: "stopped",
    ReaperAction.PARK: "parked",
    ReaperAction.TERMINATE: "terminated",
    ReaperAction.IMAGE: "kept as an image",
    ReaperAction.REMOVE: "its image is removed",
    ReaperAction.RENEW: "renewed",
}
_WOULD_TEXTS = {
    ReaperAction.KEEP: "would be kept",
    ReaperAction.WARN: "would be warned",
    ReaperAction.RENEW: "would be renewed",
    ReaperAction.STOP: "would be stopped",
    ReaperAction.PARK: "would be parked",
    ReaperAction.TERMINATE: "would be terminated",
    ReaperAction.IMAGE: "would be kept as an image",
    ReaperAction.REMOVE: "its image would be removed",
}


def run_text(run: ReaperRun, *, verbose: bool) -> str:
    """Return the text of a run for stdout: empty if nothing happened, unless `verbose`."""
    if run.busy:
        return paragraph(run.busy) if verbose else ""
    if run.is_quiet and not verbose:
        return ""
    lines = [*run.sentences, *(map(_decision_text, run.decisions) if run.dry_run else _done_lines(run))]
    accounts = account_lines(queried_accounts_document(run.queried, run.not_queried)) if verbose else []
    return "\n".join([*map(paragraph, lines), paragraph(summary(run)), *accounts])


def problems_text(run: ReaperRun) -> str:
    """Return the text of a run for stderr: what may still be billed, what did not answer, and errors."""
    lines = [f"{machine.name} may still be billed: {machine.why}" for machine in run.unconfirmed]
    lines += [unanswered_text(unanswered.scope, unanswered.why) for unanswered in run.unanswered]
    lines += [f"{error_text[:1].upper()}{error_text[1:]}." for error_text in run.faults]
    lines += [f"An alert was not delivered: {why}." for why in run.undelivered]
    return "\n".join(map(paragraph, lines))


def summary(run: ReaperRun) -> str:
    """Return the run in one line: how many machines, what was done with them, how long it took."""
    parts = [counted(len(run.decisions), "machine")]
    counts = run.decided if run.dry_run else _counts(run)
    parts += [f"{number} {outcome}" for outcome, number in counts.items() if number]
    if run.dry_run:
        parts.append("nothing was changed")
    return f"{'; '.join([parts[0], ', '.join(parts[1:])]) if parts[1:] else parts[0]} ({_duration_text(run)})"


def _duration_text(run: ReaperRun) -> str:
    seconds = run.duration.total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)  # noqa: PLR2004  (a minute)


def _counts(run: ReaperRun) -> dict[str, int]:
    return {
        "ended": len(run.ended),
        "renewed": len(run.renewed),
        "warned": len({warning.machine for warning in run.warned}),
        "left in the end": len(run.skipped),
        "not proved": len(run.unconfirmed),
    }


def _done_lines(run: ReaperRun) -> Iterator[str]:
    for action in (*run.ended, *run.renewed):
        yield f"{action.name}: {_DONE_TEXTS[action.do]} ({action.rule}): {action.why}"
    yield from map(_warning_text, run.warned)
    for machine in run.skipped:
        yield f"{machine.name}: left, {machine.why}"


def _warning_text(warning: GivenWarning) -> str:
    channels_text = " and ".join(channel for channel in warning.how if channel != "ledger")
    return f"{warning.name}: warned{_rule_text(warning.rule)}: {warning.why}" + (
        f" (by {channels_text})" if channels_text else ""
    )


def _decision_text(decision: Decision) -> str:
    activity_text = f"{decision.activity}, " if decision.runs else ""
    return f"{decision.name}: {_WOULD_TEXTS[decision.do]}{_rule_text(decision.rule)}: {activity_text}{decision.why}"


def _rule_text(rule: str) -> str:
    return "" if rule == Rule.NONE else f" ({rule})"
