"""Reads from the ledger what was seen of spot at each place: launches, refusals, interruptions, prices.

It writes down that a provider took spot machines: how that was known, how long each had run, and what it cost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.billing.rules import rule_of
from cloudgpu.core.events.bodies import How
from cloudgpu.core.events.machine_lines import spot_interrupted
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.spot.places import Kind, PlaceOffer, Sighting, SpotLocation, order_places
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.providers.abilities import HasPlacementScores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudgpu.control.launch.plan import Prepared
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.model.offers import Offer
    from cloudgpu.ledger.log.base import Ledger


CHANGEOVER_H = 0.25  # that each interruption costs, in hours of the machine
FREE = "its provider does not charge what it takes within {} of the start"


def history(ledger: Ledger) -> tuple[Sighting, ...]:
    """Return what this ledger has seen of spot machines, oldest first. Asks no cloud."""
    found = [one for machine in ledger.machines() for one in _sightings(machine)]
    return tuple(sorted(found, key=lambda one: one.at))


def spot_location(machine: Machine) -> SpotLocation:
    """Return where a machine is, or was to be."""
    return SpotLocation(machine.account, machine.region, machine.zone or None, machine.instance_type or "")


def was_taken(machine: Machine) -> bool:
    """Say whether its provider took a spot machine: by its own word, or as it went and nobody had asked for that."""
    over = machine.terminated_at is not None or machine.state in ("stopped", "deallocated")
    return machine.market == "spot" and over and (machine.state_reason == "interrupted" or _went_by_itself(machine))


def _went_by_itself(machine: Machine) -> bool:
    return machine.unrequested_stop is not None and machine.terminated_at is not None and machine.decision is None


def over_at(machine: Machine) -> str:
    """Return when a spot machine was gone: by its provider's word, else when that was seen."""
    return machine.since or machine.terminated_at or machine.seen_at or machine.intended_at


def better_location(session: Session, prepared: Prepared) -> SpotLocation | None:
    """Return where a spot launch is better tried than at its cheapest offer, by what was seen; None for nowhere.

    Where other places of the plan are as good, the cheapest is tried first and the launch goes on from there.
    """
    offers = [one for one in prepared.offers if one.available.market == "spot"]
    if len(offers) < 2:  # noqa: PLR2004  (there is no choice)
        return None
    best = offer_location(first_offer(session, offers, history(session.ledger)))
    return None if best == offer_location(prepared.plan.offer) else best


def first_offer(session: Session, offers: Sequence[Offer], sightings: Sequence[Sighting]) -> Offer:
    """Return the spot offer that a launch tries first, by what was seen and by what its provider thinks likely.

    Raises ValueError where there is no offer.
    """
    if not offers:
        raise ValueError("no offers")
    scores = _scores(session, offers)
    places = [offer_location(one) for one in offers]
    pairs = zip(places, offers, strict=True)
    offered = [PlaceOffer(location, one.price.per_hour.nanos, score=scores.get(location)) for location, one in pairs]
    return offers[offered.index(order_places(offered, sightings, session.clock(), CHANGEOVER_H)[0])]


def _scores(session: Session, offers: Sequence[Offer]) -> dict[SpotLocation, int]:
    """Return what a provider says of the places of the first offer's type and account; nothing where it says nothing.

    Raises LedgerUnavailable: nothing else stands in the way of a launch.
    """
    first = offers[0].available
    meant = (first.account, first.instance_type)
    same = [one for one in offers if (one.available.account, one.available.instance_type) == meant]
    try:
        provider = session.provider(first.account)
        if len(same) < 2 or not isinstance(provider, HasPlacementScores):  # noqa: PLR2004  (there is no choice)
            return {}
        scores = provider.placement_scores([one.available for one in same])
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return {}
    found = zip(same, scores, strict=True)
    return {offer_location(one): score for one, score in found if score is not None}


def offer_location(offer: Offer) -> SpotLocation:
    """Return where an offer would be launched."""
    item = offer.available
    return SpotLocation(item.account, item.region, item.zone or None, item.instance_type)


def _sightings(machine: Machine) -> Iterator[Sighting]:
    if machine.market != "spot" or machine.is_named_resource or machine.launch_status == "void":
        return
    location, price = spot_location(machine), machine.price.nanos_per_hour if machine.price else None
    begun = from_iso(machine.launched_at or machine.intended_at)
    if machine.launch_status == "refused":
        yield Sighting(from_iso(machine.terminated_at or machine.intended_at), location, "refused", price)
        return
    yield Sighting(begun, location, "made", price)
    if machine.terminated_at is not None or was_taken(machine):
        at = from_iso(over_at(machine))
        kind: Kind = "taken" if was_taken(machine) else "ended"
        yield Sighting(at, location, kind, price, max(0.0, (at - begun).total_seconds() / 3600))


def note_interruption(session: Session, machine: Machine, noticed: datetime | None = None) -> bool:
    """Write that a spot machine was taken, where its provider took it and that is not written yet; say whether.

    `noticed` is when its notice was seen, None where nobody saw one.
    """
    if machine.interrupted_at is not None or not was_taken(machine):
        return False
    session.ledger.append([_line(machine, noticed, session.clock())])
    return True


def note_interruptions(session: Session) -> int:
    """Write down every interruption of a spot machine that is not written yet; return how many. Asks no cloud."""
    return sum(note_interruption(session, machine) for machine in session.ledger.machines())


def _line(machine: Machine, noticed: datetime | None, now: datetime) -> Draft:
    at = from_iso(over_at(machine))
    ran = max(0.0, (at - from_iso(machine.launched_at or machine.intended_at)).total_seconds())
    how: How = "provider" if machine.state_reason == "interrupted" else "vanished"
    cost = spent_until_now(machine, now).nanos
    return spot_interrupted(
        machine.id,
        at,
        "notice" if noticed is not None else how,
        noticed=noticed,
        ran_s=ran,
        nanos=cost,
        free=_free(machine, ran),
    )


def _free(machine: Machine, ran_s: float) -> str:
    """Return why the run itself is not charged: EC2's first hour, Google's first minute; empty where it is."""
    limit = rule_of(machine.provider, "spot", Resource.INSTANCE).free_if_interrupted_us / 1e6
    if machine.state_reason != "interrupted" or ran_s >= limit:
        return ""
    return FREE.format(duration_text(timedelta(seconds=limit)))
