"""The checks of `doctor` for alerts: who gets them, what is undelivered, and whether a missing run is noticed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from cloudgpu.config.alerts.alerts import MONTHLY, all_receivers
from cloudgpu.control.alerts.alerts import sample_message, undelivered
from cloudgpu.control.alerts.channels import label_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.checks import Check, Verdict, failed_check
from cloudgpu.errors import CloudgpuError


def alert_checks(session: Session) -> Iterator[Check]:
    """Yield the checks of alerts. Sends nothing."""
    try:
        yield _receivers_check(session)
    except CloudgpuError as error:
        yield failed_check("alerts", error)
    yield _deadman_check(session)


def _receivers_check(session: Session) -> Check:
    addresses = all_receivers(session.settings.alerts, session.home)
    if not addresses:
        next_step = 'Add to config.toml: [alerts] and to = ["mailto://...", "ntfy://...", "desktop"]'
        return Check("alerts", Verdict.NOTE, "No alert is sent when something goes wrong.", next_step)
    sample_message(session)  # raises for a wrong template
    if importlib.util.find_spec("apprise") is None:
        return Check("alerts", Verdict.WARN, "apprise, which sends them, is not installed.",
                     "Run: pip install 'cloudgpu[alerts]'")  # fmt: skip
    pending = undelivered(session)
    if pending:
        counts = ", ".join(f"{label}: {len(alerts)}" for label, alerts in pending.items())
        return Check("alerts", Verdict.WARN, f"Not delivered yet: {counts}.", "Each run tries them again.")
    report_text = "; watch sends them each month's report" if session.settings.alerts.report == MONTHLY else ""
    return Check("alerts", Verdict.OK, f"sent to {', '.join(map(label_of, addresses))}{report_text}")


def _deadman_check(session: Session) -> Check:
    if session.settings.alerts.deadman is not None:
        return Check("deadman", Verdict.OK, "called at the end of each run")
    return Check(
        "deadman",
        Verdict.NOTE,
        "Nobody notices when the reaper stops running: it cannot send an alert then.",
        "Make a check at a service like healthchecks.io (or your own healthchecks, Uptime Kuma, Dead Man's Snitch), "
        'and add to config.toml: [alerts] and deadman = "https://hc-ping.com/YOUR-ID"',
    )
