"""Ends a machine whose launch failed, and adds to the error of the launch whether it was ended."""

from __future__ import annotations

from collections.abc import Sequence

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
    try:
        if machine.retained:
            with lock_machine(session, machine):
                return_to_parked(session, machine, why=why)
            error.message += " It was ended again; its image is kept."
            error.next = f"Run: cloudgpu start {command_name(machine)}"
        else:
            terminate_with_resources(session, machine, why=why, launch_failed=True)
            error.message += " It was removed; nothing is left running."
    except EndedUnrecorded as end_error:
        error.message += f" {end_error.message}"
        error.next = end_error.next
    except CloudgpuError as end_error:
        error.message += f" It could not be removed ({end_error.message})."
        error.next = _remedy(machine, end_error)


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
            remedies.append(_terminate_surviving_node(session, machine, error))
    error.next = "; ".join(remedy.rstrip(".") for remedy in dict.fromkeys(remedies) if remedy) or error.next


def _terminate_surviving_node(session: Session, machine: Machine, error: CloudgpuError) -> str | None:
    """End a node, and add the outcome to `error`; return what the user has to do, None for nothing."""
    try:
        terminate_with_resources(
            session, machine, why=f"not all of its cluster came up: {error.message}", launch_failed=True
        )
        error.message += f" {machine.name} was ended with it."
    except EndedUnrecorded as end_error:
        error.message += f" {end_error.message}"
        return end_error.next
    except CloudgpuError as end_error:
        error.message += f" {machine.name} could not be ended ({end_error.message})."
        return _remedy(machine, end_error)
    return None


def _latest(session: Session, machine: Machine) -> Machine:
    """Return the machine as the ledger has it now; as it was read before, while the ledger does not answer."""
    try:
        return session.ledger.machine(machine.id) or machine
    except LedgerUnavailable:
        return machine


def _remedy(machine: Machine, end_error: CloudgpuError) -> str:
    """Return what lifts a protection of a machine that could not be ended, else what ends it."""
    return (isinstance(end_error, EndRefused) and end_error.next) or f"Run: cloudgpu down {command_name(machine)}"
