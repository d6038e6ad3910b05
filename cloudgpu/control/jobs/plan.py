"""Makes a request of `run` into a plan: the snapshot is taken, the machine planned or found. Nothing is launched.

A job begins with the event that requests it; a watcher on any computer continues from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from cloudgpu.access.computer import hostname
from cloudgpu.access.jobs.snapshot import take_snapshot
from cloudgpu.control.inputs.launch_request import UpOptions
from cloudgpu.control.jobs.buckets.data import BucketData, bucket_data, bucket_settings_of, traffic_text
from cloudgpu.control.jobs.deadline.plan import PlannedDeadline, plan_deadline
from cloudgpu.control.jobs.inputs.env_file import secret_values
from cloudgpu.control.jobs.inputs.request import RunRequest, host_visible_options
from cloudgpu.control.jobs.remote_results import check_volume_attached
from cloudgpu.control.jobs.slurm.submission import gang_slurm_record, slurm_record
from cloudgpu.control.jobs.store import (
    JOB_ID_PREFIX,
    append,
    check_not_busy,
    directory_of,
    job_by_id,
    read_measured,
)
from cloudgpu.control.launch.budget_preview import sync_for_budgets
from cloudgpu.control.launch.plan import PreparedLaunch
from cloudgpu.control.launch.within_cost import prepare_within_cost
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.core.events.job_events import JobSpec, job_requested
from cloudgpu.core.jobs.job import Job, find_open_job
from cloudgpu.core.jobs.notice import SpotNoticeFit, notice_fit
from cloudgpu.core.jobs.snapshot import Snapshot
from cloudgpu.core.jobs.stored import VOLUME, bucket_of
from cloudgpu.core.launch.traffic import JobTraffic, job_traffic
from cloudgpu.core.launch.trust import check_exposure
from cloudgpu.core.model.machine import Machine, is_on_prem, not_none
from cloudgpu.core.model.offers import DEFAULT_TRUST, MachineConfiguration, Market, TrafficPrices
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import seconds_text
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.attached_costs import egress_rate
from cloudgpu.providers.buckets import open_results_bucket

NAME_LOCK = "jobs"  # held while a new job takes its name
POLICY = "job"  # the policy of a machine that is launched for a job, where the request names none
SETUP_TIME = timedelta(hours=1)  # added to --timeout: boot, upload and setup count against the lease, too
MAX_LEASE = timedelta(hours=2)  # of a machine that is launched for a job with --timeout: the job renews it
MAX_COMPARED = 200  # of the latest jobs, that are searched for measured copies and results


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A job before it is begun. `prepared` is the planned launch of its machine, None where it uses a `machine`.

    `planned_max` is the most that it may cost, None if nothing ends it by time or cost. `data` is what it fetches from
    buckets; `results_traffic` is a sentence on what the transfer of its results to their bucket costs, empty for
    nothing. `deadline` is None for a job without one; with one, `prepared` is the most expensive launch it may need.
    """

    request: RunRequest
    spec: JobSpec
    snapshot: Snapshot
    prepared: PreparedLaunch | None
    machine: Machine | None
    planned_max: Money | None
    data: tuple[BucketData, ...] = ()
    results_traffic: str = ""
    notice_fit: SpotNoticeFit | None = None  # what can be copied between a spot notice and the machine's end
    deadline: PlannedDeadline | None = None
    traffic: JobTraffic | None = None  # what sent and received bytes cost, where the machine's offer charges for them


