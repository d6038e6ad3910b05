"""A job with a deadline in a world of its own: spot that comes and goes, starts that take time, watchers that are late.

The decision (`core.jobs.steps`, `core.jobs.deadline`) and the fold are the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.deadline import Margins, SpotHistory, choose, deadline_status, may_move
from cloudgpu.core.spot import POLICIES
from cloudgpu.core.values.times import iso
from tests.core.jobs.worlds import START, World, machine, spec


def deadline_spec(work_h, deadline_h, policy="uniform-progress", **more):
    """A job's spec with a deadline."""
    record = {
        "at": iso(START + timedelta(hours=deadline_h)),
        "work_s": int(work_h * 3600),
        "policy": policy,
        "spot": 1_000_000_000,
        "on_demand": 3_000_000_000,
    }
    return spec(deadline=record, **more)


@dataclass
class SpotWorld(World):
    """`is_up` says if spot is had at a minute; a launch takes `start_s`, a watcher checks each `pass_interval_s`.

    The command writes a checkpoint each `checkpoint_s`, and a copy is made each `every_s`.
    """

    is_up: object = None
    start_s: float = 600.0
    end_s: float = 60.0
    pass_interval_s: float = 60.0
    checkpoint_s: float = 300.0
    progress: float = 0.0  # work that the machine has, seconds
    saved: float = 0.0  # work that is copied
    copied: float = 0.0  # when that was
    running_since: object = None
    events: list = field(default_factory=list)  # SpotSeen
    billed: list = field(default_factory=list)  # (market, from, until)
    done_at: object = None
    chooser: object = None  # the policy
    folded: tuple = (0, None)
    cheaper: object = None  # says at which minutes another place is cheaper
    moves: int = 0

    @property
    def job(self):
        if self.folded[0] != len(self.drafts):
            self.folded = (len(self.drafts), super().job)
        return self.folded[1]

    def policy(self):
        if self.chooser is None:
            self.chooser = POLICIES[self.spec["deadline"]["policy"]]()
        return self.chooser

    def margins(self):
        return Margins(self.start_s, self.end_s, self.pass_interval_s)

    def minute(self):
        return int((self.now - START).total_seconds() // 60)

    def up(self):
        return self.is_up(self.minute())

    def market(self):
        return self.job.attempts[-1].market

    def seen(self, job):
        found = super().seen(job)
        if job.outcome is not None:
            return found
        there = found.machine
        attempt = job.attempt if there is not None and there.terminated_at is None else None
        at = deadline_status(job, self.now, attempt=attempt, running_at=self.now, margins=self.margins())
        choice = choose(job, self.policy(), SpotHistory(tuple(self.events)), self.margins(), self.now, at)
        if self.cheaper is not None and self.cheaper(self.minute()) and may_move(job, self.margins(), at, choice):
            choice = replace(choice, moves=True)
        sent = attempt is None and job.attempt is not None and f"m-{job.attempt.key}" in self.machines
        return replace(found, choice=choice, launch_was_sent=sent)

    def passes(self, seconds):
        """Let time pass: the command computes, checkpoints are written, spot goes away."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            step = min(10.0, (end - self.now).total_seconds())
            self.now += timedelta(seconds=step)
            self._computes(step)
            running = self.running()
            if running and self.market() == "spot" and not self.up():
                self.vanishes()

    def _computes(self, step):
        running = self.running()
        if not running or (self.now - self.running_since).total_seconds() < 0:
            return
        self.progress += step
        if self.progress >= self.spec["deadline"]["work_s"] and self.done_at is None:
            self.done_at = self.now
            self.ends(running[-1], status=0)

    def vanishes(self):
        there = self.machine_of(self.job)
        if there is not None and there.terminated_at is None:
            self.close_bill()
            self.machines[there.id] = there._replace(
                state="terminated", terminated_at=iso(self.now), state_reason="interrupted"
            )
        self.progress = self.saved

    def close_bill(self):
        market, since, until = self.billed[-1]
        if until is None:
            self.billed[-1] = (market, since, self.now)

    def copies(self):
        """Copy the newest checkpoint, and write how much it holds."""
        attempt = self.job.attempts[-1]
        held = attempt.work_before_s + (self.progress - attempt.work_before_s) // self.checkpoint_s * self.checkpoint_s
        self.copied = self.now.timestamp()
        if held > self.saved:
            self.saved = held
            self.write(lines.job_work_saved("job-1", attempt.number, "c", held, self.now))

    # -- steps

    def do_wait(self, job, step, *, killed):
        self.passes(self.pass_interval_s)

    def do_watch(self, job, step, *, killed):
        attempt = job.attempts[-1]
        if attempt.began_at is None and self.now >= self.running_since:
            self.write(lines.job_began("job-1", attempt.number, None, self.running_since))
        if self.now.timestamp() - self.copied >= self.spec["every_s"] and not killed:
            self.copies()
        self.passes(self.pass_interval_s)

    do_observe = do_wait

    def do_schedule(self, job, step, *, killed):
        if killed:
            return
        market = None if step.mode == "wait" else step.mode
        if job.attempt is not None:
            turn = job.attempt.turn + 1
            key = f"key-{job.attempt.number}-{turn}"
            number = job.attempt.number
        else:
            number, turn = len(job.attempts) + 1, 0
            key = f"key-{number}"
        self.write(lines.job_placed("job-1", number, self.now, key=key, machine=None, market=market, turn=turn))

    def do_launch(self, job, step, *, killed):
        attempt = job.attempts[-1]
        known = f"m-{attempt.key}"
        alive = [one for one in self.machines.values() if one.terminated_at is None and one.id != known]
        assert not alive, "two machines at once"
        if known not in self.machines:
            if attempt.market == "spot" and not self.up():
                self.events.append((self.now, "refused"))
                self.passes(5)
                return
            if attempt.market == "spot":
                self.events.append((self.now, "obtained"))
            self.machines[known] = machine(known, market=attempt.market)
            self.billed.append((attempt.market, self.now, None))
        if not killed:
            self.write(lines.job_machine("job-1", attempt.number, known, self.now))

    def do_start(self, job, step, *, killed):
        super().do_start(job, step, killed=killed)
        self.running_since = self.now + timedelta(seconds=self.start_s - 5)
        self.copied = self.running_since.timestamp()
        self.progress = self.saved

    def do_move(self, job, step, *, killed):
        attempt = job.attempts[-1]
        if attempt.move is None:
            if not killed:
                to = None if step.mode == "wait" else step.mode
                self.moves += to == attempt.market
                self.write(lines.job_move_requested("job-1", attempt.number, to, step.why, self.now))
            return
        there = self.machine_of(job)
        self.copies()
        self.progress = self.saved
        self.passes(min(self.end_s, 30))
        if self.machines[there.id].terminated_at is None:
            self.close_bill()
            self.machines[there.id] = there._replace(
                state="terminated", terminated_at=iso(self.now), action_reason="continues elsewhere"
            )

    def do_retry(self, job, step, *, killed):
        attempt = job.attempts[-1]
        if step.interrupted and attempt.market == "spot":
            self.events.append((self.now, "lost"))
        if not killed:
            also = "moved" if attempt.move is not None and not step.interrupted else None
            self.write(
                lines.job_try_ended(
                    "job-1", attempt.number, self.now, interrupted=step.interrupted, status=None, why="x", also=also
                )
            )

    def do_terminate(self, job, step, *, killed):
        self.close_bill()
        super().do_terminate(job, step, killed=killed)

    def to_the_end(self, kills=(), most=100_000):
        """Carry it on until it is closed; a watcher dies at these steps, once they are done and not written down."""
        for number in range(most):
            if not self.job.is_open:
                return self
            self.step(killed=number in kills)
        raise AssertionError("it never ended")

    def cost(self):
        """Hours by market."""
        found = {"spot": 0.0, "on_demand": 0.0}
        for market, since, until in self.billed:
            found[market] += (until - since).total_seconds() / 3600
        return found
