"""Decides for a job with a deadline where it runs next, by what the ledger and its watcher have observed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cloudgpu.access.files import write_atomically
from cloudgpu.access.jobs.checkpoints import StoredCheckpoint, stored_checkpoints
from cloudgpu.control.alerts.alerts import record_finding
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.candidates import candidate_in
from cloudgpu.control.launch.offers import offers_or_launched_one, with_placement_constraint
from cloudgpu.control.pricing.price_history import configuration_of, spot_price_history
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.control.spot.history import history, offer_location, preferred_offer, spot_location
from cloudgpu.core.jobs.alerts import job_alert_key, late_finding
from cloudgpu.core.jobs.deadline import (
    END_S,
    HOUR_S,
    DeadlineStatus,
    Margins,
    MarketChoice,
    SpotEvent,
    SpotHistory,
    choose,
    deadline_status,
    launch_options_of,
    margins_of,
    may_move,
    work_fits,
)
from cloudgpu.core.jobs.job import Attempt, Job, JobMove
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.jobs.stored import bucket_of
from cloudgpu.core.launch.traffic import move_cost
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Offer, Price, TrafficPrices, price_from_json
from cloudgpu.core.spot import POLICIES
from cloudgpu.core.spot.moves import LOOK_BACK, PricedPlace, RunningJob, saving
from cloudgpu.core.spot.places import SpotLocation
from cloudgpu.core.spot.situation import Policy
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable
from cloudgpu.providers.attached_costs import egress_rate

MAX_GAPS = 100  # of the latest times between two observations, that are kept
SAME_LAUNCH_GAP = timedelta(seconds=30)  # refusals closer together are of one launch, which tried several zones
PRICES_EVERY = timedelta(minutes=15)  # how often a running spot machine is compared with other locations
_RUNNING_PHASES = (Phase.RUNNING, Phase.ORPHANED)


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """How a job was watched on this computer: the file `rounds` in the job's directory. Times are seconds since 1970.

    `last` is when a watcher last observed the job, `alive` when one last saw its command run, in the attempt with the
    number `attempt`. `gaps` are the seconds between observations. `noticed` is when the interruption notice for that
    attempt's machine was first seen. `priced` is when the prices of other locations were last queried.
    """

    last: float | None = None
    alive: float | None = None
    attempt: int = 0
    noticed: float | None = None
    gaps: list[float] = field(default_factory=list)
    priced: float | None = None


def read_watch_record(directory: Path) -> WatchRecord:
    """Return the record of how a job was watched on this computer, a file in the job's directory; empty if none."""
    with suppress(OSError, ValueError, TypeError):
        return WatchRecord(**json.loads((directory / "rounds").read_text()))
    return WatchRecord()


def record_observation(directory: Path, job: Job, remote: RemoteState | None, now: datetime) -> WatchRecord:
    """Record that a job was observed now, with its command's state; return the updated record."""
    earlier, now_s = read_watch_record(directory), now.timestamp()
    gaps = earlier.gaps if earlier.last is None else [*earlier.gaps, max(0.0, now_s - earlier.last)]
    attempt_number = len(job.attempts)
    is_same_attempt = earlier.attempt == attempt_number
    is_running = remote is not None and remote.phase in _RUNNING_PHASES
    noticed = earlier.noticed if is_same_attempt else None
    if remote is not None and remote.notice and noticed is None:
        noticed = now_s
    alive = now_s if is_running else earlier.alive if is_same_attempt else None
    record = WatchRecord(now_s, alive, attempt_number, noticed, gaps[-MAX_GAPS:], earlier.priced)
    _write_record(directory, record)
    return record


def _write_record(directory: Path, record: WatchRecord) -> bool:
    """Write the record; return whether that succeeded: on a full disk the job is managed without it."""
    with suppress(InvalidRequest):
        write_atomically(directory / "rounds", json.dumps(asdict(record)).encode())
        return True
    return False


def noticed_at(directory: Path, attempt: Attempt) -> datetime | None:
    """Return when the notice of an attempt's machine was seen on this computer; None where nobody saw one."""
    record = read_watch_record(directory)
    return None if record.noticed is None or record.attempt != attempt.number else _from_epoch(record.noticed)


