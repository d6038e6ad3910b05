"""What `doctor` says of alerts: who is told, what could not be delivered, and whether somebody watches the watcher."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloudgpu.config.alerts.alerts import MONTHLY, everybody
from cloudgpu.config.alerts.template import message, own_template, shipped_template
from cloudgpu.control.alerting_send import label_of
from cloudgpu.control.alerts import undelivered
from cloudgpu.control.check import Check, Verdict, failed
from cloudgpu.core.alerts.alerts import Finding, News
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def alert_checks(session: Session) -> Iterator[Check]:
    """Yield the checks of alerts. Sends nothing."""
    try:
        yield _receivers(session)
    except CloudgpuError as fault:
        yield failed("alerts", fault)
    yield _deadman(session)


def _receivers(session: Session) -> Check:
    addresses = everybody(session.settings.alerts, session.home)
    if not addresses:
        way = 'Add to config.toml: [alerts] and to = ["mailto://...", "ntfy://...", "desktop"]'
        return Check("alerts", Verdict.WARN, "Nobody is told when something goes wrong.", way)
    _check_template(session)
    if importlib.util.find_spec("apprise") is None:
        return Check("alerts", Verdict.WARN, "apprise, which sends them, is not installed.",
                     "Run: pip install 'cloudgpu[alerts]'")  # fmt: skip
    waiting = undelivered(session)
    if waiting:
        said = ", ".join(f"{label}: {len(news)}" for label, news in waiting.items())
        way = "They are tried again at each pass."
        return Check("alerts", Verdict.WARN, f"Not delivered yet: {said}.", way)
    monthly = "; watch sends them each month's report" if session.settings.alerts.report == MONTHLY else ""
    return Check("alerts", Verdict.OK, f"sent to {', '.join(map(label_of, addresses))}{monthly}")


def _check_template(session: Session) -> None:
    sample = News(
        Finding("sample", "sample", "A sample", "A sample.", {"amount": "$1"}), 1, session.clock(), frozenset()
    )
    own = own_template(session.settings.alerts, session.home)
    message([sample], session.clock(), shipped_template() if own is None else own)


def _deadman(session: Session) -> Check:
    if session.settings.alerts.deadman is not None:
        return Check("deadman", Verdict.OK, "called at the end of each pass")
    return Check(
        "deadman",
        Verdict.WARN,
        "Nobody notices when passes end: what is dead cannot send an alert.",
        "Make a check at a service like healthchecks.io (or your own healthchecks, Uptime Kuma, Dead Man's Snitch), "
        'and add to config.toml: [alerts] and deadman = "https://hc-ping.com/YOUR-ID"',
    )
