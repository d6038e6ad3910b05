"""A user whose jobs run on our models of the clouds, by the unchanged SDKs; watchers are killed at calls they make.

The models and their machines' SSH servers are this process and its child; a watcher is a fork of it. The server kills
the watcher before or after it does a call that changes something, and gives no answer. What there is in the cloud is
read from the model itself, never by the product.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.outage.opening import open_session
from cloudgpu.errors import CloudgpuError
from tests.clouds.aws.iam import Judge
from tests.clouds.aws.plain import client, role_of_timers
from tests.clouds.azure.power import BILLED
from tests.control.jobs.bench import Bench
from tests.control.jobs.clouds import SAYS, Rented
from tests.forked import fork
from tests.soak.crash_azure import is_read as azure_is_read

CALLER = "203.0.113.7/32"
MOST_S = 100.0  # that a watcher may take to the end of a job
HUNG_S = 20.0  # longer than that: it waits for a lock of OpenSSL that a thread of the tests held when it was forked
HUNG = "hung"
MOST_WATCHERS = 150


class Strike:
    """What the server tells of each call: kills the watcher at its first moment that is not among `done`, and adds it.

    A moment is just before, or just after, the N-th call of an action that changes something. Without `done` nobody is
    killed.
    """

    def __init__(self, is_read, done=None, judge=lambda _number, _phase: None):
        self.watcher, self.at = Future(), None
        self._judge = judge
        self._is_read, self._done = is_read, done
        self._numbers, self._names, self._lock = Counter(), {}, threading.Lock()

    def __call__(self, number, action, phase):
        self._judge(number, phase)
        if self._is_read(action):
            return None
        with self._lock:
            if self.at is not None:
                return "drop"  # the dead send nothing more
            if phase == "before":
                self._numbers[action] += 1
                self._names[number] = action, self._numbers[action]
            moment = (phase, *self._names.get(number, (action, 0)))
            if self._done is None or moment in self._done:
                return None
            self.at = moment
            self._done.add(moment)
        os.kill(self.watcher.result(MOST_S), signal.SIGKILL)
        return "drop"


def both(*actions):
    """Just before each of these calls, and just after it."""
    return {(phase, action, 1) for action in actions for phase in ("before", "after")}


class OnModel(Rented):
    """A bench whose machines are those of a model of a cloud.

    `changes` are moments in the life of a job at which a sweep has to kill, `changes_of_restart` those of a restart.
    """

    kind, region, changes, changes_of_restart = "", "", set(), set()

    def __init__(self, root, server, *, spot=True):
        root.mkdir(exist_ok=True)
        self.root, self.server, self.spot = root, server, spot
        self.clock = self._clock()
        self.served = server.serve_ssh()
        (root / "home").mkdir()
        (root / "home" / "config.toml").write_text(self.config())
        Bench.__init__(self, root)
        (self.work / "train.py").write_text(SAYS)
        self.record = root / "record"

    def config(self):
        account = f'[accounts.lab]\nprovider = "{self.kind}"\nregions = ["{self.region}"]\n'
        return f'provider = "{self.kind}"\naddress_services = []\n{account}ssh_port = {self.server.ssh_port}\n'

    def opened(self):
        return open_session(self.environ, clock=self.clock, tell=self.said.append)

    def asked(self, *, pause=0.2, status=0, **options):
        options = {"provider": self.kind, "gpu": "t4", "spot": self.spot, "ssh_from": CALLER, "name": "train"} | options
        options = {"policy": "default", "template": "bare", **options}
        return self.begun(sys.executable, "train.py", str(self.record), str(pause), str(status), **options)

    # What its watchers may do, by the documents of policies/permissions.

    def watched_elsewhere(self):
        """Let the credential have from now on what the document of a watcher allows, and no more."""
        raise NotImplementedError

    def judge(self, number, phase):
        """Judge a call, where the model does not refuse what is not allowed."""

    def check_allowed(self):
        """Find every call allowed."""

    # What the cloud has, without the product.

    def _clock(self):
        return self.server.clock.now

    def is_read(self, action):
        raise NotImplementedError

    def machines_made(self):
        """The cloud's names of all machines that it shows, whatever their state."""
        raise NotImplementedError

    def billed(self):
        raise NotImplementedError

    def costs(self):
        """What costs money, and what lets somebody in."""
        raise NotImplementedError

    def sells_out(self):
        raise NotImplementedError

    def restocks(self):
        self.server.faults.clear()

    def takes(self, job):
        """The cloud takes the job's machine back once its command has said that it has begun."""
        self.begins(job)
        (machine,) = self.billed()
        self.server.interrupt(machine)

    def begins(self, job):
        end = time.monotonic() + 20
        begun = sum(one.began_at is not None for one in self.now(job).attempts)
        while self.events()["begin"] < begun:
            assert time.monotonic() < end
            time.sleep(0.02)

    # Watchers.

    def child(self, job, done=None, *, until=None, most_s=MOST_S):
        """Carry a job on in a process of its own, killed as `Strike` says; return at which moment it was."""
        self.server.on_call = strike = Strike(self.is_read, done, self.judge)
        number = fork()
        if number == 0:
            _child(self, job, until, most_s)
        strike.watcher.set_result(number)
        hang = threading.Timer(most_s + HUNG_S, os.kill, (number, signal.SIGABRT))
        hang.start()
        _, status = os.waitpid(number, 0)
        hang.cancel()
        self.server.on_call = None
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGABRT:
            return HUNG
        assert code == (0 if strike.at is None else -signal.SIGKILL), (strike.at, code)
        return strike.at

    def killed_at_every_step(self, job):
        """Kill watchers before and after each change, until one carries the job to its end; return these moments."""
        done, hung = set(), 0
        while (moment := self.child(job, done)) is not None:
            self.at_most_one()
            hung += moment == HUNG  # by the tests' fork, once in many runs; a second time is a defect
            assert len(done) < MOST_WATCHERS, done
            assert hung < 2, done
        return done

    # What must hold.

    def at_most_one(self):
        assert len(self.billed()) <= 1, self.billed()
        assert "twice" not in self.events()

    def nothing_left(self):
        left = self.billed(), self.costs()
        assert left == ([], []), left
        session = self.opened()
        try:
            known = session.ledger.machines()
            assert [one.name for one in known if one.terminated_at is None] == []
            assert set(self.machines_made()) <= {one.provider_id for one in known}
            faults = session.ledger.verify().faults
            assert not faults, faults
        finally:
            session.ledger.close()

    def end(self):
        self.session.ledger.close()
        self.server.on_call = None