def choice_of(
    session: Session, job: Job, machine: Machine | None, remote: RemoteState | None, directory: Path
) -> MarketChoice:
    """Return where a job with a deadline is to run now; raise or clear the alert that it will be late."""
    now = session.clock()
    record = record_observation(directory, job, remote, now)
    margins = measured_margins(session, job, record.gaps)
    status = current_status(job, machine, remote, record, margins, now)
    record_finding(
        session,
        job_alert_key(job, "late"),
        None if work_fits(status, margins) else late_finding(job, status),
    )
    policy = _spot_policy(not_none(job.deadline)["policy"], job.id)
    choice = choose(job, policy, observed_spot_history(session, job), margins, now, status)
    are_prices_due = record.priced is None or now - _from_epoch(record.priced) >= PRICES_EVERY
    if machine is None or not may_move(job, margins, status, choice) or not are_prices_due:
        return choice
    if not (_has_disk_space(directory) and _write_record(directory, replace(record, priced=now.timestamp()))):
        return choice
    reason = reason_to_move(session, job, machine, remote, status, margins, directory)
    return choice if reason is None else replace(choice, why=reason, moves=True)


def _has_disk_space(directory: Path) -> bool:
    """Say whether one more checkpoint fits on this computer. Without it, a move would lose work that staying keeps."""
    newest = newest_checkpoint_copy(directory)
    return newest is None or shutil.disk_usage(directory).free > newest.bytes


@lru_cache(maxsize=8)  # the cached solutions of a policy take some 25 MB
def _spot_policy(name: str, _job_id: str) -> Policy:
    """Return the spot policy of this name for a job, the same object each time: it caches its solutions."""
    return POLICIES[name]()


def current_status(
    job: Job, machine: Machine | None, remote: RemoteState | None, record: WatchRecord, margins: Margins, now: datetime
) -> DeadlineStatus:
    """Return the work that a job has done and saved, and the time that it has left, as this sync has seen it."""
    attempt = job.attempt if machine is not None and machine.terminated_at is None else None
    progress = None if remote is None else remote.progress
    if progress is None and job.progress is not None:
        progress = job.progress[:2]
    running_at = None if record.alive is None else _from_epoch(record.alive)
    if attempt is None and progress is not None:  # it may include work that was lost with the machine
        is_saved = job.saved is not None and job.progress is not None and job.progress[2] <= job.saved.at
        progress = progress if is_saved else None
    return deadline_status(job, now, attempt=attempt, running_at=running_at, margins=margins, progress=progress)


def measured_margins(
    session: Session, job: Job | None, gaps: Iterable[float] = (), provider: str | None = None
) -> Margins:
    """Return the deadline's safety margins, from start-up and shutdown times that are recorded in this ledger.

    Start-up times count where they were with this provider, or with the job's. `gaps` are the seconds between
    observations of the job.
    """
    machines = {machine.id: machine for machine in session.ledger.machines()}
    jobs = all_jobs(session).values()
    provider_name = provider or _provider(job, machines)
    start_durations = [
        seconds for other_job in jobs for seconds in _start_durations(other_job, machines, provider_name)
    ]
    end_durations = [
        (attempt.ended_at - attempt.move.at).total_seconds()
        for other_job in jobs
        for attempt in other_job.attempts
        if attempt.move is not None and attempt.ended_at is not None and attempt.moved
    ]
    margins = margins_of(start_durations, end_durations, list(gaps))
    if job is None or bucket_of(job.spec["results_to"]) is None:
        return margins
    return replace(margins, end_s=max(margins.end_s, END_S))  # as long as a last upload may take


def _provider(job: Job | None, machines: dict[str, Machine]) -> str | None:
    """Return the provider of a job's last machine; None where it has none yet."""
    machine_ids = () if job is None else job.machines
    return next((machines[id_].provider for id_ in reversed(machine_ids) if id_ in machines), None)


def _start_durations(job: Job, machines: dict[str, Machine], provider: str | None) -> Iterator[float]:
    """Yield how long launches for a job took, from the call until its command began, in seconds."""
    counted_ids = set[str]()
    for attempt in job.attempts:
        machine = machines.get(attempt.machine or "")
        is_new = machine is not None and attempt.key is not None and machine.id not in counted_ids
        if machine is None or not is_new or attempt.began_at is None or (provider and machine.provider != provider):
            continue
        counted_ids.add(machine.id)
        yield max(0.0, (attempt.began_at - from_iso(machine.intended_at)).total_seconds())


def observed_spot_history(session: Session, job: Job) -> SpotHistory:
    """Return when this job obtained spot machines, was refused them, and lost them."""
    launches: list[tuple[datetime, SpotEvent]] = []
    for machine in session.ledger.machines():
        if machine.market == "spot" and machine.key.startswith(f"{job.id}-") and machine.launch_status != "void":
            ended_at = from_iso(machine.terminated_at or machine.intended_at)
            is_refused = machine.launch_status == "refused"
            launches.append((ended_at, "refused") if is_refused else (from_iso(machine.intended_at), "obtained"))
    lost_at = [
        attempt.ended_at
        for attempt in job.attempts
        if attempt.interrupted and attempt.market == "spot" and attempt.ended_at
    ]
    return SpotHistory(tuple(_merge_refusals(sorted([*launches, *((ended_at, "lost") for ended_at in lost_at)]))))


