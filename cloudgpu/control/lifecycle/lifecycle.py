"""Stops and ends machines: the request is recorded first, then sent, then its effect is proved."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from cloudgpu.control.budgets.admission import admit
from cloudgpu.control.inventory import retention as retention_records, stop_proof
from cloudgpu.control.inventory.local_files import clean_up_local_files
from cloudgpu.control.inventory.settle import resolve_before_end, settle
from cloudgpu.control.inventory.shared import delete_shared_resources
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded, terminate_without_ledger
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.lifecycle.parking import park
from cloudgpu.control.lifecycle.refused_credential import explain_ending_by_hand
from cloudgpu.control.outage.outage import without_ledger
from cloudgpu.control.pricing.price_history import record_spot_cost
from cloudgpu.control.pricing.shared_computer import store_samples_before_end
from cloudgpu.control.pricing.traffic import read_counter_before_end
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_right_and_claim_owner, requester_record
from cloudgpu.core.clusters.completeness import node_exists
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import lease_set, requested, start_refused
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import (
    Machine,
    command_name,
    has_retained_resources,
    is_on_prem,
    may_be_running,
    not_none,
)
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.policies.guards import check_stop
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InvalidRequest,
    LedgerUnavailable,
    NotReachableHere,
    ProviderUnavailable,
    RoleNeeded,
)
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.ledger.log.base import View
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.providers.abilities import Pausable, RemainingFiles, WritesAtHome
from cloudgpu.providers.base import Provider
from cloudgpu.underway import on_abort, postponed_end_sentence, unfinished_end_sentence, unproved_sentence
from cloudgpu.views.ended import ended_error

_Check = Callable[[Machine], None] | None  # called under the lock; raises if the machine is to run on


@dataclass(frozen=True, slots=True)
class Termination:
    """How a termination went: the machine as recorded, its named volumes and images, and the files that stay."""

    machine: Machine
    named_resources: tuple[ProviderResource, ...] = ()
    remaining_files: RemainingFiles | None = None


def stop(session: Session, machine: Machine, *, why: str, check: _Check = None, is_by_reaper: bool = False) -> Machine:
    """Stop the machine, or park it where it cannot be stopped; return the machine once it is proved not to be billed.

    `why` is the recorded reason; `check` and `is_by_reaper` are as in `terminate_with_resources`. Raises InvalidRequest
    for a machine that can be neither stopped nor parked, or whose policy retains nothing of it; StopUnproved when the
    proof did not come in time; RoleNeeded where the user may not stop it; Unrecorded when it is stopped and the ledger,
    which is away, does not have that yet.
    """
    return without_ledger(
        session,
        machine,
        partial(_stop_locking, session, why=why, check=check, is_by_reaper=is_by_reaper),
        lambda stopped: (
            f"{stopped.name} is {'parked' if has_retained_resources(stopped) else stopped.state} and not billed"
        ),
    )


def _stop_locking(session: Session, machine: Machine, *, why: str, check: _Check, is_by_reaper: bool) -> Machine:
    check_right_and_claim_owner(session, machine, "stop")
    with (
        lock_machine(session, machine),
        on_abort(unproved_sentence(machine.name, "stop")),
        explain_refused_credential(session, machine, "stop"),
    ):
        machine = session.ledger.machine(machine.id) or machine
        if check is not None:
            check(machine)
        check_stop(machine)
        if has_retained_resources(machine):
            machine = park(session, machine, why=why)
        elif machine.stoppable is False and retention_records.supports_images(session, machine):
            machine = park(session, resolve_launch(session, machine, resolve_before_end), why=why)
        else:
            machine = resolve_launch(session, machine, resolve_before_end)
            machine = _stop_or_park(session, machine, why, is_by_reaper=is_by_reaper)
    clean_up_local_files(session)
    return machine


def stop_locked(session: Session, machine: Machine, *, why: str, is_requested: bool = False) -> Machine:
    """Stop a machine that is not parked instead, as `stop` does, under a lock that the caller holds.

    `is_requested`: the caller has written the request, with those of other machines (`request_all`).
    """
    with on_abort(unproved_sentence(machine.name, "stop")), explain_refused_credential(session, machine, "stop"):
        machine = resolve_launch(session, machine, resolve_before_end)
        machine = _stop_and_confirm(session, machine, why, is_requested=is_requested)
    clean_up_local_files(session)
    return machine


def _stop_or_park(session: Session, machine: Machine, why: str, *, is_by_reaper: bool) -> Machine:
    """Stop it, or park a spot machine without a launch record whose provider says that it cannot be stopped."""
    try:
        return _stop_and_confirm(session, machine, why, is_by_reaper=is_by_reaper)
    except InvalidRequest:
        is_unknown_spot = machine.stoppable is None and machine.market == "spot"
        if not (is_unknown_spot and retention_records.supports_images(session, machine)):
            raise
        return park(session, session.ledger.machine(machine.id) or machine, why=why)


def _stop_and_confirm(
    session: Session, machine: Machine, why: str, *, is_requested: bool = False, is_by_reaper: bool = False
) -> Machine:
    request = None if is_requested else partial(_request_event, session, "stop", why=why, is_by_reaper=is_by_reaper)
    try:
        latest = refresh(session, machine)
    except (ProviderUnavailable, AuthFailed) as error:
        _record_for_reaper(session, machine, request if may_be_running(machine) else None, "stop", error)
        raise
    if latest.terminated_at:
        raise ended_error(latest, session.clock())
    provider = stoppable_provider(session, latest)
    if latest.state in ("stopped", "deallocated") and not latest.billed:
        if latest.pending_action == "start":  # of a start that was never answered: budgets reserve money for it
            return session.ledger.append_to(latest, [start_refused_event(session, latest)])
        return latest
    session.report(f"{machine.name}: stopping")
    read_counter_before_end(session, latest)
    if request is not None:
        session.ledger.append([request(machine)])
    try:
        with nullcontext() if machine.cluster_node else on_abort(unfinished_end_sentence(machine.name, "stop")):
            latest = stop_proof.request_until_confirmed(
                session, latest, stop_proof.is_stopped, lambda: provider.stop(machine.provider_id), seen_running=True
            )
    except EndRefused as refusal:
        stop_proof.record_refusal(session, machine, "stop", refusal)
        refusal.message = f"{machine.name} was not stopped: {refusal.message} It runs on and is billed."
        raise
    except InvalidRequest:
        if request is not None:
            stop_proof.cancel_stop_request(session, machine)
        raise
    record_spot_cost(session, latest)
    if latest.terminated_at:
        raise ended_error(latest, session.clock())
    return latest


def start_refused_event(session: Session, machine: Machine) -> Draft:
    """Return the event that a requested start has surely not begun, so that budgets do not count it."""
    return start_refused(machine.id, "the provider did not take it", session.clock())


def terminate_one(session: Session, machine: Machine, *, why: str) -> Machine:
    """End a machine as `terminate_with_resources` does; return the machine."""
    return terminate_with_resources(session, machine, why=why).machine


def terminate_with_resources(
    session: Session,
    machine: Machine,
    *,
    why: str,
    launch_failed: bool = False,
    check: _Check = None,
    is_by_reaper: bool = False,
) -> Termination:
    """End the machine and all resources that were created with it, images of it included; return once all are gone.

    `launch_failed`: it never came up. `check` gets the machine once its lock is held, and raises where it is not to be
    ended any more; `is_by_reaper` is as in `request_all`. Works on every machine of this ledger, also one whose launch
    or end was interrupted, and on a parked one. Raises StopUnproved when the proof did not come in time, EndRefused
    where something protects it (it is stopped then, if it can be), Unrecorded when it is gone and the ledger does not
    have that yet, RoleNeeded where the user may not end it.
    """
    end = partial(_end_locking, session, why=why, launch_failed=launch_failed, check=check, is_by_reaper=is_by_reaper)
    return without_ledger(
        session, machine, end, lambda result: f"{result.machine.name} was ended and nothing of it is left"
    )


def _end_locking(
    session: Session, machine: Machine, *, why: str, launch_failed: bool, check: _Check, is_by_reaper: bool
) -> Termination:
    check_right_and_claim_owner(session, machine, "end")
    with lock_machine(session, machine):
        if check is not None:
            check(session.ledger.machine(machine.id) or machine)
        machine, named_resources = _end_with_resources(
            session, machine, why, launch_failed=launch_failed, is_by_reaper=is_by_reaper
        )
    return _ended_result(session, machine, named_resources)


def end_locked(
    session: Session, machine: Machine, *, why: str, launch_failed: bool = False, is_requested: bool = False
) -> Termination:
    """Terminate the machine and its resources, as `terminate_with_resources`; the caller holds its lock.

    `is_requested`: the caller has written the request, with those of other machines (`request_all`).
    """
    return _ended_result(
        session, *_end_with_resources(session, machine, why, launch_failed=launch_failed, is_requested=is_requested)
    )


def request_all(
    session: Session,
    action: Literal["stop", "terminate"],
    machines: Sequence[Machine],
    why: str,
    *,
    is_by_reaper: bool = False,
) -> frozenset[str]:
    """Record in one write that nodes of a cluster are to be stopped or ended, before any is; return their ids.

    Those are the nodes that exist, as far as is known, and for a stop, those that are billed. The next run of the
    reaper finishes what a killed command leaves; `is_by_reaper`: a run of the reaper decided it, and the next one
    decides anew. The caller holds their lock.
    """
    existing = [node for node in machines if node_exists(node) and (node.billed or action == "terminate")]
    session.ledger.append(
        [_request_event(session, action, node, why=why, is_by_reaper=is_by_reaper) for node in existing]
    )
    return frozenset(machine.id for machine in existing)


def _request_event(
    session: Session,
    action: Literal["stop", "terminate"],
    machine: Machine,
    *,
    why: str,
    launch_failed: bool = False,
    is_by_reaper: bool = False,
) -> Draft:
    """Return the event that is written before the stop or the end of a machine is sent."""
    requester = requester_record(session, machine, "stop" if action == "stop" else "end")
    now = not_before(machine, session.clock())
    return requested(
        action, machine.id, why, now, host=platform.node(), who=requester, failed=launch_failed, judged=is_by_reaper
    )


def _end_with_resources(
    session: Session,
    machine: Machine,
    why: str,
    *,
    launch_failed: bool,
    is_requested: bool = False,
    is_by_reaper: bool = False,
) -> tuple[Machine, Sequence[ProviderResource]]:
    """End the machine and delete its resources, without the ledger if that fails; return it and its named resources."""
    request = partial(
        _request_event, session, "terminate", why=why, launch_failed=launch_failed, is_by_reaper=is_by_reaper
    )
    with on_abort(unproved_sentence(machine.name, "end")), explain_refused_credential(session, machine, "down"):
        try:
            machine = session.ledger.machine(machine.id) or machine
            machine = _resolve_and_end(session, machine, why, None if is_requested else request)
            machine, named_resources = retention_records.delete_all(
                session, session.ledger.machine(machine.id) or machine
            )
        except (LedgerAway, EndedUnrecorded):
            raise
        except (LedgerUnavailable, InvalidRequest) as error:  # no reason to let it run on
            raise terminate_without_ledger(session, machine, error, with_retained=True) from error
        if not session.ledger_away:  # the saved call identifies the machine until its end is recorded
            saved.delete(session.home.attempts, machine.token or "none")
    return machine, named_resources


def _ended_result(session: Session, machine: Machine, named_resources: Sequence[ProviderResource]) -> Termination:
    clean_up_local_files(session)  # not under the lock: it skips files of a locked launch
    with suppress(LedgerUnavailable):  # the next sync writes it
        retention_records.record_resources(session, named_resources)
    return Termination(machine, tuple(named_resources), _remaining_files(session, machine))


def _remaining_files(session: Session, machine: Machine) -> RemainingFiles | None:
    """Return which files of the owner stay on the computer where the machine was."""
    if not machine.provider_id:
        return None
    with suppress(CloudgpuError):
        provider = session.provider_of(machine)
        return provider.remains(machine.provider_id) if isinstance(provider, WritesAtHome) else None
    return None


def _resolve_and_end(
    session: Session, machine: Machine, why: str, request: Callable[[Machine], Draft] | None
) -> Machine:
    """Find out what became of an open launch, then end the machine; for one that has ended, only what it left."""
    if machine.launch_status == "open":
        machine = resolve_before_end(session, machine, deadline=session.clock() + stop_proof.STOP_TIMEOUT)
    if machine.terminated_at is None:
        return delete_shared_resources(session, _send_terminate(session, machine, request))
    retention_records.record_discard(session, machine, why)
    if machine.provider_id:
        session.provider_of(machine).terminate(machine.provider_id)  # what a killed `down` may have left
    return delete_shared_resources(session, timers.delete_timer(session, machine) if machine.timer else machine)


def _send_terminate(session: Session, machine: Machine, request: Callable[[Machine], Draft] | None) -> Machine:
    """Record and send the request to terminate, and wait until it is confirmed; if refused, stop the machine."""
    try:
        provider = session.provider_of(machine)
    except (ProviderUnavailable, AuthFailed) as error:
        _record_for_reaper(session, machine, request, "end", error)
        raise
    session.report(f"{machine.name}: ending")
    read_counter_before_end(session, machine)
    store_samples_before_end(session, machine)
    machine, exists = _refresh_before_end(session, provider, machine)
    if request is not None:
        session.ledger.append([request(machine)])
    end = partial(provider.terminate, not_none(machine.provider_id))
    try:
        # without a request of its own, its cluster shows the message
        with on_abort(unfinished_end_sentence(command_name(machine))) if request else nullcontext():
            machine = stop_proof.request_until_confirmed(
                session, machine, lambda found: bool(found.terminated_at), end, seen_running=exists, seen_by_get=exists
            )
    except EndRefused as refusal:
        raise stop_proof.stop_instead(session, machine, refusal) from refusal.__cause__
    record_spot_cost(session, machine)
    return timers.delete_timer(session, machine)


def _record_for_reaper(
    session: Session,
    machine: Machine,
    request: Callable[[Machine], Draft] | None,
    action: Literal["stop", "end"],
    error: CloudgpuError,
) -> None:
    """Record the request to a provider that cannot be asked now (`error`): the next run of the reaper finishes it."""
    if request is not None and not isinstance(error, NotReachableHere | LedgerUnavailable):
        session.ledger.append([request(machine)])
        error.next = " ".join(filter(None, (error.next, postponed_end_sentence(command_name(machine), action))))


def _refresh_before_end(session: Session, provider: Provider, machine: Machine) -> tuple[Machine, bool]:
    """Return the machine, and whether its provider lists it now and bills it, if it was billed.

    Some providers forget a machine as soon as it ends, so when it stopped by itself is recorded now. A machine that is
    being ended already does not count as listed. An error of the provider does not prevent the end.
    """
    try:
        instance = provider.get(not_none(machine.provider_id))
    except CloudgpuError:
        return machine, False
    if machine.billed and stop_proof.is_stopped(instance) and instance.state in (State.STOPPED, State.DEALLOCATED):
        now = not_before(machine, session.clock())
        machine = session.ledger.append_to(machine, stop_proof.change_events(session, machine, instance, now))
    return machine, instance.state is not State.TERMINATED and (instance.billed or not machine.billed)


def admit_all(session: Session, view: View, machines: Sequence[Machine], override: str | None) -> list[Draft]:
    """Return the events of the admission of all of these machines, or raise for all, as `admit` does for one."""
    cluster_name = machines[0].cluster_node.name if machines[0].cluster_node else ""
    return admit(session, view, machines[0], override, others=machines[1:], of_cluster=cluster_name)


def lease_event(machine: Machine, lease: Lease, why: str, now: datetime, *, who: RequestedBy) -> Draft:
    """Return the event that records a lease that was set; `who` is from `authorization.requester_record`."""
    return lease_set(machine.id, lease.expires, lease.renew_until, why, now, host=platform.node(), who=who)


def stoppable_provider(session: Session, machine: Machine) -> Any:
    """Return the provider (`Pausable`) of a machine that can be stopped and started; else raise InvalidRequest."""
    provider = session.provider_of(machine)
    if machine.stoppable is False or not isinstance(provider, Pausable):
        raise InvalidRequest(
            f"{machine.name} cannot be stopped and started ({machine.market} on {machine.provider}).",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {command_name(machine)} (it ends the machine and deletes its disk)",
        )
    return provider


def resolve_launch(session: Session, machine: Machine, resolve: Callable[..., Machine] = settle) -> Machine:
    """Return the current machine once the outcome of its launch is known; raise InstanceNotFound if it is gone."""
    machine = session.ledger.machine(machine.id) or machine
    if machine.launch_status == "open":
        machine = resolve(session, machine, deadline=session.clock() + stop_proof.STOP_TIMEOUT)
    if machine.terminated_at:
        raise ended_error(machine, session.clock())
    return machine


def lock_machine(session: Session, machine: Machine) -> AbstractContextManager[None]:
    """Return the lock of this machine, which is also that of launches of the same request."""
    if session.is_locked(name := lock_name(machine.key or machine.id)):
        session.report_wait(f"{machine.name}: another cloudgpu is at work on it; waiting for it")
    return session.lock(name, wait=900)


@contextmanager
def explain_refused_credential(session: Session, machine: Machine, verb: str) -> Iterator[None]:
    """Add to the error of a refused credential in this block that the machine runs on, its price, and how to end it.

    `verb` is `stop` or `down`. Nothing is added for an on-premises machine, or one that is gone: it costs nothing.
    """
    try:
        yield
    except RoleNeeded:
        raise
    except AuthFailed as error:
        latest = machine
        with suppress(LedgerUnavailable):
            latest = session.ledger.machine(machine.id) or machine
        if latest.terminated_at is None and not is_on_prem(latest.provider):
            explain_ending_by_hand(error, latest, verb)
        raise
