"""Ends a machine whose launch failed, and adds to the error of the launch whether it was ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.lifecycle.lifecycle import lock_machine, terminate_with_resources
from cloudgpu.control.lifecycle.parking import return_to_parked
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.errors import CloudgpuError, EndRefused, LedgerUnavailable


def terminate_failed_launch(session: Session, machine: Machine, error: CloudgpuError) -> None:
    """End a machine that did not come up. Adds to `error`, which the caller raises, whether the machine was ended.

    One that was started from an image keeps the image, so no data is lost.
    """
    machine, why = _latest(session, machine), f"it did not come up: {error.message}"
    done, remedy = "It was removed; nothing is left running.", error.next
    end: Callable[[], object] = partial(terminate_with_resources, session, machine, why=why, launch_failed=True)
    if machine.retained:
        done, remedy = "It was ended again; its image is kept.", f"Run: cloudgpu start {command_name(machine)}"
        end = partial(_return_to_parked, session, machine, why)
    error.next = _end_or_explain(machine, error, end, done, "It") or remedy


def _return_to_parked(session: Session, machine: Machine, why: str) -> None:
    with lock_machine(session, machine):
        return_to_parked(session, machine, why=why)


def terminate_surviving_nodes(
    session: Session, nodes: Sequence[Machine], error: CloudgpuError, failed: Machine | None
) -> None:
    """End all nodes of a cluster because one node (`failed`) or the engine did not come up; the last node first.

    Adds the outcomes to `error`, which the caller raises, and the remedies of all nodes that could not be ended or
    recorded. `terminate_failed_launch` has tried to end `failed`. A node that has ended already is left as it is.
    """
    remedies = []
    for node in reversed(nodes):
        machine = _latest(session, node)
        if machine.terminated_at is not None:
            continue
        if failed is not None and machine.id == failed.id:
            remedies.append(error.next)
        else:
            why = f"not all of its cluster came up: {error.message}"
            end = partial(terminate_with_resources, session, machine, why=why, launch_failed=True)
            done = f"{machine.name} was ended with it."
            remedies.append(_end_or_explain(machine, error, end, done, machine.name))
    error.next = "; ".join(remedy.rstrip(".") for remedy in dict.fromkeys(remedies) if remedy) or error.next


def _end_or_explain(
    machine: Machine, error: CloudgpuError, end: Callable[[], object], done: str, subject: str
) -> str | None:
    """End a machine, and add the outcome to `error`: `done`, or why `subject` could not be ended.

    Return what the user has to do, None for nothing.
    """
    try:
        end()
    except EndedUnrecorded as end_error:
        error.message += f" {end_error.message}"
        return end_error.next
    except CloudgpuError as end_error:
        error.message += f" {subject} could not be ended ({end_error.message})."
        return (isinstance(end_error, EndRefused) and end_error.next) or f"Run: cloudgpu down {command_name(machine)}"
    error.message += f" {done}"
    return None


def _latest(session: Session, machine: Machine) -> Machine:
    """Return the machine as the ledger has it now; as it was read before, while the ledger does not answer."""
    try:
        return session.ledger.machine(machine.id) or machine
    except LedgerUnavailable:
        return machine
