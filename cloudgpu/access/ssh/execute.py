"""Runs a command on a machine over SSH as if it ran here, and writes messages to the terminals on a machine.

Standard input, output and error of the caller are passed on to the command, also a terminal, and its exit status back.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

from cloudgpu.access.ssh.connection import Connection, connect
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from paramiko.channel import Channel

    from cloudgpu.access.ssh.target import Target

INTERRUPTED = 130  # 128 + SIGINT, as in a shell
BROKEN_PIPE = 141  # 128 + SIGPIPE
# Longer than for a tunnel, which reconnects: a machine under load answers slowly, and a lost command cannot be resumed.
PING_AFTER_S, ANSWER_TIMEOUT_S = 15.0, 30.0


class CtrlC:
    """Interrupts commands that run in other threads, which Ctrl-C does not reach."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: list[Channel] = []
        self._was_pressed = False

    def add(self, channel: Channel) -> None:
        """Add the channel of a command that has begun; where Ctrl-C came meanwhile, it is interrupted now."""
        from cloudgpu.access.ssh.streams import interrupt_commands

        with self._lock:
            self._channels.append(channel)
            was_pressed = self._was_pressed
        if was_pressed:
            interrupt_commands([channel])

    def press(self) -> None:
        """Interrupt every command that was added, or will be, and give them a moment to end."""
        from cloudgpu.access.ssh.streams import interrupt_commands

        with self._lock:
            self._was_pressed = True
            channels = tuple(self._channels)
        interrupt_commands(channels)


def run(
    connection: Connection,
    argv: Sequence[str],
    *,
    stdin: IO[bytes] | None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    tty: bool | None = False,
    ctrl_c: CtrlC | None = None,
    ping_after_s: float = PING_AFTER_S,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
) -> int:
    """Run `argv` there, each word quoted for the machine's shell, and return its status (128 + n after signal n).

    The files are binary. `tty`: run it in a terminal there; None: when stdin and stdout are terminals here. Returns 130
    when Ctrl-C interrupted it, 141 when the reader of `stdout` went away. `ctrl_c` is for threads other than the main
    one, where Ctrl-C does not come. After `ping_after_s` seconds of silence the machine has `answer_timeout_s` seconds
    to answer. Raises Unreachable when the connection is lost, Frozen when the machine does not answer.
    """
    if not argv:
        raise InvalidRequest("There is no command to run.", field="CMD", value=None, next="Name one after --")
    if tty is None:
        tty = stdin is not None and stdin.isatty() and stdout.isatty()
    with Keepalive(connection, ping_after_s=ping_after_s, answer_timeout_s=answer_timeout_s) as keepalive:
        status = _run(connection, shlex.join(argv), stdin, stdout, stderr, tty=tty, ctrl_c=ctrl_c)
    if status is None:
        raise keepalive.error or connection.lost_error()
    return status


def _run(
    connection: Connection,
    command: str,
    stdin: IO[bytes] | None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    *,
    tty: bool,
    ctrl_c: CtrlC | None,
) -> int | None:
    from cloudgpu.access.ssh.streams import exchange

    with connection.session() as channel:
        with connection.explain_errors():
            if tty:
                size = _window_size(stdout)
                channel.get_pty(os.environ.get("TERM", "xterm"), size.columns, size.lines)
            channel.exec_command(os.fsencode(command))  # a word need not be UTF-8, as names of files need not
        if ctrl_c is not None:
            ctrl_c.add(channel)
        try:
            with _as_terminal(channel, stdin, stdout) if tty else contextlib.nullcontext():
                return exchange(channel, stdin, stdout, stderr)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            return BROKEN_PIPE


def _window_size(stdout: IO[bytes]) -> os.terminal_size:
    """Return the window's size; not from COLUMNS and LINES, which do not change with it."""
    try:
        return os.get_terminal_size(stdout.fileno())
    except OSError:  # no terminal here, but one was requested there
        return os.terminal_size((80, 24))


@contextlib.contextmanager
def _as_terminal(channel: Channel, stdin: IO[bytes] | None, stdout: IO[bytes]) -> Iterator[None]:
    """Send every key as it is typed, and every new size of the window."""
    with _raw_terminal(stdin), _forward_window_size(channel, stdout):
        yield


@contextlib.contextmanager
def _raw_terminal(stdin: IO[bytes] | None) -> Iterator[None]:
    if stdin is None or not stdin.isatty():
        yield
        return
    import termios
    import tty

    settings = termios.tcgetattr(stdin)

    def restore() -> None:
        termios.tcsetattr(stdin, termios.TCSADRAIN, settings)

    with _before_signals_end_us(restore):
        tty.setraw(stdin.fileno(), termios.TCSADRAIN)
        try:
            yield
        finally:
            restore()


@contextlib.contextmanager
def _before_signals_end_us(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` before SIGTERM, as `timeout` sends it, or SIGHUP ends this process."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return

    def end(number: int, _frame: object) -> None:
        with contextlib.suppress(Exception):  # a terminal that is gone
            action()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _forward_window_size(channel: Channel, stdout: IO[bytes]) -> Iterator[None]:
    """Send every new size of the window to the machine."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    # A thread sends it: the signal may interrupt the main thread in the middle of a message.
    sizes: SimpleQueue[os.terminal_size | None] = SimpleQueue()
    sender = threading.Thread(target=_send_sizes, args=(channel, sizes), daemon=True)
    sender.start()
    previous_handler = signal.signal(signal.SIGWINCH, lambda _number, _frame: sizes.put(_window_size(stdout)))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, previous_handler)
        sizes.put(None)
        sender.join(1)


def _send_sizes(channel: Channel, sizes: SimpleQueue[os.terminal_size | None]) -> None:
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    while (size := sizes.get()) is not None:
        with contextlib.suppress(*CONNECTION_ERRORS):
            channel.resize_pty(size.columns, size.lines)


# Runs on the machine (Python 3.8). A terminal belongs to the machine if a process with its user's HOME uses it: a
# computer may be several machines (local provider). A terminal that would block is left out. Its times are set back, so
# that our message does not count as activity.
_WRITE_PROGRAM = r"""
import glob, os, sys
text = sys.stdin.read().replace("\n", "\r\n").encode()
written = set()
for process in glob.glob("/proc/[0-9]*"):
    try:
        with open(process + "/environ", "rb") as file:
            if ("HOME=" + os.environ["HOME"]).encode() not in file.read().split(b"\0"):
                continue
        terminal = os.readlink(process + "/fd/0")
        if terminal in written or not terminal.startswith("/dev/pts/"):
            continue
        handle = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            before = os.fstat(handle)
            os.write(handle, b"\r\n" + text + b"\r\n")
            written.add(terminal)
            os.utime(terminal, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(handle)
    except OSError:
        continue
print(len(written))
"""
_WRITE_COMMAND = f"\"$HOME\"/.cloudgpu/agent python -IS -c '{_WRITE_PROGRAM}'"


def write_to_terminals(target: Target, text: str, *, timeout: float) -> int:
    """Write `text` to the terminals of this machine's user and return how many there were.

    `timeout` is in seconds. Returns 0 where the agent cannot run. Raises Unreachable for a machine that does not
    answer.
    """
    with connect(target, timeout=timeout) as connection:
        completed = connection.capture(
            _WRITE_COMMAND, timeout=timeout, input=f"[cloudgpu] {text}".encode(), max_bytes=1000
        )
    return int(completed.stdout) if completed.status == 0 and completed.stdout.strip().isdigit() else 0
