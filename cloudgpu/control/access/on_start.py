"""Reads whether a template's `on_start` script still runs on a machine, and waits for its end.

The script may run on after the machine is ready. The boot script writes `running` to a status file before it, and its
exit status after it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.config.templates.find import Template
    from cloudgpu.control.session.session import Session

LOG_PATH = ".cloudgpu/on_start.log"  # below the user's home there
TIMEOUT = timedelta(hours=1)  # for the script to end
POLL_S, ANSWER_TIMEOUT_S = 1.0, 30.0  # between two reads of the status, and for one of them
_STATUS_COMMAND = 'cat "$HOME/.cloudgpu/on_start.status" 2>/dev/null || echo running'  # no file: it has not started


class OnStartState(StrEnum):
    """The state of the script."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def on_start_state_of(session: Session, machine: Machine, template: Template) -> OnStartState | None:
    """Return the state of the script; None if the template has none, or the machine cannot be reached."""
    from cloudgpu.control.access.reach import connected_to

    if not template.on_start.strip():
        return None
    with suppress(CloudgpuError), connected_to(session, machine) as connection:
        return _read_status(connection)[0]
    return None


def wait_for_on_start(session: Session, machine: Machine, template: Template) -> OnStartState | None:
    """Wait until the script has ended; return None if the template has none.

    Raises InvalidRequest if it failed, ProviderUnavailable if it still runs after TIMEOUT, and as `connected_to`. The
    machine continues to run in each case.
    """
    from cloudgpu.control.access.reach import connected_to

    if not template.on_start.strip():
        return None
    session.report(f"{machine.name}: waiting for on_start of the template {template.name} to end")
    deadline = session.clock() + TIMEOUT
    with connected_to(session, machine) as connection:
        state, exit_status = _read_status(connection)
        while state is OnStartState.RUNNING:
            if session.clock() >= deadline:
                raise _still_running_error(machine)
            session.pause(POLL_S)
            state, exit_status = _read_status(connection)
    if state is OnStartState.FAILED:
        raise _failed_error(machine, template, exit_status)
    return state


def _read_status(connection: Connection) -> tuple[OnStartState, str]:
    """Return the script's state, and its exit status or `running` as it is in the file."""
    text = (
        connection.capture(_STATUS_COMMAND, timeout=ANSWER_TIMEOUT_S, max_bytes=100)
        .stdout.decode(errors="replace")
        .strip()
    )
    if not text.isdecimal():
        return OnStartState.RUNNING, text
    return (OnStartState.DONE if int(text) == 0 else OnStartState.FAILED), text


def _failed_error(machine: Machine, template: Template, exit_status: str) -> InvalidRequest:
    return InvalidRequest(
        f"{machine.name} runs and is billed, but on_start of the template {template.name} failed "
        f"with status {exit_status}.",
        field="template",
        value=template.name,
        next=f"Read its log: cloudgpu exec {machine.name} -- cat {LOG_PATH}. "
        f"To end the machine: cloudgpu down {command_name(machine)}",
    )


def _still_running_error(machine: Machine) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"on_start still runs on {machine.name} after {TIMEOUT // timedelta(hours=1)} hour; the machine is ready and "
        "billed.",
        field="template",
        value=machine.template,
        next=f"Follow its log: cloudgpu exec {machine.name} -- tail -f {LOG_PATH}",
    )
