"""Launches: from a plan to a recorded machine, never two for one request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.access.target import Barred
from cloudgpu.agent import source as agent_source
from cloudgpu.control import kept, saved
from cloudgpu.control.admission import carried, decided, look_first, row_of
from cloudgpu.control.extras import extras_of
from cloudgpu.control.lease import relet
from cloudgpu.control.lifecycle import remove_unfit
from cloudgpu.control.look import refresh
from cloudgpu.control.observe import intent
from cloudgpu.control.offering import is_limited, resolve
from cloudgpu.control.prepare import Prepared, living_of, unsettled_of
from cloudgpu.control.preview import look_for_budgets, row_of_plan, way_of
from cloudgpu.control.pricing import on_demand_of
from cloudgpu.control.reach import client_key, wait_until_ready
from cloudgpu.control.session import Session, present
from cloudgpu.control.settle import send, settle, settle_others
from cloudgpu.control.templates import driver_parts, parts_at
from cloudgpu.control.tidy import put_in_order, tidy
from cloudgpu.control.unrecorded import ended_unrecorded
from cloudgpu.control.volumes import with_volume
from cloudgpu.core import facts
from cloudgpu.core.facts import Attempt, Boot, LaunchRequest, Market, Offer
from cloudgpu.core.keeping import comes_back, stays
from cloudgpu.core.names import derived_key, machine_id, made_name, tag_value, token
from cloudgpu.core.plan import Lease, stop_means
from cloudgpu.core.times import epoch, iso
from cloudgpu.errors import (
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    Unreachable,
)
from cloudgpu.providers.base import KnowsHostKeys, Resolved, Taggable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudgpu.access.keys import HostKey
    from cloudgpu.core.events import Draft
    from cloudgpu.ledger.base import View

Row = dict[str, Any]
SEND_WITHIN = timedelta(minutes=5)
LOCK_WITHIN_S = 900


@dataclass(frozen=True, slots=True)
class Launched:
    """How `up` ended: the machine's row, and whether it was there already."""

    row: Row
    found: bool


def launch(
    session: Session, prepared: Prepared, *, wait: bool = True, agree: Callable[[], None] = lambda: None
) -> Launched:
    """Carry out a plan and return the machine, one that was already there included.

    `agree` is called before money is spent on a plan that said a machine was there already, and it is not any more:
    it raises where the user does not agree. Holds the request's lock until the attempt is settled: a second `up` of
    the same request waits for that and returns the same machine. Raises what the provider raised, LaunchUncertain
    where a later `up` has to settle it, Unreachable for a new machine that ended while starting (it is removed then),
    BudgetRefused where a budget does not carry it, or the offer that comes after one without capacity.
    """
    session.check_launchable()
    _look_first(session, prepared)
    if session.held(prepared.lock):
        session.tell("another cloudgpu is busy with the same request; waiting for it")
    with session.hold(prepared.lock, wait=LOCK_WITHIN_S):
        put_in_order(session)
        row, found = _found_or_settled(session, prepared, agree)
        if row is None:
            if prepared.existing is not None:
                look_for_budgets(session, replace(prepared, existing=None))
                agree()
            settle_others(session)
            row = _launch_anew(session, prepared)
    if not found or row["state"] in ("running", "pending"):
        row = _until_ready(session, row, found=found, wait=wait)
    tidy(session)
    return Launched(row, found)


def _look_first(session: Session, prepared: Prepared) -> None:
    """Look at the account, and at all that a budget spans, where the last look is old: what is there may raise doubts.

    The accounts of budgets matter where something may be launched, not where a machine is there to be returned.
    """
    row = row_of_plan(prepared)
    look_first(session, [row["account"]], lambda budget: prepared.existing is None and budget.scope.covers(row))
    session.check_launchable()


def _found_or_settled(session: Session, prepared: Prepared, agree: Callable[[], None]) -> tuple[Row | None, bool]:
    """Return the machine of this request, and whether it was there before an interrupted launch.

    One that is parked, or was interrupted and left its disk, is returned as it is: never a second one unasked.

    What an interrupted launch made is this request's machine. It is sent again only where nothing else lives, and
    where the plan that was agreed to covers it.
    """
    row = None if prepared.new else living_of(session.ledger, prepared.key, prepared.fingerprint)
    if row is not None and row["ended"] is None:
        row = refresh(session, row)  # what ended unseen is no machine to return
        if row["ended"] is None:
            return row, True
        row = kept.seen(session, row)
    if row is not None and comes_back(row) and not prepared.again:
        return row, True
    if row is not None and not comes_back(row):
        living_of(session.ledger, prepared.key, prepared.fingerprint)  # says so, where its key is used up
    row = unsettled_of(session.ledger, prepared.lock)
    if row is None:
        return None, False
    if prepared.existing is not None:
        agree()
    try:
        row = settle(session, row, deadline=session.clock() + SEND_WITHIN, replay=_is_covered(prepared, row))
    except NoCapacity as fault:  # surely not made: the next offer is tried, as the interrupted launch would have done
        session.tell(f"{row['zone']}: {fault.message}")
        return _found_or_settled(session, prepared, agree)
    if row["ended"] is not None:
        return None, False
    return _under_the_agreed_lease(session, prepared, row), False


