"""Opens the TCP connection to a machine, directly or through its jump host. Imports no paramiko.

A jump host is reached with the system's ssh (`ssh -W`), by the user's own SSH config, agent and known_hosts; ssh asks
its questions in the user's terminal. The machine behind the jump host is verified as any other.
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

LOGIN_TIMEOUT_S = 20.0  # what the login at the jump host may take, in addition to the machine's
GRACE_S = 0.2  # for ssh to print its last messages and log out
MAX_MESSAGE_BYTES = 4096  # of the end of ssh's messages
# ssh inherits that SIGINT is ignored: Ctrl-C is meant for the command on the machine.
_IGNORE_INTERRUPT = 'trap "" INT; exec "$0" "$@"'
_PERMANENT_ERRORS = re.compile(r"Permission denied|Host key verification failed|Too many authentication failures")
# Lines of ssh's messages that do not say why it failed
_NOISE = re.compile(r"stdio forwarding failed|Warning: Permanently added|Killed by signal|^\s*$")


class ProxySocket(socket.socket):
    """Our end of a connection through an ssh process; closing it ends the process."""

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes], stderr_file: IO[bytes]) -> None:
        super().__init__(fileno=ours.detach())
        self.process = process
        self.ssh_message = ""
        self._stderr_file = stderr_file
        self._close_lock = threading.Lock()

    def close(self) -> None:
        """Close our end, end the process, and keep its messages.

        Two threads may call this: paramiko's and its user's.
        """
        with self._close_lock:
            if self._stderr_file.closed:
                return
            super().close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
            self.process.kill()
            self.process.wait()
            self.ssh_message = _last_messages(self._stderr_file)
            self._stderr_file.close()

    def explain(self, target: Target, error: BaseException) -> BaseException:
        """Return the error of a failed connection with ssh's message, if any; call it after `close`."""
        if (
            not isinstance(error, Unreachable)
            or isinstance(error, (WrongHostKey, LoginRefused))
            or not self.ssh_message
        ):
            return error
        error_class = AccessBlocked if _PERMANENT_ERRORS.search(self.ssh_message) else Unreachable
        remedy = " ".join(("ssh", *(target.jump.ssh_arguments() if target.jump else ())))
        return error_class(
            f"{target.name} cannot be reached at {target.host_and_port}: ssh says: {self.ssh_message}.",
            field="--jump",
            value=str(target.jump),
            next=f"See whether you get that far: {remedy}",
        )


def open_through(target: Target) -> ProxySocket:
    """Return a connection to the machine's SSH server through its jump host; it may still fail to be established.

    Raises InvalidRequest without the system's ssh, Unreachable when it cannot be started.
    """
    if target.jump is None:
        raise AssertionError("there is no jump host")
    host, port = target.address.host, target.address.port
    argv = [ssh_client(), "-W", f"[{host}]:{port}", *target.jump.ssh_arguments()]
    ours, theirs = socket.socketpair()
    stderr_file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the connection)
    descriptor = theirs.fileno()
    try:
        command = ["/bin/sh", "-c", _IGNORE_INTERRUPT, *argv]
        process = subprocess.Popen(command, stdin=descriptor, stdout=descriptor, stderr=stderr_file)  # noqa: S603
    except OSError as error:
        ours.close()
        stderr_file.close()
        raise Unreachable(f"ssh cannot be started: {reason(error)}.", field="--jump", value=str(target.jump)) from error
    finally:
        theirs.close()
    return ProxySocket(ours, process, stderr_file)


def _last_messages(stderr_file: IO[bytes]) -> str:
    """Return the last two useful lines of ssh's messages, as the end of a sentence."""
    stderr_file.seek(max(0, stderr_file.seek(0, 2) - MAX_MESSAGE_BYTES))
    lines = stderr_file.read().decode("utf-8", "replace").splitlines()
    useful = [line.strip().rstrip(".") for line in lines if not _NOISE.search(line)]
    return "; ".join("".join(filter(str.isprintable, line)) for line in useful[-2:])


def dial(target: Target, deadline: float) -> socket.socket:
    """Return a connection to the machine's SSH server; `deadline` is in monotonic seconds. Raises Unreachable.

    Through a jump host it may still fail: that shows when the server should send its banner.
    """
    if target.jump:
        return open_through(target)
    address = target.address
    try:
        connected_socket = socket.create_connection((address.host, address.port), max(0.1, deadline - time.monotonic()))
    except OSError as error:
        raise no_answer_error(target, reason(error)) from error
    connected_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected_socket


def check_port(target: Target, *, timeout: float) -> None:
    """Raise Unreachable where the machine's SSH port accepts no connection.

    Through a jump host this proves nothing: it starts ssh, and does not wait for its connection.
    """
    dial(target, time.monotonic() + timeout).close()


def no_answer_error(target: Target, reason_text: str) -> Unreachable:
    """Return the error for a machine that does not answer; `reason_text` ends its sentence."""
    return Unreachable(
        f"{target.name} does not answer at {target.host_and_port}: {reason_text}.",
        field="name",
        value=target.name,
        next=f"Run: cloudgpu show {target.name} --refresh",
    )