def plan_run(session: Session, request: RunRequest, environ: Mapping[str, str]) -> PlannedRun:
    """Return the plan of a job. Takes the snapshot of its directory; launches nothing and writes nothing to the ledger.

    `environ` is where the values of its secrets are looked for.

    Raises InvalidRequest for options that contradict each other, a busy machine, a directory that is too large; and as
    `up` does for its launch.
    """
    machine = None if request.on is None else session.find(request.on, running=True)
    slurm = gang_slurm_record(request) if machine is None and request.slurm.nodes > 1 else None
    if machine is not None:
        slurm = slurm_record(session, machine, request)
        jobs = all_jobs(session).values()
        check_not_busy(
            machine, jobs if slurm is None else (one for one in jobs if one.gang_size > 1)
        )  # Slurm has a queue
        options = {"secret": request.secrets, "env_file": request.env_file}
        check_exposure(machine.trust, host_visible_options(options), expose=request.is_exposed, name=machine.name)
        volume_source = next((record["source"] for record in request.data if record["source"].startswith(VOLUME)), None)
        check_volume_attached(machine, {"--results-to": request.results_to, "--data": volume_source})
    launch = None if machine is not None else _launch_options(session, request)
    prepared = deadline = None
    if launch is not None and request.deadline is not None:
        deadline, prepared, launch = plan_deadline(session, request, request.deadline, launch)
    elif launch is not None:
        prepared, launch = prepare_within_cost(session, launch, request.max_cost)
    if prepared is not None:
        sync_for_budgets(session, prepared)
    snapshot = take_snapshot(
        request.workdir,
        session.home.snapshots,
        include=request.include,
        exclude_dirs=[
            *(directory for directory in (request.results, request.checkpoint) if directory),
            session.home.root,
        ],
    )
    spec = _job_spec(session, request, snapshot, machine, launch, prepared)
    if deadline is not None:
        spec["deadline"] = deadline.record()
    if slurm is not None:
        spec["slurm"] = slurm
    if prepared is not None and prepared.plan.nodes > 1:
        spec["gang"] = prepared.plan.nodes
    secret_values(spec, environ)
    _check_cost(request, prepared, None if slurm is not None else machine)
    location = _location(prepared, machine)
    data = bucket_data(session, request.data, spec["launch"], location)
    nodes = 1 if prepared is None else prepared.plan.nodes
    received_bytes = nodes * (snapshot.total_bytes + sum(bucket.bytes for bucket in data))
    last_results = _last_results_size(session, request)
    return PlannedRun(
        request,
        spec,
        snapshot,
        prepared,
        machine,
        planned_max=None if spec["planned_max"] is None else Money(spec["planned_max"]),
        data=data,
        results_traffic=_results_traffic(session, spec, location),
        notice_fit=_notice_fit(session, request, prepared),
        deadline=deadline,
        traffic=job_traffic(*_traffic_prices(prepared, machine, request), received_bytes, last_results),
    )


def _location(prepared: PreparedLaunch | None, machine: Machine | None) -> tuple[str, str]:
    """Return the provider and region where the job runs by its plan."""
    place = not_none(machine) if prepared is None else prepared.plan.offer.configuration
    return place.provider, place.region


def _traffic_prices(
    prepared: PreparedLaunch | None, machine: Machine | None, request: RunRequest
) -> tuple[TrafficPrices | None, Money | None]:
    """Return the traffic prices of the machine's offer, and the catalogue's price of a GB of egress.

    Results that go to a bucket are priced apart (`_results_traffic`): their price depends on the bucket's region.
    """
    recorded_prices = None if machine is None else machine.traffic_prices
    traffic_prices = recorded_prices and TrafficPrices(*map(Money, recorded_prices))
    if prepared is not None:
        traffic_prices = prepared.plan.offer.configuration.traffic
    provider, region = _location(prepared, machine)
    egress = None if request.results_to is not None or is_on_prem(provider) else egress_rate(provider, region, 0)
    return traffic_prices, None if egress is None else egress.price


def _last_results_size(session: Session, request: RunRequest) -> tuple[int, str] | None:
    """Return the bytes of the results of the latest job of this name or command, and that job's name."""
    for job in islice(reversed(all_jobs(session).values()), MAX_COMPARED):
        is_comparable = job.name == request.name or tuple(job.spec["argv"]) == request.argv
        if is_comparable and job.fetched is not None and job.fetched.whole:
            return job.fetched.bytes, job.name
    return None


