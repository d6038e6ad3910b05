"""Tests tonight's run as cron would make it: a dry run in cron's environment, with the state of each credential.

A run that works in your shell can fail at night: cron knows none of the shell's variables, and a login ends.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, TypedDict

from cloudgpu.control.scheduler.cron import job_of_home
from cloudgpu.control.scheduler.crontab_store import find_tables
from cloudgpu.control.scheduler.crontab_text import installed_command, shell_command
from cloudgpu.control.session.identity import reachable_machines
from cloudgpu.core.activity.idle import UNKNOWN
from cloudgpu.core.model.instances import State
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import AuthFailed, CloudgpuError, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.activity import RuleEnds
    from cloudgpu.views.documents.automation.cron import CronTestDocument
    from cloudgpu.views.documents.automation.reap import MachineDecision, ReapDocument
    from cloudgpu.views.documents.parts import Fault

INNER_ARGV = ("cron", "test", "--inside", "-o", "json")  # the verb of the process that is started as cron would do it
TIMEOUT_S = 900  # of that process
MORNING_TIME = time(8)
_ACTIVITY_RULES = (Rule.IDLE, Rule.LEASE)
MIN_TIME_TO_MORNING = timedelta(hours=8)  # less before eight, the morning of the next day is meant


class Credential(TypedDict):
    """What the inner process reports about an account's credential.

    `what` describes it, or is the error of using it; `until` is when it ends, if that is known. `lasts`: it needs
    no renewal by the user (None: not known).
    """

    account: str
    what: str
    until: str | None
    lasts: bool | None


class InnerReport(TypedDict):
    """What the inner process prints: what the run of tonight would do; or only an error."""

    run: ReapDocument | None
    credentials: list[Credential]
    error: Fault | None


def cron_test_document(session: Session, environ: Mapping[str, str]) -> CronTestDocument:
    """Make a dry run as cron would, in a process of its own; return the answer of `cron test`.

    With the program and the environment of the installed job, else of the one that would be installed. An error of that
    process is in the answer, under `error`.
    """
    command, cron_variables = _installed_or_new_command(session, environ), cron_environment()
    exit_status, report = _run_as_cron(command, cron_variables)
    morning = next_morning(session.clock())
    run = report["run"]
    return {
        "environment": cron_variables,
        "command": command,
        "morning": iso(morning),
        "planned_actions": [] if run is None else planned_actions(run, morning),
        "credentials": [
            {
                "account": credential["account"],
                "what": credential["what"],
                "until": credential["until"],
                "renews_itself": credential["lasts"],
                "lasts_until_morning": lasts_until_morning(credential, morning),
            }
            for credential in report["credentials"]
        ],
        "exit_code": exit_status if run is None else run["exit_code"],
        "error": report["error"],
    }


def _installed_or_new_command(session: Session, environ: Mapping[str, str]) -> str:
    """Return the installed job as a command that tests it; without a job, that of one that would be installed."""
    for table in find_tables(environ):
        text = table.installed(str(session.home.root))
        command = installed_command(text, INNER_ARGV) if text is not None else None
        if command is not None:
            return command
    return shell_command(job_of_home(session, environ), INNER_ARGV)


def inner_report(session: Session) -> InnerReport:
    """Return what the run of tonight would do, and its credentials, in this process's environment."""
    from cloudgpu.control.reaper.reaper import ReapOptions, reap
    from cloudgpu.views.reaper import run_document

    trial_run = reap(session, ReapOptions(dry_run=True, cron=True))
    return {"run": run_document(trial_run, explain=True), "credentials": credentials(session), "error": None}


def exit_code(document: CronTestDocument) -> int:
    """Return the exit code of `cron test`: the run's own, else 6 where a credential does not last until the morning."""
    if document["exit_code"]:
        return int(document["exit_code"])
    return (
        AuthFailed.exit_code
        if any(credential["lasts_until_morning"] is False for credential in document["credentials"])
        else 0
    )


