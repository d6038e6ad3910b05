"""Forwards ports of this computer to a job's machine, while somebody follows the job: TensorBoard, say."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job

POLL_S = 1.0  # between two checks of where the job runs
RETRY_S = 10.0  # after a machine that could not be reached


class ForwardedPorts:
    """Keeps a tunnel for each port to the machine that a job runs on, in its `with` block; it moves with the job."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session, self._id, self._ports = session, job.id, tuple(job.spec["ports"])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="job-ports", daemon=True)

    def __enter__(self) -> Self:
        """Begin to look for the machine."""
        if self._ports:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the tunnels."""
        self._stopped.set()
        if self._ports:
            self._thread.join(RETRY_S)

    def _serve(self) -> None:
        """Forward the ports to each machine of the job in turn, until the `with` block ends."""
        with self._session.for_thread() as session:  # a ledger's connection belongs to one thread
            while not self._stopped.is_set():
                try:
                    machine_id = _machine_id_of(session, self._id)
                    if machine_id is not None:
                        self._forward(session, machine_id)
                except CloudgpuError:  # what is wrong with its machine is reported where the job is reconciled
                    self._stopped.wait(RETRY_S)
                self._stopped.wait(POLL_S)

    def _forward(self, session: Session, machine_id: str) -> None:
        """Forward all ports to one machine until the job runs there no more."""
        machine = session.ledger.machine(machine_id)
        if machine is None:
            return
        with ExitStack() as tunnels:
            for port, local_port in open_ports(session.target(machine), self._ports, tunnels):
                self._session.report(f"port {port} of the job: http://127.0.0.1:{local_port}")
            while not self._stopped.wait(POLL_S) and _machine_id_of(session, self._id) == machine_id:
                pass


def open_ports(target: Target, ports: Sequence[int], tunnels: ExitStack) -> list[tuple[int, int]]:
    """Open a tunnel for each port and return the port of this computer for each: the same one, or the next free one.

    `tunnels` closes them. Raises as a connection does.
    """
    from cloudgpu.access.tunnel.tunnel import Tunnel

    return [(port, tunnels.enter_context(Tunnel(lambda: target, port, first_port=port)).port) for port in ports]


def _machine_id_of(session: Session, id_: str) -> str | None:
    """Return the id of the machine on which a job's command runs; None where it does not."""
    job = job_by_id(session, id_)
    attempt = job.attempt if job.outcome is None else None
    return None if attempt is None or attempt.began_at is None else attempt.machine