def _results_traffic(session: Session, spec: JobSpec, location: tuple[str, str]) -> str:
    """Return what a GB of results costs that leaves the machine's region for its bucket, as a clause; empty: nothing.

    Raises where the bucket's region cannot be read.
    """
    address = bucket_of(spec["results_to"])
    if address is None:
        return ""
    region = open_results_bucket(address, bucket_settings_of(session, address, spec["launch"])).region()
    return "" if is_on_prem(location[0]) else traffic_text(*location, 10**9, (address.cloud, region or ""))


def _notice_fit(session: Session, request: RunRequest, prepared: PreparedLaunch | None) -> SpotNoticeFit | None:
    """Return how much can be copied within a spot machine's interruption notice, as fast as earlier jobs were copied.

    None for a machine that is not spot.
    """
    configuration = None if prepared is None else prepared.plan.offer.configuration
    if configuration is None or configuration.market is not Market.SPOT:
        return None
    bytes_per_s = last_checkpoint = None
    for job in islice(reversed(all_jobs(session).values()), MAX_COMPARED):
        measured = read_measured(directory_of(session, job))
        if bytes_per_s is None and measured.bytes_per_s is not None and _ran_on_type(session, job, configuration):
            bytes_per_s = measured.bytes_per_s
        if last_checkpoint is None and (job.name == request.name or tuple(job.spec["argv"]) == request.argv):
            last_checkpoint = None if measured.checkpoint_bytes is None else (measured.checkpoint_bytes, job.name)
    return notice_fit(
        configuration.provider, bytes_per_s, configuration.instance_type, *(last_checkpoint or (None, ""))
    )


def _ran_on_type(session: Session, job: Job, configuration: MachineConfiguration) -> bool:
    """Say whether the last machine of a job was of this instance type, in this region."""
    machine = session.ledger.machine(job.machines[-1]) if job.machines else None
    if machine is None:
        return False
    launched = (machine.provider, machine.region, machine.instance_type)
    return launched == (configuration.provider, configuration.region, configuration.instance_type)


def _launch_options(session: Session, request: RunRequest) -> UpOptions:
    """Return the options of the launch: those that were given, with the policy of jobs and a lifetime by --timeout.

    A job without --timeout keeps the policy's own times. A trust level other than the default becomes an option, too:
    the settings of another computer, which may launch the next attempt, may name another one.
    """
    trust = session.settings.trust
    trust_option = {} if trust == DEFAULT_TRUST else {"trust": trust}
    options: UpOptions = {"policy": POLICY, **trust_option, **request.launch, "name": request.name}  # type: ignore[typeddict-item]
    if request.timeout is not None and "renew_until" not in request.launch:
        lifetime = request.timeout + SETUP_TIME + request.results_wait
        options = {
            "lease": seconds_text(min(lifetime, MAX_LEASE)),
            **options,
            "renew_until": seconds_text(lifetime),
        }
    return options


def _job_spec(
    session: Session,
    request: RunRequest,
    snapshot: Snapshot,
    machine: Machine | None,
    launch: UpOptions | None,
    prepared: PreparedLaunch | None,
) -> JobSpec:
    seconds = timedelta(seconds=1)
    return {
        "argv": list(request.argv),
        "workdir": str(request.workdir),
        "snapshot": snapshot.hash,
        "files": len(snapshot.files),
        "bytes": snapshot.total_bytes,
        "machine": None if machine is None else machine.id,
        "launch": {} if launch is None else _stored_options(launch),
        "setup": request.setup,
        "environment": dict(request.env),
        "env_file": None if request.env_file is None else str(request.env_file),
        "secrets": list(request.secrets),
        "data": list(request.data),
        "ports": list(request.ports),
        "results": request.results,
        "results_to": request.results_to,
        "checkpoint": request.checkpoint,
        "every_s": request.every // seconds,
        "timeout_s": None if request.timeout is None else request.timeout // seconds,
        "max_cost": None if request.max_cost is None else request.max_cost.nanos,
        "stall_s": None if request.stall is None else request.stall // seconds,
        "retries": request.retries,
        "restarts": request.restarts,
        "keep_s": request.keep // seconds,
        "results_wait_s": request.results_wait // seconds,
        "owner": session.settings.owner if prepared is None else prepared.plan.request.owner,
        "project": "" if prepared is None else prepared.plan.request.project,
        "planned_max": _planned_max(request, prepared),
    }