def cron_environment() -> dict[str, str]:
    """Return what cron gives a user's job, by crontab(5): nothing of any shell."""
    user = pwd.getpwuid(os.getuid())
    return {"HOME": user.pw_dir, "LOGNAME": user.pw_name, "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}


def _run_as_cron(command: str, environ: Mapping[str, str]) -> tuple[int, InnerReport]:
    """Run the command as cron would; return its exit code and what it reports."""
    with subprocess.Popen(  # noqa: S603  (the command that cron would run)
        ["/bin/sh", "-c", command], env=dict(environ), cwd=environ["HOME"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        except BaseException as error:  # ctrl-C, too: it does not reach another session
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that the shell started
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            timeout_error = ProviderUnavailable(
                f"It did not end within {TIMEOUT_S // 60} minutes.", next="Run: cloudgpu reap --dry-run"
            )
            return timeout_error.exit_code, _error_report(timeout_error)
    report: InnerReport = {"run": None, "credentials": [], "error": None}
    try:
        report.update(json.loads(stdout))
    except ValueError:
        output = (stderr or stdout).strip().splitlines()
        last_line = output[-1] if output else "it printed nothing"
        start_error = CloudgpuError(f"cloudgpu does not start there: {last_line}", next="Look at the command above.")
        return process.returncode or start_error.exit_code, _error_report(start_error)
    return process.returncode, report


def _error_report(error: CloudgpuError) -> InnerReport:
    return {"run": None, "credentials": [], "error": error.as_dict()}


def planned_actions(document: ReapDocument, morning: datetime) -> list[str]:
    """Return a sentence on each machine that runs of this night would end or warn, if none were used from now on."""
    rule_ends_by_machine = {decision["machine"]: decision["ends"] for decision in document["explained"]}
    sentences = [
        sentence
        for decision in document["decisions"]
        if (sentence := _planned_action(decision, rule_ends_by_machine[decision["machine"]], morning))
    ]
    sentences += [f"{gap['scope']} does not answer: {gap['why']}" for gap in document["unanswered"]]
    sentences += list(document["errors"])
    return sentences or ["Nothing: no machine would be ended or warned."]


def _planned_action(decision: MachineDecision, rule_ends: RuleEnds, morning: datetime) -> str:
    """Return a sentence on what runs will do with a machine until the morning; empty for nothing."""
    if decision["do"] != "keep":
        rule = "" if decision["rule"] == Rule.NONE else f" ({decision['rule']})"
        return f"{decision['name']}: {decision['do']} now{rule}: {decision['why']}"
    is_running = decision["state"] == State.RUNNING
    ends_at, rule = (
        min(_ends_by_rule(decision, rule_ends), default=("", "")) if is_running else (decision["at"], decision["rule"])
    )
    if not ends_at or from_iso(ends_at) > morning:
        return ""
    condition = "" if not is_running else " unless it is used" if rule in _ACTIVITY_RULES else ", whoever uses it"
    return f"{decision['name']}: ended at {ends_at[:16].replace('T', ' ')} UTC{condition} ({rule}): {decision['why']}"


def _ends_by_rule(decision: MachineDecision, rule_ends: RuleEnds) -> Iterator[tuple[str, str]]:
    """Yield when each rule ends the machine, with the rule. A hold delays the rules of `_ACTIVITY_RULES`.

    While the activity is UNKNOWN, the lease is renewed, so it does not end the machine.
    """
    times_and_rules = (
        (rule_ends["idle"], Rule.IDLE),
        (rule_ends["lease"], Rule.LEASE),
        (rule_ends["schedule"], Rule.SCHEDULE),
        (rule_ends.get("renew_until"), Rule.RENEW_UNTIL),
    )
    for at, rule in times_and_rules:
        if at and not (rule == Rule.LEASE and decision["activity"] == UNKNOWN):
            held_until = rule_ends["held_until"] if rule in _ACTIVITY_RULES else None
            yield max(at, held_until or at), rule


def credentials(session: Session) -> list[Credential]:
    """Return the credential of each account that has machines; if none has, of each configured account."""
    machines = [machine for machine in session.ledger.machines() if machine.terminated_at is None]
    accounts = {machine.account for machine in reachable_machines(session, machines)} or set(session.settings.accounts)
    return [_credential(session, account) for account in sorted(accounts)]


def _credential(session: Session, account: str) -> Credential:
    from cloudgpu.providers.account_abilities import HasLogin

    try:
        provider = session.provider(account)
        if not isinstance(provider, HasLogin):
            return _credential_document(account, "needs none that could end", None, lasts=True)
        login = provider.login()
    except CloudgpuError as error:
        return _credential_document(account, error.message, None, lasts=False)
    return _credential_document(account, login.what, login.until, lasts=login.lasts)


def _credential_document(account: str, what: str, until: datetime | None, *, lasts: bool | None) -> Credential:
    return {"account": account, "what": what, "until": None if until is None else iso(until), "lasts": lasts}


def lasts_until_morning(credential: Credential, morning: datetime) -> bool | None:
    """Say whether a credential is still valid in the morning; None: not known."""
    if credential["until"] is not None and from_iso(credential["until"]) < morning:
        return False
    if credential["lasts"] is False:
        return credential["until"] is not None
    return bool(credential["lasts"]) or None


def next_morning(now: datetime) -> datetime:
    """Return eight in the morning after the night that comes, where this computer is."""
    day = now.astimezone().date()
    # combined without an offset: that of `now` is not the one of the morning after a change of the clocks
    while (morning := datetime.combine(day, MORNING_TIME).astimezone()) - now < MIN_TIME_TO_MORNING:
        day += timedelta(days=1)
    return morning
