"""Decides the next step for a job, from its lines, its machine and what was observed there. Pure.

A watcher reconciles a job: it gets the next step, does it, and gets the next one. A step that was done but not recorded
is returned again, so each of them may be done twice: launches have an idempotency key, attempts are claimed on their
machine, fetches compare hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cloudgpu.core.jobs.deadline import MAX_RETRY_S, RETRY_S, MarketChoice
from cloudgpu.core.jobs.job import NOTHING_MADE, Attempt, Job, JobMove, State
from cloudgpu.core.jobs.remote_state import Exit, Phase, RemoteState
from cloudgpu.core.jobs.stored import StoredResults
from cloudgpu.core.jobs.waiting import CAPACITY_WAIT, gives_up, is_retained, retained_until, void_launches, waits_until
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.spot.situation import Mode
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text, from_iso, minute_text


class JobAction(StrEnum):
    """What a watcher does next."""

    SCHEDULE = "schedule"  # write which machine an attempt gets
    LAUNCH = "launch"  # launch that machine, or find it by its key
    OBSERVE = "observe"  # query the machine at the next pass of the watcher
    START = "start"  # send the files and begin
    WATCH = "watch"  # record what is new, and do nothing else
    CANCEL = "cancel"  # stop the command
    MOVE = "move"  # end the machine although the command runs: it continues on another one
    RETRY = "retry"  # close this attempt; another one follows
    END = "end"  # write how the job ended
    FETCH = "fetch"  # bring the results back
    RECORD_STORED = "record_stored"  # write that the results are complete in their bucket
    STOP = "stop"  # end compute, and keep the disk: nobody has fetched the results in time
    RESUME = "resume"  # start the machine again that has the results
    TERMINATE = "terminate"  # end the job's machine
    CLOSE = "close"  # write that nothing is left to do
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Step:
    """A decision of a job's watcher, not a step of Slurm: what to do and why.

    `outcome`, `exit` and `interrupted` say how a job, or one attempt of it, ended.
    `mode` is the market on which a job with a deadline is to run next. `nothing_made`: the launch of an attempt made no
    machine. `kept_until`: until then the machine of a failed job is kept for inspection, and nothing is to be done.
    """

    action: JobAction
    why: str = ""
    outcome: State | None = None
    exit: Exit | None = None
    interrupted: bool = False
    nothing_made: bool = False
    mode: Mode | None = None
    kept_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ObservedState:
    """What is known besides the job's own lines.

    `machine` is that of the open attempt, None if none is known to exist. `remote` is what the machine itself reported,
    None if it was not queried; `why_silent` says why it did not answer. `spent` is what the job's machines have cost.
    `fetch_failed`: a fetch of its results has just failed; `start_failed`: its machine could just not begin it.
    `sold_out`: its stopped machine could not be started just now, for want of capacity or quota. `stored` are the
    results of the latest attempt that are complete in the job's bucket; `why_bucket_unread` says why the bucket cannot
    be read. `choice` is the market for a job with a deadline; None for any other job. `launch_was_sent`: a launch for
    its open attempt may have made a machine. `other_nodes` are the other nodes of a gang, of which `machine` is node 0;
    `why_node_doubtful` says which of them does not answer, though its provider reports it.
    """

    machine: Machine | None
    remote: RemoteState | None = None
    why_silent: str | None = None
    spent: Money | None = None
    fetch_failed: bool = False
    start_failed: bool = False
    sold_out: bool = False
    stored: StoredResults | None = None
    why_bucket_unread: str | None = None
    choice: MarketChoice | None = None
    launch_was_sent: bool = False
    other_nodes: tuple[Machine, ...] = ()
    why_node_doubtful: str | None = None


CANCEL_TIMEOUT = timedelta(minutes=10)  # after which a cancelled job is over even if its machine does not answer
MOVED = "moved"  # the exit reason of a command that continues on another machine
MAX_RESUMES = 2  # each costs the time of a boot, at least
INTERRUPTED = "interrupted"  # a provider's state reason of an interrupted spot machine
RUNNING_STATES = ("pending", "running", "stopping", "unknown")  # in which a machine may still answer
_ENDING_STATES = ("stopping", "terminated")
STATE_OF_EXIT_REASON = {
    "exited": State.FAILED,
    "no_command": State.FAILED,  # it is not on the machine: another try would not find it either
    "setup": State.SETUP_FAILED,
    "start": State.SETUP_FAILED,  # it could not be begun: a full disk, say
    "data": State.SETUP_FAILED,  # its data did not come
    "timeout": State.TIMED_OUT,
    "cancelled": State.CANCELLED,
    "over_cost": State.OVER_COST,
}


def next_step(job: Job, observed: ObservedState, now: datetime) -> Step:
    """Return the next step of a job."""
    if job.closed_at is not None:
        return Step(JobAction.WAIT, "the job is over")
    if job.outcome is not None:
        return _after_the_end(job, observed, now)
    if job.attempt is None:
        return (
            _cancelled(job)
            or _over_cost(job, observed.spent, JobAction.END)
            or _end_rest_of_gang(job, observed)
            or _delay_after_void_launches(job, now)
            or _place(observed.choice)
        )
    if job.attempt.machine is None or observed.machine is None:
        return _launch(job, job.attempt, observed)
    return _with_a_machine(job, job.attempt, observed.machine, observed, now)


def end_without_machine(job: Job, why: str, now: datetime) -> Step:
    """Return the step that ends a job which gets no further machine, for this reason."""
    wait_text = duration_text(CAPACITY_WAIT) if gives_up(job, now) else ""
    if job.deadline is not None and wait_text:
        late = from_iso(job.deadline["at"]) + CAPACITY_WAIT == waits_until(job, now)
        since = f"its deadline, {minute_text(job.deadline['at'])}," if late else "its last machine ended"
        state = State.NOT_LAUNCHED if len(job.attempts) == 1 else State.LOST
        return Step(JobAction.END, f"it got no machine for {wait_text} after {since} and is given up: {why}", state)
    within = f" in {wait_text}" if wait_text else ""
    return Step(JobAction.END, f"{job.attempts[-2].why}; it got no other machine{within}: {why}", State.LOST)


def _delay_after_void_launches(job: Job, now: datetime) -> Step | None:
    """Return a wait after void launches in a row: one is repeated at once, then after 1, 2, 4 to 10 minutes."""
    void = void_launches(job)
    if len(void) < 2:  # noqa: PLR2004  (the first is repeated at once)
        return None
    if gives_up(job, now):
        return end_without_machine(job, void[0].why, now)
    due = (void[0].ended_at or now) + timedelta(seconds=min(RETRY_S * 2 ** min(len(void) - 2, 10), MAX_RETRY_S))
    why = f"{len(void)} launches in a row made no machine; the next one is sent after {due:%H:%M:%S} UTC"
    return None if now >= due else Step(JobAction.WAIT, why)


def _place(choice: MarketChoice | None) -> Step:
    """Return the step that gives an attempt a machine; a job with a deadline may wait for a cheaper one."""
    if choice is None:
        return Step(JobAction.SCHEDULE)
    return Step(JobAction.WAIT if choice.mode == "wait" else JobAction.SCHEDULE, choice.why, mode=choice.mode)


def _launch(job: Job, attempt: Attempt, state: ObservedState) -> Step:
    """Return the step for an attempt without a machine: a job with a deadline may need another market by now.

    A cancelled one is launched, too: only its launch shows whether there is a machine.
    """
    choice = state.choice
    if choice is None or state.launch_was_sent or job.cancel is not None or choice.mode == attempt.market:
        return Step(JobAction.LAUNCH)
    return _place(choice)


def _with_a_machine(job: Job, attempt: Attempt, machine: Machine, state: ObservedState, now: datetime) -> Step:
    if attempt.move is not None and not _ended_by_itself(state.remote):
        return _continue_move(job, attempt, attempt.move, machine, state)
    return _without_a_node(job, machine, state) or _on_a_machine(job, attempt, machine, state, now)


def _on_a_machine(job: Job, attempt: Attempt, machine: Machine, state: ObservedState, now: datetime) -> Step:
    stopped = is_stopped(machine)
    if stopped or machine.terminated_at is not None or machine.state == "terminated":
        known = _by_its_bucket(job, attempt, state)
        if stopped:
            return known or _after_interruption(job, machine) or _machine_stopped(job, machine, state)
        return known or _cancelled(job) or _machine_gone(job, machine)
    if state.remote is None:
        if not state.why_silent:
            return Step(JobAction.OBSERVE)
        over_cost = None if job.cancel is not None else _over_cost(job, state.spent, JobAction.CANCEL)
        return over_cost or _move(job, attempt, state.choice) or _unanswered(job, attempt, state.why_silent, now)
    return _by_remote_state(job, attempt, state.remote, state, now)


def _ended_by_itself(remote: RemoteState | None) -> bool:
    """Say whether a command was over before it could be ended for a move: then that is how it ended."""
    return remote is not None and remote.exit is not None and remote.exit.reason != MOVED


def _continue_move(job: Job, attempt: Attempt, move: JobMove, machine: Machine, state: ObservedState) -> Step:
    """Return the next step of a move: the machine's end is confirmed before another attempt is placed.

    Its command may have ended by itself on a machine that did not answer: then its bucket has the results.
    """
    if any(one.terminated_at is None or one.parked for one in (machine, *state.other_nodes)):
        return Step(JobAction.MOVE, move.why, mode=move.to or "wait")
    return (
        _by_its_bucket(job, attempt, state)
        or _cancelled(job)
        or Step(JobAction.RETRY, move.why, interrupted=move.interrupted)
    )


def _move(job: Job, attempt: Attempt, choice: MarketChoice | None) -> Step | None:
    """Return the step by which a job with a deadline leaves its machine; None if it stays."""
    if choice is None or job.cancel is not None or (choice.mode == attempt.market and not choice.moves):
        return None
    return Step(JobAction.MOVE, choice.why, mode=choice.mode)


def _after_interruption(job: Job, machine: Machine) -> Step | None:
    """Return the step that ends the rest of an interrupted spot machine, if its job continues on another machine.

    That is so with a deadline. Another job waits for its machine, which has its newest files.
    """
    was_interrupted = machine.market == "spot" and machine.state_reason == INTERRUPTED and not machine.parked
    if not was_interrupted or job.deadline is None or job.cancel is not None:
        return None
    return Step(JobAction.MOVE, f"{machine.name} was taken by its provider", interrupted=True)


def _by_its_bucket(job: Job, attempt: Attempt, state: ObservedState) -> Step | None:
    """Return the step if a job's bucket says how its command ended, and the machine no longer runs; else None.

    While the bucket cannot be read, the command may be over, and is not run again.
    """
    if state.stored is not None and state.stored.attempt == attempt.number:
        return _exited(job, state.stored.exit)
    return None if state.why_bucket_unread is None else _cancelled(job) or Step(JobAction.WAIT, state.why_bucket_unread)


def _unanswered(job: Job, attempt: Attempt, why: str, now: datetime) -> Step:
    """Return the step while the machine does not answer: a cancelled job does not wait for it for ever."""
    if job.cancel is None or job.cancel_at is None:
        return Step(JobAction.WAIT, why)
    if attempt.began_at is None:
        return _cancelled(job) or Step(JobAction.WAIT, why)
    if now - job.cancel_at >= CANCEL_TIMEOUT:
        return Step(JobAction.END, f"{job.cancel[1]}; its machine does not answer", State(job.cancel[0]))
    return Step(JobAction.WAIT, why)


def _machine_stopped(job: Job, machine: Machine, state: ObservedState) -> Step:
    """Return the step after a stop: start the machine for its results, or end a job whose machine was stopped.

    A running job is activity: if its machine was stopped for idle time, or without a request, its command may be over.
    An interrupted spot machine that cannot be started again is replaced.
    """
    why = f"{machine.name} was stopped: {machine.action_reason or machine.state_reason or 'nobody said why'}"
    was_idle = machine.unrequested_stop or (machine.decision is not None and machine.decision.rule == "idle")
    if was_idle and job.spec["machine"] is None and job.resumes < MAX_RESUMES:
        was_interrupted = machine.state_reason == INTERRUPTED
        if was_interrupted and state.sold_out and job.cancel is None and job.interruptions < job.spec["restarts"]:
            return Step(JobAction.RETRY, f"{why}; it cannot be started again now", interrupted=True)
        what = "taken" if was_interrupted else "stopped for idle time"
        return Step(JobAction.RESUME, f"its command may have ended before its machine was {what}")
    return _cancelled(job) or Step(JobAction.END, why, State.LOST)


def _machine_gone(job: Job, machine: Machine) -> Step:
    why = f"{machine.name} is gone: {machine.action_reason or machine.state_reason or 'the cloud gives no reason'}"
    never_made = machine.launch_status in NOTHING_MADE
    if never_made and not machine.action_reason:
        why = f"the launch of {machine.name} made no machine"
    if (_is_limited(job) and not never_made) or _ended_by_hand(machine):
        return Step(JobAction.END, why, State.LOST)
    return Step(JobAction.RETRY, why, interrupted=True, nothing_made=never_made)


def _is_limited(job: Job) -> bool:
    """Return whether a job gets no further machine; with a deadline, only that limits how many it gets."""
    is_out_of_restarts = job.deadline is None and job.interruptions >= job.spec["restarts"]
    return job.spec["machine"] is not None or is_out_of_restarts


def _ended_by_hand(machine: Machine) -> bool:
    """Return whether a person requested a machine's end: not the reaper, nor after a failed launch."""
    by_rule = machine.decision is not None and machine.decision.why == machine.action_reason
    return machine.action_reason is not None and not by_rule and not machine.launch_failed


