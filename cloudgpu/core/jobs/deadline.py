"""Decides for a job with a deadline, at each pass of its watcher: wait, run on spot, or run on demand. Pure.

A spot policy proposes; the safety net (`core.spot.safety_net`) overrides it where the deadline needs that, by the times
that this ledger measured (`Margins`) and the work that would be lost with the machine now. So the deadline holds if
somebody watches, an on-demand machine is available within the time reserved for it, and the work is no more than was
given or its progress shows.

Budgets reserve money for it while it has no machine. A running machine is counted to its renew-until, at the on-demand
price. Between two machines other launches could spend that money, on which the deadline relies. The reservation follows
from the lines of the job: it begins with its request and ends with the job, or with the request to cancel it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import TYPE_CHECKING, Literal

from cloudgpu.core.billing.rates import HOURLY
from cloudgpu.core.billing.rules import to_us
from cloudgpu.core.budgets.exposure import Exposure
from cloudgpu.core.jobs.job import NOTHING_MADE, Attempt, Job
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.spot.known_availability import SAME_TRY_H, resolve_wait, retry_after_h
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.situation import Answer, JobFacts, Mode, Policy, State, situation_of
from cloudgpu.core.values.times import duration_text, from_iso, seconds_text

if TYPE_CHECKING:
    from cloudgpu.core.events.job_events import DeadlineRecord
    from cloudgpu.core.jobs.stored import StoredState


SpotEvent = Literal["obtained", "refused", "lost"]
HOUR_S = 3600.0
SAMPLE_INTERVAL_S = 600.0  # between two states of the past or of a simulation; `SafetyNet.tick` is a watcher's
MIN_POLL_S = 60.0  # a watcher checks each minute, even if an earlier one checked more often
START_S, END_S = 900.0, 180.0  # without measurements: boot, driver, upload and setup; last copy and confirmed end
MIN_LAUNCHES = 3  # with fewer measured launches, the defaults count, too
MIN_PROGRESS = 0.02  # share of the work: before that, progress says nothing about speed
RETRY_S, MAX_RETRY_S = 60.0, 600.0  # after a refused spot launch, while nothing runs: doubled each time
RENEW_AFTER = timedelta(hours=1)  # after the deadline, for a job that is late: then its results have to come back
LEASE = timedelta(hours=2)  # of a machine of a job with a deadline, which renews it


@dataclass(frozen=True, slots=True)
class Margins:
    """The times that the safety net reserves, in seconds, each a 95th percentile.

    `start_s`: from a launch to the command's begin (boot, setup, restore). `end_s`: for the last copy and the confirmed
    end of a machine. `pass_interval_s`: between two passes of the watcher. `measured`: the number of launches behind
    it.
    """

    start_s: float = START_S
    end_s: float = END_S
    pass_interval_s: float = MIN_POLL_S
    measured: int = 0

    @property
    def changeover_s(self) -> float:
        """One change of machines: the end of the old one, and the start of the new one."""
        return self.start_s + self.end_s


@dataclass(frozen=True, slots=True)
class SpotHistory:
    """When spot machines of a job were obtained, refused at launch, or lost, oldest first."""

    events: tuple[tuple[datetime, SpotEvent], ...] = ()

    def was_available(self, at: datetime, mode: Mode, start_s: float) -> bool:
        """Return whether spot was available at a past tick: as seen within it, else whether a launch could be tried."""
        within = [event for when, event in self.events if at <= when < at + timedelta(seconds=SAMPLE_INTERVAL_S)]
        if within:
            return "obtained" in within
        return SpotHistory(tuple(event for event in self.events if event[0] < at)).may_be_tried(at, mode, start_s)

    def may_be_tried(self, now: datetime, mode: Mode, start_s: float) -> bool:
        """Return whether a launch may be tried; a start of a machine takes `start_s`.

        While nothing runs, a refused one costs nothing: it is tried again after a minute, then after two, up to ten.
        One that would take the place of an on-demand machine costs a changeover if it is refused: it is tried the
        later, the longer a start takes and the oftener it was refused (core/spot/known_availability.py).
        """
        if not self.events or self.events[-1][1] == "obtained":
            return True
        since = now - self.events[-1][0]
        if mode == "on_demand":
            return since >= timedelta(hours=retry_after_h(start_s / HOUR_S, self._separate_refusals()))
        refusals = self._refusals_in_row()
        return not refusals or since >= timedelta(seconds=min(RETRY_S * 2 ** min(refusals - 1, 10), MAX_RETRY_S))

    def _refusals_in_row(self) -> int:
        """Return how many launches were refused since anything else was seen."""
        others = (number for number, (_, event) in enumerate(reversed(self.events)) if event != "refused")
        return next(others, len(self.events))

    def _separate_refusals(self) -> int:
        """Return how many of the refusals in a row were apart from what was seen before them."""
        times = [when for when, _ in self.events[-self._refusals_in_row() - 1 :]]
        return sum(later - sooner >= timedelta(hours=SAME_TRY_H) for sooner, later in pairwise(times))


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """How far a job is, and how long until its deadline, at one moment, in seconds.

    `unsaved_s` is the work that would be lost with its machine now, `pending_s` how long its machine still starts.
    """

    elapsed_s: float
    time_left_s: float
    work_left_s: float
    unsaved_s: float
    mode: Mode
    pending_s: float = 0.0

    @property
    def slack_s(self) -> float:
        """The time left beyond the work left."""
        return self.time_left_s - self.work_left_s


@dataclass(frozen=True, slots=True)
class MarketChoice:
    """On which market a job is to run, and why.

    `by_safety_net`: the safety net overrode the policy. `moves`: it moves to a cheaper spot machine.
    """

    mode: Mode
    why: str
    by_safety_net: bool = False
    moves: bool = False


def choose(
    job: Job, policy: Policy, history: SpotHistory, margins: Margins, now: datetime, status: DeadlineStatus
) -> MarketChoice:
    """Return what a job with a deadline is to run now; the past states are replayed to `policy` first."""
    terms = _deadline_of(job)
    policy.reset(facts_of(job, margins))
    for state in past_states(job, history, margins, now):
        policy.decide(state)
    state = state_of(status, spot=status.mode == "spot" or history.may_be_tried(now, status.mode, margins.start_s))
    safety_net = safety_net_of(job, margins, status)
    return _within_net(
        resolve_wait(policy.decide(state), state, safety_net), state, safety_net, status, terms["policy"]
    )


def _within_net(
    wanted: Answer, state: State, safety_net: SafetyNet, status: DeadlineStatus, policy: str
) -> MarketChoice:
    mode = safety_net.check(wanted, situation_of(state))["action"]
    if mode == "on_demand" and wanted["action"] != "on_demand":
        slack = duration_text(timedelta(seconds=max(0, int(status.slack_s))))
        return MarketChoice(
            mode, f"the deadline leaves {slack} to spare, which a loss of spot could use up", by_safety_net=True
        )
    words = {"wait": "waits for spot", "spot": "takes spot", "on_demand": "takes on demand"}
    return MarketChoice(mode, f"policy {policy} {words[mode]}")


def safety_net_of(job: Job, margins: Margins, status: DeadlineStatus) -> SafetyNet:
    """Return the safety net for this status, in hours.

    With a spot machine, its unsaved work may be lost, and the loss is noticed a pass later. A machine that has yet to
    begin may lose the work between two copies; to leave a machine for it costs the unsaved work there.
    """
    lost, tick = status.unsaved_s, margins.pass_interval_s
    if status.mode != "spot" or status.pending_s:
        lost += job.spec["every_s"]
    if status.mode == "on_demand":
        lost, tick = lost + margins.end_s, tick + status.unsaved_s + margins.end_s
    return SafetyNet(margins.changeover_s / HOUR_S, tick / HOUR_S, (lost + margins.pass_interval_s) / HOUR_S)


def may_move(job: Job, margins: Margins, status: DeadlineStatus, choice: MarketChoice) -> bool:
    """Return whether a job may move to a cheaper spot machine: its command runs, and it is to stay on spot.

    There must be time for that move and for another one, beyond what the safety net reserves for the new machine.
    """
    if status.mode != "spot" or choice.mode != "spot" or choice.by_safety_net or status.pending_s:
        return False
    move_s = margins.changeover_s + margins.end_s + margins.pass_interval_s
    after_move = replace(
        status,
        time_left_s=status.time_left_s - move_s,
        work_left_s=status.work_left_s + status.unsaved_s,
        unsaved_s=0.0,
        mode="wait",
    )
    return safety_net_of(job, margins, after_move).is_safe("spot", situation_of(state_of(after_move, spot=True)))


def facts_of(job: Job, margins: Margins) -> JobFacts:
    """Return the job's constant inputs for a policy."""
    terms = _deadline_of(job)
    return {
        "total_work_h": terms["work_s"] / HOUR_S,
        "deadline_h": (from_iso(terms["at"]) - job.requested_at).total_seconds() / HOUR_S,
        "tick_h": SAMPLE_INTERVAL_S / HOUR_S,
        "changeover_h": margins.start_s / HOUR_S,
        "price_spot": terms["spot"] / 1e9,
        "price_on_demand": terms["on_demand"] / 1e9,
    }


