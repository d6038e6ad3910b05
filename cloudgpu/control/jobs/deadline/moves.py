"""Says whether the spot machine of a job with a deadline is left for a cheaper place, by prices that it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudgpu.access.jobs.checkpoints import stored
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.jobs.deadline.options import launch_options_of
from cloudgpu.control.launch.candidates import candidate
from cloudgpu.control.launch.offers import offers_or_known, tied
from cloudgpu.control.pricing.attached_costs import egress_rate
from cloudgpu.control.pricing.price_history import available, history_of
from cloudgpu.control.spot.history import first_offer, history, place_of_offer
from cloudgpu.core.jobs.deadline import HOUR_S
from cloudgpu.core.model.offers import Offer, price_from_json
from cloudgpu.core.spot.moves import LOOKS_BACK, Priced, Running, saving
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.deadline import Margins, Position
    from cloudgpu.core.jobs.job import Attempt, Job
    from cloudgpu.core.jobs.remote_state import RemoteState
    from cloudgpu.core.model.machine import Machine

GB = 10**9


def cheaper_place(
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
        here = _here(session, machine)
        offers = _offers(session, job, attempt, machine)
        now, seen = session.clock(), history(session.ledger)
        here = next((one for one in offers if place_of_offer(one) == place_of_offer(here)), here)
        there = first_offer([here, *(one for one in offers if one != here)], seen, now)
        if there.price.per_hour.nanos >= here.price.per_hour.nanos:
            return None
        stays, goes = _priced(session, remote, directory, here, there)
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return None
    running = _running(job, machine, at, margins, now)
    found = saving(running, stays, goes, seen, now)
    return _why(there, here, found.saves - found.costs) if found.pays else None


def _here(session: Session, machine: Machine) -> Offer:
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
    want = tied(one.provider, one.request).want
    return offers_or_known(session, one.provider, replace(want, instance_type=machine.instance_type), None)


def _priced(session: Session, remote: RemoteState, directory: Path, here: Offer, there: Offer) -> tuple[Priced, Priced]:
    """Return both places with their prices of the last day; where a provider remembers none, with those of now."""
    now = session.clock()
    items = [here.available, there.available]
    known = history_of(session, here.available.account, items, now - LOOKS_BACK)
    pairs = []
    for offer, prices in zip((here, there), known, strict=True):
        past = [(one.as_of, one.per_hour.nanos) for one in prices if one.as_of < now]
        pairs.append((place_of_offer(offer), (*past, (now, offer.price.per_hour.nanos))))
    travel = _travel(remote, directory, here, there)
    return Priced(*pairs[0]), Priced(*pairs[1], travel)


def _travel(remote: RemoteState, directory: Path, here: Offer, there: Offer) -> int:
    """Return what the data costs, in nano-dollars, that leaves the old machine or its region: at most.

    That is one more copy of the checkpoint; to another region also the results and what came from buckets.
    """
    copies = stored(directory / "checkpoints")
    size = copies[-1].bytes if copies else 0
    if there.available.region != here.available.region:
        size += remote.results_bytes + (remote.data[1] if remote.data else 0)
    rate = egress_rate(here.available.provider, here.available.region, size)
    return 0 if rate is None or rate.price is None else rate.price.nanos * size // GB


def _running(job: Job, machine: Machine, at: Position, margins: Margins, now: datetime) -> Running:
    since = now - LOOKS_BACK
    moves = [one for one in job.attempts if one.moved and one.move is not None and one.move.to == one.market == "spot"]
    return Running(
        age=max(0.0, (now - from_iso(machine.launched_at or machine.intended_at)).total_seconds()) / HOUR_S,
        work=at.work_left_s / HOUR_S,
        unsaved=at.unsaved_s / HOUR_S,
        start=margins.start_s / HOUR_S,
        end=margins.end_s / HOUR_S,
        redone=(job.spec["every_s"] / 2 + margins.round_s) / HOUR_S,
        moves=sum(one.move is not None and one.move.at >= since for one in moves),
    )


def _why(there: Offer, here: Offer, nanos: float) -> str:
    old, new = here.price.per_hour.text(2), there.price.per_hour.text(2)
    zones = (there.available.zone or there.available.region, here.available.zone or here.available.region)
    saves = Money(int(nanos)).text(2)
    return f"spot costs {new} an hour in {zones[0]} and {old} in {zones[1]}: a move saves about {saves}"
