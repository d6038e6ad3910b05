"""Waits for operations, which Google performs after it has accepted a call: polls them until done, or a deadline.

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
_SCOPE = re.compile(r"/(zone|region)s/([a-z0-9-]+)/")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0  # between two polls


def wait_for(
    gcp: Gcp, operation: Mapping[str, Any], *, action: str, value: str | None = None, project: str | None = None
) -> Mapping[str, Any]:
    """Return an operation once it is done; polls for five minutes at most.

    `action` and `value` are those of the call that began it (`Gcp.call`), for errors. Raises the error that it ended
    with, as one of `action`, and as `wait_until_done`.
    """
    operation_done = wait_until_done(gcp, operation, action=action, value=value, project=project)
    error = errors.operation_error(operation_done, gcp.call_context(action, _scope(operation_done)[1], value))
    if error is not None:
        raise error
    return operation_done


def wait_until_done(
    gcp: Gcp,
    operation: Mapping[str, Any],
    *,
    action: str,
    value: str | None = None,
    deadline: datetime | None = None,
    project: str | None = None,
) -> Mapping[str, Any]:
    """Return an operation once it is done, whether it failed or not; `project` is its project, where not the account's.

    Raises ProviderUnavailable where it is not done at the deadline (aware UTC; None is five minutes from now), and the
    errors of the polls: then its outcome is not known.
    """
    where = _scope(operation)[1]
    until = deadline or gcp.clock() + DEFAULT_WAIT
    reports = WaitReports(
        gcp.notify, gcp.clock, f"Google Cloud {where} has not finished {action}".replace("  ", " "), until
    )
    for pause in _pauses(gcp, until):
        if operation.get("status") == DONE:
            break
        reports.report_progress(str(operation.get("status", "no status")))
        gcp.pause(pause)
        operation = _read_again(gcp, operation, project)
    if operation.get("status") != DONE:
        message = f"Google Cloud {where} has not finished {action} in time; it continues by itself.".replace("  ", " ")
        raise ProviderUnavailable(message, field="provider", value=value, next="Look again in a minute.")
    return operation


def _pauses(gcp: Gcp, deadline: datetime | None) -> Iterator[float]:
    """Yield the seconds to wait before each poll, until their sum or the clock has reached the deadline."""
    seconds_left = (deadline - gcp.clock()).total_seconds() if deadline else DEFAULT_WAIT.total_seconds()
    until, pause = gcp.clock() + timedelta(seconds=seconds_left), FIRST_PAUSE_S
    while seconds_left > 0 and gcp.clock() < until:
        yield pause
        seconds_left -= pause
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _read_again(gcp: Gcp, operation: Mapping[str, Any], project: str | None) -> Mapping[str, Any]:
    scope_kind, where = _scope(operation)
    fields: dict[str, Any] = {scope_kind: where} if where else {}
    if project:
        fields["project"] = project
    service = f"{scope_kind}Operations" if where else "globalOperations"
    return gcp.call(f"compute.{service}.get", where, operation=operation["name"], **fields)


def _scope(operation: Mapping[str, Any]) -> tuple[str, str]:
    """Return the scope of an operation: `zone` or `region`, and its name; two empty texts for a global one."""
    for scope_kind in ("zone", "region"):
        if operation.get(scope_kind):
            return scope_kind, ids.last_part(operation[scope_kind])
    match = _SCOPE.search(f"{operation.get('selfLink')} {operation.get('targetLink')}")
    return (match[1], match[2]) if match else ("", "")