def state_of(status: DeadlineStatus, *, spot: bool) -> State:
    """Return a policy's inputs at one moment; `spot`: whether a spot machine is available."""
    return {
        "elapsed_h": status.elapsed_s / HOUR_S,
        "work_left_h": max(0.0, status.work_left_s) / HOUR_S,
        "time_left_h": status.time_left_s / HOUR_S,
        "spot_available": spot,
        "zones_available": None,
        "mode": status.mode,
        "zone": None,
        "pending_h": status.pending_s / HOUR_S,
    }


def past_states(job: Job, history: SpotHistory, margins: Margins, now: datetime) -> Iterator[State]:
    """Yield a policy's inputs at each tick before `now`."""
    deadline = from_iso(_deadline_of(job)["at"])
    for number in count():
        moment = job.requested_at + timedelta(seconds=number * SAMPLE_INTERVAL_S)
        if moment >= now or moment >= deadline:
            return
        status = deadline_status(job, moment, attempt=_open_at(job, moment), running_at=moment, margins=Margins())
        yield state_of(
            status, spot=status.mode == "spot" or history.was_available(moment, status.mode, margins.start_s)
        )


def _open_at(job: Job, moment: datetime) -> Attempt | None:
    """Return the attempt that had a machine then."""
    for attempt in reversed(job.attempts):
        if attempt.machine is not None and attempt.placed_at <= moment:
            return attempt if attempt.ended_at is None or attempt.ended_at > moment else None
    return None


