"""Settles an attempt whose process did not live to see its answer: by replay, or by what a listing proves.

What a refused launch left at a cloud is ended, too: it never ran, and its disk costs. It is told from a stopped machine
of the user's in two ways at once. The ledger has not settled its launch, so nobody was ever given it; and the provider
says that it never ran, so nothing can be on it.
"""

from __future__ import annotations

import contextlib
import platform
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from cloudgpu.control.inventory.shared import delete_shared_resources, delete_unused_shared
from cloudgpu.control.inventory.stop_proof import request_until_confirmed
from cloudgpu.control.inventory.unrecorded_termination import terminate_without_ledger
from cloudgpu.control.network.host_keys import pin_launch_key
from cloudgpu.control.pricing.price_history import reported_price_events
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import by
from cloudgpu.core.events.launch_lines import launch_settled
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_lines import requested
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
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.base import Provider, TokenRule
from cloudgpu.underway import on_abort

CLEANUP_LOCK = "shared-things"  # whoever removes it holds this lock, and reads then which launches are written down
_CLEANUP_PAUSE_S = 0.2
MAX_CLOCK_SKEW = timedelta(minutes=5)  # of two computers with one ledger, at most
NOT_LAUNCHED = (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest)
# Refusals that a cloud gives before it looks at the token: when a call is sent again they say nothing about the first.
EARLY_REFUSALS = (QuotaExceeded, AuthFailed, InvalidRequest)


def settle_abandoned_launches(session: Session) -> None:
    """Settle every unfinished attempt whose process no longer lives, except those that only a replay can settle.

    Replaying another request could launch a machine that nobody waits for: those stay open and are named.
    """
    for machine in living_machines(session.ledger.machines()):
        if machine.launch_status != "open" or session.is_locked(lock_name(machine.key)):
            continue
        try:
            with session.lock(lock_name(machine.key), wait=5):
                row = session.ledger.machine(machine.id) or machine
                if row.launch_status == "open":
                    settle_by_listing(session, row)
        except NotReachableHere:
            continue  # a colleague's: nothing here can settle it
        except CloudgpuError as error:
            session.report(f"{machine.name}: an earlier launch has no known outcome yet ({error.message})")


def settle(session: Session, machine: Machine, *, deadline: datetime, replay: bool = True) -> Machine:
    """Settle this attempt for certain and return the machine as it is then. The caller holds the launch lock.

    The owner of the saved call sends that very call again: the token makes it harmless. Anybody else, and the
    owner once the token has expired or without a ledger, goes by a listing. Raises LaunchUncertain when neither can
    tell yet.
    """
    attempt = saved.load(session.home.attempts, not_none(machine.token))
    provider = session.provider_of(machine)
    age = session.clock() - from_iso(machine.intended_at)
    if replay and not session.ledger_away and attempt is not None and age < provider.token_rule.lifetime:
        session.report(f"{machine.name}: an earlier launch was interrupted; sending the same call again")
        _replay(session, provider, machine, attempt, deadline)
        return session.ledger.machine(machine.id) or machine
    return settle_by_listing(session, machine)


def resolve_before_end(session: Session, machine: Machine, *, deadline: datetime) -> Machine:
    """Settle an attempt whose machine is to be ended: by the listing where that can tell, else by replay.

    A launch for which there is no capacity now was never made: that settles it, too. Raises LaunchUncertain where the
    replay is refused for another reason and the listing cannot tell yet.
    """
    try:
        return settle_by_listing(session, machine)
    except LedgerUnavailable:
        raise
    except ProviderUnavailable:  # too early to tell, or a silence
        with contextlib.suppress(*NOT_LAUNCHED):
            settle(session, machine, deadline=deadline)
        machine = session.ledger.machine(machine.id) or machine
        if machine.launch_status == "open":
            raise
        return machine


def _replay(session: Session, provider: Provider, machine: Machine, attempt: Attempt, deadline: datetime) -> None:
    """Send a call that may have been sent before. Raises what the provider raised.

    A refusal that may have come before the cloud looked at the token (an expired credential, say) does not close the
    attempt: the first sending may have made the machine. The listing says so, or the attempt stays open.
    """
    try:
        send(session, provider, attempt, deadline=deadline, closing_errors=(NoCapacity,))
    except EARLY_REFUSALS as error:
        try:
            settle_by_listing(session, machine)
        except ProviderUnavailable as early:
            error.next = " ".join(filter(None, (error.next, early.next)))
        except AuthFailed:
            pass  # the listing is refused as the launch was
        if (session.ledger.machine(machine.id) or machine).launch_status != "made":
            raise


