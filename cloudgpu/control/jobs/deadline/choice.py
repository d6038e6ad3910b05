"""Decides for a job with a deadline where it runs, by what the ledger and its watcher have seen, and launches there."""

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
from cloudgpu.access.jobs.checkpoints import StoredCheckpoint, stored
from cloudgpu.control.alerts.alerts import record_finding
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.candidates import candidate
from cloudgpu.control.launch.offers import offers_unless_launched, with_constraint
from cloudgpu.control.pricing.price_history import item_of_machine, spot_price_history
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.control.spot.history import first_offer, history, offer_location, spot_location
from cloudgpu.core.jobs.alerts import late_finding, waits_key
from cloudgpu.core.jobs.deadline import (
    END_S,
    HOUR_S,
    Choice,
    Margins,
    Position,
    SpotEvent,
    SpotHistory,
    choose,
    launch_options_of,
    margins_of,
    may_move,
    position_of,
    work_fits,
)
from cloudgpu.core.jobs.job import Attempt, Job, JobMove
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.core.jobs.stored import bucket_of
from cloudgpu.core.launch.traffic import move_traffic
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Offer, Price, TrafficPrices, price_from_json
from cloudgpu.core.spot import POLICIES
from cloudgpu.core.spot.moves import LOOK_BACK, Priced, Running, saving
from cloudgpu.core.spot.places import SpotLocation
from cloudgpu.core.spot.situation import Policy
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable
from cloudgpu.providers.attached_costs import egress_rate

MAX_ROUNDS = 100  # whose lengths are kept
SAME_LAUNCH_GAP = timedelta(seconds=30)  # refusals that are closer are of one launch, zone after zone
PRICES_EVERY = timedelta(minutes=15)  # how often a running spot machine is compared with other places
_RUNNING_PHASES = (Phase.RUNNING, Phase.ORPHANED)


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """How a job was watched on this computer. Times are seconds since 1970.

    `last` is the last run, `alive` the last one that saw its command run, in the attempt of that number; `gaps` are
    the seconds between passes. `noticed` is when the notice of the machine of that attempt was seen. `priced` is when
    prices of other places were last asked for.
    """

    last: float | None = None
    alive: float | None = None
    attempt: int = 0
    noticed: float | None = None
    gaps: list[float] = field(default_factory=list)
    priced: float | None = None


def read_watch_record(directory: Path) -> WatchRecord:
    """Return the record of how a job was watched on this computer; an empty one if it never was."""
    with suppress(OSError, ValueError, TypeError):
        return WatchRecord(**json.loads((directory / "rounds").read_text()))
    return WatchRecord()


def note_round(directory: Path, job: Job, remote: RemoteState | None, now: datetime) -> WatchRecord:
    """Record that a job was observed now, with its command's state; return the updated record."""
    before, at = read_watch_record(directory), now.timestamp()
    gaps = before.gaps if before.last is None else [*before.gaps, max(0.0, at - before.last)]
    number = len(job.attempts)
    same = before.attempt == number
    runs = remote is not None and remote.phase in _RUNNING_PHASES
    noticed = before.noticed if same else None
    if remote is not None and remote.notice and noticed is None:
        noticed = at
    alive = at if runs else before.alive if same else None
    record = WatchRecord(at, alive, number, noticed, gaps[-MAX_ROUNDS:], before.priced)
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
    known = read_watch_record(directory)
    return None if known.noticed is None or known.attempt != attempt.number else _from_epoch(known.noticed)


def choice_of(
    session: Session, job: Job, machine: Machine | None, remote: RemoteState | None, directory: Path
) -> Choice:
    """Return where a job with a deadline is to run now; raise, or clear, the alert that it does not fit any more."""
    now = session.clock()
    record = note_round(directory, job, remote, now)
    margins = measured_margins(session, job, record.gaps)
    job_position = position(job, machine, remote, record, margins, now)
    record_finding(
        session, waits_key(job, "late"), None if work_fits(job_position, margins) else late_finding(job, job_position)
    )
    choice = choose(job, policy_of(job), spot_seen(session, job), margins, now, job_position)
    if machine is None or not may_move(job, margins, job_position, choice) or not _is_due(record, now):
        return choice
    if not (_has_room(directory) and _write_record(directory, replace(record, priced=now.timestamp()))):
        return choice
    why = cheaper_location(session, job, machine, remote, job_position, margins, directory)
    return choice if why is None else replace(choice, why=why, moves=True)