def deadline_status(
    job: Job,
    now: datetime,
    *,
    attempt: Attempt | None,
    running_at: datetime | None,
    margins: Margins,
    progress: tuple[float, float | None] | None = None,
) -> DeadlineStatus:
    """Return the status of a job; `attempt` has a machine now, and its command was seen running at `running_at`.

    `progress` is what the command reported last: (done, total).
    """
    terms = _deadline_of(job)
    saved = saved_s(job, attempt, now)
    done, pending = saved, 0.0
    if attempt is not None:
        done = attempt.work_before_s
        if attempt.began_at is None:
            pending = max(0.0, margins.start_s - (now - attempt.placed_at).total_seconds())
        elif running_at is not None:
            done += max(0.0, (running_at - attempt.began_at).total_seconds())
    mode: Mode = "wait" if attempt is None or attempt.market is None else attempt.market
    return DeadlineStatus(
        elapsed_s=(now - job.requested_at).total_seconds(),
        time_left_s=(from_iso(terms["at"]) - now).total_seconds(),
        work_left_s=work_s(terms["work_s"], done, progress) - done,
        unsaved_s=max(0.0, done - saved),
        mode=mode,
        pending_s=pending,
    )


def saved_s(job: Job, attempt: Attempt | None, now: datetime) -> float:
    """Return the work that another machine would begin with: that of the newest copy at that time."""
    if job.saved is not None and job.saved.at <= now:
        return job.saved.work_s
    return 0.0 if attempt is None else attempt.work_before_s


def stored_work(job: Job, state: StoredState, now: datetime) -> tuple[str, float, datetime] | None:
    """Return the newest checkpoint of a bucket, the work that it holds in seconds, and when it was finished.

    None if its list does not say. As a machine wrote the list, the work is limited to how long the attempt existed.
    """
    newest = state.checkpoints[-1] if state.checkpoints else None
    if newest is None or newest.work_s is None:
        return None
    attempt = next((one for one in job.attempts if one.number == newest.attempt), None)
    if attempt is None:
        return None
    begin = attempt.began_at or attempt.placed_at
    ran_s = min(newest.work_s, max(0.0, ((attempt.ended_at or now) - begin).total_seconds()))
    return newest.name, attempt.work_before_s + ran_s, begin + timedelta(seconds=ran_s)


def work_s(planned_s: float, done: float, progress: tuple[float, float | None] | None) -> float:
    """Return how long all the work takes, in seconds: as `planned_s`, corrected by its progress.

    Progress that is slower than given counts in full. Faster progress counts more as more is done, as the first steps
    may be the quick ones.
    """
    fraction = _fraction(progress)
    if fraction is None or fraction < MIN_PROGRESS or done <= 0:
        return max(planned_s, done)
    measured = done / fraction
    return max(done, measured if measured >= planned_s else fraction * measured + (1 - fraction) * planned_s)


