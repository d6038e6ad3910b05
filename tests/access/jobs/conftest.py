from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloudgpu.access.jobs.remote import RemoteJob, RemoteSpec
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.core.jobs.remote_state import Phase
from tests.access.sshserver import wait_for

JOB = "job-0123456789"


@dataclass
class Bench:
    """One machine behind a real SSH connection, and a store of content here."""

    connection: Connection
    home: Path
    store: Path
    secrets: dict[str, str] = field(default_factory=dict)

    def job(self, attempt=1, job=JOB):
        return RemoteJob(self.connection, job, attempt)

    def snapshot(self, files=None, links=(), executable=()):
        """Return a snapshot of these files, by name and text."""
        listed = []
        for name, text in (files or {}).items():
            data = text if isinstance(text, bytes) else text.encode()
            digest = hashlib.sha256(data).hexdigest()
            (self.store / digest).write_bytes(data)
            mode = 0o755 if name in executable else 0o644
            listed.append(SimpleNamespace(path=name, size=len(data), mode=mode, sha256=digest))
        return SimpleNamespace(
            files=listed, links=[SimpleNamespace(path=path, target=target) for path, target in links]
        )

    def start(self, script, *, job=None, restored=None, files=None, **spec):
        """Start a script of the shell; return the job."""
        job = job or self.job()
        self.run(("sh", "-c", script), job=job, restored=restored, files=files, **spec)
        return job

    def run(self, argv, *, job=None, restored=None, files=None, **spec):
        job = job or self.job()
        return job.start(
            RemoteSpec(tuple(argv), "fox", **spec),
            self.snapshot(files),
            self.store,
            secrets=self.secrets,
            restored=restored,
        )

    def file(self, name, job=None):
        job = job or self.job()
        return self.home / ".cloudgpu" / "jobs" / job.job / str(job.attempt) / name

    def begun(self, job=None):
        """Return the process of the command, once it has begun."""
        return wait_for(lambda: self.file("begun", job).exists() and json.loads(self.file("begun", job).read_text()))

    def watchers(self, job=None):
        """Return the numbers of the keeper and of the supervisor."""
        keeper = parent(self.begun(job)["pid"])
        return keeper, parent(keeper)

    def processes(self):
        """Return the numbers of all processes that this machine has."""
        mark = f"HOME={self.home}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def kill(*pids, number=signal.SIGKILL):
    for pid in pids:
        os.kill(pid, number)
    wait_for(lambda: not any(lives(pid) for pid in pids))


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def ended(job):
    """Wait for the end without asking again and again; return what the attempt looks like then."""
    job.tail(BytesIO(), BytesIO(), follow=True)
    seen = job.state()
    assert seen.phase in (Phase.EXITED, Phase.LOST), seen
    return seen


def put_out_of_reach(directory):
    """Make a file below a directory that not even root can read by its path, which is too long."""
    here = os.open(directory, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("r", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def output(job, **more):
    out, err = BytesIO(), BytesIO()
    job.tail(out, err, **more)
    return out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture
def bench(server, connection, tmp_path):
    (tmp_path / "store").mkdir()
    made = Bench(connection, server.home, tmp_path / "store")
    yield made
    for pid in made.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