def _stored_options(launch: UpOptions) -> dict[str, str | bool]:
    """Return the launch options that are set, but the name, as the ledger stores them: as text or a bool."""
    return {
        name: value if isinstance(value, bool) else str(value)
        for name, value in launch.items()
        if value is not None and name != "name"
    }


def _planned_max(request: RunRequest, prepared: PreparedLaunch | None) -> int | None:
    """Return the most that the job may cost, in nano-dollars: its machines up to renew-until, which --max-cost limits.

    None: there is no limit.
    """
    if prepared is None:
        return None if request.max_cost is None else request.max_cost.nanos
    return prepared.plan.to_renew_until.amount.nanos


def _check_cost(request: RunRequest, prepared: PreparedLaunch | None, machine: Machine | None) -> None:
    """Raise InvalidRequest where the first hour of the machine, or of all of them, costs more than --max-cost.

    So it does for a machine whose price is not known: no sum would ever reach that amount.
    """
    if machine is not None and machine.price is None and request.max_cost is not None:
        raise InvalidRequest(
            f"--max-cost needs a price, and that of {machine.name} is not known.",
            field="--max-cost",
            value=request.max_cost.text(2),
            next="Leave it out, or limit the time: --timeout 2h",
        )
    price = None
    if prepared is not None:
        price = Money(prepared.plan.highest_price.nanos * prepared.plan.nodes)
    elif machine is not None and machine.price is not None and not is_on_prem(machine.provider):
        price = Money(machine.price.nanos_per_hour)
    if price is not None and request.max_cost is not None and request.max_cost.nanos < price.nanos:
        nodes = 1 if prepared is None else prepared.plan.nodes
        subject = "the machine" if nodes == 1 else f"{nodes} machines"
        raise InvalidRequest(
            f"--max-cost {request.max_cost.text(2)} is less than the first hour of {subject} ({price.text(2)}).",
            field="--max-cost",
            value=request.max_cost.text(2),
            next=f"Allow at least {price.text(2)}, or choose a cheaper machine (cloudgpu gpus).",
        )


def record_request(session: Session, planned: PlannedRun) -> Job:
    """Record the request of this job, and return the job; a watcher continues from here.

    Raises InvalidRequest where a job of that name or key is under way by now.
    """
    job_id, request = f"{JOB_ID_PREFIX}{secrets.token_hex(5)}", planned.request
    with session.lock(NAME_LOCK, wait=60):
        jobs = list(all_jobs(session).values())
        namesake = find_open_job(jobs, request.name) or (find_open_job(jobs, request.key) if request.key else None)
        if namesake is not None:
            raise InvalidRequest(
                f"A job is called {namesake.name} and is not over.",
                field="NAME",
                value=request.name,
                next=f"Follow it: cloudgpu logs -f {namesake.name}. For another job, choose another name.",
            )
        if planned.machine is not None and "slurm" not in planned.spec:
            check_not_busy(planned.machine, jobs)
        event = job_requested(job_id, request.name, request.key, hostname(), planned.spec, session.clock())
        append(session, job_id, [event])
    job = job_by_id(session, job_id)
    directory_of(session, job).mkdir(mode=0o700, parents=True, exist_ok=True)
    return job
