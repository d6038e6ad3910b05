"""`cloudgpu doctor`, and `doctor --live`, which also launches real machines after a question."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import (
    PROVIDERS_PLACEHOLDER,
    Format,
    Output,
    Verbose,
    Yes,
    colour_for,
    confirm,
    emit,
    open_session,
    provider_option,
    tell,
)
from cloudgpu.cli.render import dollars, labelled_lines, paragraph
from cloudgpu.core.model.checks import Verdict, exit_code_of_checks
from cloudgpu.core.model.machine import is_on_prem
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudgpu.control.setup.live_check import Trial
    from cloudgpu.core.model.checks import Check
    from cloudgpu.views.documents.setup.doctor import LiveCheck

VERDICT_MARKS = {"ok": "ok  ", "note": "note", "warn": "warn", "fail": "FAIL"}
MAX_NEXT_STEP = 40  # characters of a next step that a note shows without -v
MAX_NOTE_LINES = 8  # without -v
DEMO_COMMAND = "cloudgpu demo"


def command(
    *,
    provider: Annotated[
        str | None, provider_option(f"Only accounts of this provider: {PROVIDERS_PLACEHOLDER}.")
    ] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Only this account.")] = None,
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where permissions, limits and machines are tried.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Launch, reach, stop and end a small machine; asks.")] = False,
    gpu: Annotated[str | None, typer.Option(metavar="NAME[:COUNT]", help="With --live: one with this GPU too.")] = None,
    verbose: Verbose = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Check Python, files, settings, ledger, keys, installed extras, and every account with its permissions.

    Changes nothing. Shows what failed, then warnings (what may cost or lose something), each with what to do, then
    notes (what could be set up). -v shows every check, and what to do about each note. Exit code 0 if no check failed;
    otherwise that of the most serious failure.

    With --live it then shows what a small machine costs at most, asks, and launches it. It reaches the machine over
    SSH, stops it, starts it and ends it. Last it proves that nothing is left, and shows what it cost.
    """
    from cloudgpu.control.setup.doctor import doctor_document, examine

    if gpu is not None and not live:
        raise InvalidRequest("--gpu is for --live.", field="--gpu", value=gpu, next=f"Add --live, with --gpu {gpu}.")
    checks = examine(os.environ, provider=provider, account=account, region=region)
    failed = [check for check in checks if check.verdict is Verdict.FAIL]
    checks_text = _checks_text(
        checks, verbose=verbose, next_command="" if live else _next_command(checks, provider, account)
    )
    if not live or failed:
        emit(output, doctor_document(checks), checks_text)
        if failed:
            raise typer.Exit(exit_code_of_checks(check.exit_code for check in failed))
        return
    if output is Format.TEXT:
        sys.stderr.write(colour_for(checks_text, sys.stderr) + "\n\n")
    document, trials = _run_live_checks(provider=provider, account=account, gpu=gpu, region=region, yes=yes)
    emit(output, {**doctor_document(checks), "live": document}, _live_text(document))
    code = exit_code_of_checks(stage.exit_code for trial in trials for stage in trial.stages)
    if code:
        raise typer.Exit(code)


def _run_live_checks(*, yes: bool, **selection: str | None) -> tuple[LiveCheck, list[Trial]]:
    """Plan machines, show them, ask, and try one after the other, until one has an error."""
    from cloudgpu.control.setup.live_check import document, max_cost_of, plan_trials, run_trial

    session = open_session()
    session.check_launchable()
    plans = plan_trials(session, **selection)
    max_cost, unpriced = max_cost_of(plans)
    for prepared in plans:
        configuration, price = prepared.plan.offer.configuration, prepared.plan.offer.price
        tell(
            f"{configuration.instance_type} in {configuration.zone}, on demand, {price.per_hour.text(4)} an "
            f"hour ({price.source})"
        )
        for note in prepared.plan.remarks:
            tell(f"  {note}")
    unpriced_text = "; the price of something attached to it is not known" if unpriced else ""
    tell(f"Costs at most {max_cost.text(4)}, if nothing but the machine's own lease ends it{unpriced_text}.")
    tell("Takes some minutes, and leaves nothing: the machine is ended, and what it leaves is looked for.")
    confirm("Launch, stop and end it?", yes=yes)
    trials: list[Trial] = []
    for prepared in plans:
        trials.append(run_trial(session, prepared, progress.begin))
        if not trials[-1].ok:
            break
    return document(trials, max_cost, is_complete=not unpriced), trials


