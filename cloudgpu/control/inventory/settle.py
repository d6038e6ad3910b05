"""Settles an interrupted attempt, whose outcome is not recorded: by sending its call again, or by a listing.

It also ends a remnant: a stopped machine that a refused launch has left, and whose disk costs money. Two facts together
tell it from a stopped machine of the user: its launch is not settled in the ledger, so nobody was ever given it, and
the provider says that it never ran, so nothing can be on it.

The `launch_status` of an attempt is `open` until it is settled, then `made` (a machine was launched), `void` (none was)
or `refused`.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from cloudgpu.control.inventory.shared import delete_shared_resources, delete_unused_shared
from cloudgpu.control.inventory.stop_proof import request_until_confirmed
from cloudgpu.control.inventory.unrecorded_termination import end_unrecorded_launch
from cloudgpu.control.network.host_keys import pin_launch_key
from cloudgpu.control.pricing.price_history import reported_price_events
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import requester_record
from cloudgpu.core.events.launch_events import launch_settled
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import requested
from cloudgpu.core.events.observations import instance_observed, instance_vanished
from cloudgpu.core.model.instances import REFUSED_PREFIX, TAG_ID, TAG_LEDGER, Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.resources.retention import is_of_earlier_life, is_remnant
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    LedgerUnavailable,
    NoCapacity,
    NotReachableHere,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.ledger import saved_calls
from cloudgpu.providers.base import Provider, TokenRule
from cloudgpu.underway import on_abort

CLEANUP_LOCK = "shared-things"  # held while shared resources are removed; open launches are read under it
_CLEANUP_PAUSE_S = 0.2
MAX_CLOCK_SKEW = timedelta(minutes=5)  # between two computers with one ledger
# Errors of a launch that mean that it made no machine.
NOT_LAUNCHED = (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest)
# A cloud may refuse so before it reads the token: as answer to a repeated call, that says nothing about the first one.
EARLY_REFUSALS = (QuotaExceeded, AuthFailed, InvalidRequest)


def settle_abandoned_launches(session: Session) -> None:
    """Settle every open attempt whose process has ended, by listings. Report those that only a replay can settle.

    A replay could launch a machine that nobody waits for, so none is made here.
    """
    for machine in living_machines(session.ledger.machines()):
        if machine.launch_status != "open" or session.is_locked(lock_name(machine.key)):
            continue
        try:
            with session.lock(lock_name(machine.key), wait=5):
                latest = session.ledger.machine(machine.id) or machine
                if latest.launch_status == "open":
                    settle_by_listing(session, latest)
        except NotReachableHere:
            continue  # it is in an account of a colleague, which this home cannot query
        except CloudgpuError as error:
            session.report(f"{machine.name}: an earlier launch has no known outcome yet ({error.message})")


def settle(session: Session, machine: Machine, *, deadline: datetime, replay: bool = True) -> Machine:
    """Settle this attempt and return the updated machine. The caller holds the launch lock.

    The home with the saved call (an `Attempt`) sends it again, which its token makes harmless. If the token has
    expired, the ledger is unavailable, or the call is in another home, a listing decides. Raises LaunchUncertain if
    neither can tell yet.
    """
    attempt = saved_calls.load(session.home.attempts, not_none(machine.token))
    provider = session.provider_of(machine)
    age = session.clock() - from_iso(machine.intended_at)
    if replay and not session.ledger_away and attempt is not None and age < provider.token_rule.lifetime:
        session.report(f"{machine.name}: an earlier launch was interrupted; sending the same call again")
        _replay(session, provider, machine, attempt, deadline)
        return session.ledger.machine(machine.id) or machine
    return settle_by_listing(session, machine)


def resolve_before_end(session: Session, machine: Machine, *, deadline: datetime) -> Machine:
    """Settle an attempt whose machine is to be ended: by a listing if that can tell, else by a replay.

    A replay that is refused for lack of capacity settles it, too. Raises LaunchUncertain if the replay is refused for
    another reason and the listing cannot tell yet, and AuthFailed if the listing is refused, too.
    """
    try:
        return settle_by_listing(session, machine)
    except LedgerUnavailable:
        raise
    except (AuthFailed, ProviderUnavailable):  # not permitted to list, too early to tell, or no answer
        with suppress(*NOT_LAUNCHED):
            settle(session, machine, deadline=deadline)
        machine = session.ledger.machine(machine.id) or machine
        if machine.launch_status == "open":
            raise
        return machine


def _replay(session: Session, provider: Provider, machine: Machine, attempt: Attempt, deadline: datetime) -> None:
    """Send a call again that may have been sent before. Raises the provider's errors.

    A refusal that may precede the check of the token, for example expired credentials, does not close the attempt: the
    first call may have launched the machine. Then a listing decides, or the attempt stays open.
    """
    try:
        send_saved_call(session, provider, attempt, deadline=deadline, closing_errors=(NoCapacity,))
    except EARLY_REFUSALS as error:
        try:
            settle_by_listing(session, machine)
        except ProviderUnavailable as undecided:
            error.next = " ".join(filter(None, (error.next, undecided.next)))
        except AuthFailed:
            pass  # the listing is refused like the launch
        if (session.ledger.machine(machine.id) or machine).launch_status != "made":
            raise


def send_saved_call(
    session: Session,
    provider: Provider,
    attempt: Attempt,
    *,
    deadline: datetime,
    closing_errors: tuple[type[CloudgpuError], ...] = NOT_LAUNCHED,
) -> Instance:
    """Send a saved call to its provider and record the outcome. The caller holds the launch lock.

    Raises the provider's errors; one of `closing_errors` means that no machine was launched, and the attempt is closed
    as refused. If a refused launch has left a machine and the provider has ended it, that is recorded as launched and
    ended, and NoCapacity is raised. If the ledger cannot record the machine, it is ended: raises EndedUnrecorded, or
    StopUnproved if that failed.
    """
    pin_launch_key(session, attempt)
    wait_for_cleanup(session, deadline)
    session.ledger.check_lock(lock_name(attempt.request.key))  # without it, another client may settle it meanwhile
    with on_abort(
        f"The launch of {attempt.request.name} may have been accepted: the next cloudgpu up or cloudgpu reap finds out."
    ):
        return _send(session, provider, attempt, deadline, closing_errors)


def _send(
    session: Session,
    provider: Provider,
    attempt: Attempt,
    deadline: datetime,
    closing_errors: tuple[type[CloudgpuError], ...],
) -> Instance:
    recorded = session.ledger.machine(attempt.machine)  # read now: after the call the ledger may be away
    try:
        instance = provider.launch(attempt, deadline=deadline)
    except closing_errors as error:
        refused_event = launch_settled(attempt.machine, attempt.token, "refused", error.message, session.clock())
        session.ledger.append([refused_event])
        saved_calls.delete(session.home.attempts, attempt.token)
        raise
    except ProviderUnavailable as error:
        error.next = error.next or "Run the same up again: it first finds out what became of this launch."
        raise
    now = session.clock()
    made_event = launch_settled(attempt.machine, attempt.token, "made", "the provider accepted it", now)
    try:
        price = reported_price_events(session, recorded, instance, now)
        session.ledger.append([made_event, *price, *_launched_events(attempt.machine, instance, now)])
    except LedgerUnavailable as error:  # a machine without a record would cost money unseen, so it is ended again
        launched = None if recorded is None else recorded._replace(provider_id=instance.id)
        raise error if launched is None else end_unrecorded_launch(session, launched, error) from error
    if instance.state is State.TERMINATED and (instance.reason or "").startswith(REFUSED_PREFIX):
        raise NoCapacity(not_none(instance.reason).removeprefix(REFUSED_PREFIX), field="offer", value=instance.zone)
    return instance


def _launched_events(machine_id: str, instance: Instance, now: datetime) -> list[Draft]:
    """Return the event of a launched machine, or two events for one that a refused launch left and that never ran.

    Such a machine has been stopped since its creation (`since`); its disk was billed until now.
    """
    if instance.state is not State.TERMINATED or instance.since is None or instance.since != instance.launched_at:
        return [instance_observed(instance, now)]
    stopped = instance_observed(replace(instance, state=State.STOPPED), now)
    return [stopped, instance_vanished(machine_id, instance.id, "what a refused launch left was ended", now)]


def settle_by_listing(session: Session, machine: Machine) -> Machine:
    """Close the attempt by a complete listing, and return the updated machine.

    The caller holds the launch lock, so nobody sends the call meanwhile. Ends a machine that a refused launch has left,
    and deletes shared resources that are not used any more. Raises LaunchUncertain if the listing proves nothing yet.
    """
    settled = close_by_listing(session, machine)
    if settled.launch_status == "void":
        delete_unused_shared(session, settled)
    return settled


def close_by_listing(session: Session, machine: Machine) -> Machine:
    """Close the attempt as `settle_by_listing`, but delete no shared resources."""
    provider = session.provider_of(machine)
    now = session.clock()  # read before the listing, which says nothing about what happens after its request
    listing = provider.list()
    for instance in listing.instances:
        is_same = (instance.tags.get(TAG_ID), instance.tags.get(TAG_LEDGER)) == (machine.id, session.ledger.id)
        if is_same and not is_of_earlier_life(machine, instance.tags):
            if is_remnant(machine, instance):
                return end_remnant(session, machine, instance, now)
            return session.ledger.append_to(
                machine, [launch_found_event(machine, now), instance_observed(instance, now)]
            )
    if not listing.is_complete_in(machine.region):
        raise ProviderUnavailable(
            f"{listing.unanswered[0].scope} did not answer: {listing.unanswered[0].why}", field="provider"
        )
    if not covers_region_of(listing, machine):
        raise ProviderUnavailable(
            f"The settings of account {machine.account} do not name {machine.region}, so that region was not searched.",
            field=f"accounts.{machine.account}.regions",
            value=machine.region,
            next=f"Add {machine.region} to regions in config.toml, and run it again.",
        )
    if is_too_early(session, machine, provider.token_rule, now):
        raise LaunchUncertain(
            f"The launch of {machine.name} was interrupted, and it is too early to tell whether it made a machine.",
            field="name",
            value=machine.name,
            next=f"Run the same up again where it was started, or: cloudgpu down {command_name(machine)}",
        )
    void_event = launch_settled(machine.id, not_none(machine.token), "void", "absent from a complete listing", now)
    settled = session.ledger.append_to(machine, [void_event])
    saved_calls.delete(session.home.attempts, not_none(machine.token))
    return settled


def is_too_early(session: Session, machine: Machine, rule: TokenRule, now: datetime) -> bool:
    """Return whether an open attempt is so recent that its machine may still appear in a later listing.

    For an attempt of another computer the time is longer by MAX_CLOCK_SKEW, because that computer's clock may differ.
    """
    proves_after = rule.listing_proves_after
    if proves_after and not saved_calls.exists(session.home.attempts, not_none(machine.token)):
        proves_after += MAX_CLOCK_SKEW
    return now - from_iso(machine.intended_at) < proves_after


def covers_region_of(listing: Listing, machine: Machine) -> bool:
    """Return whether the machine's region was queried: otherwise its absence proves nothing."""
    return listing.regions is None or machine.region in listing.regions


