"""The jobs of `watch`: runs of the reaper, budgets, alerts, users' jobs, reports, prices. Each returns a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.scheduler.due import own_run_due, prices_due, run_due, sweep_due
from cloudgpu.control.session.guarding import home_id
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.reaper.result import ReaperRun
from cloudgpu.errors import InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.storage_errors import LedgerAway

LOCK = "reaper"  # held by every run: from cron, by hand, or here
WATCH_LOCK = "watches"  # so that only one of several watches makes the due run

ALERT_INTERVAL = timedelta(minutes=5)  # of budgets and alerts, which only read the ledger
JOBS = timedelta(minutes=1)  # of users' jobs, while one lives
RETRY_SOON = timedelta(seconds=15)  # after a run that another process was making, or that failed
RETRY_LATER = timedelta(hours=1)  # after a price list or a receiver of the report that did not answer
PRICES = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Job:
    """A recurring job of `watch`.

    `due` returns when it is due, by the ledger; `work` does it and returns a sentence, empty where nothing happened;
    `retry` is how long to wait where it is still due afterwards. `every` is the longest wait.
    """

    name: str
    every: timedelta
    due: Callable[[Session], datetime]
    work: Callable[[Session], str]
    retry: timedelta = RETRY_SOON


def the_jobs(every: timedelta, prices: timedelta | None, *, urge: Callable[[], None]) -> list[Job]:
    """Return the jobs; `urge` is called where a budget is exceeded, so that the run that stops machines comes at once.

    Without `prices` no price list is refreshed.
    """
    often = min(ALERT_INTERVAL, every)
    found = [
        Job(
            "pass",
            every,
            lambda session: _run_due(session, every),
            lambda session: reap_once(session, every),
            min(RETRY_SOON, every),
        ),
        Job("budgets", often, _now, lambda session: judge_budgets(session, urge), often),
        Job("alerts", often, _now, send_alerts, often),
        Job("jobs", min(JOBS, every), _jobs_due, carry_jobs, min(JOBS, every)),
        Job("report", often, ReportDelay().due, send_report, RETRY_LATER),
    ]
    if prices is not None:
        asked = prices
        found.append(Job("prices", asked, lambda session: _prices_due(session, asked), refresh_prices, RETRY_LATER))
    return found


def _now(session: Session) -> datetime:
    return session.clock()


def _run_due(session: Session, every: timedelta) -> datetime:
    last, now = read_last_run(session.ledger), session.clock()
    return own_run_due(last, run_due(last, session.ledger.machines(), every, now), home_id(session), every, now)


def reap_once(session: Session, every: timedelta) -> str:
    """Make one run, a full sweep where the night's is due; return its summary, nothing where another one makes one.

    Whether it is due is checked again under the lock of all watches: else two of them would make it one after the
    other.
    """
    from cloudgpu.control.reaper.reaper import ReapOptions, reap

    try:
        with session.lock(WATCH_LOCK, wait=False):
            if _run_due(session, every) > session.clock():
                return ""
            swept = sweep_due(read_last_run(session.ledger), zone_of(session.settings.tz), session.clock())
            done = reap(session, ReapOptions(sweep=swept, cron=True, interval=every))
    except LedgerAway as error:
        if error.field != "lock":
            raise
        swept, done = False, reap(session, ReapOptions(cron=True, interval=every))  # a full disk has no room for a lock
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as other:
        if other.field == "lock":
            return ""
        raise
    done = done.without_remote_accounts()
    return "" if done.busy or (done.is_quiet and not swept) else summary(done)


def summary(done: ReaperRun) -> str:
    """Return a run in one line for a log: what was done, and what is missing."""
    sentences = [f"{one.name}: {one.do} ({one.why})" for one in (*done.ended, *done.renewed)]
    sentences += [f"{one.name} warned: {one.why}" for one in done.warned]
    sentences += [f"{one.name} may still be billed: {one.why}" for one in done.unconfirmed]
    sentences += [unanswered_text(gap.scope, gap.why) for gap in done.unanswered]
    sentences += [*done.faults, *done.sentences]
    machines = f"{len(done.decisions)} machine{'' if len(done.decisions) == 1 else 's'}"
    more = "".join(f"; {one}" for one in sentences)
    return f"a run over {machines} took {done.duration.total_seconds():.1f} s{more}"


def judge_budgets(session: Session, urge: Callable[[], None]) -> str:
    """Record findings on budgets, which `send_alerts` sends; urge a run where one of them stops machines now."""
    from cloudgpu.control.alerts.alerts import BUDGETS, budget_findings, record_findings
    from cloudgpu.control.budgets.store import budget_states, budgets_for_run
    from cloudgpu.core.budgets.enforcement import BudgetAction, budget_stops

    judged = budget_states(session, budgets_for_run(session)[0])
    record_findings(session, list(budget_findings(session, judged)), evaluated=BUDGETS)
    doing = [
        one
        for one in budget_stops(judged, session.ledger.machines(), {}, session.clock())
        if one.do is not BudgetAction.WARN
    ]
    if not doing:
        return ""
    urge()
    return f"the budget {doing[0].budget} is exceeded: the reaper runs at once"


def send_alerts(session: Session) -> str:
    """Deliver alerts that were not delivered yet."""
    from cloudgpu.control.alerts.alerts import deliver

    done = deliver(session, (), evaluated=())
    refused = [f"{one.receiver}: {one.why}" for one in done.outcomes if one.why is not None]
    return f"alerts were not delivered, and are tried again: {'; '.join(refused)}" if refused else ""


def _jobs_due(session: Session) -> datetime:
    from cloudgpu.control.jobs.watch import living_jobs, restore_unknown_jobs

    restore_unknown_jobs(session)
    return session.clock() if living_jobs(session) else session.clock() + JOBS


def carry_jobs(session: Session) -> str:
    """Reconcile every living job; return what changed."""
    from cloudgpu.control.jobs.watch import reconcile_all, sentences
    from cloudgpu.control.spot.history import record_interruptions

    record_interruptions(session)
    return "; ".join(sentences(reconcile_all(session, os.environ)))


def send_report(session: Session) -> str:
    """Send the report of the last month to receivers that do not have it yet."""
    from cloudgpu.control.cost.report_delivery import send_monthly

    return send_monthly(session)


@dataclass(slots=True)
class ReportDelay:
    """Delays a month's report until a run was made after that month, by at most an hour.

    Else a watch that was off at the end of the month would send outdated figures. Where no run succeeds, the report
    says how old its figures are.
    """

    since: datetime | None = None

    def due(self, session: Session) -> datetime:
        """Return when the report is to be sent."""
        from cloudgpu.control.cost.report_delivery import report_due
        from cloudgpu.core.alerts.findings import month_due

        at, now = report_due(session), session.clock()  # in this order, so that what is due now is not later than `now`
        month, _ = month_due(now, zone_of(session.settings.tz))
        last = read_last_run(session.ledger).at
        if at > now or (last is not None and last >= month.end):
            self.since = None
            return at
        self.since = min(self.since or now, now)
        return self.since + RETRY_LATER


def refresh_prices(session: Session) -> str:
    """Ask the price lists of the providers that are in use; return what did not answer."""
    from cloudgpu.control.catalog.refresh import FACTOR, refresh

    done = refresh(session, _kinds(session), factor=FACTOR, accept=False)
    gaps = [f"{gap['scope']} ({gap['why']})" for one in done["providers"] for gap in one["unanswered"]]
    return f"prices were not refreshed of {', '.join(gaps)}" if gaps else ""


def _prices_due(session: Session, every: timedelta) -> datetime:
    kinds = _kinds(session)
    return prices_due(_dates(kinds), every, session.clock()) if kinds else session.clock() + every


def _dates(kinds: list[str]) -> Iterator[datetime]:
    from cloudgpu.catalog.refreshed import stored_prices

    never = datetime.min.replace(tzinfo=zone_of("UTC"))
    for kind in kinds:
        parts: dict[str, Any] = {}
        with suppress(InvalidRequest):  # a damaged file is as one that was never there: it is written anew
            parts = dict(stored_prices(kind).parts)
        yield min((part.asked_at for part in parts.values()), default=never)


def _kinds(session: Session) -> list[str]:
    """Return the providers with a price list that are configured here, or have machines that live."""
    from cloudgpu.providers.registry import price_list_kinds

    used = {machine.provider for machine in session.ledger.machines() if machine.terminated_at is None}
    used |= {one.provider for one in session.settings.accounts.values()}
    return [kind for kind in price_list_kinds() if kind in used]