def _by_remote_state(job: Job, attempt: Attempt, remote: RemoteState, state: ObservedState, now: datetime) -> Step:
    if remote.phase is Phase.EXITED and remote.exit is not None:
        return _exited(job, remote.exit)
    if remote.phase is Phase.ABSENT and attempt.began_at is None:
        ended = _cancelled(job) or _over_cost(job, state.spent, JobAction.END)
        return ended or _move(job, attempt, state.choice) or _start(job, attempt, state, now)
    if remote.phase in (Phase.LOST, Phase.ABSENT):  # it existed before: its disk was replaced, for example
        return _cancelled(job) or _lost(job)
    if job.cancel is not None:
        return Step(JobAction.CANCEL, job.cancel[1])
    return _over_cost(job, state.spent, JobAction.CANCEL) or _move(job, attempt, state.choice) or Step(JobAction.WATCH)


def _start(job: Job, attempt: Attempt, state: ObservedState, now: datetime) -> Step:
    """Return that an attempt is begun; after too long, one whose last try failed is given up."""
    if attempt.stuck is None or not state.start_failed or not gives_up(job, now):
        return Step(JobAction.START)
    since = duration_text(waits_until(job, now) - attempt.stuck[0])
    return Step(JobAction.END, f"it could not be begun for {since}: {attempt.stuck[1]}", State.SETUP_FAILED)