def _is_covered(prepared: Prepared, row: Row) -> bool:
    """Say whether an interrupted launch costs no more an hour than the plan that was agreed to now."""
    return row["price"] is None or row["price"]["nanos_per_hour"] <= prepared.plan.dearest.nanos


def _under_the_agreed_lease(session: Session, prepared: Prepared, row: Row) -> Row:
    """Give what an interrupted launch made the lease of the plan that was agreed to last."""
    lease = Lease(prepared.plan.expires, prepared.plan.renew_until)
    provider = session.provider(row["account"])
    if not isinstance(provider, Taggable) or (row["expires"], row["renew_until"]) == (
        iso(lease.expires),
        iso(lease.renew_until),
    ):
        return row
    return relet(session, row, lease, "the interrupted launch was asked for again", prepared.override)


def _until_ready(session: Session, row: Row, *, found: bool, wait: bool) -> Row:
    try:
        row = with_volume(session, row)
        return wait_until_ready(session, row) if wait else row
    except LedgerUnavailable as fault:
        raise fault if found else ended_unrecorded(session, row, fault) from fault
    except CloudgpuError as fault:
        # One that nobody lets us through to may be well: whoever is let in can use it.
        if isinstance(fault, Unreachable) and not isinstance(fault, Barred):
            if not found:
                remove_unfit(session, row, fault)
            raise
        left = f"{row['name']} is launched and billed meanwhile; to end it: cloudgpu down {row['name']}"
        fault.next = f"{fault.next} {left}" if fault.next else left
        raise


def _launch_anew(session: Session, prepared: Prepared) -> Row:
    """Try the offers in order; each attempt is recorded before it is sent and settled before the next."""
    refusals: list[tuple[Offer, NoCapacity | QuotaExceeded]] = []
    for offer in _from_the_plan_on(prepared):
        if is_limited(offer, refusals):
            continue
        try:
            resolved = _resolved(session, prepared, offer)
        except (NoCapacity, QuotaExceeded) as fault:  # known before anything is sent
            session.tell(f"{offer.available.zone}: {fault.message}")
            refusals.append((offer, fault))
            continue
        attempt = _record(session, prepared, offer, resolved)
        session.tell(f"launching {attempt.request.name} on {offer.available.provider} ({offer.available.zone})")
        try:
            send(session, attempt, deadline=session.clock() + SEND_WITHIN)
        except NoCapacity as fault:
            session.tell(f"{offer.available.zone}: {fault.message}")
            refusals.append((offer, fault))
            continue
        row = session.ledger.machine(attempt.machine)
        if row is None:
            raise ProviderUnavailable("The ledger lost the machine that was just launched.", field="ledger")
        return row
    raise _refused_everywhere(prepared, refusals[0][1] if refusals else None)


def _refused_everywhere(prepared: Prepared, first: NoCapacity | QuotaExceeded | None) -> CloudgpuError:
    """Return the first refusal, which is made to say how many there were and what may help."""
    if first is None:
        return NoCapacity("Nothing that fits is offered.", field="offer")
    offers, want = _from_the_plan_on(prepared), prepared.plan.request.want
    if isinstance(first, NoCapacity) and len(offers) > 1:
        first.message = f"None of the {len(offers)} offers that fit could be launched; the first: {first.message}"
    if first.next is None:
        or_else = ", or allow --or-on-demand" if want.market is Market.SPOT and not want.or_on_demand else ""
        first.next = f"Run it again later, ask for another --gpu or --region{or_else}."
    return first


def _from_the_plan_on(prepared: Prepared) -> Sequence[Offer]:
    """Return the offers in the order of trying, without those that the plan passed over."""
    return prepared.offers[prepared.offers.index(prepared.plan.offer) :]


def _resolved(session: Session, prepared: Prepared, offer: Offer) -> Resolved:
    """Return what was looked up for this offer: with the plan, or now."""
    if prepared.exact is not None and prepared.exact.offer == offer:
        return prepared.exact.resolved
    return resolve(session.provider(offer.available.account), prepared.plan.request, offer)


