"""Says whether the spot machine of a job with a deadline is left for a cheaper place, by prices that it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudgpu.access.jobs.checkpoints import stored
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.candidates import candidate
from cloudgpu.control.launch.offers import offers_unless_launched, with_constraint
from cloudgpu.control.pricing.price_history import available, history_of
from cloudgpu.control.spot.history import first_offer, history, offer_location, spot_location
from cloudgpu.core.jobs.deadline import HOUR_S, Margins, Position, launch_options_of
from cloudgpu.core.launch.traffic import move_traffic
from cloudgpu.core.model.offers import Offer, Price, TrafficPrices, price_from_json
from cloudgpu.core.spot.moves import LOOKS_BACK, Priced, Running, saving
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.providers.attached_costs import egress_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Attempt, Job, JobMove
    from cloudgpu.core.jobs.remote_state import RemoteState
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.spot.places import SpotLocation


def cheaper_location(
    session: Session,
    job: Job,
    machine: Machine,
    remote: RemoteState | None,
    at: Position,
    margins: Margins,
    directory: Path,
) -> str | None:
    """Return why a job is better off at another place than on its spot machine; None where it stays.

    Asks the machine's account what it offers now, and what both places cost lately. What cannot be asked keeps the job
    where it is. Raises LedgerUnavailable.
    """
    attempt = job.attempt
    if attempt is None or machine.price is None or remote is None:
        return None
    try:
        here = _current_offer(session, machine)
        offers = _offers(session, job, attempt, machine)
        now, seen = session.clock(), history(session.ledger)
        here = next((one for one in offers if offer_location(one) == offer_location(here)), here)
        there = first_offer(session, [here, *(one for one in offers if one != here)], seen)
        if there.price.per_hour.nanos >= here.price.per_hour.nanos:
            return None
        running = _running(job, machine, at, margins, now)
        running = replace(running, left=_last_left_at(session, job, offer_location(there)))
        stays, goes = _with_prices(session, running.left, here, there)
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return None
    goes = replace(goes, travel=_travel(job.spec["bytes"], machine, remote, directory, here, there).nanos)
    found = saving(running, stays, goes, seen, now)
    return _why(there, here, found.saves - found.costs) if found.pays else None


def _current_offer(session: Session, machine: Machine) -> Offer:
    """Return what a machine was launched from, at its last known price."""
    item = replace(available(machine), account=session.account_here(machine))
    if machine.price is None:
        raise ValueError(f"{machine.name} has no price")
    return Offer(item, price_from_json(machine.price.record()))


def _offers(session: Session, job: Job, attempt: Attempt, machine: Machine) -> list[Offer]:
    """Return the spot offers of the machine's own type and account that a launch for this job may take.

    Another type may be slower or faster, and another account has its own data. Raises as `prepare` does.
    """
    request = parse_request(**launch_options_of(job, attempt, session.clock()))  # type: ignore[arg-type]
    account = session.account_here(machine)
    one = candidate(session, request, session.find_template(request.template), account)
    want = with_constraint(one.provider, one.request).want
    return offers_unless_launched(session, one.provider, replace(want, instance_type=machine.instance_type), None)


def _with_prices(session: Session, left: datetime | None, here: Offer, there: Offer) -> tuple[Priced, Priced]:
    """Return both places with their prices of the last day, and since the job left the second one.

    Where a provider remembers no prices, those of now. Raises what the provider raises.
    """
    now = session.clock()
    since = min(now - LOOKS_BACK, left or now)
    known = history_of(session, here.available.account, [here.available, there.available], since)
    first, second = (_with_past(offer, prices, now) for offer, prices in zip((here, there), known, strict=True))
    return first, second


def _with_past(offer: Offer, prices: Sequence[Price], now: datetime) -> Priced:
    past = [(one.as_of, one.per_hour.nanos) for one in prices if one.as_of < now]
    return Priced(offer_location(offer), (*past, (now, offer.price.per_hour.nanos)))


def _travel(snapshot: int, machine: Machine, remote: RemoteState, directory: Path, here: Offer, there: Offer) -> Money:
    """Return what the data costs that leaves the old machine or its region, and that the new one receives: at most.

    One more copy of the checkpoint leaves; to another region also the results and what came from buckets. The new
    machine receives the snapshot, the checkpoint and what came from buckets. Where the offer of a machine has prices of
    its own, what comes from buckets is none of what the old one sends.
    """
    copies = stored(directory / "checkpoints")
    checkpoint, data = copies[-1].bytes if copies else 0, remote.data[1] if remote.data else 0
    own = machine.traffic_prices and TrafficPrices(*map(Money, machine.traffic_prices))
    sent = checkpoint
    if there.available.region != here.available.region:
        sent += remote.results_bytes + (0 if own else data)
    rate = None if own else egress_rate(here.available.provider, here.available.region, sent)
    received = snapshot + checkpoint + data
    return move_traffic(sent, received, own, None if rate is None else rate.price, there.available.traffic)


def _running(job: Job, machine: Machine, at: Position, margins: Margins, now: datetime) -> Running:
    return Running(
        age=max(0.0, (now - from_iso(machine.launched_at or machine.intended_at)).total_seconds()) / HOUR_S,
        work=at.work_left_s / HOUR_S,
        unsaved=at.unsaved_s / HOUR_S,
        start=margins.start_s / HOUR_S,
        end=margins.end_s / HOUR_S,
        redone=(job.spec["every_s"] / 2 + margins.round_s) / HOUR_S,
        moves=sum(move.at >= now - LOOKS_BACK for _, move in _moves(job)),
    )


def _moves(job: Job) -> Iterator[tuple[str, JobMove]]:
    """Yield the machines that a job has left for cheaper ones, and those moves, oldest first."""
    for one in job.attempts:
        if one.moved and one.machine is not None and one.move is not None and one.move.to == one.market == "spot":
            yield one.machine, one.move


def _last_left_at(session: Session, job: Job, location: SpotLocation) -> datetime | None:
    """Return when a job last left a place for a cheaper one; None where it never did."""
    found = None
    for machine, move in _moves(job):
        row = session.ledger.machine(machine)
        if row is not None and spot_location(row) == location:
            found = move.at
    return found


def _why(there: Offer, here: Offer, nanos: float) -> str:
    old, new = here.price.per_hour.text(2), there.price.per_hour.text(2)
    zones = (there.available.zone or there.available.region, here.available.zone or here.available.region)
    saves = Money(int(nanos)).text(2)
    return f"spot costs {new} an hour in {zones[0]} and {old} in {zones[1]}: a move saves about {saves}"