class OnAws(OnModel):
    """AWS's: a spot machine is ended when it is taken."""

    kind, region = "aws", "us-east-1"
    changes = both("RunInstances", "TerminateInstances")
    changes_of_restart = both("RunInstances", "TerminateInstances", "DeleteVolume")

    def __init__(self, root, server, **options):
        self._role, self._judged = role_of_timers(), None
        super().__init__(root, server, **options)

    def config(self):
        return f'{super().config()}timer_role = "{self._role}"\n'

    def watched_elsewhere(self):
        self._judged = Judge(_document("aws-watch", **{"LEDGER-ID": self.session.ledger.id}))

    def judge(self, number, phase):
        call = self.server.calls[number - 1]
        if self._judged is not None and phase == "before" and call.action != "GetCallerIdentity":  # it needs no right
            self._judged.see(call)

    def check_allowed(self):
        assert self._judged.actions
        assert self._judged.faults == []

    def _clock(self):
        return self.server.model.now

    def is_read(self, action):
        return action.startswith(("Describe", "Get", "List"))

    def machines_made(self):
        return sorted(f"{self.region}/{one.id}" for one in self.server.instances())

    def billed(self):
        return [one.id for one in self.server.instances() if one.state in ("pending", "running")]

    def costs(self):
        ec2 = client(region=self.region)
        found = [one.id for one in self.server.instances(live=True)]
        found += [one["VolumeId"] for one in ec2.describe_volumes()["Volumes"]]
        found += [one["SnapshotId"] for one in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]]
        found += [one["ImageId"] for one in ec2.describe_images(Owners=["self"])["Images"]]
        found += [one["AllocationId"] for one in ec2.describe_addresses()["Addresses"]]
        requests = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        found += [one["SpotInstanceRequestId"] for one in requests if one["State"] in ("open", "active", "disabled")]
        return sorted([*found, *(name for _, _, name in self.server.model.schedules)])

    def sells_out(self):
        self.server.faults.add("RunInstances", error="InsufficientInstanceCapacity", times=1 << 30, status=400)


class OnGcp(OnModel):
    """Google's: a spot machine is stopped when it is taken, and its disk stays."""

    kind, region = "gcp", "us-central1"
    changes = both("compute.instances.insert", "compute.instances.delete")
    changes_of_restart = both("compute.instances.start", "compute.instances.delete")

    def __init__(self, root, server, **options):
        server.dwell(operation=-1.0)  # done when it is answered
        super().__init__(root, server, **options)

    def watched_elsewhere(self):
        self.server.model.granted = set(_document("gcp-watch")["includedPermissions"])

    def is_read(self, action):
        return action.rpartition(".")[2].startswith(("get", "list", "aggregatedList", "wait", "testIamPermissions"))

    def machines_made(self):
        return sorted(self.server.instances())

    def billed(self):
        return self.server.instances(live=True)

    def costs(self):
        doors = [name for name in self.server.firewalls() if not name.startswith("cloudgpu-shut-")]
        return [*self.server.billable(), *doors]

    def sells_out(self):
        self.server.stockout()


class OnAzure(OnModel):
    """Azure's: a spot machine is deallocated when it is taken, and its disk and address stay."""

    kind, region = "azure", "eastus"
    changes = both("VirtualMachines.CreateOrUpdate", "ResourceGroups.Delete")
    changes_of_restart = both("VirtualMachines.Start", "ResourceGroups.Delete")

    def watched_elsewhere(self):
        self.server.model.permissions = [{"actions": _document("azure-watch")["Actions"]}]

    def is_read(self, action):
        return azure_is_read(action)

    def machines_made(self):
        return sorted(one.id for one in self.server.instances())

    def billed(self):
        return [one.id for one in self.server.instances() if one.state in BILLED]

    def costs(self):
        return [*self.server.billable(), *self.server.resources()]

    def sells_out(self):
        self.server.stockout()


def _document(name, **filled):
    text = (data_dir("policies") / "permissions" / f"{name}.json").read_text()
    for word, value in filled.items():
        text = text.replace(word, value)
    return json.loads(text)


def _child(world, job, until, most_s):
    """Carry the job on as a process of its own does."""
    code = 1
    faulthandler.dump_traceback_later(most_s / 2, file=sys.__stderr__)
    try:
        world.session = world.opened()
        end = time.monotonic() + most_s
        with JobReconciler(world.session, job.id, world.environ) as carrier:
            while time.monotonic() < end:
                try:
                    found = carrier.reconcile()
                except CloudgpuError:
                    found = None
                if found is not None and (not found.job.is_open or (until is not None and until(found))):
                    code = 0
                    break
                time.sleep(0.02)
            else:
                sys.stderr.write(f"it took too long: {found}\n{world.said}\n")
    except BaseException:  # noqa: BLE001  (it is a fork of the tests' process)
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