def _merge_refusals(events: Iterable[tuple[datetime, SpotEvent]]) -> Iterator[tuple[datetime, SpotEvent]]:
    """Yield these events; refusals of one launch in several zones become one event."""
    last: tuple[datetime, SpotEvent] | None = None
    for event in events:
        if last is None or (last[1], event[1]) != ("refused", "refused") or event[0] - last[0] > SAME_LAUNCH_GAP:
            yield event
        last = event


def newest_checkpoint_copy(directory: Path) -> StoredCheckpoint | None:
    """Return the newest checkpoint that was copied into this directory of a job; None where there is none."""
    return next(reversed(stored_checkpoints(directory / "checkpoints")), None)


@contextmanager
def recording_saved_work(
    job: Job, remote: RemoteState, directory: Path, write: Callable[[str, float], None]
) -> Iterator[None]:
    """At the end of this context, in which checkpoints are copied, record how much work the newest copy holds.

    Only for a job with a deadline. `remote` is the machine's state before the copying, and `directory` has the copies.
    `write` gets the checkpoint's name and the seconds of work.
    """
    if job.deadline is None:
        yield
        return
    earlier_copy = newest_checkpoint_copy(directory)
    yield
    newest_copy = newest_checkpoint_copy(directory)
    work_s = None if newest_copy is None else _copied_work_s(job, remote, earlier_copy, newest_copy)
    if newest_copy is not None and work_s is not None and work_s > (0.0 if job.saved is None else job.saved.work_s):
        write(newest_copy.name, work_s)


def _copied_work_s(
    job: Job, remote: RemoteState, earlier_copy: StoredCheckpoint | None, newest_copy: StoredCheckpoint
) -> float | None:
    """Return how many seconds of the work `newest_copy` holds; None where that cannot be told.

    `remote` is the machine's state, and `earlier_copy` the newest copy, before the copying that made `newest_copy`. It
    can be told where `newest_copy` was the newest checkpoint on the machine then, or was finished since.
    """
    if remote.checkpointed_at is None or remote.started_at is None:
        return None
    is_new = earlier_copy is None or newest_copy.number > earlier_copy.number
    if newest_copy.name not in remote.checkpoints[:1] and not (is_new and newest_copy.name not in remote.checkpoints):
        return None
    return job.attempts[-1].work_before_s + max(0.0, remote.checkpointed_at - remote.started_at)


