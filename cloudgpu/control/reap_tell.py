"""Tells people at the end of a pass: alerts of warnings, budgets and what is wrong, and the dead-man's address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.alerting_deadman import ping
from cloudgpu.control.alerting_home import budget_findings
from cloudgpu.control.alerts import deliver
from cloudgpu.control.reap_record import TOPIC, findings
from cloudgpu.control.reap_warn import WARNING, warning_findings
from cloudgpu.control.session import present
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session import Session
    from cloudgpu.core.budgets.status import Standing
    from cloudgpu.core.reaper.result import Pass


def deliver_all(
    session: Session, found: Pass, standings: Sequence[Standing], rows: Sequence[dict[str, Any]]
) -> tuple[str, ...]:
    """Raise and send what owners have to hear of, then say outside that the pass was made; return what was not taken.

    `rows` are all of the ledger as they are after the pass, things that are kept by name too. A receiver that fails
    keeps no machine on: it is tried again by the next pass.
    """
    news = [*budget_findings(session, standings), *warning_findings(rows), *findings(session, found, rows)]
    judged = {one.machine for one in found.decisions}
    elsewhere = [f"{TOPIC}:{row['id']}:" for row in present(list(rows)) if row["id"] not in judged]
    refused: list[str] = []
    try:
        done = deliver(session, news, judged=("budget", WARNING, TOPIC), spared=elsewhere)
        refused += [f"{one.receiver}: {one.why}" for one in done.outcomes if one.why is not None]
    except LedgerUnavailable:
        raise
    except CloudgpuError as fault:
        refused.append(fault.message)
    why = ping(session, ok=found.exit_code == 0 and not refused)
    return (*refused, f"the dead-man's address {why}") if why else tuple(refused)
