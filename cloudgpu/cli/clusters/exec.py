"""`exec --all-nodes`: a command on every node at once, each line of what comes back with its node's name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from threading import Lock
from typing import IO, TYPE_CHECKING, cast

from cloudgpu.cli.common import tell
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool, is_abandoned
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from cloudgpu.access.ssh.execute import CtrlC
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.model.machine import Machine

_ABORT_NOTE = "The command was interrupted on every node; one that takes no notice of that may still run there."
FAILED = 255  # what `exec` returns where cloudgpu itself failed


class NodeOutput:
    """Takes a node's output and writes whole lines of it to `stream`, each after the node's name.

    All streams share `write_lock`, so that lines of different nodes do not mix.
    """

    def __init__(self, stream: IO[bytes], node_name: str, write_lock: Lock) -> None:
        self._stream, self._write_lock = stream, write_lock
        self._prefix = f"{node_name}: ".encode()
        self._incomplete_line = b""

    def write(self, data: bytes | memoryview) -> int:
        """Write the lines that are complete by now, and buffer the rest."""
        output = bytes(data)
        *lines, self._incomplete_line = (self._incomplete_line + output).split(b"\n")
        self._write_lines(lines)
        return len(output)

    def flush(self) -> None:
        """Do nothing: each line is written out at once."""

    def close(self) -> None:
        """Write the last line, which has no line end."""
        self._write_lines([self._incomplete_line] if self._incomplete_line else [])
        self._incomplete_line = b""

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        if lines:
            with self._write_lock:
                self._stream.write(b"".join(self._prefix + line + b"\n" for line in lines))
                self._stream.flush()


def run_on_all(session: Session, machines: Sequence[Machine], argv: Sequence[str]) -> int:
    """Run the command on all these machines at once; return the status of the one that failed first, 0 for none.

    It has no input. A machine that cannot be reached counts as failed with 255, and the error is printed. Ctrl-C
    interrupts the command on each of them.
    """
    from cloudgpu.access.ssh.execute import CtrlC

    write_lock, failed_statuses, ctrl_c = Lock(), list[int](), CtrlC()

    def run_on(machine: Machine) -> None:
        status = _run_on(session, machine, argv, write_lock, ctrl_c)
        if status:
            failed_statuses.append(status)

    with on_abort(_ABORT_NOTE), Pool(len(machines)) as pool:
        results = pool.map(run_on, machines)
        try:
            for _ in results:
                pass
        except KeyboardInterrupt:
            ctrl_c.press()
            raise
    return failed_statuses[0] if failed_statuses else 0


def _run_on(session: Session, machine: Machine, argv: Sequence[str], write_lock: Lock, ctrl_c: CtrlC) -> int:
    from cloudgpu.access.ssh.execute import run
    from cloudgpu.control.access.reach import connected_to

    out, err = (NodeOutput(stream.buffer, machine.name, write_lock) for stream in (sys.stdout, sys.stderr))
    try:
        with session.for_thread() as thread_session, connected_to(thread_session, machine) as connection:
            stdout, stderr = cast("IO[bytes]", out), cast("IO[bytes]", err)
            return run(connection, argv, stdin=None, stdout=stdout, stderr=stderr, ctrl_c=ctrl_c)
    except CloudgpuError as error:
        if is_abandoned():  # after Ctrl-C the connections are closed
            return FAILED
        with write_lock:
            tell(f"error: {machine.name}: {error.message} {error.next or ''}".rstrip())
        return FAILED
    finally:
        out.close()
        err.close()
