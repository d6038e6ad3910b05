"""Checks the safeguards of each machine that may be billed: its agent, its timer, runs of the reaper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cloudgpu.control.session.identity import reachable_machines
from cloudgpu.control.session.last_run import OVERDUE_AFTER, may_be_billed, read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.checks import Check, Verdict, failed
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.policies.guards import Agent, Timer, ends_itself, guards_of, has_no_agent
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import HasTimer, SetsTimer
from cloudgpu.views.machines import guards_value

MAX_PARALLEL = 8  # machines whose timers are queried in parallel


def guard_checks(session: Session, accounts: Sequence[str], environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield one check per machine that may be billed: what would end it, and when. Asks the clouds for their timers.

    A machine that only its own agent guards is a warning, with the remedy. Changes nothing.
    """
    machines = [
        machine
        for machine in session.ledger.machines()
        if machine.account in accounts and may_be_billed(machine) and machine.provider_id
    ]
    machines = reachable_machines(session, machines)
    if not machines:
        return
    reaper, watched = _reaper(session, environ)
    for machine in machines:
        with_provider(session, machine)  # opened here: two threads would open two
    with Pool(MAX_PARALLEL, "machines") as pool:
        yield from pool.map(lambda machine: _check(session, machine, reaper, watched=watched), machines)


def with_provider(session: Session, machine: Machine) -> HasTimer | None:
    """Return the machine's provider where it has timers, None where it has none or is configured no more."""
    try:
        provider = session.provider_of(machine)
    except CloudgpuError:
        return None
    return provider if isinstance(provider, HasTimer) else None


def _check(session: Session, machine: Machine, reaper: str, *, watched: bool) -> Check:
    name = f"guards {machine.name}"
    try:
        timer, timed, way = _timer(session, machine)
    except CloudgpuError as error:
        return failed(name, error)
    message = f"{_agent(session, machine)}; {timer}; {reaper}"
    if timed or watched:
        return Check(name, Verdict.OK, message)
    but = "Only its own agent" if ends_itself(machine) else "Only cloudgpu reap or watch"
    return Check(name, Verdict.WARN, f"{message}. {but} would end it.", way)


def _agent(session: Session, machine: Machine) -> str:
    """Return a clause on the agent: when it will end the machine, and when it last reported.

    It reports when it marks the machine as in use, and when a run fetches its samples.
    """
    found = guards_of(machine)
    if has_no_agent(machine):
        return "no agent runs on it, so its use is not known"
    if found is not None and found.agent is Agent.TELLS:
        return "its agent can only shut it down, which does not end what it costs"
    at = guards_value(machine)["agent"]
    ends = f"the agent ends it at {_minute(at)}" if at else "the agent knows no end"
    marked = from_iso(machine.last_active).timestamp() if machine.last_active else 0.0
    heard = max(marked, SampleStore(session.home.samples, machine.id).last())
    if not heard:
        return f"{ends} (it has never reported here)"
    ago = max(0, round(session.clock().timestamp() - heard))
    return f"{ends} (last heard {duration_text(ago)} ago)"


def _timer(session: Session, machine: Machine) -> tuple[str, bool, str | None]:
    """Return a clause on its timer, whether there is one, and how to get one."""
    provider, way = with_provider(session, machine), "Run: cloudgpu cron install"
    if provider is None:
        return f"{machine.provider} has no timers", False, way
    missing = provider.why_no_timer() if isinstance(provider, SetsTimer) else ""
    at = provider.timer(not_none(machine.provider_id))
    if at is not None:
        found = guards_of(machine)
        own = found is not None and found.timer is Timer.OWN
        what = "its own timer, a separate process, ends it" if own else "the timer in the cloud"
        return f"{what} at {at:%Y-%m-%d %H:%M} UTC", True, None
    if missing:
        return missing, False, f"Run: cloudgpu init {machine.provider}, or: cloudgpu cron install"
    return "no timer in the cloud is set", False, "Run: cloudgpu reap (it sets the timer)"


def _reaper(session: Session, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return a clause on runs of the reaper, and whether one has succeeded lately."""
    last, now = read_last_run(session.ledger), session.clock()
    where = _installed(session, environ)
    by = f", made by {where}" if where else ", and cron has none here"
    if last.ok_at is None:
        return f"no run of the reaper has succeeded yet{by}", False
    ago = duration_text(round((now - last.ok_at).total_seconds()))
    return f"a run succeeded {ago} ago{by}", now - last.ok_at < OVERDUE_AFTER


def _installed(session: Session, environ: Mapping[str, str]) -> str | None:
    from cloudgpu.control.scheduler.crontab_store import find_tables

    home = str(session.home.root)
    try:
        return next((table.kind for table in find_tables(environ) if table.installed(home) is not None), None)
    except CloudgpuError:
        return None


def _minute(text: str) -> str:
    return f"{from_iso(text):%Y-%m-%d %H:%M} UTC"
