"""The jobs of `watch`: runs of the reaper, budgets, alerts, users' jobs, reports, prices. Each returns a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.scheduler.due import is_sweep_due, own_run_due_at, prices_due_at, run_due_at
from cloudgpu.control.session.guarding import home_id
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.reaper.result import ReaperRun
from cloudgpu.errors import LockBusy
from cloudgpu.ledger.log.storage_errors import LedgerAway

if TYPE_CHECKING:
    from cloudgpu.control.jobs.watch import JobRounds

REAPER_LOCK = "reaper"  # held by every run: from cron, by hand, or here
WATCH_LOCK = "watches"  # so that only one of several watches makes the due run

ALERT_INTERVAL = timedelta(minutes=5)  # of budgets and alerts, which only read the ledger
USER_JOBS_INTERVAL = timedelta(minutes=1)  # of users' jobs, while one is not done
RETRY_SOON = timedelta(seconds=15)  # after a run that another process was making, or that failed
RETRY_LATER = timedelta(hours=1)  # after a price list or a receiver of the report that did not answer


@dataclass(frozen=True, slots=True)
class WatchJob:
    """A recurring job of `watch`.

    `due` returns the time when it is due, by the ledger; `work` does it and returns a sentence, empty where nothing
    happened; `retry` is how long to wait where it is still due afterwards. `every` is the longest time between runs.
    """

    name: str
    every: timedelta
    due: Callable[[Session], datetime]
    work: Callable[[Session], str]
    retry: timedelta = RETRY_SOON


def watch_jobs(
    every: timedelta, price_interval: timedelta | None, *, run_at_once: Callable[[], None]
) -> list[WatchJob]:
    """Return the jobs; where a budget is exceeded, a run is due, and `run_at_once` is called to have it made now.

    Without `price_interval` no price list is refreshed.
    """
    from cloudgpu.control.jobs.watch import JobRounds

    alert_interval, request, rounds = min(ALERT_INTERVAL, every), RequestedRun(), JobRounds()

    def request_run(session: Session) -> None:
        request.at = session.clock()
        run_at_once()

    jobs = [
        WatchJob(
            "pass",  # the stored name of the job that runs the reaper
            every,
            lambda session: _run_due_at(session, every, request),
            lambda session: reap_once(session, every, request),
            min(RETRY_SOON, every),
        ),
        WatchJob(
            "budgets",
            alert_interval,
            _now,
            lambda session: check_budgets(session, lambda: request_run(session)),
            alert_interval,
        ),
        WatchJob("alerts", alert_interval, _now, send_alerts, alert_interval),
        WatchJob(
            "jobs",
            min(USER_JOBS_INTERVAL, every),
            lambda session: _jobs_due_at(session, rounds),
            lambda session: reconcile_jobs(session, rounds),
            min(USER_JOBS_INTERVAL, every),
        ),
        WatchJob("report", alert_interval, ReportDelay().due, send_report, RETRY_LATER),
    ]
    if price_interval is not None:
        refresh_interval = price_interval
        jobs.append(
            WatchJob(
                "prices",
                refresh_interval,
                lambda session: _prices_due_at(session, refresh_interval),
                refresh_prices,
                RETRY_LATER,
            )
        )
    return jobs


def _now(session: Session) -> datetime:
    """Return that a job is due whenever it is asked about."""
    return session.clock()


@dataclass(slots=True)
class RequestedRun:
    """When a budget that stops machines was last found exceeded: a run is due then, unless one has ended since."""

    at: datetime | None = None


def _run_due_at(session: Session, every: timedelta, request: RequestedRun | None = None) -> datetime:
    last_run, now = read_last_run(session.ledger), session.clock()
    due_at = own_run_due_at(
        last_run, run_due_at(last_run, session.ledger.machines(), every, now), home_id(session), every, now
    )
    requested_at = None if request is None else request.at
    if requested_at is None or (last_run.at is not None and last_run.at >= requested_at):
        return due_at
    return min(due_at, requested_at)


def reap_once(session: Session, every: timedelta, request: RequestedRun | None = None) -> str:
    """Make one run of the reaper, the nightly sweep where that is due; return its summary, or "" for nothing to say.

    Whether a run is due is checked again under the lock of all watches: else two of them would make it one after the
    other.
    """
    from cloudgpu.control.reaper.reaper import ReapOptions, reap

    try:
        with session.lock(WATCH_LOCK, wait=False):
            if _run_due_at(session, every, request) > session.clock():
                return ""
            zone, last_run = zone_of(session.settings.tz), read_last_run(session.ledger)
            is_sweep = is_sweep_due(last_run, home_id(session), zone, session.clock())
            run = reap(session, ReapOptions(sweep=is_sweep, cron=True, interval=every))
    except LedgerAway as error:
        if error.field != "lock":
            raise
        is_sweep = False  # without the lock: the disk is full
        run = reap(session, ReapOptions(cron=True, interval=every))
    except LockBusy:
        return ""
    run = run.without_accounts_queried_elsewhere()
    # `busy`: another process was making a run. `is_quiet`: nothing was done, and nothing is wrong.
    return "" if run.busy or (run.is_quiet and not is_sweep) else summary(run)


def summary(run: ReaperRun) -> str:
    """Return a run in one line for a log: what was done, and what is missing."""
    sentences = [f"{decision.name}: {decision.do} ({decision.why})" for decision in (*run.ended, *run.renewed)]
    sentences += [f"{decision.name} warned: {decision.why}" for decision in run.warned]
    sentences += [f"{decision.name} may still be billed: {decision.why}" for decision in run.unconfirmed]
    sentences += [unanswered_text(gap.scope, gap.why) for gap in run.unanswered]
    sentences += [*run.faults, *run.sentences]
    machines = f"{len(run.decisions)} machine{'' if len(run.decisions) == 1 else 's'}"
    details = "".join(f"; {sentence}" for sentence in sentences)
    return f"a run over {machines} took {run.duration.total_seconds():.1f} s{details}"


def check_budgets(session: Session, run_at_once: Callable[[], None]) -> str:
    """Record findings on budgets, which `send_alerts` sends; call `run_at_once` where one is to stop machines now."""
    from cloudgpu.control.alerts.alerts import BUDGET_TOPICS, budget_findings, record_findings
    from cloudgpu.control.budgets.store import budget_states, budgets_for_reaper_run
    from cloudgpu.control.team.authorization import authorization_of
    from cloudgpu.core.budgets.enforcement import allowed_stops
    from cloudgpu.core.policies.policy import ReaperAction
    from cloudgpu.core.reaper.decisions import budget_warning_counts

    states, machines = budget_states(session, budgets_for_reaper_run(session)[0]), session.ledger.machines()
    record_findings(session, list(budget_findings(session, states)), clearable=BUDGET_TOPICS)
    warned = budget_warning_counts(machines)
    stops = [  # as a run itself decides
        stop
        for stop in allowed_stops(authorization_of(session), states, machines, warned, session.clock())
        if stop.action is not ReaperAction.WARN
    ]
    if not stops:
        return ""
    run_at_once()
    return f"the budget {stops[0].budget} is exceeded: the reaper runs at once"


def send_alerts(session: Session) -> str:
    """Deliver alerts that were not delivered yet."""
    from cloudgpu.control.alerts.alerts import deliver

    delivery = deliver(session, (), clearable=())
    refused = [f"{outcome.receiver}: {outcome.why}" for outcome in delivery.outcomes if outcome.why is not None]
    return f"alerts were not delivered, and are tried again: {'; '.join(refused)}" if refused else ""


def _jobs_due_at(session: Session, rounds: JobRounds) -> datetime:
    from cloudgpu.control.jobs.watch import living_jobs, restore_unknown_jobs

    restore_unknown_jobs(session)
    is_due = rounds.is_at_work or living_jobs(session)
    return session.clock() if is_due else session.clock() + USER_JOBS_INTERVAL


def reconcile_jobs(session: Session, rounds: JobRounds) -> str:
    """Make a round over all living jobs; return what changed."""
    from cloudgpu.control.jobs.watch import sentences
    from cloudgpu.control.spot.history import record_interruptions

    record_interruptions(session)
    return "; ".join(sentences(rounds.reconcile(session, os.environ)))


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

    delayed_since: datetime | None = None

    def due(self, session: Session) -> datetime:
        """Return when the report is to be sent."""
        from cloudgpu.control.cost.report_delivery import report_due_at
        from cloudgpu.core.alerts.findings import month_due

        due_at, now = (
            report_due_at(session),
            session.clock(),
        )  # in this order, so that what is due now is not later than `now`
        month, _ = month_due(now, zone_of(session.settings.tz))
        last_run_at = read_last_run(session.ledger).at
        if due_at > now or (last_run_at is not None and last_run_at >= month.end):
            self.delayed_since = None
            return due_at
        self.delayed_since = min(self.delayed_since or now, now)
        return self.delayed_since + RETRY_LATER


def refresh_prices(session: Session) -> str:
    """Refresh the price lists of the providers that are in use; return which parts did not answer."""
    from cloudgpu.control.catalog.refresh import DEFAULT_FACTOR, refresh

    refreshed = refresh(session, _providers_with_prices(session), factor=DEFAULT_FACTOR, accept=False)
    gaps = [f"{gap['scope']} ({gap['why']})" for provider in refreshed["providers"] for gap in provider["unanswered"]]
    return f"prices were not refreshed of {', '.join(gaps)}" if gaps else ""


def _prices_due_at(session: Session, every: timedelta) -> datetime:
    providers = _providers_with_prices(session)
    return (
        prices_due_at(_oldest_query_times(providers), every, session.clock()) if providers else session.clock() + every
    )


def _oldest_query_times(providers: list[str]) -> Iterator[datetime]:
    """Yield for each provider when the oldest part of its stored price list was queried."""
    from cloudgpu.catalog.refreshed import readable_prices

    never_queried = datetime.min.replace(tzinfo=zone_of("UTC"))
    for provider in providers:
        prices, _ = readable_prices(provider)  # a damaged file counts as missing: it is written anew
        yield min((part.asked_at for part in prices.parts.values()), default=never_queried)


def _providers_with_prices(session: Session) -> list[str]:
    """Return the providers with a price list that are configured here, or have machines that exist."""
    from cloudgpu.providers.registry import price_list_kinds

    providers_used = {machine.provider for machine in session.ledger.machines() if machine.terminated_at is None}
    providers_used |= {account.provider for account in session.settings.accounts.values()}
    return [kind for kind in price_list_kinds() if kind in providers_used]