def _fraction(progress: tuple[float, float | None] | None) -> float | None:
    if progress is None or progress[1] is None or not 0 < progress[0] <= progress[1]:
        return None
    return progress[0] / progress[1]


def percentile(values: Sequence[float], share: float = 0.95) -> float:
    """Return the least of these values that `share` of them do not exceed. Raises ValueError where there are none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def margins_of(starts: Sequence[float], ends: Sequence[float], pass_intervals: Sequence[float]) -> Margins:
    """Return the margins by measured seconds; with few measurements, at least the defaults."""
    return Margins(
        max([START_S, *starts]) if len(starts) < MIN_LAUNCHES else percentile(starts),
        max([END_S, *ends]) if len(ends) < MIN_LAUNCHES else percentile(ends),
        max(MIN_POLL_S, percentile(pass_intervals) if pass_intervals else 0.0),
        len(starts),
    )


def least_time_s(work: float, margins: Margins) -> float:
    """Return in how many seconds from now a deadline has to be, at least, to be met on demand alone."""
    return work + margins.start_s + margins.pass_interval_s


def work_fits(status: DeadlineStatus, margins: Margins) -> bool:
    """Return whether the work left still fits before the deadline, with one start where nothing runs."""
    start_s = status.pending_s if status.mode != "wait" else margins.start_s
    return status.work_left_s + start_s <= status.time_left_s


def _deadline_of(job: Job) -> DeadlineRecord:
    terms = job.deadline
    if terms is None:
        raise ValueError(f"{job.name} has no deadline")
    return terms


def launch_options_of(job: Job, attempt: Attempt, now: datetime) -> dict[str, str | bool]:
    """Return the options of the launch of an attempt: for a job with a deadline, those of its market and time left."""
    terms = job.deadline
    if terms is None or attempt.market is None:
        return job.spec["launch"]
    time_left = max(timedelta(0), from_iso(terms["at"]) - now)
    spot = attempt.market == "spot"
    options = {
        **lifetime_options(time_left, timedelta(seconds=job.spec["results_wait_s"])),
        **job.spec["launch"],
        "spot": spot,
    }
    if spot:
        options.setdefault("max_price", f"{terms['on_demand'] / job.gang_size / 1e9:.6f}")  # dollars of each machine
    else:
        options.pop("max_price", None)
    return options


def lifetime_options(time_left: timedelta, results_wait: timedelta) -> dict[str, str | bool]:
    """Return the lease options of a machine: until the deadline (in `time_left`), and until its results are fetched.

    A running job renews its lease.
    """
    longest = time_left + RENEW_AFTER + results_wait
    return {"lease": seconds_text(min(longest, LEASE)), "renew_until": seconds_text(longest)}


def last_upload_s(job: Job) -> float:
    """Return for how long after the end of a command its last upload is waited for before its next attempt.

    With a deadline, no longer than the safety net reserves for the end of a machine.
    """
    return job.spec["results_wait_s"] if job.deadline is None else END_S


def may_reserve(job: Job) -> bool:
    """Say whether a job may need another machine for its deadline."""
    return job.deadline is not None and job.outcome is None and job.cancel is None


def has_running_machine(machines: Iterable[Machine]) -> bool:
    """Return whether one of these machines runs or may run, so that budgets count it instead of the reservation."""
    return any(
        one.terminated_at is None and one.launch_status not in NOTHING_MADE and may_be_running(one) for one in machines
    )


def reservation_of(job: Job, now: datetime) -> Exposure | None:
    """Return what budgets reserve for a job without a machine: one on demand from now on, for as long as it could run.

    None for a job without a deadline, and for one that is over.
    """
    terms = job.deadline
    if terms is None or not may_reserve(job):
        return None
    at, after = from_iso(terms["at"]), RENEW_AFTER + timedelta(seconds=job.spec["results_wait_s"])
    hourly = terms.get("budget_per_hour", terms["on_demand"])
    return Exposure(
        id=job.id,
        name=job.name,
        provider=terms.get("provider", ""),
        account=terms.get("account", ""),
        project=job.spec["project"],
        owner=job.spec["owner"],
        is_named_resource=False,
        ended_total=0,
        renew_until=to_us(max(at, now) + after),
        may_run_late=False,
        only_reaper=False,
        launch_sent_us=None,
        items=[(hourly, HOURLY, 0, False)],
        items_today=[],
        simple_uses=[],
        complex_uses=[],
    )
