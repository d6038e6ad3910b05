"""Ctrl-C: ends any command within two seconds, with exit code 130 and one sentence about what may be left."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import stat
import sys
import time
from contextlib import suppress
from typing import Any

EXIT_CODE = 130
GRACE_S = 1.4  # from the first KeyboardInterrupt to its repetition, if the command still runs
REPEAT_S = 0.2  # from one repetition to the next
THREADS_GRACE_S = 0.3  # for all remaining threads together
WAKE_PAUSES_S = 0.05, 0.2, 1.0  # pauses after a signal, after each the main thread is woken once more


class Interrupted(Exception):
    """A KeyboardInterrupt on its way through the parser, which would turn it into another error."""


def install_handlers() -> None:
    """Let Ctrl-C raise KeyboardInterrupt repeatedly until `ignore_interrupts`, unless it is ignored (nohup, `&`).

    Repeatedly, since one may be lost: in a library that catches everything, or in a clean-up that hangs.
    """
    if signal.getsignal(signal.SIGINT) not in {signal.SIG_IGN, _on_signal}:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _on_signal)
        _wake_after_signals()


def stop_reraising_interrupt() -> None:
    """Stop repeating KeyboardInterrupt, so that what follows may take its time; the next Ctrl-C ends it."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def ignore_interrupts() -> None:
    """Ignore further Ctrl-C for the few milliseconds until the end."""
    for signal_number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(signal_number, signal.SIG_IGN)
    stop_reraising_interrupt()
    # CPython 3.11 ends itself by SIGINT where Ctrl-C came inside an exec(), even if the exception was caught. Every
    # dataclass makes such a call while it is imported. The next exec() clears that state.
    exec("")  # noqa: S102


def report_leftovers() -> None:
    """Print on stderr what interrupted actions may have left."""
    from cloudgpu import underway
    from cloudgpu.cli.terminal import filled, is_terminal, prose_columns

    with suppress(OSError):  # a terminal that is gone
        text = (
            filled(underway.abort_message(), prose_columns()) if is_terminal(sys.stderr) else underway.abort_message()
        )
        sys.stderr.write(f"\n{text}\n")


def drop_output_and_threads() -> None:
    """Skip what would delay the end of the process, and end the remaining threads.

    What would delay it is output that nobody reads any more, and a last garbage collection (half a second of work with
    Google's SDK). A thread that is inside OpenSSL while the process ends could crash it: all connections are closed.
    """
    from cloudgpu import parallel

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _close_connections()
    parallel.join_abandoned(THREADS_GRACE_S)
    gc.freeze()


def _close_connections() -> None:
    """Close the connections that this process has made, whichever library did; not those that it was given."""
    import socket

    for descriptor in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  (names)
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and not os.get_inheritable(descriptor):
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)


def _wake_after_signals() -> None:
    """Have a thread wake this one after each signal.

    A signal that comes as this thread is about to wait for a lock or a socket is noted by Python and handled after the
    wait, which may be a minute. The next signal ends the wait.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.signal(signal.SIGURG, _ignore_signal)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # by then it may be another file's number
    _thread.start_new_thread(_wake, (read_fd, _thread.get_ident()))


def _wake(read_fd: int, thread_id: int) -> None:
    while signal_byte := os.read(read_fd, 1):
        if signal_byte[0] != signal.SIGURG:
            for pause in WAKE_PAUSES_S:
                time.sleep(pause)
                signal.pthread_kill(thread_id, signal.SIGURG)


def _ignore_signal(_number: int, _frame: Any) -> None:
    pass


def _on_signal(signal_number: int, frame: Any) -> None:
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:  # a second Ctrl-C does not postpone the timer
        signal.setitimer(signal.ITIMER_REAL, GRACE_S, REPEAT_S)
    _interrupt(signal_number, frame)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt
