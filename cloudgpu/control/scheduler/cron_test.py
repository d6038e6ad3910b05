"""Tests tonight's run as cron would make it: a dry run in cron's environment, with the state of each credential.

A run that works in your shell can fail at night: cron knows none of the shell's variables, and a login ends.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, TypedDict

from cloudgpu.control.scheduler.cron import the_job
from cloudgpu.control.scheduler.crontab_store import find_tables
from cloudgpu.control.scheduler.crontab_text import installed_command, shell_command
from cloudgpu.control.session.identity import reachable_machines
from cloudgpu.core.model.instances import State
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.reaper.decisions import UNKNOWN
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import AuthFailed, CloudgpuError, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.activity import RuleEnds
    from cloudgpu.views.documents.automation.cron import CronTestDocument
    from cloudgpu.views.documents.automation.reap import MachineDecision, ReapDocument
    from cloudgpu.views.documents.parts import Fault

INSIDE = ("cron", "test", "--inside", "-o", "json")
WAIT_S = 900
MORNING = time(8)
_BY_USE = (Rule.IDLE, Rule.LEASE)
SHORTEST_NIGHT = timedelta(hours=8)  # shortly before eight, the next night is meant


class Credential(TypedDict):
    """What the inner process reports about an account's credential; `lasts`: it renews itself; None: not known."""

    account: str
    what: str
    until: str | None
    lasts: bool | None


class Inside(TypedDict):
    """What the inner process prints: what the run of tonight would do; or only an error."""

    run: ReapDocument | None
    credentials: list[Credential]
    error: Fault | None


def trial_value(session: Session, environ: Mapping[str, str]) -> CronTestDocument:
    """Make a dry run as cron would, in a process of its own; return the answer of `cron test`.

    With the program and the environment of the installed job, else of the one that would be installed. An error of that
    process is in the answer, under `error`.
    """
    command, bare = _command(session, environ), cron_environment()
    code, found = _run(command, bare)
    morning = next_morning(session.clock())
    run = found["run"]
    return {
        "environment": bare,
        "command": command,
        "morning": iso(morning),
        "planned_actions": [] if run is None else would(run, morning),
        "credentials": [
            {
                "account": one["account"],
                "what": one["what"],
                "until": one["until"],
                "renews_itself": one["lasts"],
                "lasts_until_morning": outlives(one, morning),
            }
            for one in found["credentials"]
        ],
        "exit_code": code if run is None else run["exit_code"],
        "error": found["error"],
    }


def _command(session: Session, environ: Mapping[str, str]) -> str:
    for table in find_tables(environ):
        text = table.installed(str(session.home.root))
        command = installed_command(text, INSIDE) if text is not None else None
        if command is not None:
            return command
    return shell_command(the_job(session, environ), INSIDE)


def inside_value(session: Session) -> Inside:
    """Return what the run of tonight would do, and its credentials, in this process's environment."""
    from cloudgpu.control.reaper.reaper import ReapOptions, reap
    from cloudgpu.views.reaper import run_value

    found = reap(session, ReapOptions(dry_run=True, cron=True))
    return {"run": run_value(found, explain=True), "credentials": credentials(session), "error": None}


def exit_code(value: CronTestDocument) -> int:
    """Return what `cron test` ends with: the run's own code, else 6 where a credential does not outlive the night."""
    if value["exit_code"]:
        return int(value["exit_code"])
    return AuthFailed.exit_code if any(one["lasts_until_morning"] is False for one in value["credentials"]) else 0


