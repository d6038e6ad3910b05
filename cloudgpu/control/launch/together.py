"""Sends the calls of a launch, one machine's or a whole cluster's: all nodes are made, or what was made is ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cloudgpu.control.inventory.settle import SURELY_NOT_MADE, send, wait_while_cleaned
from cloudgpu.control.inventory.shared import delete_unused_shared
from cloudgpu.control.inventory.unrecorded_termination import terminate_without_ledger
from cloudgpu.control.lifecycle.lifecycle import end_locked
from cloudgpu.control.network.host_keys import pin_given
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.bodies import Outcome
from cloudgpu.core.events.launch_lines import launch_settled
from cloudgpu.core.events.observations import instance_observed
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.cluster_abilities import LaunchesTogether
from cloudgpu.underway import changing

Closed = tuple[type[CloudgpuError], ...]


def send_all(
    session: Session, attempts: Sequence[Attempt], *, deadline: datetime, closed_by: Closed = SURELY_NOT_MADE
) -> None:
    """Send the saved calls of a launch and write down how they ended. The caller holds the launch lock.

    Several machines go out in the one call that the provider has for that, else one after another: the first refusal
    ends those that were made, and the rest is not sent. Raises what the provider raised; where no machine was surely
    made, or each that was is ended, by a fault of `closed_by`, all attempts are closed.
    """
    if len(attempts) == 1:
        send(session, attempts[0], deadline=deadline, closed_by=closed_by)
    elif isinstance(session.provider(attempts[0].request.account), LaunchesTogether):
        _send_together(session, attempts, deadline, closed_by)
    else:
        _send_each(session, attempts, deadline, closed_by)


def _send_each(session: Session, attempts: Sequence[Attempt], deadline: datetime, closed_by: Closed) -> None:
    for number, attempt in enumerate(attempts):
        name, made = attempt.request.name, [one.machine for one in attempts[:number]]
        try:
            send(session, attempt, deadline=deadline, closed_by=closed_by)
        except closed_by as error:
            _close(session, attempts[number + 1 :], "void", f"{name} was refused, so it was not sent")
            end_part(session, made, f"{name} could not be launched: {error.message}")
            _clear_unmade(session, attempt)
            raise
        except LedgerUnavailable:  # that one is ended again
            end_part(session, made, f"{name} could not be recorded")
            raise


def _send_together(session: Session, attempts: Sequence[Attempt], deadline: datetime, closed_by: Closed) -> None:
    first = attempts[0]
    row = session.ledger.machine(first.machine)
    provider = session.provider(first.request.account) if row is None else session.provider_of(row)
    for attempt in attempts:
        pin_given(session, attempt)
    wait_while_cleaned(session, deadline)
    session.ledger.check_lock(lock_name(first.request.key))  # another client may have settled it for dead
    cluster = first.request.cluster
    name = cluster.name if cluster else first.request.name
    left = f"The launch of {name} may have been accepted: the next cloudgpu up or cloudgpu reap finds out."
    with changing(left):
        try:
            instances = provider.launch_together(attempts, deadline=deadline)  # type: ignore[attr-defined]
        except closed_by as error:
            _close(session, attempts, "refused", error.message)
            _clear_unmade(session, first)
            raise
        except ProviderUnavailable as error:
            error.next = error.next or "Run the same up again: it first finds out what became of this launch."
            raise
        now, why = session.clock(), "the provider accepted it"
        made = [launch_settled(one.machine, one.token, "made", why, now) for one in attempts]
        try:
            session.ledger.append([*made, *(instance_observed(one, now) for one in instances)])
        except LedgerUnavailable as error:  # nobody could see what they cost: they are ended again
            raise _ended_all_unrecorded(session, attempts, error) from error


def _ended_all_unrecorded(session: Session, attempts: Sequence[Attempt], error: LedgerUnavailable) -> CloudgpuError:
    """End every machine of a launch that the ledger cannot take, and return what is to be raised."""
    faults: list[CloudgpuError] = []
    found: CloudgpuError = error
    for attempt in attempts:
        machine = session.ledger.machine(attempt.machine)
        try:
            found = found if machine is None else terminate_without_ledger(session, machine, error)
        except CloudgpuError as fault:  # the others have to be ended all the same
            session.report(f"{attempt.request.name} could not be ended ({fault.message})")
            faults.append(fault)
    return faults[0] if faults else found


def _close(session: Session, attempts: Sequence[Attempt], outcome: Outcome, why: str) -> None:
    """Write that these attempts made no machine, and forget their saved calls."""
    now = session.clock()
    session.ledger.append([launch_settled(one.machine, one.token, outcome, why, now) for one in attempts])
    for attempt in attempts:
        saved.delete(session.home.attempts, attempt.token)


def _clear_unmade(session: Session, attempt: Attempt) -> None:
    machine = session.ledger.machine(attempt.machine)
    if machine is not None:
        delete_unused_shared(session, machine)


def end_part(session: Session, ids: Sequence[str], why: str) -> None:
    """End the machines that were made of a cluster that is not to be, by their ids. The caller holds the launch lock.

    Every one is tried. Raises the first fault, where one could not be ended: nothing else is launched then, and the
    next run of the reaper ends it.
    """
    faults: list[CloudgpuError] = []
    for one in reversed(ids):
        machine = session.ledger.machine(one)
        if machine is None or machine.terminated_at is not None:
            continue
        try:
            end_locked(session, machine, why=why, failed=True)
        except CloudgpuError as error:
            session.report(f"{machine.name} could not be ended ({error.message}) cloudgpu reap ends it.")
            faults.append(error)
    if faults:
        raise faults[0]
