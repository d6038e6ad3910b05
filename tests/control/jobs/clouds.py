"""A user whose jobs run on machines of a cloud, and watchers that are killed at every step of theirs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path

from cloudgpu.access.jobs.program_channel import ProgramChannel
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.jobs.job import State
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.book import Book
from cloudgpu.testing import write_plugin
from tests.control.jobs import ssh_cloud
from tests.control.jobs.bench import Bench
from tests.forked import fork

ZONES = ("north-a", "north-b", "south-a", "south-b")
SAYS = """
import fcntl, os, pathlib, sys, time
record = pathlib.Path(sys.argv[1])
attempt = int(os.environ["CLOUDGPU_RESTART_COUNT"])
def say(word):
    with record.open("a") as file:
        file.write(f"{word} {attempt}\\n")
with record.with_suffix(".lock").open("a") as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say("twice")
        sys.exit(99)
    say("begin")
    results = pathlib.Path(os.environ["CLOUDGPU_RESULTS"])
    results.mkdir(parents=True, exist_ok=True)
    print("line one", flush=True)
    results.joinpath("early").write_text("early")
    time.sleep(float(sys.argv[2]))
    results.joinpath("answer").write_bytes(b"42\\n" * 10_000)
    print("line two", flush=True)
    say("end")
    sys.exit(int(sys.argv[3]))
