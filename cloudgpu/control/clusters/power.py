"""Stops and ends all nodes of a cluster, node 0 last, and waits until each is confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from cloudgpu.control.clusters.together import (
    ClusterResult,
    all_with_or_without_ledger,
    errors_in,
    reload_machines,
    with_or_without_ledger,
    workers_first,
)
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.lifecycle.lifecycle import Termination, end_locked, lock_machine, request_all, stop_locked
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of, check_right_and_claim_owner
from cloudgpu.core.model.machine import Machine, command_name, has_retained_resources
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.underway import on_abort, unfinished_end_sentence

_NO_RESTORE_TEXT = "clusters cannot be restored from images"


def check_stop_all(machines: Sequence[Machine]) -> None:
    """Raise InvalidRequest if a node cannot be stopped: a cluster cannot be restored from images of its nodes."""
    check_nodes_exist(machines, "stopped")
    for machine in machines:
        if machine.stoppable is False:
            raise InvalidRequest(
                f"Cluster {command_name(machine)} cannot be stopped: node {machine.name} on {machine.provider} is "
                f"{machine.market}, and {_NO_RESTORE_TEXT}.",
                field="name",
                value=command_name(machine),
                next=f"Run: {_down_command(machine)}",
            )


def check_nodes_exist(machines: Sequence[Machine], action: str) -> None:
    """Raise InvalidRequest if a node exists only as a disk or an image, and say how that can be used.

    `action` is what the cluster was to be: started, stopped.
    """
    disk_only = [machine for machine in machines if has_retained_resources(machine)]
    if not disk_only:
        return
    name = command_name(disk_only[0])
    image = next((entry.id for node in disk_only for entry in node.retained if entry.kind == Kind.IMAGE), None)
    image_hint = "" if image is None else f"Launch machines from an image of a node: cloudgpu up --image {image}. "
    raise InvalidRequest(
        f"Cluster {name} cannot be {action}: node {disk_only[0].name} on {disk_only[0].provider} exists only "
        f"as a disk, and {_NO_RESTORE_TEXT}.",
        field="name",
        value=name,
        next=f"{image_hint}To delete its disks: {_down_command(disk_only[0])}",
    )


def _down_command(machine: Machine) -> str:
    return f"cloudgpu down {command_name(machine)} (it ends all its nodes and deletes their disks)"


def stop_all(session: Session, machines: Sequence[Machine], *, why: str) -> ClusterResult:
    """Stop all nodes of a cluster; return once each is confirmed not to be billed, or the error of each that is not.

    A node that has ended by itself counts as stopped. Raises InvalidRequest as `check_stop_all`, and RoleNeeded if the
    user may not stop them: then none is stopped.
    """

    def stop_under_lock() -> list[Machine | CloudgpuError]:
        check_may_act_on_all(session, machines, "stop")
        check_stop_all(machines)
        with lock_machine(session, machines[0]):
            stop_outcomes = stop_nodes(session, machines, why)
        clean_up_local_files(session)  # not under the lock: it leaves files of locked machines alone
        return stop_outcomes

    done_text = f"{command_name(machines[0])} is stopped and not billed"
    outcomes = all_with_or_without_ledger(session, machines, stop_under_lock, done_text)
    return ClusterResult(reload_machines(session, machines), errors_in(outcomes))


def stop_nodes(session: Session, machines: Sequence[Machine], why: str) -> list[Machine | CloudgpuError]:
    """Stop these nodes of a cluster, with or without the ledger; the caller holds the lock.

    One write requests the stop of all running nodes first, so that the reaper can finish it if this process is killed.
    """
    requested_ids = _request_all(session, "stop", machines, why)

    def stop_node(thread_session: Session, machine: Machine) -> Machine:
        try:
            return stop_locked(thread_session, machine, why=why, is_requested=machine.id in requested_ids)
        except InstanceNotFound as error:
            latest = thread_session.ledger.machine(machine.id) or machine
            if latest.terminated_at is None:
                raise
            thread_session.report(error.message)
            return latest

    stop_call = with_or_without_ledger(stop_node, lambda node: f"{node.name} is {node.state} and not billed")
    return workers_first(session, machines, stop_call)


def _request_all(
    session: Session, action: Literal["stop", "terminate"], machines: Sequence[Machine], why: str
) -> frozenset[str]:
    """Request the stop or the end of all nodes in one write; return the ids of the nodes for which that was written."""
    with suppress(CloudgpuError):  # then the request of each node is written with its stop or end
        return request_all(session, action, reload_machines(session, machines), why)
    return frozenset()


def end_all(session: Session, machines: Sequence[Machine], *, why: str) -> list[Termination | CloudgpuError]:
    """End all nodes of a cluster and delete their resources; return the result or error of each, in order.

    Shared resources are deleted with the last node. All are requested to end in one write, before any is: the reaper
    finishes what a killed command leaves. An extra error at the end of the list means that the ledger has not recorded
    the terminations yet. Raises RoleNeeded if the user may not end them: then none is ended.
    """

    def end_under_lock() -> list[Termination | CloudgpuError]:
        check_may_act_on_all(session, machines, "end")
        with lock_machine(session, machines[0]):
            requested_ids = _request_all(session, "terminate", machines, why)

            def end(thread_session: Session, machine: Machine) -> Termination:
                return end_locked(thread_session, machine, why=why, is_requested=machine.id in requested_ids)

            with on_abort(unfinished_end_sentence(command_name(machines[0]))):
                end_call = with_or_without_ledger(
                    end, lambda result: f"{result.machine.name} was ended and nothing of it is left"
                )
                outcomes = workers_first(session, machines, end_call)
        clean_up_local_files(session)
        return outcomes

    done_text = f"{command_name(machines[0])} was ended and nothing of it is left"
    return all_with_or_without_ledger(session, machines, end_under_lock, done_text)


def check_may_act_on_all(session: Session, machines: Sequence[Machine], verb: str) -> None:
    """Raise RoleNeeded if the user may not do this to one of these machines."""
    authorization = authorization_of(session)
    for machine in machines:
        check_right_and_claim_owner(session, machine, verb, authorization=authorization)
