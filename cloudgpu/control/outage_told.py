"""Tells owners once that the ledger is away: alerts are kept in the ledger, and this one cannot be."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudgpu.core.alerts import Finding
from cloudgpu.core.times import iso
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.control.session import Session


def told_once(session: Session, fault: CloudgpuError) -> None:
    """Send every receiver that no pass can be made, unless that was told since the ledger was last there.

    What nobody has taken is sent again by the next pass. Raises nothing.
    """
    from cloudgpu.control.alerts import send_directly

    mark = _mark(session)
    try:
        if mark.exists():
            return
        mark.touch(mode=0o600)
        mark.write_text(iso(session.clock()))
    except OSError:
        pass  # no room for a mark: rather twice than never
    try:
        outcomes = send_directly(session, _finding(fault))
    except CloudgpuError as refused:
        session.tell(f"nobody could be told of it: {refused.message}")
        return
    if outcomes and all(one.why is not None for one in outcomes):
        with suppress(OSError):
            mark.unlink(missing_ok=True)


def over(session: Session) -> None:
    """Note that the ledger is there again, so that its next outage is told, too."""
    with suppress(OSError):
        os.unlink(_mark(session))  # noqa: PTH108  (as often as a pass is made; there is mostly none)


def _mark(session: Session) -> Path:
    return session.home.root / "outage.told"


def _finding(fault: CloudgpuError) -> Finding:
    return Finding(
        key="ledger",
        kind="ledger",
        title="No pass can be made: the ledger is away",
        text=f"{fault.message} No machine is looked at from here until it is back. Timers in the clouds and the agents "
        "on the machines go on; cloudgpu stop and cloudgpu down work without it.",
        urgent=True,
    )