def _next_command(checks: Sequence[Check], provider: str | None, account: str | None) -> str:
    """Return the command to run next: one that needs no cloud, if no cloud can be queried."""
    if account is not None or (provider and is_on_prem(provider)) or any(check.name == "clouds" for check in checks):
        return DEMO_COMMAND
    return f"cloudgpu up --provider {provider or 'any'} --dry-run"


def _checks_text(checks: Sequence[Check], *, verbose: bool, next_command: str) -> str:
    """Return the answer in a sentence, what failed, warnings, each with what to do, and then notes.

    `next_command` is the next command, empty with --live.
    `verbose`: every note with what to do, and successful checks. Without it only a few lines of notes.
    """
    by_verdict = {verdict: [check for check in checks if check.verdict is verdict] for verdict in Verdict}
    problems = [*by_verdict[Verdict.FAIL], *by_verdict[Verdict.WARN]]
    notes = by_verdict[Verdict.NOTE]
    width = max((len(check.name) for check in checks if verbose or check.verdict is not Verdict.OK), default=0)

    def check_text(check: Check, *, with_next: bool) -> str:
        rows = [(f"{VERDICT_MARKS[check.verdict]} {check.name:{width}}", check.message)]
        if check.next and (with_next or len(check.next) <= MAX_NEXT_STEP):
            rows.append((" " * (width + 5), f"-> {check.next}"))
        return labelled_lines(rows)

    lines = [
        paragraph(_summary_sentence(by_verdict, next_command)),
        *(check_text(check, with_next=True) for check in problems),
    ]
    if verbose:
        entries = [check_text(check, with_next=True) for check in (*notes, *by_verdict[Verdict.OK])]
        return "\n".join([*lines, *entries])
    hidden_count = len(notes)
    remaining_lines = MAX_NOTE_LINES
    for text in (check_text(check, with_next=False) for check in notes):
        remaining_lines -= text.count("\n") + 1
        if remaining_lines < 0:
            break
        lines.append(text)
        hidden_count -= 1
    hidden_text = f"{hidden_count} more note{'s'[: hidden_count > 1]}, every check" if hidden_count else "Every check"
    return "\n".join([*lines, f"{hidden_text}, and what to do about notes: cloudgpu doctor -v"])


def _summary_sentence(by_verdict: Mapping[Verdict, Sequence[Check]], next_command: str) -> str:
    """Return how the checks ended, in a sentence."""
    check_count = sum(map(len, by_verdict.values()))
    fail_count, warn_count, note_count = (
        len(by_verdict[verdict]) for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.NOTE)
    )
    counts = [(warn_count, "a warning"), (note_count, "a note")]
    others_text = ", ".join(f"{number} with {noun}" for number, noun in counts if number)
    if fail_count:
        nothing_launched = "" if next_command else " Nothing was launched."
        return (
            f"{fail_count} of {check_count} checks failed{f'; {others_text}' if others_text else ''}.{nothing_launched}"
        )
    no_problem = "No problem found" if not warn_count else "No check failed"
    try_text = f" Try: {next_command}" if next_command else ""
    return f"{no_problem}: {check_count} checks{f', {others_text}' if others_text else ''}.{try_text}"


def _live_text(document: LiveCheck) -> str:
    lines = [_live_sentence(document)]
    for machine in document["machines"]:
        lines.append(
            f"{machine['instance_type']} in {machine['zone']}" + (f": {machine['name']}" if machine["name"] else "")
        )
        for stage in machine["stages"]:
            message = stage["message"] + (f" -> {stage['next']}" if stage["next"] else "")
            mark = VERDICT_MARKS["ok" if stage["ok"] else "fail"]
            lines.append(labelled_lines([(f"{mark} {stage['name']:10}{stage['seconds']:7.1f} s", message)]))
        no_cost_text = "nothing was launched" if machine["name"] is None else "its price is not known"
        lines.append(f"  cost: {no_cost_text if machine['cost_usd'] is None else dollars(machine['cost_usd'], 6)}")
        lines += [f"  left: {remainder}" for remainder in machine["remaining"]]
    return "\n".join(lines)


def _live_sentence(document: LiveCheck) -> str:
    """Return the answer in one sentence: whether all works, and else which stages failed and what is left."""
    remaining_count = sum(len(machine["remaining"]) for machine in document["machines"])
    if document["ok"]:
        return "All of it works here, and nothing is left."
    failed_stages = [
        stage["name"] for machine in document["machines"] for stage in machine["stages"] if not stage["ok"]
    ]
    message = f"Not all of it works: {', '.join(failed_stages) or 'something'} failed."
    return f"{message} {remaining_count} may still be billed." if remaining_count else f"{message} Nothing is left."
