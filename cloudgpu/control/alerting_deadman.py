"""Calls a dead-man's address outside at the end of each pass: who hears nothing from it, raises the alarm.

A service of the kind of healthchecks: a plain request says `alive`, one with `/fail` behind the path says that the
pass failed (https://healthchecks.io/docs/signaling_failures/).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from cloudgpu.control.alerting_home import found_at_home
from cloudgpu.control.alerting_send import within
from cloudgpu.control.alerts import note
from cloudgpu.core.alerts.alerts import Finding

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

WAIT_S = 10.0
TOPIC = "deadman"


def ping(session: Session, *, ok: bool, wait_s: float = WAIT_S) -> str | None:
    """Say outside that a pass has ended, well or not; return why that failed, None when it was heard or none is set.

    A failure is raised as an alert, which the next pass sends. Raises LedgerUnavailable.
    """
    address = session.settings.alerts.deadman
    if address is None:
        return None
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
        text=f"It {why}. If passes go on without it, it will raise a false alarm; if they end, nobody will.",
        urgent=False,
    )