def _over_cost(job: Job, spent: Money | None, do: JobAction) -> Step | None:
    """Return the end of a job whose machines have cost as much as it may; None for another one."""
    limit = job.spec["max_cost"]
    if limit is None or spent is None or spent.nanos < limit:
        return None
    why = f"it has cost {spent.text(2)}, and --max-cost is {Money(limit).text(2)}"
    return Step(do, why, State.OVER_COST)


def _lost(job: Job) -> Step:
    why = "the machine was restarted, or what kept the command's exit status was killed"
    if job.deadline is None and job.interruptions >= job.spec["restarts"]:
        return Step(JobAction.END, why, State.LOST)
    return Step(JobAction.RETRY, why, interrupted=True)


def _exited(job: Job, ended: Exit) -> Step:
    if ended.reason == "exited" and ended.status == 0 and not ended.signal:
        return Step(JobAction.END, outcome=State.SUCCEEDED, exit=ended)
    if ended.reason == "data" and job.cancel is None and job.interruptions < job.spec["restarts"]:
        # What has come is there for the next attempt.
        return Step(JobAction.RETRY, ended.why, exit=ended, interrupted=True)
    if ended.reason == "exited" and job.cancel is None and job.failed_tries < job.spec["retries"]:
        return Step(JobAction.RETRY, ended.why or f"exit status {ended.status}", exit=ended)
    outcome = State.FAILED if job.cancel is None else State(job.cancel[0])
    if ended.reason != "exited":
        outcome = STATE_OF_EXIT_REASON.get(ended.reason, outcome)
    return Step(JobAction.END, ended.why if job.cancel is None else job.cancel[1], outcome, ended)


