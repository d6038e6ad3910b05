"""The TCP connection to a machine, straight or through its jump host. Imports no paramiko.

Through a jump host the system's ssh carries the bytes (`ssh -W`); the machine behind it is verified as any other. How
the jump host itself is reached, with which key and whether it is the right one, the user's own SSH config, agent and
known_hosts decide; a question of ssh's is asked on the user's terminal.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import tempfile
import threading
import time
from typing import IO

from cloudgpu.access.ssh.client_files import ssh_client
from cloudgpu.access.ssh.target import AccessBlocked, LoginRefused, Target, reason
from cloudgpu.errors import Unreachable, WrongHostKey

LOGIN_TIMEOUT_S = 20.0  # what a login at the jump host may take, beside the one at the machine
GRACE_S = 0.2  # for its last words, and to take leave of the jump host
MAX_MESSAGE_BYTES = 4096  # bytes of ssh's messages that are looked at, from the end
# OpenSSH stays deaf to Ctrl-C where that was ignored before it: the key is meant for what runs on the machine.
_DEAF = 'trap "" INT; exec "$0" "$@"'
_LASTING = re.compile(r"Permission denied|Host key verification failed|Too many authentication failures")
_EMPTY_WORDS = re.compile(r"stdio forwarding failed|Warning: Permanently added|Killed by signal|^\s*$")


class ProxySocket(socket.socket):
    """Our end of a connection that an ssh process carries; closing it ends the process."""

    def __init__(self, end: socket.socket, process: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
        super().__init__(fileno=end.detach())
        self.process = process
        self.said = ""
        self._messages = messages
        self._closing = threading.Lock()

    def close(self) -> None:
        """Close our end, end the process, and keep what it said; paramiko's thread and its user's both come here."""
        with self._closing:
            if self._messages.closed:
                return
            super().close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
            self.process.kill()
            self.process.wait()
            self.said = _last_messages(self._messages)
            self._messages.close()

    def explained(self, target: Target, error: BaseException) -> BaseException:
        """Return the fault of a failed start in ssh's words where it said something; to be asked after `close`."""
        if not isinstance(error, Unreachable) or isinstance(error, (WrongHostKey, LoginRefused)) or not self.said:
            return error
        kind = AccessBlocked if _LASTING.search(self.said) else Unreachable
        remedy = " ".join(("ssh", *(target.jump.options() if target.jump else ())))
        return kind(
            f"{target.name} cannot be reached at {target.host_and_port}: ssh says: {self.said}.",
            field="--jump",
            value=str(target.jump),
            next=f"See whether you get that far: {remedy}",
        )


def open_through(target: Target) -> ProxySocket:
    """Return a connection to the machine's SSH server through its jump host; that it stands is not yet known.

    Raises InvalidRequest without the system's ssh, Unreachable when it cannot be started.
    """
    if target.jump is None:
        message = "there is no jump host"
        raise AssertionError(message)
    host, port = target.address.host, target.address.port
    argv = [ssh_client(), "-W", f"[{host}]:{port}", *target.jump.options()]
    ours, theirs = socket.socketpair()
    messages = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the connection)
    end = theirs.fileno()
    try:
        process = subprocess.Popen(["/bin/sh", "-c", _DEAF, *argv], stdin=end, stdout=end, stderr=messages)  # noqa: S603
    except OSError as error:
        ours.close()
        messages.close()
        raise Unreachable(f"ssh cannot be started: {reason(error)}.", field="--jump", value=str(target.jump)) from error
    finally:
        theirs.close()
    return ProxySocket(ours, process, messages)


def _last_messages(messages: IO[bytes]) -> str:
    """Return what ssh said last, as the end of a sentence: two lines at most, none that says nothing."""
    messages.seek(max(0, messages.seek(0, 2) - MAX_MESSAGE_BYTES))
    lines = messages.read().decode("utf-8", "replace").splitlines()
    telling = [line.strip().rstrip(".") for line in lines if not _EMPTY_WORDS.search(line)]
    return "; ".join("".join(filter(str.isprintable, line)) for line in telling[-2:])


def dial(target: Target, deadline: float) -> socket.socket:
    """Return a connection to the machine's SSH server; `deadline` is in monotonic seconds. Raises Unreachable.

    Through a jump host it may not stand yet: that shows when the server is to introduce itself.
    """
    if target.jump:
        return open_through(target)
    address = target.address
    try:
        connected = socket.create_connection((address.host, address.port), max(0.1, deadline - time.monotonic()))
    except OSError as error:
        raise no_answer(target, reason(error)) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def knock(target: Target, *, timeout: float) -> None:
    """Return when something answers at the machine's SSH port, reached straight; raise Unreachable otherwise."""
    dial(target, time.monotonic() + timeout).close()


def no_answer(target: Target, why: str) -> Unreachable:
    """Return the error for a machine that does not answer; `why` ends its sentence."""
    return Unreachable(
        f"{target.name} does not answer at {target.host_and_port}: {why}.",
        field="name",
        value=target.name,
        next=f"Run: cloudgpu show {target.name} --refresh",
    )
