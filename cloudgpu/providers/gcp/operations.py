"""Waits for what Google does after it has said yes: an operation is asked again until it is done, or time is up.

Google says "no capacity" and "no quota" inside the operation, not in the answer to the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.gcp import errors, ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.shared.calls import WaitReports

DONE = "DONE"
DEFAULT_WAIT = timedelta(minutes=5)  # how long to wait where the caller has no deadline
_PLACE = re.compile(r"/(zone|region)s/([a-z0-9-]+)/")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0


def wait_for(
    gcp: Gcp, operation: Mapping[str, Any], *, action: str, value: str | None = None, project: str | None = None
) -> Mapping[str, Any]:
    """Return an operation once it is done, a call for each look, for five minutes.

    Raises what it failed with, in the words of `action`, and what `waited` raises.
    """
    done = wait_until_done(gcp, operation, action=action, value=value, project=project)
    fault = errors.operation_error(done, gcp.context(action, _scope(done)[1], value))
    if fault is not None:
        raise fault
    return done


def wait_until_done(
    gcp: Gcp,
    operation: Mapping[str, Any],
    *,
    action: str,
    value: str | None = None,
    deadline: datetime | None = None,
    project: str | None = None,
) -> Mapping[str, Any]:
    """Return an operation once it is done, whether it failed or not; `project` is its, where that is not ours.

    Raises ProviderUnavailable where it is not done at the deadline (aware UTC; None is five minutes from now), or what
    was said in place of an answer: nothing is known of its end then.
    """
    where = _scope(operation)[1]
    until = deadline or gcp.clock() + DEFAULT_WAIT
    waiting = WaitReports(
        gcp.notify, gcp.clock, f"Google Cloud {where} has not finished {action}".replace("  ", " "), until
    )
    for pause in _pauses(gcp, until):
        if operation.get("status") == DONE:
            break
        waiting.report_progress(str(operation.get("status", "no status")))
        gcp.pause(pause)
        operation = _read_again(gcp, operation, project)
    if operation.get("status") != DONE:
        message = f"Google Cloud {where} has not finished {action} in time; it continues by itself.".replace("  ", " ")
        raise ProviderUnavailable(message, field="provider", value=value, next="Look again in a minute.")
    return operation


def _pauses(gcp: Gcp, deadline: datetime | None) -> Iterator[float]:
    """Yield how long to wait before each look, seconds, until all of them and the clock have come to the deadline."""
    left = (deadline - gcp.clock()).total_seconds() if deadline else DEFAULT_WAIT.total_seconds()
    until, pause = gcp.clock() + timedelta(seconds=left), FIRST_PAUSE_S
    while left > 0 and gcp.clock() < until:
        yield pause
        left -= pause
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _read_again(gcp: Gcp, operation: Mapping[str, Any], project: str | None) -> Mapping[str, Any]:
    kind, where = _scope(operation)
    fields: dict[str, Any] = {kind: where} if where else {}
    if project:
        fields["project"] = project
    service = f"{kind}Operations" if where else "globalOperations"
    return gcp.call(f"compute.{service}.get", where, operation=operation["name"], **fields)


def _scope(operation: Mapping[str, Any]) -> tuple[str, str]:
    """Return the sort and the name of the place to which an operation belongs; two empty texts for all places."""
    for kind in ("zone", "region"):
        if operation.get(kind):
            return kind, ids.last(operation[kind])
    found = _PLACE.search(f"{operation.get('selfLink')} {operation.get('targetLink')}")
    return (found[1], found[2]) if found else ("", "")