def _record(session: Session, prepared: Prepared, offer: Offer, resolved: Resolved) -> Attempt:
    """Save the call and write the intent, in this order, and return the attempt that is to be sent."""
    boot = _boot(session, prepared, offer, resolved)
    extras, on_demand = extras_of(offer, resolved), on_demand_of(session, offer, prepared.offers)
    made: list[Attempt] = []

    def decision(view: View) -> Sequence[Draft]:
        bills = view.bills()
        rows = [row for row in bills if not row["thing"]]
        key, number = _key(prepared, rows)
        name = _name(prepared, key, rows)
        request = replace(prepared.plan.request, key=key, name=name)
        attempt = replace(_attempt(session, view, request, offer, number, boot), call=resolved.call)
        saved.save(session.home.attempts, attempt)
        made.append(attempt)
        means = stop_means(request, offer)
        line = intent(attempt, prepared.fingerprint, means, session.clock(), extras, on_demand, resolved.licence)
        before = next((row for row in rows if row["id"] == attempt.machine), None)
        return [line, *carried(session, view, row_of(line, before), prepared.override, bills)]

    try:
        decided(session, decision, way_of(session, prepared))
    except BaseException:
        for attempt in made:
            if (session.ledger.machine(attempt.machine) or {}).get("token") != attempt.token:
                saved.forget(session.home.attempts, attempt.token)
        raise
    return made[0]


def _attempt(session: Session, view: View, request: LaunchRequest, offer: Offer, number: int, boot: Boot) -> Attempt:
    now = session.clock()
    expires = now.replace(microsecond=0) + timedelta(seconds=request.lease_s)
    renew_until = now.replace(microsecond=0) + timedelta(seconds=request.renew_s)
    machine = machine_id(view.id, request.key)
    tags = {
        facts.TAG_ID: machine,
        facts.TAG_NAME: tag_value(request.name),
        facts.TAG_LEDGER: view.id,
        facts.TAG_SEQ: str(view.head()[0]),
        facts.TAG_KEY: request.key,
        facts.TAG_OWNER: tag_value(request.owner),
        facts.TAG_PROJECT: tag_value(request.project),
        facts.TAG_POLICY: tag_value(request.policy),
        facts.TAG_EXPIRES: epoch(expires),
        facts.TAG_RENEW_UNTIL: epoch(renew_until),
    }
    return Attempt(
        token=token(view.id, request.key, number),
        number=number,
        machine=machine,
        ledger=view.id,
        request=request,
        offer=offer,
        tags=tags,
        boot=boot,
        made_at=now,
        expires=expires,
        renew_until=renew_until,
    )


def _boot(session: Session, prepared: Prepared, offer: Offer, resolved: Resolved) -> Boot:
    host = _host_key(session, offer)
    template, request = prepared.template, prepared.plan.request
    return Boot(
        template=template.name,
        parts=(*driver_parts(session, resolved, template, request, offer), *parts_at(template, request, offer)),
        jupyter=template.jupyter,
        agent_source=agent_source(),
        user="",
        client_public_keys=(client_key(session).public_line,),
        host_public_key=host.public_line,
        host_private_key=host.private_pem,
    )


def _host_key(session: Session, offer: Offer) -> HostKey:
    """Return the key to pin: the machine's own where it has one already, else a new one that the launch gives it."""
    from cloudgpu.access.keys import HostKey, new_host_key

    provider = session.provider(offer.available.account)
    own = provider.host_key(offer.available) if isinstance(provider, KnowsHostKeys) else None
    return new_host_key() if own is None else HostKey(own, "")


def _key(prepared: Prepared, rows: list[Row]) -> tuple[str, int]:
    """Return the launch key and the number of the attempt: a new generation after a machine that lived."""
    if prepared.key is not None:
        return prepared.key, _next_attempt(prepared.key, rows)
    for generation in range(1, len(rows) + 2):
        key = derived_key(prepared.fingerprint, generation)
        if not any(row["key"] == key and (row["attempt"] in ("made", "open") or stays(row)) for row in rows):
            return key, _next_attempt(key, rows)
    message = "more generations than machines"
    raise AssertionError(message)


def _next_attempt(key: str, rows: list[Row]) -> int:
    return max((row["number"] for row in rows if row["key"] == key), default=0) + 1


def _name(prepared: Prepared, key: str, rows: list[Row]) -> str:
    taken = {row["name"] for row in present(rows) if row["key"] != key}
    if prepared.name is None:
        return made_name(key, taken)
    if prepared.name in taken:
        raise InvalidRequest(
            f"A machine called {prepared.name} is already there, launched by another request.",
            field="--name",
            value=prepared.name,
            next=f"Choose another --name, use it as it is (cloudgpu show {prepared.name}), "
            f"or end it first: cloudgpu down {prepared.name}",
        )
    return prepared.name
