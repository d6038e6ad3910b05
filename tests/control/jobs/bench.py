"""A user with a training script and machines of this computer: real processes, real SSH, a real ledger."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from io import BytesIO
from multiprocessing import get_context

import psutil

from cloudgpu.control.jobs.follow import follow
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.lifecycle.lifecycle import terminate_with_resources
from cloudgpu.control.outage.opening import open_session

STEPS, EACH = 40, 5  # of the training, and between two checkpoints
TRAIN = f"""
import hashlib, json, os, pathlib, sys, time
kept = pathlib.Path(os.environ["CLOUDGPU_CHECKPOINT"])
results = pathlib.Path(os.environ["CLOUDGPU_RESULTS"])
for place in (kept, results):
    place.mkdir(parents=True, exist_ok=True)
step, value = 0, "seed"
done = sorted(kept.glob("step-*"))
if done:
    step, value = json.loads(done[-1].joinpath("state.json").read_text())
    assert done[-1].joinpath("weights").read_bytes() == value.encode() * 2000, "a torn checkpoint was used"
print(f"begins at {{step}}, restart {{os.environ['CLOUDGPU_RESTART_COUNT']}}", flush=True)
while step < {STEPS}:
    step, value = step + 1, hashlib.sha256(f"{{value}} {{step}}".encode()).hexdigest()
    print(f"step {{step}}", flush=True)
    if step % {EACH} == 0:
        part = kept / f"step-{{step:04}}.tmp"
        part.mkdir(exist_ok=True)
        part.joinpath("weights").write_bytes(value.encode() * 2000)
        part.joinpath("state.json").write_text(json.dumps([step, value]))
        part.rename(kept / f"step-{{step:04}}")
    pathlib.Path(os.environ["CLOUDGPU_PROGRESS"]).write_text(json.dumps({{"done": step, "of": {STEPS}}}))
    time.sleep(float(os.environ.get("PAUSE", "0.02")))
results.joinpath("answer.txt").write_text(value)
print("done", file=sys.stderr, flush=True)
"""


def answer():
    """What the training gives where nothing interrupts it."""
    from hashlib import sha256

    value = "seed"
    for step in range(STEPS):
        value = sha256(f"{value} {step}".encode()).hexdigest()
    return value


class Bench:
    """A home, a working directory, and jobs in it."""

    def __init__(self, root):
        self.home, self.work = root / "home", root / "work"
        self.work.mkdir(parents=True)
        (self.work / "train.py").write_text(TRAIN)
        self.environ = {**os.environ, "CLOUDGPU_HOME": str(self.home), "USER": "ada"}
        self.said = []
        self.session = self.opened()

    def opened(self):
        """A session as a new process has it."""
        return open_session(self.environ, tell=self.said.append)

    def request(self, *argv, **options):
        options = {"every": "1s", **options}
        if "on" not in options:
            options = {"provider": "local", "policy": "default", **options}
        argv = argv or (sys.executable, "train.py")
        return parse_run(workdir=self.work, argv=list(argv), environ=self.environ, **options)

    def begun(self, *argv, **options):
        """A job that is written down, and nothing more."""
        return record_request(self.session, plan_run(self.session, self.request(*argv, **options), self.environ))

    def followed(self, job):
        """Carry a job to its end; return it with what it wrote."""
        out, err = BytesIO(), BytesIO()
        return follow(self.session, job, self.environ, stdout=out, stderr=err), out.getvalue(), err.getvalue()

    def run(self, *argv, **options):
        return self.followed(self.begun(*argv, **options))

    def carried(self, job, until, most_s=60):
        """Carry a job on until this holds of it, as a watcher does; return it."""
        end = time.monotonic() + most_s
        with JobReconciler(self.session, job.id, self.environ) as carrier:
            while time.monotonic() < end:
                found = carrier.reconcile()
                if until(found):
                    return found
                time.sleep(0.1)
        raise AssertionError(f"it never came: {found}")

    def running(self, job):
        """Carry a job on until its command runs."""
        return self.carried(job, lambda found: found.job.attempt is not None and found.job.attempt.began_at is not None)

    def now(self, job):
        return job_by_id(self.session, job.id)

    def steps(self, job):
        """The steps that were done, by attempt, by the copies of the output."""
        found = []
        for number in range(1, len(self.now(job).attempts) + 1):
            path = self.home / "jobs" / job.id / f"out-{number}"
            lines = path.read_text().splitlines() if path.exists() else []
            found.append([int(line.split()[1]) for line in lines if line.startswith("step ")])
        return found

    def steps_more(self, job, count, most_s=60):
        """Wait until the running attempt has done so many more steps, or is over; nobody watches meanwhile."""
        number, end = len(self.now(job).attempts), time.monotonic() + most_s

        def outs():
            try:
                return sum(one.read_text().count("step ") for one in self.home.rglob(f"jobs/{job.id}/{number}/out"))
            except FileNotFoundError:  # a machine's directory went while it was read
                return 0

        begin = outs()
        while begin < STEPS and outs() < min(STEPS, begin + count) and time.monotonic() < end:
            time.sleep(0.02)

    def machine_of(self, job):
        return self.session.ledger.machine(self.now(job).attempts[-1].machine)

    def takes(self, job):
        """Take the job's machine away, as a spot market does: nobody of ours asked for it."""
        machine = self.machine_of(job)
        self.session.provider_of(machine).terminate(machine.provider_id)

    def processes(self, job, word):
        """The processes of a job's attempt in whose command line, or environment, this word is."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if word in " ".join(process.cmdline()) and job.id in " ".join(
                    [*process.cmdline(), *process.environ().values(), process.cwd()]
                ):
                    found.append(process)
        return found

    def watcher(self, job):
        """Another process that carries the job on in front, to be killed."""
        process = get_context("fork").Process(target=_watch, args=(self, job), daemon=True)
        process.start()
        return process

    def left(self):
        """The machines that are not over."""
        return [one for one in self.session.ledger.machines() if one.terminated_at is None]

    def end(self):
        for machine in self.left():
            terminate_with_resources(self.session, machine, why="the test is over")
        self.session.ledger.close()


def _watch(bench, job):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    bench.session = bench.opened()
    bench.followed(job)