def _from_epoch(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


def reason_to_move(
    session: Session,
    job: Job,
    machine: Machine,
    remote: RemoteState | None,
    status: DeadlineStatus,
    margins: Margins,
    directory: Path,
) -> str | None:
    """Return why a job is to move from its spot machine to another location, as a clause; None where it stays.

    Queries the machine's account for its current offers, and for recent prices at both locations. After an error the
    job stays where it is. Raises LedgerUnavailable.
    """
    attempt = job.attempt
    if attempt is None or machine.price is None or remote is None:
        return None
    try:
        current_offer = _current_offer(session, machine)
        offers = _usable_offers(session, job, attempt, machine)
        now, spot_history = session.clock(), history(session.ledger)
        current_offer = next(
            (offer for offer in offers if offer_location(offer) == offer_location(current_offer)), current_offer
        )
        new_offer = preferred_offer(
            session, [current_offer, *(offer for offer in offers if offer != current_offer)], spot_history
        )
        if new_offer.price.per_hour.nanos >= current_offer.price.per_hour.nanos:
            return None
        left_at = _last_price_move(session, job, offer_location(new_offer))
        running = replace(_running_state(job, machine, status, margins, now), left_at=left_at)
        current_prices, new_prices = _price_histories(session, left_at, current_offer, new_offer)
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return None
    transfer_cost = _transfer_cost(job.spec["bytes"], machine, remote, directory, current_offer, new_offer)
    new_prices = replace(new_prices, transfer_cost=transfer_cost.nanos)
    estimate = saving(running, current_prices, new_prices, spot_history, now)
    return _move_sentence(new_offer, current_offer, estimate.saves - estimate.costs) if estimate.pays else None


def _current_offer(session: Session, machine: Machine) -> Offer:
    """Return the offer of a machine that runs, at its last known price."""
    configuration = replace(configuration_of(machine), account=session.account_name_here(machine))
    return Offer(configuration, price_from_json(not_none(machine.price).record()))


def _usable_offers(session: Session, job: Job, attempt: Attempt, machine: Machine) -> list[Offer]:
    """Return the spot offers of the machine's instance type and account that a launch for this job may use.

    Another type may be slower or faster, and another account has its own data. Raises as `prepare` does.
    """
    request = parse_request(**launch_options_of(job, attempt, session.clock()))  # type: ignore[arg-type]
    candidate = candidate_in(
        session, request, session.find_template(request.template), session.account_name_here(machine)
    )
    requirements = replace(
        with_placement_constraint(candidate.provider, candidate.request).requirements,
        instance_type=machine.instance_type,
    )
    return offers_or_launched_one(session, candidate.provider, requirements, None)


def _price_histories(
    session: Session, left_at: datetime | None, current_offer: Offer, new_offer: Offer
) -> tuple[PricedPlace, PricedPlace]:
    """Return both locations with their prices of the last day, or since the job left the second one if that is longer.

    Where a provider has no price history, with their current prices. Raises what the provider raises.
    """
    now = session.clock()
    since = min(now - LOOK_BACK, left_at or now)
    histories = spot_price_history(
        session, current_offer.configuration.account, [current_offer.configuration, new_offer.configuration], since
    )
    current_prices, new_prices = (
        _with_price_history(offer, prices, now)
        for offer, prices in zip((current_offer, new_offer), histories, strict=True)
    )
    return current_prices, new_prices


def _with_price_history(offer: Offer, prices: Sequence[Price], now: datetime) -> PricedPlace:
    """Return the location of an offer, with its past prices and the current one."""
    past = [(price.as_of, price.per_hour.nanos) for price in prices if price.as_of < now]
    return PricedPlace(offer_location(offer), (*past, (now, offer.price.per_hour.nanos)))


def _transfer_cost(
    snapshot_bytes: int, machine: Machine, remote: RemoteState, directory: Path, current_offer: Offer, new_offer: Offer
) -> Money:
    """Return what a move costs at most for the data that the old machine sends and the new one receives.

    The old machine sends one more copy of the checkpoint; for another region also the results and the data from
    buckets. The new machine receives the snapshot, the checkpoint and the data from buckets. Where the offer of the old
    machine has traffic prices, it does not send the data from buckets.
    """
    copies = stored_checkpoints(directory / "checkpoints")
    checkpoint_bytes, data_bytes = copies[-1].bytes if copies else 0, remote.data[1] if remote.data else 0
    offer_prices = machine.traffic_prices and TrafficPrices(*map(Money, machine.traffic_prices))
    current, sent_bytes = current_offer.configuration, checkpoint_bytes
    if new_offer.configuration.region != current.region:
        sent_bytes += remote.results_bytes + (0 if offer_prices else data_bytes)
    egress = None if offer_prices else egress_rate(current.provider, current.region, sent_bytes)
    received_bytes, egress_price = (
        snapshot_bytes + checkpoint_bytes + data_bytes,
        None if egress is None else egress.price,
    )
    return move_cost(sent_bytes, received_bytes, offer_prices, egress_price, new_offer.configuration.traffic)


def _running_state(job: Job, machine: Machine, status: DeadlineStatus, margins: Margins, now: datetime) -> RunningJob:
    return RunningJob(
        age_h=max(0.0, (now - from_iso(machine.launched_at or machine.intended_at)).total_seconds()) / HOUR_S,
        work_left_h=status.work_left_s / HOUR_S,
        unsaved_h=status.unsaved_s / HOUR_S,
        start_h=margins.start_s / HOUR_S,
        end_h=margins.end_s / HOUR_S,
        redone_h=(job.spec["every_s"] / 2 + margins.pass_interval_s) / HOUR_S,
        moves=sum(move.at >= now - LOOK_BACK for _, move in _price_moves(job)),
    )


def _price_moves(job: Job) -> Iterator[tuple[str, JobMove]]:
    """Yield the ids of the machines that a job has left for cheaper ones, and those moves, oldest first."""
    for attempt in job.attempts:
        if attempt.moved and attempt.machine and attempt.move and attempt.move.to == attempt.market == "spot":
            yield attempt.machine, attempt.move


def _last_price_move(session: Session, job: Job, location: SpotLocation) -> datetime | None:
    """Return when a job last left this location for a cheaper one; None where it never did."""
    left_at = None
    for machine_id, move in _price_moves(job):
        machine = session.ledger.machine(machine_id)
        if machine is not None and spot_location(machine) == location:
            left_at = move.at
    return left_at


def _move_sentence(new_offer: Offer, current_offer: Offer, saved_nanos: float) -> str:
    """Return the reason for a move that saves `saved_nanos` nano-dollars, as a clause."""
    current_price, new_price = current_offer.price.per_hour.text(2), new_offer.price.per_hour.text(2)
    zones = [offer.configuration.zone or offer.configuration.region for offer in (new_offer, current_offer)]
    saved = Money(int(saved_nanos)).text(2)
    return f"spot costs {new_price} an hour in {zones[0]} and {current_price} in {zones[1]}: a move saves about {saved}"