def send(
    session: Session,
    provider: Provider,
    attempt: Attempt,
    *,
    deadline: datetime,
    closing_errors: tuple[type[CloudgpuError], ...] = NOT_LAUNCHED,
) -> Instance:
    """Send a saved call to the provider of its account and write down how it ended. The caller holds the launch lock.

    Raises what the provider raised; if that is one of `closing_errors`, the machine was surely not made, and the
    attempt is closed as refused. A machine that a refused launch left, and that the provider has ended, is recorded as
    made and ended: then NoCapacity is raised, too.
    """
    pin_launch_key(session, attempt)
    wait_for_cleanup(session, deadline)
    session.ledger.check_lock(lock_name(attempt.request.key))  # another client may have settled it for dead
    name = attempt.request.name
    abort_text = f"The launch of {name} may have been accepted: the next cloudgpu up or cloudgpu reap finds out."
    with on_abort(abort_text):
        return _send(session, provider, attempt, deadline, closing_errors)


def _send(
    session: Session,
    provider: Provider,
    attempt: Attempt,
    deadline: datetime,
    closing_errors: tuple[type[CloudgpuError], ...],
) -> Instance:
    try:
        instance = provider.launch(attempt, deadline=deadline)
    except closing_errors as error:
        now = session.clock()
        session.ledger.append([launch_settled(attempt.machine, attempt.token, "refused", error.message, now)])
        saved.delete(session.home.attempts, attempt.token)
        raise
    except ProviderUnavailable as error:
        error.next = error.next or "Run the same up again: it first finds out what became of this launch."
        raise
    now = session.clock()
    settled = launch_settled(attempt.machine, attempt.token, "made", "the provider accepted it", now)
    try:
        price = reported_price_events(session, session.ledger.machine(attempt.machine), instance, now)
        session.ledger.append([settled, *price, *_observed_events(attempt.machine, instance, now)])
    except LedgerUnavailable as error:  # nobody could see what it costs: it is ended again
        machine = session.ledger.machine(attempt.machine)
        raise error if machine is None else terminate_without_ledger(session, machine, error) from error
    if instance.state is State.TERMINATED and (instance.reason or "").startswith(REFUSED_PREFIX):
        raise NoCapacity(not_none(instance.reason).removeprefix(REFUSED_PREFIX), field="offer", value=instance.zone)
    return instance


def _observed_events(machine: str, instance: Instance, now: datetime) -> list[Draft]:
    """Return the lines of a machine that a launch has made: one; two for one that a refusal left and that never ran.

    Such a machine says so by `since`: it has stood still since it was made, and what is kept of it costs until now.
    """
    if instance.state is not State.TERMINATED or instance.since is None or instance.since != instance.launched_at:
        return [instance_observed(instance, now)]
    stopped = instance_observed(replace(instance, state=State.STOPPED), now)
    return [stopped, instance_vanished(machine, instance.id, "what a refused launch left was ended", now)]


def settle_by_listing(session: Session, machine: Machine) -> Machine:
    """Close the attempt by what a complete listing proves, and return the machine as it is then.

    The caller holds the launch lock: nobody sends the call while the listing is asked. What a refused launch has left
    is ended, and what nothing uses any more is deleted. Raises LaunchUncertain when the listing proves nothing yet.
    """
    settled = close_by_listing(session, machine)
    if settled.launch_status == "void":
        delete_unused_shared(session, settled)
    return settled


def close_by_listing(session: Session, machine: Machine) -> Machine:
    """Close the attempt as `settle_by_listing` does, but leave what it shared with others."""
    provider = session.provider_of(machine)
    now = session.clock()  # a listing says nothing about what came after it was asked
    listing = provider.list()
    for instance in listing.instances:
        ours = (instance.tags.get(TAG_ID), instance.tags.get(TAG_LEDGER)) == (machine.id, session.ledger.id)
        if ours and not is_of_earlier_life(machine, instance.tags):
            if is_remnant(machine, instance):
                return end_remnant(session, machine, instance, now)
            return session.ledger.append_to(machine, _created_events(machine, instance, now))
    if not listing.is_complete_in(machine.region):
        raise ProviderUnavailable(
            f"{listing.unanswered[0].scope} did not answer: {listing.unanswered[0].why}", field="provider"
        )
    if not covers(listing, machine):
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
    line = launch_settled(machine.id, not_none(machine.token), "void", "absent from a complete listing", now)
    settled = session.ledger.append_to(machine, [line])
    saved.delete(session.home.attempts, not_none(machine.token))
    return settled


