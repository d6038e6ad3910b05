"""A real OpenSSH server for the tests: sshd with the sftp-server that is built into it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.target import Target
from cloudgpu.core.model.instances import Address

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")  # root's PATH has it, others' may not
CONFIG = """\
HostKey {root}/host
AuthorizedKeysFile {root}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp -d {root}/home
"""
# The same with a home of its own, in which it looks for keys, too. Of an option it takes the first value.
AT_HOME = "SetEnv HOME={root}/home\nAuthorizedKeysFile {root}/home/.ssh/authorized_keys {root}/authorized\n" + CONFIG


@dataclass(frozen=True)
class OpenSshd:
    """A server under `root` that lets in who runs the tests; paths of SFTP begin at `home`, not at the user's own."""

    root: Path
    port: int

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def user(self) -> str:
        return pwd.getpwuid(os.getuid()).pw_name

    @property
    def target(self) -> Target:
        address = Address("127.0.0.1", self.port, self.user)
        return Target("cg-open", "box", address, client_key(self.root / "keys").path, self.root / "known_hosts")


@contextlib.contextmanager
def opensshd(root: Path, config: str = CONFIG) -> Iterator[OpenSshd]:
    """Serve until the end of the block: an sshd for each connection, as inetd starts it."""
    if SSHD is None:
        pytest.skip("There is no OpenSSH server here: install it (Debian: apt-get install openssh-server).")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's sshd wants it; its service would make it
    (root / "home").mkdir(parents=True)
    key = new_host_key()
    (root / "host").write_text(key.private_pem)
    (root / "host").chmod(0o600)
    (root / "authorized").write_text(client_key(root / "keys").public_line + "\n")
    (root / "config").write_text(config.format(root=root))
    client_files.pin(root / "known_hosts", "cg-open", key.public_line)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, root), daemon=True).start()
        yield OpenSshd(root, listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, root: Path) -> None:
    with contextlib.suppress(OSError):
        while True:
            taken = listener.accept()[0]
            with taken, (root / "log").open("ab") as log:
                subprocess.Popen([SSHD, "-i", "-e", "-f", f"{root}/config"], stdin=taken, stdout=taken, stderr=log)