def _is_due(record: WatchRecord, now: datetime) -> bool:
    """Say whether prices of other places are asked for again."""
    return record.priced is None or now - _from_epoch(record.priced) >= PRICES_EVERY


def _has_room(directory: Path) -> bool:
    """Say whether one more checkpoint fits on this computer: a machine that nothing forces to leave keeps its work."""
    newest = newest_copy(directory)
    return newest is None or shutil.disk_usage(directory).free > newest.bytes


def policy_of(job: Job) -> Policy:
    """Return the policy of a job with a deadline, the same one each time: it keeps what it has solved for the job."""
    return _policy("on-demand" if job.deadline is None else job.deadline["policy"], job.id)


@lru_cache(maxsize=8)  # the plans of one take some 25 MB
def _policy(name: str, _job: str) -> Policy:
    return POLICIES[name]()


def position(
    job: Job, machine: Machine | None, remote: RemoteState | None, record: WatchRecord, margins: Margins, now: datetime
) -> Position:
    """Return where a job is: on this machine, if there is one, whose command this sync has seen."""
    attempt = job.attempt if machine is not None and machine.terminated_at is None else None
    progress = None if remote is None else remote.progress
    if progress is None and job.progress is not None:
        progress = job.progress[:2]
    alive = None if record.alive is None else _from_epoch(record.alive)
    if attempt is None and progress is not None:  # what it says now is of work that may be lost
        progress = None if job.progress is None or not _is_progress_saved(job) else progress
    return position_of(job, now, attempt=attempt, running_at=alive, margins=margins, progress=progress)


def _is_progress_saved(job: Job) -> bool:
    """Say whether the newest checkpoint copy includes the last reported progress."""
    return job.saved is not None and job.progress is not None and job.progress[2] <= job.saved.at


def measured_margins(
    session: Session, job: Job | None, gaps: Iterable[float] = (), provider: str | None = None
) -> Margins:
    """Return the deadline's safety margins, from start-up and shutdown times that this ledger has measured.

    Measured with this provider, or with that of the job.
    """
    machines = {one.id: one for one in session.ledger.machines()}
    jobs = all_jobs(session)
    named = provider or _provider(job, machines)
    starts = [seconds for one in jobs.values() for seconds in _starts(one, machines, named)]
    ends = [
        (one.ended_at - one.move.at).total_seconds()
        for other in jobs.values()
        for one in other.attempts
        if one.move is not None and one.ended_at is not None and one.moved
    ]
    found = margins_of(starts, ends, list(gaps))
    uploads = job is not None and bucket_of(job.spec["results_to"]) is not None
    return replace(found, end_s=max(found.end_s, END_S)) if uploads else found  # as long as a last upload may take


def _provider(job: Job | None, machines: dict[str, Machine]) -> str | None:
    used = () if job is None else job.machines
    return next((machines[one].provider for one in reversed(used) if one in machines), None)


def _starts(job: Job, machines: dict[str, Machine], provider: str | None) -> Iterator[float]:
    """Yield how long launches for a job took, from the call until its command began, in seconds."""
    seen = set[str]()
    for one in job.attempts:
        machine = machines.get(one.machine or "")
        fresh = machine is not None and one.key is not None and machine.id not in seen
        if machine is None or not fresh or one.began_at is None or (provider and machine.provider != provider):
            continue
        seen.add(machine.id)
        yield max(0.0, (one.began_at - from_iso(machine.intended_at)).total_seconds())


def spot_seen(session: Session, job: Job) -> SpotHistory:
    """Return what this job has seen of spot: by its launches, and by the machines that it lost."""
    found: list[tuple[datetime, SpotEvent]] = []
    for machine in session.ledger.machines():
        if machine.market == "spot" and machine.key.startswith(f"{job.id}-") and machine.launch_status != "void":
            at = from_iso(machine.terminated_at or machine.intended_at)
            refused = machine.launch_status == "refused"
            found.append((at, "refused") if refused else (from_iso(machine.intended_at), "had"))
    lost = [one.ended_at for one in job.attempts if one.interrupted and one.market == "spot" and one.ended_at]
    return SpotHistory(tuple(_by_launch(sorted([*found, *((at, "lost") for at in lost)]))))


