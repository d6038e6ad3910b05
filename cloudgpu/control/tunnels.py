"""Tunnels that go on without a terminal: one per machine, ended with it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.access import background
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from cloudgpu.control.jupyter import Notebook
    from cloudgpu.control.session import Session

Row = dict[str, Any]


def start(session: Session, row: Row, *, first_port: int) -> tuple[Notebook, int]:
    """Return the notebook behind this machine's background tunnel, and its process; the one that runs already wins.

    Raises what kept the tunnel from coming up, in its own class.
    """
    from cloudgpu.access import jupyter
    from cloudgpu.control.jupyter import Notebook
    from cloudgpu.control.reach import reached

    with reached(session, row) as connection:  # before it is left alone: what is wrong is said here
        server = jupyter.ensure(connection)
    running = background.find(session.home.tunnels, row["id"])
    if running is None:
        words = ["tunnel", row["id"], "--serve", "--port", str(first_port)]
        running = background.spawn([sys.executable, "-P", "-m", "cloudgpu", *words], session.home.tunnels, row["id"])
    return Notebook(running.port, server.token, server.started), running.pid


def serve(session: Session, row: Row, *, first_port: int) -> None:
    """Be the background tunnel: serve until the machine is gone or somebody ends this process."""
    from cloudgpu.control.jupyter import JupyterTunnel

    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        with (
            JupyterTunnel(session, row, first_port=first_port) as tunnel,
            background.serving(session.home.tunnels, row["id"], row["name"], tunnel.port),
        ):
            ended = tunnel.wait()
    except CloudgpuError as fault:
        background.report(fault)
        raise
    if ended is not None:
        raise ended


def stop(session: Session, row: Row) -> bool:
    """End this machine's background tunnel and return whether there was one."""
    ended = background.stop(session.home.tunnels, row["id"])
    _forget(session.home.tunnels, row["id"])
    return ended is not None


def end_orphans(session: Session, alive: set[str]) -> None:
    """End the tunnels to machines that are not in `alive`, and remove what they wrote."""
    if not session.home.tunnels.is_dir():
        return
    for machine in {path.name.partition(".")[0] for path in session.home.tunnels.iterdir()} - alive - {""}:
        background.stop(session.home.tunnels, machine)
        _forget(session.home.tunnels, machine)


def page_directory(session: Session, row: Row) -> Path:
    """Return where the page stands that leads a browser to this machine's Jupyter, as long as its tunnel does."""
    return session.home.tunnels / f"{row['id']}.page"


def remove_page(session: Session, row: Row) -> None:
    """Remove that page: it holds the token."""
    shutil.rmtree(page_directory(session, row), ignore_errors=True)
    with contextlib.suppress(OSError):
        session.home.tunnels.rmdir()


def _forget(directory: Path, machine: str) -> None:
    shutil.rmtree(directory / f"{machine}.page", ignore_errors=True)
    (directory / f"{machine}.log").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