def _without_a_node(job: Job, machine: Machine, state: ObservedState) -> Step | None:
    """Return the step if a gang has lost a node, or may have; None if it continues."""
    lost = _lost_node(machine, state)
    if lost is not None:
        return _cancelled(job) or _machine_gone(job, lost)
    if state.why_node_doubtful is not None and has_failed(state.remote):
        return _cancelled(job) or Step(JobAction.WAIT, state.why_node_doubtful)
    return None


def _lost_node(machine: Machine, state: ObservedState) -> Machine | None:
    """Return a node without which a gang cannot go on; None where it has all, or all are stopped, or its job is over.

    A lost node may be why a command fails. Of several, one that ended without a request is returned first: the others
    may have been ended because of it.
    """
    nodes = (machine, *state.other_nodes)
    over = state.remote is not None and state.remote.exit is not None and not has_failed(state.remote)
    if not state.other_nodes or over or all(map(is_stopped, nodes)):
        return None
    lost = [
        node for node in nodes if is_stopped(node) or node.terminated_at is not None or node.state in _ENDING_STATES
    ]
    return min(lost, key=_ended_by_hand, default=None)


def is_stopped(machine: Machine) -> bool:
    """Say whether a machine is stopped, or parked."""
    return machine.state in ("stopped", "deallocated") or machine.parked


