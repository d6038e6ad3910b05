"""Reads from the ledger what was seen of spot at each location: launches, refusals, interruptions, prices.

It also records interruptions: how each was noticed, how long the machine had run, and what it cost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.billing.rules import rule_of
from cloudgpu.core.events.bodies import InterruptionSource
from cloudgpu.core.events.machine_events import spot_interrupted
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.spot.places import PlaceOffer, Sighting, SightingKind, SpotLocation, order_places
from cloudgpu.core.values.times import duration_text, from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.providers.abilities import HasPlacementScores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudgpu.control.launch.plan import PreparedLaunch
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.model.offers import Offer
    from cloudgpu.ledger.log.base import Ledger


CHANGEOVER_H = 0.25  # hours of a machine's work that each interruption is assumed to cost
# "takes" (here), "taken" (below): the provider reclaims the spot machine, which is an interruption.
FREE_TEXT = "its provider does not charge what it takes within {} of the start"


def history(ledger: Ledger) -> tuple[Sighting, ...]:
    """Return what this ledger has seen of spot machines, oldest first. Asks no cloud."""
    sightings = [sighting for machine in ledger.machines() for sighting in _sightings(machine)]
    return tuple(sorted(sightings, key=lambda sighting: sighting.at))


def spot_location(machine: Machine) -> SpotLocation:
    """Return where a machine is, or was to be."""
    return SpotLocation(machine.account, machine.region, machine.zone or None, machine.instance_type or "")


def was_interrupted(machine: Machine) -> bool:
    """Say whether a spot machine was interrupted: its provider reported that, or it vanished without a request."""
    is_gone = machine.terminated_at is not None or machine.state in ("stopped", "deallocated")
    vanished = machine.unrequested_stop is not None and machine.terminated_at is not None and machine.decision is None
    return machine.market == "spot" and is_gone and (machine.state_reason == "interrupted" or vanished)


def end_time(machine: Machine) -> str:
    """Return when a spot machine was gone, as ISO time: as its provider reported, else when a sync saw it.

    `Machine.since` is when its present state began, by its provider.
    """
    return machine.since or machine.terminated_at or machine.seen_at or machine.intended_at


def better_location(session: Session, prepared: PreparedLaunch) -> SpotLocation | None:
    """Return the location at which a spot launch is tried first, by past interruptions and refusals there.

    None where that is the location of the plan's offer, the cheapest one.
    """
    offers = [offer for offer in prepared.offers if offer.configuration.market == "spot"]
    if len(offers) < 2:  # noqa: PLR2004  (there is no choice)
        return None
    first_location = offer_location(preferred_offer(session, offers, history(session.ledger)))
    return None if first_location == offer_location(prepared.plan.offer) else first_location


def preferred_offer(session: Session, offers: Sequence[Offer], sightings: Sequence[Sighting]) -> Offer:
    """Return the spot offer that a launch tries first, by the sightings and its provider's placement scores.

    `offers` is not empty.
    """
    scores = _placement_scores(session, offers)
    ranked = [
        PlaceOffer(offer_location(offer), offer.price.per_hour.nanos, score=scores.get(offer_location(offer)))
        for offer in offers
    ]
    return offers[ranked.index(order_places(ranked, sightings, session.clock(), CHANGEOVER_H)[0])]


def _placement_scores(session: Session, offers: Sequence[Offer]) -> dict[SpotLocation, int]:
    """Return the placement scores of the offers with the first one's type and account, where the provider has some.

    Raises LedgerUnavailable alone: no other error fails a launch.
    """
    first = offers[0].configuration
    account_and_type = (first.account, first.instance_type)
    same_type_offers = [
        offer
        for offer in offers
        if (offer.configuration.account, offer.configuration.instance_type) == account_and_type
    ]
    try:
        provider = session.provider(first.account)
        if len(same_type_offers) < 2 or not isinstance(provider, HasPlacementScores):  # noqa: PLR2004  (there is no choice)
            return {}
        scores = provider.placement_scores([offer.configuration for offer in same_type_offers])
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return {}
    return {
        offer_location(offer): score for offer, score in zip(same_type_offers, scores, strict=True) if score is not None
    }


def offer_location(offer: Offer) -> SpotLocation:
    """Return where an offer would be launched."""
    configuration = offer.configuration
    return SpotLocation(
        configuration.account, configuration.region, configuration.zone or None, configuration.instance_type
    )


def _sightings(machine: Machine) -> Iterator[Sighting]:
    """Yield what one machine showed of spot at its location: a launch or a refusal, and its end or interruption.

    Nothing for what is no machine but a named volume or image (`is_named_resource`), and for a launch that made no
    machine for another reason than a refusal (`void`). The kind `taken` is an interruption.
    """
    if machine.market != "spot" or machine.is_named_resource or machine.launch_status == "void":
        return
    location, price = spot_location(machine), machine.price.nanos_per_hour if machine.price else None
    started_at = from_iso(machine.launched_at or machine.intended_at)
    if machine.launch_status == "refused":
        yield Sighting(from_iso(machine.terminated_at or machine.intended_at), location, "refused", price)
        return
    yield Sighting(started_at, location, "made", price)
    if machine.terminated_at is not None or was_interrupted(machine):
        gone_at = from_iso(end_time(machine))
        kind: SightingKind = "taken" if was_interrupted(machine) else "ended"
        yield Sighting(gone_at, location, kind, price, max(0.0, (gone_at - started_at).total_seconds() / 3600))


def record_interruption(session: Session, machine: Machine, noticed_at: datetime | None = None) -> bool:
    """Record that a spot machine was interrupted, unless that is recorded; say whether it was recorded now.

    `noticed_at` is when its interruption notice was seen, None where nobody saw one.
    """
    if machine.interrupted_at is not None or not was_interrupted(machine):
        return False
    session.ledger.append([_interruption_event(machine, noticed_at, session.clock())])
    return True


def record_interruptions(session: Session) -> int:
    """Record every interruption that is not recorded yet; return how many. Asks no cloud."""
    return sum(record_interruption(session, machine) for machine in session.ledger.machines())


def _interruption_event(machine: Machine, noticed_at: datetime | None, now: datetime) -> Draft:
    gone_at = from_iso(end_time(machine))
    ran_s = max(0.0, (gone_at - from_iso(machine.launched_at or machine.intended_at)).total_seconds())
    noticed_by: InterruptionSource = "provider" if machine.state_reason == "interrupted" else "vanished"
    return spot_interrupted(
        machine.id,
        gone_at,
        "notice" if noticed_at is not None else noticed_by,
        noticed=noticed_at,
        ran_s=ran_s,
        nanos=spent_until_now(machine, now).nanos,
        free=_free_reason(machine, ran_s),
    )


def _free_reason(machine: Machine, ran_s: float) -> str:
    """Return why a machine that ran `ran_s` seconds is not charged (EC2's first hour, Google's first minute).

    Empty where it is charged.
    """
    free_limit_s = rule_of(machine.provider, "spot", Resource.INSTANCE).free_if_interrupted_us / 1e6
    if machine.state_reason != "interrupted" or ran_s >= free_limit_s:
        return ""
    return FREE_TEXT.format(duration_text(timedelta(seconds=free_limit_s)))