"""


@cache
def _plugin(directory):
    return str(write_plugin(directory / "ssh-cloud", {"fake": ssh_cloud.KIND}))


class Shifted:
    """The clock of this computer, moved on by `seconds`, for the machines, too."""

    def __init__(self, root):
        self.seconds, self._file = 0.0, root / "offset"

    def __call__(self):
        return datetime.now(UTC) + timedelta(seconds=self.seconds)

    def advance(self, seconds):
        self.seconds += seconds
        self._file.write_text(str(self.seconds))


class Rented(Bench):
    """A bench whose machines are those of a cloud."""

    def __init__(self, root, monkeypatch, options=""):
        monkeypatch.setattr(sys, "path", [_plugin(root.parent), *sys.path])
        root.mkdir(exist_ok=True)
        self.root, self.clock = root, Shifted(root)
        (root / "home").mkdir()
        self.machines = ssh_cloud.Machines(root, root / "home" / "keys")
        table = f'provider = "fake"\n[accounts.lab]\nprovider = "fake"\n{self.machines.options}{options}\n'
        (root / "home" / "config.toml").write_text(table)
        super().__init__(root)
        (self.work / "train.py").write_text(SAYS)
        self.record = root / "record"
        self.cloud = self.session.provider("lab")

    def opened(self):
        return open_session(self.environ, clock=self.clock, tell=self.said.append)

    def asked(self, *, pause=0.2, status=0, **options):
        """A job that is written down: its command says in the record when it begins and ends."""
        options = {"provider": "fake", "gpu": "v100", "name": "train", "policy": "default", **options}
        return self.begun(sys.executable, "train.py", str(self.record), str(pause), str(status), **options)

    def events(self):
        """What the commands said: how often each word was."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return Counter(line.split()[0] for line in lines)

    def takes(self, job):
        """Take the job's machine away once its command has said that it has begun."""
        end = time.monotonic() + 20
        begun = sum(one.began_at is not None for one in self.now(job).attempts)
        while self.events()["begin"] < begun and time.monotonic() < end:
            time.sleep(0.02)
        super().takes(job)

    def billed(self):
        """The machines that the cloud bills."""
        return [one for one in self.cloud.list().instances if one.billed]

    def child(self, job, at=None, *, until=None, most_s=60):
        """Carry a job on in a process of its own, killed at its step number `at`; return the steps it came to.

        `until`: it ends by itself where this holds of what was carried.
        """
        steps = self.root / "steps"
        steps.unlink(missing_ok=True)
        number = fork()
        if number == 0:
            _child(self, job, at, until, steps, most_s)
        _, status = os.waitpid(number, 0)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), (at, status)
        return steps.read_text().splitlines() if steps.exists() else []

    def killed_at_every_step(self, job):
        """Kill watchers until one carries the job to its end; return at which steps they were killed.

        From where a job stands, the first watcher is killed at its first step, the next one at its second, until
        something has come of it: then they begin anew from there.
        """
        at, died, before = 1, [], self.progress(job)
        while True:
            steps = self.child(job, at)
            self.at_most_one()
            if len(steps) < at:
                return died
            died.append(steps[-1])
            now = self.progress(job)
            at, before = (at + 1 if now == before else 1), now

    def progress(self, job):
        """What tells that something has come of a watcher: what the job is, machines, what the command said."""
        state = self.machines.state
        machines = json.loads(state.read_text())["machines"] if state.exists() else []
        return self.now(job), [(one["id"], one["requested"]) for one in machines], self.events()

    def at_most_one(self):
        assert len(self.billed()) <= 1, self.billed()
        assert "twice" not in self.events()

    def ends(self, job, *, state=State.SUCCEEDED, status=0, begun=1):
        """Carry the job to its end with a new process, and look at all that is left."""
        self.child(job)
        self.is_over(job, state=state, status=status, begun=begun)

    def is_over(self, job, *, state=State.SUCCEEDED, status=0, begun=1):
        job = self.now(job)
        assert not job.is_open, self.said
        assert (job.state, job.shell_status) == (state, status), job.why
        self.nothing_left()
        seen = self.events()
        assert seen["begin"] == begun, seen
        assert "twice" not in seen
        if begun:
            assert seen["end"] >= 1
            self.whole(job)

    def whole(self, job):
        """All that the command wrote is here."""
        assert job.fetched.whole, job.fetched
        place = self.work / "results" / job.name
        assert place.joinpath("answer").read_bytes() == b"42\n" * 10_000
        assert sorted(one.name for one in place.iterdir()) == ["answer", "early"]
        out = self.home / "jobs" / job.id / f"out-{len(job.attempts)}"
        assert out.read_text() == "line one\nline two\n"

    def nothing_left(self):
        """No machine, disk or process; the ledger holds, and says what the cloud's own record says it cost."""
        assert self.billed() == []
        said = json.loads(self.machines.state.read_text())
        left = self.cloud.resources().items
        assert not left, left
        until = time.monotonic() + 5
        while left := ssh_cloud.processes(self.machines.root):
            assert time.monotonic() < until, left
            time.sleep(0.02)
        session = self.opened()
        try:
            assert [one for one in session.ledger.machines() if one.terminated_at is None] == []
            ours, clouds = self.ledger_cost(session), self.cloud_cost(said)
            assert abs(ours - clouds) <= self.roundings(said), (ours, clouds)
            faults = session.ledger.verify().faults
            assert not faults, faults
        finally:
            session.ledger.close()

    def roundings(self, said):
        """How many sums of the ledger are rounded to a nano-dollar: one for each machine."""
        return len(said["machines"])

    def ledger_cost(self, session):
        """Nano-dollars, by the ledger."""
        return sum(spent_until_now(one, self.clock()).nanos for one in session.ledger.machines())

    def cloud_cost(self, said):
        """Nano-dollars, by the cloud's own record: a v100 costs $3 an hour."""
        total = Fraction(0)
        for one in said["machines"]:
            assert one["requested"] == "terminated" or one["taken_at"], one
            ended = min(filter(None, (one["taken_at"], one["asked_at"] if one["requested"] == "terminated" else None)))
            span = datetime.fromisoformat(ended) - datetime.fromisoformat(one["made_at"])
            total += Fraction(span // timedelta(microseconds=1), 10**6) * 3 * 10**9 / 3600
        return total


def _child(world, job, at, until, steps, most_s):
    """Carry the job on, and be killed before step `at`."""
    code = 1
    try:
        seen = 0

        def strike(what):
            nonlocal seen
            seen += 1
            with steps.open("a") as file:
                file.write(f"{what}\n")
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        _struck(strike)
        world.session = world.opened()
        end = time.monotonic() + most_s
        with JobReconciler(world.session, job.id, world.environ) as carrier:
            while time.monotonic() < end:
                found = _carried(carrier)
                if found is not None and (not found.job.is_open or (until is not None and until(found))):
                    code = 0
                    break
                time.sleep(0.02)
    except BaseException as error:  # noqa: BLE001  (it is a fork of the tests' process)
        sys.stderr.write(f"{error!r}\n")
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _carried(carrier):
    try:
        return carrier.reconcile()
    except CloudgpuError:
        return None


def _struck(strike):
    """Call `strike` before each change of the cloud, line of the ledger, request to a machine, and file that is moved.

    Just after one of them is just before the next: nothing else that a watcher does is seen by anybody.
    """
    ssh_cloud.STRIKES.append(strike)
    for owner, name in ((Book, "decide"), (ProgramChannel, "request"), (Path, "replace")):
        setattr(owner, name, _striking(getattr(owner, name), strike, name))


def _striking(act, strike, name):
    def struck(*args, **more):
        if not str(args[0]).endswith("cloud.json.new"):  # that is the cloud's own
            strike(name)
        return act(*args, **more)

    return struck