def cron_environment() -> dict[str, str]:
    """Return what cron gives a user's job, by crontab(5): nothing of any shell."""
    user = pwd.getpwuid(os.getuid())
    return {"HOME": user.pw_dir, "LOGNAME": user.pw_name, "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}


def _run(command: str, environ: Mapping[str, str]) -> tuple[int, Inside]:
    try:
        done = subprocess.run(  # noqa: S603  (the command that cron would run)
            ["/bin/sh", "-c", command], env=dict(environ), cwd=environ["HOME"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        late = ProviderUnavailable(
            f"It did not end within {WAIT_S // 60} minutes.", next="Run: cloudgpu reap --dry-run"
        )
        return late.exit_code, _broken(late)
    found: Inside = {"run": None, "credentials": [], "error": None}
    try:
        found.update(json.loads(done.stdout))
    except ValueError:
        words = (done.stderr or done.stdout).strip().splitlines()
        why = words[-1] if words else "it printed nothing"
        broken = CloudgpuError(f"cloudgpu does not start there: {why}", next="Look at the command above.")
        return done.returncode or broken.exit_code, _broken(broken)
    return done.returncode, found


def _broken(error: CloudgpuError) -> Inside:
    return {"run": None, "credentials": [], "error": error.as_dict()}


def would(document: ReapDocument, morning: datetime) -> list[str]:
    """Return what runs of this night would do, machine by machine, if none of them were used from now on."""
    ends = {one["machine"]: one["ends"] for one in document["explained"]}
    sentences = [sentence for one in document["decisions"] if (sentence := _would(one, ends[one["machine"]], morning))]
    sentences += [f"{gap['scope']} does not answer: {gap['why']}" for gap in document["unanswered"]]
    sentences += list(document["errors"])
    return sentences or ["Nothing: no machine would be ended or warned."]


def _would(decision: MachineDecision, ends: RuleEnds, morning: datetime) -> str:
    if decision["do"] != "keep":
        rule = "" if decision["rule"] == Rule.NONE else f" ({decision['rule']})"
        return f"{decision['name']}: {decision['do']} now{rule}: {decision['why']}"
    runs = decision["state"] == State.RUNNING
    at, rule = min(_ends(decision, ends), default=("", "")) if runs else (decision["at"], decision["rule"])
    if not at or from_iso(at) > morning:
        return ""
    unless = "" if not runs else " unless it is used" if rule in _BY_USE else ", whoever uses it"
    return f"{decision['name']}: ended at {at[:16].replace('T', ' ')} UTC{unless} ({rule}): {decision['why']}"


def _ends(decision: MachineDecision, ends: RuleEnds) -> Iterator[tuple[str, str]]:
    """Yield the end by each rule, where it has one. A hold delays ends by activity, and UNKNOWN renews a lease."""
    at_rule = (
        (ends["idle"], Rule.IDLE),
        (ends["lease"], Rule.LEASE),
        (ends["schedule"], Rule.SCHEDULE),
        (ends.get("renew_until"), Rule.RENEW_UNTIL),
    )
    for at, rule in at_rule:
        if at and not (rule == Rule.LEASE and decision["activity"] == UNKNOWN):
            held = ends["held_until"] if rule in _BY_USE else None
            yield max(at, held or at), rule


def credentials(session: Session) -> list[Credential]:
    """Return the credential of each account that has machines; of each that is configured, while none has."""
    machines = [machine for machine in session.ledger.machines() if machine.terminated_at is None]
    used = {machine.account for machine in reachable_machines(session, machines)} or set(session.settings.accounts)
    return [_credential(session, account) for account in sorted(used)]


def _credential(session: Session, account: str) -> Credential:
    from cloudgpu.providers.account_abilities import HasLogin

    try:
        provider = session.provider(account)
        if not isinstance(provider, HasLogin):
            return _credential_line(account, "needs none that could end", None, lasts=True)
        found = provider.login()
    except CloudgpuError as error:
        return _credential_line(account, error.message, None, lasts=False)
    return _credential_line(account, found.what, found.until, lasts=found.lasts)


def _credential_line(account: str, what: str, until: datetime | None, *, lasts: bool | None) -> Credential:
    return {"account": account, "what": what, "until": None if until is None else iso(until), "lasts": lasts}


def outlives(credential: Credential, morning: datetime) -> bool | None:
    """Say whether a credential is still good in the morning; None where nobody can say."""
    if credential["until"] is not None and from_iso(credential["until"]) < morning:
        return False
    if credential["lasts"] is False:
        return credential["until"] is not None
    return bool(credential["lasts"]) or None


def next_morning(now: datetime) -> datetime:
    """Return eight in the morning after the night that comes, where this computer is."""
    local = now.astimezone()
    morning = local.replace(hour=MORNING.hour, minute=0, second=0, microsecond=0)
    while morning - local < SHORTEST_NIGHT:
        morning += timedelta(days=1)
    return morning
