"""Tells owners once that the ledger cannot be used: alerts are kept in the ledger, and this one cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloudgpu.control.session.session import Session
from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.ledger.log.storage_errors import LedgerAway


@contextmanager
def notify_where_away(session: Session) -> Iterator[None]:
    """Say outside, and to owners once, where this block fails for the ledger that no run can be made."""
    try:
        yield
    except LedgerUnavailable as error:
        ping_no_run(session)
        notify_once(session, error)
        raise


def ping_no_run(session: Session) -> None:
    """Say to the dead-man's address that no run was made. Raises nothing."""
    from cloudgpu.control.alerts.health import ping

    with suppress(CloudgpuError):
        ping(session, ok=False)


def notify_once(session: Session, error: CloudgpuError) -> None:
    """Send every receiver that no run can be made, unless that was told since the ledger was last there.

    What nobody has taken is sent again by the next run. Raises nothing.
    """
    from cloudgpu.control.alerts.alerts import send_directly

    mark = _mark(session)
    try:
        if mark.exists():
            return
        mark.touch(mode=0o600)
        mark.write_text(iso(session.clock()))
    except OSError:
        pass  # no room for a mark: rather twice than never
    try:
        outcomes = send_directly(session, _finding(error))
    except CloudgpuError as refused:
        session.report(f"no alert could be sent: {refused.message}")
        return
    if outcomes and all(one.why is not None for one in outcomes):
        with suppress(OSError):
            mark.unlink(missing_ok=True)


def over(session: Session) -> None:
    """Note that the ledger is there again, so that its next outage is told, too."""
    with suppress(OSError):
        os.unlink(_mark(session))  # noqa: PTH108  (as often as a run is made; there is mostly none)


def _mark(session: Session) -> Path:
    return session.home.root / "outage.told"


def _finding(error: CloudgpuError) -> Finding:
    away = isinstance(error, LedgerAway) and not error.lasts
    until = "it is back" if away else "that is fixed"
    goes_on = "; cloudgpu stop and cloudgpu down work without it." if away else f". {error.next or ''}".rstrip()
    return Finding(
        key="ledger",
        kind="ledger",
        title=f"The reaper cannot run: the ledger {'is away' if away else 'cannot be used'}",
        text=f"{error.message} No machine is looked at from here until {until}. Timers in the clouds and the agents "
        f"on the machines go on{goes_on}",
        urgent=True,
    )