def launch_found_event(machine: Machine, now: datetime) -> Draft:
    """Return the event that a listing has the machine of an open attempt."""
    return launch_settled(machine.id, not_none(machine.token), "made", "found in the provider's listing", now)


def wait_for_cleanup(session: Session, deadline: datetime) -> None:
    """Wait until no process removes shared resources. Call it after recording the launch and before sending it.

    A removal that starts later reads the recorded launch and keeps its resources. A removal that has started before
    ends here, and the launch creates them again. Raises ProviderUnavailable after the deadline: nothing was sent.
    """
    while session.is_locked(CLEANUP_LOCK):
        if session.clock() >= deadline:
            raise ProviderUnavailable(
                "Another cloudgpu command is still removing orphaned resources.",
                field="lock",
                value=CLEANUP_LOCK,
                next="Run the same up again.",
            )
        session.pause(_CLEANUP_PAUSE_S)


REFUSED_LAUNCH = "its launch was refused, and left it"  # why such a machine is ended


def refused_launch_events(session: Session, machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the events of a machine that a refused launch left: it exists, because its disk costs, and is to be ended.

    It has been stopped since its creation, or since the request if the provider does not say when it was created.
    """
    made_at, who = instance.launched_at or from_iso(machine.intended_at), requester_record(session, machine, "end")
    stopped = replace(instance, launched_at=made_at, since=made_at)
    return [
        launch_settled(machine.id, not_none(machine.token), "made", "found stopped: a refused launch has left it", now),
        instance_observed(stopped, now, machine=machine),
        requested("terminate", machine.id, REFUSED_LAUNCH, now, host=platform.node(), who=who, failed=True),
    ]


def request_remnant_end(session: Session, id: str) -> None:  # noqa: A002
    """Request the end of a machine that a refused launch left, and record it if it is confirmed at once.

    Raises no CloudgpuError: the next sync and the reaper continue if it is not confirmed.
    """
    machine = session.ledger.machine(id)
    if machine is None:
        return
    with suppress(CloudgpuError):
        provider, provider_id = session.provider_of(machine), not_none(machine.provider_id)
        provider.get(provider_id)  # after this success, a later 404 is proof
        provider.terminate(provider_id)
        try:
            provider.get(provider_id)
        except InstanceNotFound:
            if provider.token_rule.gone_proves_after is not None:
                proof = "unknown to get after the end was asked"
                session.ledger.append([instance_vanished(machine.id, provider_id, proof, session.clock())])


def end_remnant(session: Session, machine: Machine, instance: Instance, now: datetime) -> Machine:
    """End a machine that a refused launch left, confirm it, and return the updated machine.

    The caller holds the launch lock. Raises StopUnproved if it is not confirmed: the reaper continues with it.
    """
    session.report(f"{machine.name}: its launch was refused and left a stopped machine; ending it")
    machine = session.ledger.append_to(machine, refused_launch_events(session, machine, instance, now))
    provider = session.provider_of(machine)
    exists = False
    with suppress(CloudgpuError):
        exists = provider.get(instance.id).state is not State.TERMINATED
    machine = request_until_confirmed(
        session,
        machine,
        lambda latest: bool(latest.terminated_at),
        partial(provider.terminate, instance.id),
        seen_running=exists,
        seen_by_get=exists,
    )
    saved_calls.delete(session.home.attempts, not_none(machine.token))
    return delete_shared_resources(session, machine)