def is_too_early(session: Session, machine: Machine, rule: TokenRule, now: datetime) -> bool:
    """Say whether it proves nothing yet that a listing lacks the machine of an open attempt.

    One of another computer takes MAX_CLOCK_SKEW longer: by that one's clock it may be younger than it seems here.
    """
    proves_after = rule.listing_proves_after
    if proves_after and saved.load(session.home.attempts, not_none(machine.token)) is None:
        proves_after += MAX_CLOCK_SKEW
    return now - from_iso(machine.intended_at) < proves_after


def covers(listing: Listing, machine: Machine) -> bool:
    """Say whether the machine's region was asked at all: what a sync left out proves no absence."""
    return listing.regions is None or machine.region in listing.regions


def _created_events(machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    return [
        launch_settled(machine.id, not_none(machine.token), "made", "found in the provider's listing", now),
        instance_observed(instance, now),
    ]


def wait_for_cleanup(session: Session, deadline: datetime) -> None:
    """Wait until nobody removes what a launch may use. To be called between writing the launch down and sending it.

    Either the one who removes has read that line and leaves all of it alone, or the launch waits here until that is
    gone, and makes it anew. Raises ProviderUnavailable when the deadline has passed: nothing was sent.
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


REFUSED_LAUNCH = "its launch was refused, and left it"


def refused_launch_events(session: Session, machine: Machine, instance: Instance, now: datetime) -> list[Draft]:
    """Return the lines of what a refused launch left: that it is there, since its disk costs, and is to end.

    It has stood still since it was made; since it was asked for, where the provider does not say when that was.
    """
    made_at, who = instance.launched_at or from_iso(machine.intended_at), by(session, machine, "end")
    stopped = replace(instance, launched_at=made_at, since=made_at)
    return [
        launch_settled(machine.id, not_none(machine.token), "made", "found stopped: a refused launch has left it", now),
        instance_observed(stopped, now, machine=machine),
        requested("terminate", machine.id, REFUSED_LAUNCH, now, host=platform.node(), who=who, failed=True),
    ]


def request_end(session: Session, id: str) -> None:  # noqa: A002
    """Ask once for the end of what a refused launch left, and write it down where that is proved at once.

    Raises nothing of the provider's: the next sync, and the reaper, go on with what is not proved.
    """
    machine = session.ledger.machine(id)
    if machine is None:
        return
    with suppress(CloudgpuError):
        provider, provider_id = session.provider_of(machine), not_none(machine.provider_id)
        provider.get(provider_id)  # what `get` has shown is gone once it does not
        provider.terminate(provider_id)
        try:
            provider.get(provider_id)
        except InstanceNotFound:
            if provider.token_rule.gone_proves_after is not None:
                proof = "unknown to get after the end was asked"
                session.ledger.append([instance_vanished(machine.id, provider_id, proof, session.clock())])


def end_remnant(session: Session, machine: Machine, instance: Instance, now: datetime) -> Machine:
    """End what a refused launch left, prove that it is gone, and return the machine as it is then.

    The caller holds the launch lock. Raises StopUnproved where the proof does not come: the reaper goes on with it.
    """
    session.report(f"{machine.name}: its launch was refused and left a stopped machine; ending it")
    machine = session.ledger.append_to(machine, refused_launch_events(session, machine, instance, now))
    provider = session.provider_of(machine)
    try:
        exists = provider.get(instance.id).state is not State.TERMINATED
    except CloudgpuError:
        exists = False
    ask = partial(provider.terminate, instance.id)
    machine = request_until_confirmed(
        session, machine, lambda seen: bool(seen.terminated_at), ask, seen_running=exists, seen_by_get=exists
    )
    saved.delete(session.home.attempts, not_none(machine.token))
    return delete_shared_resources(session, machine)
