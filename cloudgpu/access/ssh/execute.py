"""Runs a command on a machine as if it ran here, and writes lines to the terminals of the machine's people.

A command keeps its streams, its terminal and its exit status. Both work over SSH.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

from cloudgpu.access.ssh.connection import Connection, connect
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.target import Target

INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
BROKEN_PIPE = 141  # 128 + SIGPIPE
# A machine in training may be slow to answer; a tunnel reconnects cheaply, a command would be lost.
QUIET_S, DEADLINE_S = 15.0, 30.0


def run(
    connection: Connection,
    argv: Sequence[str],
    *,
    stdin: IO[bytes] | None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    tty: bool | None = False,
    quiet: float = QUIET_S,
    deadline: float = DEADLINE_S,
) -> int:
    """Run `argv` there, each word quoted for the machine's shell, and return its status (128 + n after signal n).

    The files are binary. `tty`: a terminal there, as ours is; None: when stdin and stdout are terminals here.
    Ctrl-C interrupts the command and returns 130; a reader of ours that went away, 141. After `quiet` seconds of
    silence the machine has `deadline` seconds to give a sign of life.
    Raises Unreachable when the connection is lost on the way, Frozen when the machine is silent.
    """
    if not argv:
        raise InvalidRequest("There is no command to run.", field="CMD", value=None, next="Name one after --")
    if tty is None:
        tty = stdin is not None and stdin.isatty() and stdout.isatty()
    with Keepalive(connection, quiet=quiet, deadline=deadline) as alive:
        status = _run(connection, shlex.join(argv), stdin, stdout, stderr, tty=tty)
    if status is None:
        raise alive.error or connection.lost()
    return status


def _run(
    connection: Connection,
    command: str,
    stdin: IO[bytes] | None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    *,
    tty: bool,
) -> int | None:
    from cloudgpu.access.ssh.streams import exchange

    with connection.session() as channel:
        with connection.explain_errors():
            if tty:
                _ask_terminal(channel, stdout)
            channel.exec_command(command)
        try:
            with _as_terminal(channel, stdin, stdout) if tty else contextlib.nullcontext():
                return exchange(channel, stdin, stdout, stderr)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            return BROKEN_PIPE


def _ask_terminal(channel: Channel, stdout: IO[bytes]) -> None:
    size = _size(stdout)
    channel.get_pty(os.environ.get("TERM", "xterm"), size.columns, size.lines)


def _size(stdout: IO[bytes]) -> os.terminal_size:
    """Return the window's size; not from COLUMNS and LINES, which do not follow it."""
    try:
        return os.get_terminal_size(stdout.fileno())
    except OSError:  # no terminal here, but one was wanted there
        return os.terminal_size((80, 24))


@contextlib.contextmanager
def _as_terminal(channel: Channel, stdin: IO[bytes] | None, stdout: IO[bytes]) -> Iterator[None]:
    """Hand every key on as it is typed, and every new size of the window."""
    with _raw_terminal(stdin), _forward_window_size(channel, stdout):
        yield


@contextlib.contextmanager
def _raw_terminal(stdin: IO[bytes] | None) -> Iterator[None]:
    if stdin is None or not stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(stdin)
    tty.setraw(stdin.fileno(), termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _forward_window_size(channel: Channel, stdout: IO[bytes]) -> Iterator[None]:
    """Tell the machine every new size of the window."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    # A thread tells it: the signal may interrupt the main thread in the middle of a message.
    sizes: SimpleQueue[os.terminal_size | None] = SimpleQueue()
    teller = threading.Thread(target=_tell_sizes, args=(channel, sizes), daemon=True)
    teller.start()
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: sizes.put(_size(stdout)))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        sizes.put(None)
        teller.join(1)


def _tell_sizes(channel: Channel, sizes: SimpleQueue[os.terminal_size | None]) -> None:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    while (size := sizes.get()) is not None:
        with contextlib.suppress(*CONNECTION_ERRORS):
            channel.resize_pty(size.columns, size.lines)


# A terminal is a machine's where a process with its user's HOME has it: on a computer that is several machines (the
# local provider) it may be another's. What does not take the text at once is left out. A terminal's times are set back
# to what they were: what we say there is nobody's work, and no sign of life. Python 3.8: it runs over there.
_SAY = r"""
import glob, os, sys
text = sys.stdin.read().replace("\n", "\r\n").encode()
told = set()
for place in glob.glob("/proc/[0-9]*"):
    try:
        with open(place + "/environ", "rb") as file:
            if ("HOME=" + os.environ["HOME"]).encode() not in file.read().split(b"\0"):
                continue
        terminal = os.readlink(place + "/fd/0")
        if terminal in told or not terminal.startswith("/dev/pts/"):
            continue
        handle = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            before = os.fstat(handle)
            os.write(handle, b"\r\n" + text + b"\r\n")
            told.add(terminal)
            os.utime(terminal, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(handle)
    except OSError:
        continue
print(len(told))
"""
_RUN = f"\"$HOME\"/.cloudgpu/agent python -IS -c '{_SAY}'"


def write_to_terminals(target: Target, text: str, *, timeout: float) -> int:
    """Write `text` to the terminals of this machine's user and return how many took it; `timeout` is in seconds.

    Raises Unreachable for a machine that does not answer, and for one on which no Python of the agent's runs.
    """
    with connect(target, timeout=timeout) as connection:
        done = connection.capture(_RUN, timeout=timeout, input=f"[cloudgpu] {text}".encode(), max_bytes=1000)
    return int(done.stdout) if done.status == 0 and done.stdout.strip().isdigit() else 0
