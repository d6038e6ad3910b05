"""Stops many machines in few calls: under their locks, the requests recorded first, the stops proved together."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import cast

from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT, cancel_stop_request, error_text, record_refusal
from cloudgpu.control.inventory.sync_some import sync_some
from cloudgpu.control.lifecycle.lifecycle import start_refused_event
from cloudgpu.control.pricing.price_history import record_spot_cost
from cloudgpu.control.reaper.observe import Decide, lock_each, split_by_current_record
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of, requester_record
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import requested
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.reaper.decisions import did_not_start
from cloudgpu.core.reaper.result import EndItem, Outcome
from cloudgpu.errors import (
    AnswerTimeout,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    ProviderUnavailable,
    internal_error,
)
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import Pausable
from cloudgpu.providers.cluster_abilities import BulkStop
from cloudgpu.providers.shared.calls import UnansweredRounds, WaitReports
from cloudgpu.underway import on_abort, unproved_sentence

FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 5.0
_UNSETTLED_STATES = (State.UNKNOWN, State.PENDING)


def supports_batch_stop(session: Session, machine: Machine) -> bool:
    """Say whether this machine can be stopped, and its provider can stop several in one call."""
    if machine.stoppable is False or (machine.stoppable is None and machine.market == "spot"):
        return False
    provider = session.provider_of(machine)
    return isinstance(provider, BulkStop) and isinstance(provider, Pausable)


def stop_batch(session: Session, items: Sequence[EndItem], decide: Decide, check: Callable[[], None]) -> Outcome:
    """Stop these machines and prove it; one that cannot be stopped does not keep the others running.

    `check` raises where this run has lost the reaper's lock. Stops that are not proved in time are `unconfirmed`.
    """
    with lock_each(session, items) as (locked, busy):
        still_due, outcome = split_by_current_record(session, locked, decide)
        outcome.skipped += busy
        if still_due:
            check()
            outcome.add(stop_locked_batch(session, still_due))
    return outcome


def stop_locked_batch(session: Session, items: Sequence[EndItem]) -> Outcome:
    """Stop these machines, whose locks the caller holds, and prove it.

    For a stopped machine whose start was requested, it records that the start did not happen.
    """
    now, authorization = session.clock(), authorization_of(session)
    start_refused = [item for item in items if did_not_start(item.machine)]
    if start_refused:
        session.ledger.append([start_refused_event(session, item.machine) for item in start_refused])
    items = [item for item in items if item not in start_refused]
    with ExitStack() as stack:
        for item in items:
            stack.enter_context(on_abort(unproved_sentence(item.machine.name, "stop")))
        session.ledger.append(
            [
                _stop_request(item, now, requester_record(session, item.machine, "stop", authorization=authorization))
                for item in items
            ]
        )
        failed = _stop_and_wait(session, {item.id: item.machine for item in items})
    outcome = Outcome(ended=[item.as_ended(item.machine.state) for item in start_refused])
    for item in items:
        machine = session.ledger.machine(item.id) or item.machine
        if item.id in failed:
            outcome.unconfirmed.append(item.as_not_ended(failed[item.id]))
        else:
            record_spot_cost(session, machine)
            outcome.ended.append(item.as_ended(machine.state))
    return outcome


def _stop_request(item: EndItem, now: datetime, who: RequestedBy) -> Draft:
    at = not_before(item.machine, now)
    return requested("stop", item.id, item.decision.why, at, host=platform.node(), who=who, judged=True)


def _stop_and_wait(session: Session, machines: Mapping[str, Machine]) -> dict[str, str]:
    """Request the stops, and sync until no machine is billed; return the reasons for the others, by machine id.

    A stop is requested again if it may not have arrived, or if the machine was not found but is listed. After a refusal
    the machine is synced once: somebody else may have ended it. If the provider answers for none of the remaining
    machines, all are left to the next run.
    """
    deadline, pause_s, unanswered_rounds = (
        session.clock() + STOP_TIMEOUT,
        FIRST_PAUSE_S,
        UnansweredRounds(session.clock),
    )
    waiting, to_request, failed = dict(machines), dict(machines), dict[str, str]()
    wait_reports = WaitReports(
        session.report_wait, session.clock, f"{len(machines)} stops: not all proved yet", deadline
    )
    while True:
        refused = _request_stops(session, to_request.values())
        sync_errors = sync_some(session, list(waiting.values()), seen_before_request=True)
        waiting = {id_: machine for id_, machine in waiting.items() if not _is_stopped(session, machine)}
        to_request = {
            id_: machine for id_, machine in waiting.items() if id_ in refused and not _is_final_refusal(refused[id_])
        }
        for id_, error in refused.items():
            if id_ in waiting and _is_final_refusal(error):
                if isinstance(error, EndRefused):  # something protects the machine
                    record_refusal(session, machines[id_], "stop", error)
                elif isinstance(error, InvalidRequest) and machines[id_].cluster_node is None:
                    cancel_stop_request(session, machines[id_])
                failed[id_] = error_text(error)
        waiting = {id_: machine for id_, machine in waiting.items() if id_ not in failed}
        last_errors = {id_: sync_errors.get(id_) or refused.get(id_) for id_ in waiting}
        for silent_error in (
            last_errors.values() if all(isinstance(error, AnswerTimeout) for error in last_errors.values()) else ()
        ):
            unanswered_rounds.record(cast("AnswerTimeout", silent_error))
        if not waiting or session.clock() >= deadline:
            return failed | {
                id_: _unconfirmed_reason(session, machine, last_errors[id_]) for id_, machine in waiting.items()
            }
        if unanswered_rounds.end_round():
            return failed | {
                id_: f"its stop was asked and is not proved: {cast('AnswerTimeout', last_errors[id_]).message}"
                for id_ in waiting
            }
        wait_reports.report_progress(f"{len(waiting)} are left")
        session.pause(pause_s)
        pause_s = min(MAX_PAUSE_S, pause_s * 1.5)


def _is_final_refusal(error: CloudgpuError) -> bool:
    """Say whether another request is of no use: not after a missing answer, or a machine that was not found."""
    return not isinstance(error, ProviderUnavailable | InstanceNotFound)


def _request_stops(session: Session, machines: Iterable[Machine]) -> dict[str, CloudgpuError]:
    """Request the stops, all accounts in parallel; return the errors by machine id."""
    groups, errors = by_account(session, list(machines))
    if not groups:
        return errors
    ids_by_account = {
        account: {not_none(machine.provider_id): machine.id for machine in account_machines}
        for account, account_machines in groups.items()
    }
    providers = {account: cast("BulkStop", session.provider(account)) for account in ids_by_account}
    with Pool(len(ids_by_account)) as pool:
        answers = pool.map(
            lambda account: _request_account(providers[account], list(ids_by_account[account])), ids_by_account
        )
        account_answers = list(zip(ids_by_account, answers, strict=True))
    return errors | {
        ids_by_account[account][id_]: error for account, answer in account_answers for id_, error in answer.items()
    }


def _request_account(provider: BulkStop, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
    """Request the stops of one account; an error of the whole call counts for each machine."""
    try:
        return provider.stop_many(ids)
    except CloudgpuError as error:
        return dict.fromkeys(ids, error)
    except Exception as bug:  # noqa: BLE001  (the machines of other accounts have to be stopped all the same)
        return dict.fromkeys(ids, internal_error(bug))


def _is_stopped(session: Session, machine: Machine) -> bool:
    latest = session.ledger.machine(machine.id) or machine
    return bool(latest.terminated_at) or (not latest.billed and latest.state not in _UNSETTLED_STATES)


def _unconfirmed_reason(session: Session, machine: Machine, error: CloudgpuError | None) -> str:
    latest = session.ledger.machine(machine.id) or machine
    reason = error.message if error is not None else f"it was last seen {latest.state}"
    minutes = int(STOP_TIMEOUT.total_seconds() // 60)
    return f"its stop was asked and is not proved after {minutes} minutes: {reason}"
