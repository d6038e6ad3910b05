"""Reads a machine's state until a request to stop or end it is confirmed, and makes events of what has changed.

The request is repeated, and the state read, until it is confirmed. That a machine is gone is believed only after more
than one 404.

If an end is refused, the machine is stopped instead, so that its compute is not billed any more: a protection against
deletion mostly allows that. The error names the protection and how to lift it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from cloudgpu.control.pricing.price_history import (
    configuration_of_instance,
    list_price,
    record_spot_cost,
    reported_price_events,
    spot_price_history,
)
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import requester_record
from cloudgpu.core.events.bodies import Resized
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import action_refused, requested
from cloudgpu.core.events.observations import (
    differs_from_record,
    instance_observed,
    instance_vanished,
    is_resized,
    is_too_recent,
    not_before,
)
from cloudgpu.core.model.identity import cloud_id
from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.machine import Machine, command_name, may_run_text, not_none
from cloudgpu.core.model.offers import Market, Price, accelerator_to_json, price_to_json
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    AnswerTimeout,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    LedgerUnavailable,
    NotReachableHere,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.ledger.last_seen import last_seen_at, times_before_end
from cloudgpu.providers.abilities import Pausable
from cloudgpu.providers.base import Provider
from cloudgpu.providers.shared.calls import UnansweredRounds, WaitReports

PAUSES_S = (2.0, 5.0)  # between reads


def read_pauses(provider: Provider) -> tuple[float, ...]:
    """Return the pauses in seconds before each further read of a machine that was not found.

    A cloud's reads may be behind its writes: one 404 for a machine that was there is no proof. Empty, so that it is not
    read again, where a 404 counts only once listings show every launch (`not_found_proves_end_after`,
    `listing_proves_after`).
    """
    token_rule = provider.token_rule
    return PAUSES_S if token_rule.not_found_proves_end_after < token_rule.listing_proves_after else ()


def get_or_raise(session: Session, machine: Machine) -> Instance:
    """Return the machine as its provider describes it now; raise InstanceNotFound if it is gone."""
    return get_repeatedly(session, session.provider_of(machine), not_none(machine.provider_id))


def get_repeatedly(session: Session, provider: Provider, id: str) -> Instance:  # noqa: A002
    """Return the machine with this id at its provider, of any ledger; read again after a 404, as `read_pauses` says."""
    for pause_s in read_pauses(provider):
        try:
            return provider.get(id)
        except InstanceNotFound:
            session.pause(pause_s)
    return provider.get(id)


STOP_TIMEOUT = timedelta(minutes=15)  # large GPU machines take many minutes to shut down
FIRST_RETRY, LATER_RETRY = timedelta(seconds=15), timedelta(minutes=2)  # until a request is sent again


def request_until_confirmed(
    session: Session,
    machine: Machine,
    is_done: Callable[[Machine], bool],
    send_request: Callable[[], None],
    *,
    seen_running: bool = False,
    seen_by_get: bool = False,
    require_repeated_404: bool = False,
) -> Machine:
    """Call `send_request` and read the state until `is_done`; return the machine.

    While the machine still runs, the request is sent again after 15 seconds and then every two minutes: it may have
    been lost, and some clouds accept a stop and then fail. `seen_running`: it was running a moment ago, so it ended
    just now. `seen_by_get`: `get` has returned it, so one 404 is proof if the provider guarantees that
    (`TokenRule.gone_proves_after`). `require_repeated_404`: `send_request` sends nothing if it gets a 404, so one 404
    is no proof. Raises StopUnproved if it is not confirmed within STOP_TIMEOUT; a later sync shows whether it was done.
    """
    deadline, pause_s, last_state, request_arrived = session.clock() + STOP_TIMEOUT, 0.05, "no answer", False
    retry_at, retry_after, unanswered_rounds = session.clock(), FIRST_RETRY, UnansweredRounds(session.clock)
    wait_reports = WaitReports(session.report_wait, session.clock, f"{machine.name}: not proved yet", deadline)
    while True:
        try:
            if not request_arrived or (last_state == "running" and session.clock() >= retry_at):
                try:
                    send_request()
                except AnswerTimeout as error:  # the state may show that it was done
                    unanswered_rounds.record(error)
                retry_at, retry_after = session.clock() + retry_after, LATER_RETRY if request_arrived else FIRST_RETRY
            machine, request_arrived = _read_state(
                session,
                machine,
                seen_running=seen_running,
                seen_by_get=seen_by_get,
                require_repeated_404=require_repeated_404,
            )
            seen_running, seen_by_get, last_state = True, seen_by_get or request_arrived, machine.state
            request_arrived = request_arrived and not unanswered_rounds.is_unanswered
        except (LedgerUnavailable, NotReachableHere):
            raise  # repeating cannot help
        except ProviderUnavailable as error:
            last_state = unanswered_rounds.record(error)
        if is_done(machine):
            return machine
        if session.clock() >= deadline or unanswered_rounds.end_round():
            first_error = unanswered_rounds.first_message
            states = last_state if first_error in ("", last_state) else f"{last_state}; {first_error}"
            raise StopUnproved(
                f"Could not confirm that {machine.name} has stopped (last state: {states}). It {may_run_text(machine)}."
                f" At {machine.provider} it is {cloud_id(machine.provider_id, machine.region, machine.zone)}.",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu ls --refresh, then the same again: cloudgpu down {command_name(machine)}",
            )
        wait_reports.report_progress(last_state)
        session.pause(pause_s)
        pause_s = min(2.0, pause_s * 1.5)


def is_stopped(machine: Machine | Instance) -> bool:
    """Return whether a machine costs no compute any more."""
    return not machine.billed and machine.state not in ("unknown", "pending")


def _read_state(
    session: Session, machine: Machine, *, seen_running: bool, seen_by_get: bool, require_repeated_404: bool
) -> tuple[Machine, bool]:
    """Read and record a machine's state; return the machine, and whether a request to it must have arrived.

    After a request, a 404 proves the end, except for a machine so recent that it may not be visible yet.
    """
    provider, now = session.provider_of(machine), not_before(machine, session.clock())
    try:
        instance = (
            get_or_raise(session, machine)
            if require_repeated_404 or not seen_running
            else provider.get(not_none(machine.provider_id))
        )
    except InstanceNotFound:
        token_rule = provider.token_rule
        is_proof = seen_by_get and token_rule.gone_proves_after is not None
        if not is_proof and is_too_recent(machine, token_rule.not_found_proves_end_after, now):
            return machine, False
        proof = "unknown to get after the end was asked"
        last_seen = None if seen_running else last_seen_at(session.ledger, machine)
        events = [instance_vanished(machine.id, not_none(machine.provider_id), proof, now, last_seen)]
    else:
        events = change_events(session, machine, instance, now, seen_before_request=seen_running)
    return session.ledger.append_to(machine, events), True


def stop_instead(session: Session, machine: Machine, refusal: EndRefused) -> EndRefused:
    """Stop a machine whose end was refused; return the refusal, with the outcome added to its message.

    The caller holds the machine's lock. Raises LedgerUnavailable.
    """
    machine = record_refusal(session, machine, "terminate", refusal)
    outcome, unlock_command = _try_to_stop(session, machine, refusal)
    refusal.message = f"{machine.name} was not ended: {refusal.message} {outcome}"
    commands = list(dict.fromkeys(command for command in (refusal.lifts, unlock_command) if command))
    remedy = f"Run: {' && '.join(commands)}" if commands else (refusal.next or "Lift that at its provider").rstrip(".")
    refusal.next = f"{remedy}; then: cloudgpu down {command_name(machine)}"
    return refusal


def record_refusal(
    session: Session, machine: Machine, action: Literal["stop", "terminate"], refusal: EndRefused
) -> Machine:
    """Record that an end (or a stop) was refused, and what lifts that; return the machine.

    Owners are alerted until it is lifted.
    """
    event = action_refused(machine.id, action, refusal, not_before(machine, session.clock()))
    return session.ledger.append_to(machine, [event])


def cancel_stop_request(session: Session, machine: Machine) -> None:
    """Record that a stop is requested no more, because its provider refuses it: no run of the reaper could finish it.

    Left open, it would be tried by every run, before the rules that end the machine.
    """
    now, who = not_before(machine, session.clock()), requester_record(session, machine, "stop")
    why, host = "its stop was refused", platform.node()
    session.ledger.append([requested("start", machine.id, why, now, host=host, who=who, running=True)])


def error_text(error: CloudgpuError) -> str:
    """Return an error as one text; for a refused end with its remedy, because the text may be all that is shown."""
    return f"{error.message} {error.next}" if isinstance(error, EndRefused) and error.next else error.message


def stop_unrecorded(provider: Provider, instance_id: str, refusal: EndRefused) -> EndRefused:
    """Request a stop of a machine whose end was refused, while the ledger is unavailable; return the refusal."""
    try:
        if isinstance(provider, Pausable):
            provider.stop(instance_id)
            refusal.message += " It was asked to stop instead."
    except CloudgpuError as stop_error:
        refusal.message += f" It could not be stopped either: {stop_error.message}"
    return refusal


def _try_to_stop(session: Session, machine: Machine, refusal: EndRefused) -> tuple[str, str]:
    """Stop the machine and confirm it; return the outcome, and the command that lifts a protection against stops."""
    provider = session.provider_of(machine)
    if machine.state in ("stopped", "deallocated") and not machine.billed:
        return "It is stopped; its disk still costs money.", ""
    if not isinstance(provider, Pausable) or machine.stoppable is False:
        return "It cannot be stopped either, so it runs on and is billed.", ""
    session.report(f"{machine.name}: {refusal.message} Stopping it instead")
    now, who = not_before(machine, session.clock()), requester_record(session, machine, "stop")
    session.ledger.append([requested("stop", machine.id, "its end was refused", now, host=platform.node(), who=who)])
    try:
        machine = request_until_confirmed(
            session, machine, is_stopped, lambda: provider.stop(not_none(machine.provider_id)), seen_running=True
        )
    except LedgerUnavailable:
        raise
    except EndRefused as stop_error:
        record_refusal(session, machine, "stop", stop_error)
        return f"It cannot be stopped either, so it runs on and is billed: {stop_error.message}", stop_error.lifts
    except CloudgpuError as stop_error:
        return f"Stopping it instead failed, so it may run on and be billed: {stop_error.message}", ""
    record_spot_cost(session, machine)
    return "It was stopped instead; its disk still costs money.", ""


def change_events(
    session: Session, machine: Machine, instance: Instance, now: datetime, *, seen_before_request: bool = False
) -> list[Draft]:
    """Return the event of a recorded machine if its state has changed, and of the price that its provider reports.

    `seen_before_request`: a sync saw it a moment ago. If the machine's type or market has changed, the event has its
    new price, or none if that is not known, and never the old one.
    """
    price_events = reported_price_events(session, machine, instance, now) if machine.state == State.PENDING else []
    if not differs_from_record(machine, instance):
        return price_events
    times_before = times_before_end(session.ledger, machine, instance, seen_before_request=seen_before_request)
    resized = _resized(session, machine, instance) if is_resized(machine, instance) else None
    return [*price_events, instance_observed(instance, now, machine=machine, before=times_before, resized=resized)]


def answer_events(
    session: Session,
    machine: Machine,
    answer: Instance | CloudgpuError,
    now: datetime,
    *,
    seen_before_request: bool = False,
) -> list[Draft]:
    """Return the events by which a machine's record follows the provider's answer, or its "no such machine".

    `seen_before_request` is as in `times_before_end`. Raises the provider's errors.
    """
    if not isinstance(answer, Instance):
        proves_after = session.provider_of(machine).token_rule.not_found_proves_end_after
        if machine.terminated_at or is_too_recent(machine, proves_after, now):
            return []
        last_seen = None if seen_before_request else last_seen_at(session.ledger, machine)
        proof = "the provider has no such machine"
        return [instance_vanished(machine.id, not_none(machine.provider_id), proof, now, last_seen)]
    cancel_spot_request(session, machine, answer)
    return change_events(session, machine, answer, now, seen_before_request=seen_before_request)


def cancel_spot_request(session: Session, machine: Machine, instance: Instance) -> bool:
    """Cancel a persistent spot request whose machine others have ended, because it would launch another machine.

    Return whether there was one. Call it before the end is recorded: if the process is killed in between, the next sync
    cancels it.
    """
    persistent = bool(machine.setup and machine.setup.persistent)
    if instance.state is not State.TERMINATED or machine.terminated_at is not None or not persistent:
        return False
    session.provider_of(machine).terminate(instance.id)
    return True


def _resized(session: Session, machine: Machine, instance: Instance) -> Resized:
    """Return the machine's new type and market, its prices, and when it was last seen with the old ones."""
    configuration, last_seen = configuration_of_instance(instance), last_seen_at(session.ledger, machine)
    prices = _prices_of_instance(session, instance, last_seen)
    on_demand = prices[-1] if prices else None
    if instance.market is Market.SPOT:
        on_demand = list_price(session, replace(configuration, market=Market.ON_DEMAND))
    return {
        "instance_type": instance.instance_type,
        "market": str(instance.market),
        "accelerators": [accelerator_to_json(gpu) for gpu in instance.accelerators],
        "prices": [price_to_json(price) for price in prices],
        "on_demand": None if on_demand is None else price_to_json(on_demand),
        "after": last_seen,
    }


def _prices_of_instance(session: Session, instance: Instance, last_seen: str | None) -> Sequence[Price]:
    """Return the machine's prices, oldest first; for spot also those since it has run as it is now."""
    unchanged_since = instance.since or (from_iso(last_seen) if last_seen else None)
    if instance.market is Market.SPOT and unchanged_since is not None:
        with suppress(CloudgpuError):
            history = spot_price_history(
                session, instance.account, [configuration_of_instance(instance)], unchanged_since
            )[0]
            if history:
                return history
    price = list_price(session, configuration_of_instance(instance))
    return () if price is None else (price,)
