"""Checks the safeguards (guards) of each machine that may be billed: its agent, its timer, runs of the reaper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cloudgpu.control.lifecycle.timers import may_fire
from cloudgpu.control.session.identity import reachable_machines
from cloudgpu.control.session.last_run import (
    OVERDUE_AFTER,
    may_be_billed,
    read_last_run,
    silence_text,
    silent_run_of,
)
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.checks import Check, Verdict, failed_check
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.policies.guards import Agent, Timer, ends_itself, has_no_agent, safeguards_of
from cloudgpu.core.values.times import duration_text, from_iso, minute_text
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasTimer, SetsTimer
from cloudgpu.views.machines import guards_document

MAX_PARALLEL = 8  # machines whose timers are queried in parallel


def guard_checks(session: Session, accounts: Sequence[str], environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield one check per machine that may be billed: what would end it, and when. Asks the clouds for their timers.

    A machine that only its own agent, or no safeguard, would end is a warning, with the remedy. Changes nothing.
    """
    names = session.names()
    machines = [
        machine
        for machine in session.ledger.machines()
        if names.account(machine.account) in accounts and may_be_billed(machine) and machine.provider_id
    ]
    machines = reachable_machines(session, machines)
    if not machines:
        return
    reaper_clause, has_recent_run = _reaper_clause(session, environ)
    runs, now = read_last_run(session.ledger).scheduled, session.clock()
    silent_runs = {machine.id: run for machine in machines if (run := silent_run_of(machine, runs, now)) is not None}
    for machine in machines:
        provider_with_timers(session, machine)  # opened once, before the threads begin
    with Pool(MAX_PARALLEL, "machines") as pool:
        yield from pool.map(
            lambda machine: _machine_check(
                session,
                machine,
                silence_text(silent_runs[machine.id], now) if machine.id in silent_runs else reaper_clause,
                has_recent_run=has_recent_run and machine.id not in silent_runs,
            ),
            machines,
        )


def provider_with_timers(session: Session, machine: Machine) -> HasTimer | None:
    """Return the machine's provider; None where it has no timers or is not configured any more."""
    try:
        provider = session.provider_of(machine)
    except CloudgpuError:
        return None
    return provider if isinstance(provider, HasTimer) else None


def _machine_check(session: Session, machine: Machine, reaper_clause: str, *, has_recent_run: bool) -> Check:
    """Return the check of one machine: a warning where neither a timer nor recent runs of the reaper would end it."""
    name = f"guards {machine.name}"
    try:
        timer_clause, has_timer, remedy = _timer_clause(session, machine)
    except CloudgpuError as error:
        return failed_check(name, error)
    message = f"{_agent_clause(session, machine)}; {timer_clause}; {reaper_clause}"
    if has_timer or has_recent_run:
        return Check(name, Verdict.OK, message)
    only_guard = "Only its own agent" if ends_itself(machine) else "Only cloudgpu reap or watch"
    surely = "surely " if has_timer is None else ""
    return Check(name, Verdict.WARN, f"{message}. {only_guard} would {surely}end it.", remedy)


def _agent_clause(session: Session, machine: Machine) -> str:
    """Return a clause on the agent: when it will end the machine, and when it last reported.

    A report is the tag by which it says that the machine is in use, or samples that a run of the reaper has fetched.
    """
    guards = safeguards_of(machine)
    if has_no_agent(machine):
        return "no agent runs on it, so its use is not known"
    if guards is not None and guards.agent is Agent.TELLS:
        return "its agent can only shut it down, which does not end what it costs"
    ends_at = guards_document(machine)["agent"]
    end_clause = f"the agent ends it at {minute_text(ends_at)}" if ends_at else "the agent knows no end"
    last_active_s = from_iso(machine.last_active).timestamp() if machine.last_active else 0.0
    last_report_s = max(last_active_s, SampleStore(session.home.samples, machine.id).last())  # since 1970
    if not last_report_s:
        return f"{end_clause} (it has never reported here)"
    seconds_ago = max(0, round(session.clock().timestamp() - last_report_s))
    return f"{end_clause} (last heard {duration_text(seconds_ago)} ago)"


def _timer_clause(session: Session, machine: Machine) -> tuple[str, bool | None, str | None]:
    """Return a clause on its timer, whether it has one, and the command that sets one (None: it has one).

    Whether it has one is not known (None) where the ledger has one that the settings here do not let anybody read.
    """
    provider, remedy = provider_with_timers(session, machine), "Run: cloudgpu cron install"
    if provider is None:
        return f"{machine.provider} has no timers", False, remedy
    why_no_timer = provider.why_no_timer() if isinstance(provider, SetsTimer) else ""
    fires_at = provider.timer(not_none(machine.provider_id))
    if fires_at is not None:
        guards = safeguards_of(machine)
        is_own_process = guards is not None and guards.timer is Timer.OWN
        subject = "its own timer, a separate process, ends it" if is_own_process else "the timer in the cloud"
        return f"{subject} at {fires_at:%Y-%m-%d %H:%M} UTC", True, None
    if why_no_timer:
        remedy = f"Run: cloudgpu init {machine.provider}, or: cloudgpu cron install"
        if not may_fire(machine, session.clock()):
            return why_no_timer, False, remedy
        # It was set before the account's settings lost its timers, or with a colleague's: it fires if its role lives.
        fires_text = minute_text(not_none(machine.timer))
        clause = (
            f"a timer in the cloud was set for {fires_text}, and the settings here do not let anybody read or move it"
        )
        return f"{clause}: it may end the machine then, or be dead", None, remedy
    return "no timer in the cloud is set", False, "Run: cloudgpu reap (it sets the timer)"


def _reaper_clause(session: Session, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return a clause on runs of the reaper, and whether one has succeeded within OVERDUE_AFTER."""
    last_run, now = read_last_run(session.ledger), session.clock()
    scheduler = _scheduler_with_job(session, environ)
    made_by = f", made by {scheduler}" if scheduler else ", and cron has none here"
    if last_run.ok_at is None:
        return f"no run of the reaper has succeeded yet{made_by}", False
    if last_run.ok_at - now >= OVERDUE_AFTER:  # as in are_runs_current: it was written by a wrong clock
        return f"no run of the reaper has succeeded since the clock was set back{made_by}", False
    ago = duration_text(max(0, round((now - last_run.ok_at).total_seconds())))
    return f"a run succeeded {ago} ago{made_by}", now - last_run.ok_at < OVERDUE_AFTER


def _scheduler_with_job(session: Session, environ: Mapping[str, str]) -> str | None:
    """Return which scheduler of this computer runs the reaper for this home, crontab or systemd; None for none."""
    from cloudgpu.control.scheduler.crontab_store import find_tables

    home = str(session.home.root)
    try:
        return next((table.kind for table in find_tables(environ) if table.installed(home) is not None), None)
    except CloudgpuError:
        return None
