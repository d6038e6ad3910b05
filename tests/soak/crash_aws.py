"""Kills the unchanged command at a call that it makes to our model of AWS, and says what must hold afterwards.

The server is in the test's process: when the call that is meant arrives, or when it is done and before it is answered,
the server kills the command with SIGKILL and closes the connection. Calls are counted per action, since some are made
side by side. Of calls that change nothing one of the two moments is enough: both find the same cloud and the same
files. What there is is read back from moto and by plain boto3, never by the product.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.program import Program
from tests.clouds.aws.plain import client, role_of_timers
from tests.clouds.aws.server import AwsServer

REGION = "us-east-1"
CONFIG = f'provider = "aws"\n[accounts.lab]\nprovider = "aws"\nregions = ["{REGION}"]\nssh_port = '
HEADLINE = ("up", "--gpu", "v100", "--spot", "--ssh-from", "203.0.113.7/32", "--no-wait", "--yes")
ON_DEMAND = tuple(word for word in HEADLINE if word != "--spot")
READS = ("Describe", "Get", "List")
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Moment:
    """Just `before` or just `after` the `nth` call of an action."""

    action: str
    nth: int
    phase: str

    @property
    def said(self) -> str:
        """Where that is, for people."""
        return f"{self.phase} {self.action} number {self.nth}"


def moments(actions: list[str]) -> list[Moment]:
    """Return where to kill a command that makes these calls."""
    seen: Counter[str] = Counter()
    found = []
    for action in actions:
        seen[action] += 1
        phases = ("before",) if action.startswith(READS) else ("before", "after")
        found += [Moment(action, seen[action], phase) for phase in phases]
    return found


class Watch:
    """What the server tells of each call: `then` is done once, at the moment; what it returns the server does."""

    def __init__(self, at: Moment | None = None, then: Callable[[], str | None] = lambda: None) -> None:
        self.actions: list[str] = []
        self.came = False
        self._at, self._then = at, then
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()

    def __call__(self, number: int, action: str, phase: str) -> str | None:
        """Count the call; act where it is meant."""
        with self._lock:
            if phase == "before":
                self.actions.append(action)
                self._numbers[number] = self.actions.count(action)
            meant = Moment(action, self._numbers[number], phase) == self._at and not self.came
            self.came |= meant
        return self._then() if meant else None


class AwsLife:
    """One home with an account at the model, its commands, and what must hold."""

    def __init__(self, server: AwsServer, home: Path, *, ssh: bool = False) -> None:
        server.reset()
        if ssh:
            server.serve_ssh()
        self.server, self.home = server, home
        self.program = Program(home, {"PYTHONDONTWRITEBYTECODE": "1"})
        self.program.config(f'{CONFIG}{server.ssh_port}\ntimer_role = "{role_of_timers()}"\n')

    def counted(self, *args: str) -> list[str]:
        """Run a verb to its end and return the actions that it called."""
        self.server.on_call = watch = Watch()
        self.done(*args)
        self.server.on_call = None
        return watch.actions

    def killed(self, *args: str, at: Moment) -> bool:
        """Run a verb and kill it at a moment; return whether that came."""
        process = self.program.start(*args)

        def kill() -> str:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(TIMEOUT_S)
            return "drop"

        return self._watched(process, Watch(at, kill), args)

    def interrupted(self, *args: str, at: Moment) -> bool:
        """Run a verb, and let AWS take the spot machine at a moment; return whether that came."""
        process = self.program.start(*args)

        def take() -> None:
            for machine in self.living():
                self.server.interrupt(machine.id)

        return self._watched(process, Watch(at, take), args, *range(11))

    def _watched(self, process: subprocess.Popen[bytes], watch: Watch, args: tuple[str, ...], *codes: int) -> bool:
        self.server.on_call = watch  # a command needs half a second before its first call
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            self.server.on_call = None
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL, *codes), (args, process.returncode, out, err)
        return watch.came

    def done(self, *args: str, code: int = 0) -> dict[str, Any]:
        """Run a verb that ends with this exit code; return its JSON document."""
        done = self.program(*args, "-o", "json", timeout=TIMEOUT_S)
        assert done.code == code, (args, done.code, done.out, done.err)
        document: dict[str, Any] = done.json
        return document

    # What AWS has, without the product.

    def living(self) -> list[Any]:
        """Return the machines that are not ended, as moto keeps them."""
        return self.server.instances(live=True)

    def ids(self) -> list[str]:
        """Return the cloudgpu-id of each living machine."""
        return [_id_of([{"Key": tag["key"], "Value": tag["value"]} for tag in one.get_tags()]) for one in self.living()]

    def kept(self) -> dict[str, str]:
        """Return the disks, images and what is to become one: the cloudgpu-id of each, empty for none."""
        ec2 = client(region=REGION)
        volumes = {one["VolumeId"]: one for one in ec2.describe_volumes()["Volumes"]}
        snapshots = {one["SnapshotId"]: one for one in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}
        images = {one["ImageId"]: one for one in ec2.describe_images(Owners=["self"])["Images"]}
        return {name: _id_of(one.get("Tags", [])) for name, one in {**volumes, **snapshots, **images}.items()}

    def images(self) -> list[str]:
        """Return the ids of the images."""
        return [name for name in self.kept() if name.startswith("ami-")]

    def requests(self) -> list[str]:
        """Return the spot requests that could have a machine."""
        found = client(region=REGION).describe_spot_instance_requests()["SpotInstanceRequests"]
        return [one["SpotInstanceRequestId"] for one in found if one["State"] in ("open", "active", "disabled")]

    def timers(self) -> list[str]:
        """Return AWS's ids of the machines that have a schedule."""
        return [name.partition(".")[2] for _, _, name in self.server.model.schedules]

    # What must hold.

    def check_known(self) -> list[dict[str, Any]]:
        """At most one machine, and the ledger knows it, and is right; return what `ls --refresh` shows."""
        seen: list[dict[str, Any]] = self.done("ls", "--refresh")["machines"]
        assert len(self.living()) <= 1
        owners = {*self.ids(), *self.kept().values()}
        assert owners <= {one["id"] for one in seen}, "AWS has something that the ledger does not know"
        assert self.done("cost", "--verify")["faults"] == []
        return seen

    def check_one(self, up: tuple[str, ...] = HEADLINE) -> None:
        """The same `up` again: one machine, and it is the one that is said."""
        again = self.done(*up)["machine"]
        assert self.ids() == [again["id"]]
        assert again["guards"]["timer"] in (None, again["renew_until"])
        assert {one.id for one in self.living() if one.state != "stopped"} <= set(self.timers())

    def check_down_leaves_nothing(self) -> None:
        """`down` ends everything that costs money, and no saved call stays in the home."""
        self.done("down", "--all", "--yes")
        assert (self.ids(), self.kept(), self.requests()) == ([], {}, [])
        assert self.done("ls")["machines"] == []
        if self.timers():
            self.done("reap")  # of a machine whose end was recorded by a look
        assert self.timers() == []
        left = {path.relative_to(self.home).parts[0] for path in self.home.rglob("*") if not path.is_dir()}
        assert not left - {"config.toml", "ledger", "keys", "locks", "providers"}, left  # no saved call


def _id_of(tags: Iterable[dict[str, str]]) -> str:
    return next((tag["Value"] for tag in tags if tag["Key"] == "cloudgpu-id"), "")