def _by_launch(events: Iterable[tuple[datetime, SpotEvent]]) -> Iterator[tuple[datetime, SpotEvent]]:
    """Yield these events, those that one launch was refused in several zones as one."""
    last: tuple[datetime, SpotEvent] | None = None
    for one in events:
        if last is None or (last[1], one[1]) != ("refused", "refused") or one[0] - last[0] > SAME_LAUNCH_GAP:
            yield one
        last = one


def newest_copy(directory: Path) -> StoredCheckpoint | None:
    """Return the newest copy of a checkpoint that is here."""
    return next(reversed(stored(directory / "checkpoints")), None)


@contextmanager
def noting_work(job: Job, remote: RemoteState, directory: Path, write: Callable[[str, float], None]) -> Iterator[None]:
    """Write, after a copy that is made within, how much of the work of a job with a deadline the newest one holds.

    `remote` is what was seen before that copy, and `directory` has the copies. `write` takes the checkpoint's name and
    the seconds of work.
    """
    if job.deadline is None:
        yield
        return
    before = newest_copy(directory)
    yield
    after = newest_copy(directory)
    work = None if after is None else _copied_work_s(job, remote, before, after)
    if after is not None and work is not None and work > (0.0 if job.saved is None else job.saved.work_s):
        write(after.name, work)


def _copied_work_s(
    job: Job, remote: RemoteState, before: StoredCheckpoint | None, after: StoredCheckpoint
) -> float | None:
    """Return how many seconds of the work the newest copy holds, None where nobody can tell.

    `remote` was seen, and `before` was the newest copy, before the copying that made `after`. That is the checkpoint
    which was the newest on the machine then, or one that was finished since; what else it may be is left out.
    """
    if remote.checkpointed is None or remote.started is None:
        return None
    fresh = before is None or after.number > before.number
    if after.name != remote.checkpoints[0] and not (fresh and after.name not in remote.checkpoints):
        return None
    return job.attempts[-1].base_s + max(0.0, remote.checkpointed - remote.started)


def _from_epoch(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)


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
        running = replace(running, left=_last_price_move(session, job, offer_location(there)))
        stays, goes = _priced(session, running.left, here, there)
    except LedgerUnavailable:
        raise
    except CloudgpuError:
        return None
    goes = replace(goes, travel=_travel(job.spec["bytes"], machine, remote, directory, here, there).nanos)
    found = saving(running, stays, goes, seen, now)
    return _move_reason(there, here, found.saves - found.costs) if found.pays else None


def _current_offer(session: Session, machine: Machine) -> Offer:
    """Return what a machine was launched from, at its last known price."""
    item = replace(item_of_machine(machine), account=session.account_here(machine))
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


def _priced(session: Session, left: datetime | None, here: Offer, there: Offer) -> tuple[Priced, Priced]:
    """Return both places with their prices of the last day, and since the job left the second one.

    Where a provider remembers no prices, those of now. Raises what the provider raises.
    """
    now = session.clock()
    since = min(now - LOOK_BACK, left or now)
    known = spot_price_history(session, here.available.account, [here.available, there.available], since)
    first, second = (
        _with_price_history(offer, prices, now) for offer, prices in zip((here, there), known, strict=True)
    )
    return first, second


def _with_price_history(offer: Offer, prices: Sequence[Price], now: datetime) -> Priced:
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
        moves=sum(move.at >= now - LOOK_BACK for _, move in _moves(job)),
    )


def _moves(job: Job) -> Iterator[tuple[str, JobMove]]:
    """Yield the machines that a job has left for cheaper ones, and those moves, oldest first."""
    for one in job.attempts:
        if one.moved and one.machine is not None and one.move is not None and one.move.to == one.market == "spot":
            yield one.machine, one.move


def _last_price_move(session: Session, job: Job, location: SpotLocation) -> datetime | None:
    """Return when a job last left a place for a cheaper one; None where it never did."""
    found = None
    for machine, move in _moves(job):
        row = session.ledger.machine(machine)
        if row is not None and spot_location(row) == location:
            found = move.at
    return found


def _move_reason(there: Offer, here: Offer, nanos: float) -> str:
    old, new = here.price.per_hour.text(2), there.price.per_hour.text(2)
    zones = (there.available.zone or there.available.region, here.available.zone or here.available.region)
    saves = Money(int(nanos)).text(2)
    return f"spot costs {new} an hour in {zones[0]} and {old} in {zones[1]}: a move saves about {saves}"
