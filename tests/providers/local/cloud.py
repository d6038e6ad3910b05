"""What the tests of the local provider share: a cloud, its machines, a real OpenSSH client."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import BootPart
from cloudgpu.core.model.offers import Requirements
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.local.layout import Layout
from cloudgpu.providers.local.processes import wait_for
from cloudgpu.providers.local.provider import make
from cloudgpu.testing.helpers import make_attempt, new_host_key, pick

PATIENCE_S = 60.0  # against waiting without an end, on a busy computer
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no OpenSSH client on this machine")
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync on this machine")


def now() -> datetime:
    return datetime.now(UTC)


class Cloud:
    """A local provider in a directory, with a client key that its machines let in."""

    def __init__(self, home: Path, **options) -> None:
        self.home = home
        self.settings = ProviderSettings("mine", options, home, now)
        self.provider = make(self.settings)
        self.public, self.private = new_host_key()

    def with_options(self, **options) -> None:
        self.settings = ProviderSettings("mine", options, self.home, now)
        self.provider = make(self.settings)

    def attempt(self, key="one", script=None, **changes):
        parts = () if script is None else (BootPart("on_start", script),)
        offered = pick(self.provider.available(Requirements()).items)
        return make_attempt(offered, key=key, parts=parts, client_public_keys=[self.public], **changes)

    @property
    def empty(self) -> bool:
        """Whether nothing is left there but the file that says which place it is."""
        return not self.home.exists() or [path.name for path in self.home.iterdir()] in ([], ["place.json"])

    def launch(self, key="one", **changes):
        return self.provider.launch(self.attempt(key, **changes), deadline=now() + timedelta(minutes=1))

    def running(self, key="one", **changes):
        return self.wait(self.launch(key, **changes).id, State.RUNNING)

    def wait(self, id_, *states):
        seen = []

        def there():
            seen.append(self.provider.get(id_))
            return seen[-1].state in states

        assert wait_for(there, PATIENCE_S), seen[-1]
        return seen[-1]

    def layout(self, id_) -> Layout:
        return Layout(self.home / id_)

    def client_files(self) -> tuple[Path, Path]:
        """Write the client's key and the pinned host keys of no machine yet; outside the cloud's own directory."""
        key, known = self.home.parent / "client", self.home.parent / "known_hosts"
        key.write_text(self.private)
        key.chmod(0o600)
        return key, known

    def ssh_options(self, instance, host_public: str) -> list[str]:
        key, known = self.client_files()
        known.write_text(f"[127.0.0.1]:{instance.address.port} {host_public}\n")
        options = f"IdentityFile={key} IdentitiesOnly=yes UserKnownHostsFile={known} StrictHostKeyChecking=yes"
        more = "BatchMode=yes LogLevel=ERROR GlobalKnownHostsFile=/dev/null"
        return [word for option in f"{options} {more}".split() for word in ("-o", option)]

    def ssh(self, instance, host_public, *words, data=b"", user=None):
        who = user or instance.address.user
        command = ["ssh", "-F", "/dev/null", "-p", str(instance.address.port)]
        command += [*self.ssh_options(instance, host_public), f"{who}@127.0.0.1", *words]
        return subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)


def processes_under(root: Path) -> list[psutil.Process]:
    """Return the processes that have anything to do with a directory, found without the product's own marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(root) in word for word in words):
            found.append(process)
    return found


def words_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing where it has ended since it was found."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
