"""Says what `doctor` tells of alerts, and calls a dead-man's address outside at the end of each run.

`doctor` tells who gets alerts, what could not be delivered, and whether somebody watches the watcher. Whoever hears
nothing from the dead-man's address raises the alarm. It is a service of the kind of healthchecks: a plain request says
`alive`, one with `/fail` behind the path says that the run failed (https://healthchecks.io/docs/signaling_failures/).
"""

from __future__ import annotations

import importlib.util
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from urllib.parse import urlsplit, urlunsplit

from cloudgpu.config.alerts.alerts import MONTHLY, everybody
from cloudgpu.config.alerts.template import message, own_template, shipped_template
from cloudgpu.control.alerts.alerts import found_at_home, note, undelivered
from cloudgpu.control.alerts.channels import label_of, within
from cloudgpu.control.session.last_run import unguarded_machines
from cloudgpu.control.session.session import Session
from cloudgpu.core.alerts.alerts import Finding, RaisedAlert
from cloudgpu.core.model.checks import Check, Verdict, failed
from cloudgpu.errors import CloudgpuError


def alert_checks(session: Session) -> Iterator[Check]:
    """Yield the checks of alerts. Sends nothing."""
    try:
        yield _receivers(session)
    except CloudgpuError as error:
        yield failed("alerts", error)
    yield _deadman(session)


def _receivers(session: Session) -> Check:
    addresses = everybody(session.settings.alerts, session.home)
    if not addresses:
        way = 'Add to config.toml: [alerts] and to = ["mailto://...", "ntfy://...", "desktop"]'
        return Check("alerts", Verdict.NOTE, "No alert is sent when something goes wrong.", way)
    _check_template(session)
    if importlib.util.find_spec("apprise") is None:
        return Check("alerts", Verdict.WARN, "apprise, which sends them, is not installed.",
                     "Run: pip install 'cloudgpu[alerts]'")  # fmt: skip
    waiting = undelivered(session)
    if waiting:
        message = ", ".join(f"{label}: {len(news)}" for label, news in waiting.items())
        way = "Each run tries them again."
        return Check("alerts", Verdict.WARN, f"Not delivered yet: {message}.", way)
    monthly = "; watch sends them each month's report" if session.settings.alerts.report == MONTHLY else ""
    return Check("alerts", Verdict.OK, f"sent to {', '.join(map(label_of, addresses))}{monthly}")


def _check_template(session: Session) -> None:
    sample = RaisedAlert(
        Finding("sample", "sample", "A sample", "A sample.", {"amount": "$1"}), 1, session.clock(), frozenset()
    )
    own = own_template(session.settings.alerts, session.home)
    message([sample], session.clock(), shipped_template() if own is None else own)


def _deadman(session: Session) -> Check:
    if session.settings.alerts.deadman is not None:
        return Check("deadman", Verdict.OK, "called at the end of each run")
    return Check(
        "deadman",
        Verdict.NOTE,
        "Nobody notices when the reaper stops running: it cannot send an alert then.",
        "Make a check at a service like healthchecks.io (or your own healthchecks, Uptime Kuma, Dead Man's Snitch), "
        'and add to config.toml: [alerts] and deadman = "https://hc-ping.com/YOUR-ID"',
    )


WAIT_S = 10.0
TOPIC = "deadman"


def ping(session: Session, *, ok: bool, wait_s: float = WAIT_S) -> str | None:
    """Say outside that a run has ended, well or not; return why that failed, None when it was heard or none is set.

    None was made well, either, while a machine that only scheduled runs end is guarded by none of them: a run by hand,
    or of a laptop, must not hide that. A failure is raised as an alert, which the next run sends. Raises
    LedgerUnavailable.
    """
    address = session.settings.alerts.deadman
    if address is None:
        return None
    ok = ok and not unguarded_machines(session, session.ledger.present_machines())
    why = within(wait_s, partial(_called, address if ok else _with_fail(address), wait_s))
    note(session, [] if why is None else [found_at_home(session, _finding(why))], judged=(TOPIC,))
    return why


def _called(address: str, wait_s: float) -> str | None:
    """Return why the service did not take it, without a word of its address: whoever knows that can answer for us."""
    asked = urllib.request.Request(address, headers={"User-Agent": "cloudgpu"})  # noqa: S310  (the settings allow http and https alone)
    try:
        with urllib.request.urlopen(asked, timeout=wait_s) as answer:  # noqa: S310  (as above)
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except TimeoutError:
        return f"did not answer within {wait_s:g} seconds"
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return "could not be reached"
    return None


def _with_fail(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/fail"))


def _finding(why: str) -> Finding:
    return Finding(
        key=TOPIC,
        kind="dead-man's address",
        title="The dead-man's address does not hear us",
        text=f"It {why}. If the reaper runs, it raises a false alarm; if the reaper stops, it raises none.",
        urgent=False,
    )