def has_failed(remote: RemoteState | None) -> bool:
    """Say whether a command ended by itself, and not well."""
    ended = None if remote is None else remote.exit
    return ended is not None and ended.reason == "exited" and bool(ended.status or ended.signal)


def _end_rest_of_gang(job: Job, state: ObservedState) -> Step | None:
    """Return the step that ends the other nodes of an interrupted gang, before anything else; None if none are left."""
    nodes_remain = any(one.terminated_at is None for one in (state.machine, *state.other_nodes) if one is not None)
    if not state.other_nodes or not nodes_remain or not job.attempts[-1].interrupted:
        return None
    return Step(JobAction.TERMINATE, "a gang starts again as a whole")


def _cancelled(job: Job) -> Step | None:
    return Step(JobAction.END, job.cancel[1], State(job.cancel[0])) if job.cancel else None


def _after_the_end(job: Job, state: ObservedState, now: datetime) -> Step:
    """Return the step for a job whose command is over: fetch its results, then end its machine."""
    machine, results_complete = state.machine, job.fetched is not None and job.fetched.whole
    machine_gone = machine is None or (machine.terminated_at is not None and not machine.parked)
    if not results_complete and state.stored is not None and state.stored.attempt == job.attempts[-1].number:
        return Step(JobAction.RECORD_STORED)
    if (
        not results_complete
        and machine_gone
        and state.why_bucket_unread is not None
        and now < _wait_ends(job, machine, now)
    ):
        return Step(JobAction.WAIT, state.why_bucket_unread)
    if not results_complete and not machine_gone and machine is not None and _had_a_command(job):
        return _fetch(job, machine, state, now)
    nodes_remain = machine_gone and any(one.terminated_at is None for one in state.other_nodes)
    if not nodes_remain and (machine_gone or job.spec["machine"] is not None):
        return Step(JobAction.CLOSE, "" if results_complete else "its results are those of the last copy")
    if is_retained(job) and now < retained_until(job):
        return Step(JobAction.WAIT, "its machine is kept for a look", kept_until=retained_until(job))
    return Step(JobAction.TERMINATE)


def _fetch(job: Job, machine: Machine, observed: ObservedState, now: datetime) -> Step:
    """Return the step that fetches results: from a running machine, or from one that is started again for them.

    A machine that a person stopped while the command ran is left as it is, and so is one from which a fetch failed:
    each start would cost more.
    """
    if machine.parked or machine.state not in RUNNING_STATES:
        may_resume = job.outcome is not State.LOST and job.fetched is None and job.resumes < MAX_RESUMES
        if job.spec["machine"] is None and may_resume:
            return Step(JobAction.RESUME, "nobody had fetched its results when its machine was stopped")
        state = "parked" if machine.parked else machine.state
        return Step(JobAction.WAIT, f"its results are on {machine.name}, which is {state}")
    wait_is_over = now >= _wait_ends(job, machine, now)
    if job.spec["machine"] is None and wait_is_over and observed.fetch_failed:  # a later fetch gets them
        return Step(JobAction.STOP, "nobody has fetched its results in time")
    return Step(JobAction.FETCH)


def _wait_ends(job: Job, machine: Machine | None, now: datetime) -> datetime:
    """Return until when the results of a job are waited for: `--results-wait` from its end, or its machine's start."""
    since = from_iso(machine.since) if machine is not None and machine.since else None
    return max(filter(None, (job.ended_at, since)), default=now) + timedelta(seconds=job.spec["results_wait_s"])


def _had_a_command(job: Job) -> bool:
    if job.attempts and job.attempts[-1].stuck is not None and job.attempts[-1].began_at is None:
        return False  # results of earlier attempts were fetched already
    return any(attempt.began_at is not None for attempt in job.attempts) or job.outcome is State.SETUP_FAILED
