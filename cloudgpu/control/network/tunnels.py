"""Ends the tunnels that go on without a terminal, and removes what they wrote."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.tunnel import background
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.control.session.session import Session

HIGHEST_PORT = 65535


def check_port(port: int) -> None:
    """Raise InvalidRequest for a number that is no port."""
    if not 0 < port <= HIGHEST_PORT:
        way_out = f"Name one from 1 to {HIGHEST_PORT}."
        raise InvalidRequest(f"{port} is no port.", field="--port", value=str(port), next=way_out)


def stop(session: Session, row: Machine) -> bool:
    """End this machine's background tunnel and return whether there was one."""
    ended = background.stop(session.home.tunnels, row.id)
    _forget(session.home.tunnels, row.id)
    return ended is not None


def known(session: Session) -> list[str]:
    """Return the machines whose tunnels have written something here, living or not."""
    if not session.home.tunnels.is_dir():
        return []
    return sorted({path.name.partition(".")[0] for path in session.home.tunnels.iterdir()} - {""})


def end(session: Session, machines: Iterable[str]) -> None:
    """End the tunnels to these machines, and remove what they wrote."""
    for machine in machines:
        background.stop(session.home.tunnels, machine)
        _forget(session.home.tunnels, machine)


def page_directory(session: Session, row: Machine) -> Path:
    """Return where the page stands that leads a browser to this machine's Jupyter, as long as its tunnel does."""
    return session.home.tunnels / f"{row.id}.page"


def remove_page(session: Session, row: Machine) -> None:
    """Remove that page: it holds the token."""
    shutil.rmtree(page_directory(session, row), ignore_errors=True)
    with contextlib.suppress(OSError):
        session.home.tunnels.rmdir()


def _forget(directory: Path, machine: str) -> None:
    shutil.rmtree(directory / f"{machine}.page", ignore_errors=True)
    (directory / f"{machine}.log").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
