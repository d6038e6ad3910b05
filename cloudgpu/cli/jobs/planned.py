"""The plan that `run` shows before it acts, as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.cli.jobs.text import files_text
from cloudgpu.cli.launch.planned import job_machine_facts, plan_line, plan_text as launch_text
from cloudgpu.cli.render import labelled_lines, size_text, wrapped
from cloudgpu.control.jobs.buckets.results import PRESIGNED_POST_TTL_S
from cloudgpu.core.jobs.stored import bucket_of, volume_of
from cloudgpu.core.jobs.waiting import CAPACITY_WAIT
from cloudgpu.core.launch.traffic import traffic_sentence
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import duration_text, iso, minute_text

if TYPE_CHECKING:
    from cloudgpu.control.jobs.plan import PlannedRun
    from cloudgpu.core.events.job_events import SlurmRecord
    from cloudgpu.core.jobs.notice import SpotNoticeFit
    from cloudgpu.core.jobs.snapshot import Snapshot
    from cloudgpu.views.documents.machines.plans import Plan

# What happens to a job while this computer is asleep or off.
ASLEEP = "it keeps running; cloudgpu watch or reap here fetches its results, else its machine stops by its policy"
ASLEEP_ON_EXISTING = "it keeps running; cloudgpu watch or reap here fetches its results"
ASLEEP_DEADLINE = (
    "a machine that runs keeps running, but nobody replaces one that is lost, so the deadline may be missed: keep "
    "cloudgpu watch running on a computer that shares this ledger"
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)
MAX_SECRETS_SHOWN = 5


def plan_text(planned: PlannedRun, launch: Plan | None, now: datetime, *, verbose: bool) -> str:
    """Return the plan of a job: what, where, price, costs, time, files, and what happens while this computer is off.

    `launch` is the plan of its machine, None for an existing one.
    """
    request = planned.request
    text = labelled_lines(
        [
            ("job", f"{request.name}: {shlex.join(request.argv)}"),
            *_machine_facts(planned, launch),
            ("costs", _costs_text(planned, launch)),
            *deadline_facts(planned, now),
            ("timeout", _timeout_text(planned)),
            ("upload", f"{_upload_text(planned.snapshot)}; only what the machine lacks travels"),
            *_data_facts(planned),
            ("left out", _left_out_text(planned.snapshot)),
            ("secrets", _secrets_text(planned.snapshot)),
            ("results", _results_text(planned)),
            ("traffic", _traffic_text(planned)),
            ("restart", _restart_text(planned, launch)),
            ("notice", notice_text(planned.notice_fit, planned.request.every)),
            ("asleep", _asleep_text(planned, launch)),
            *_note_facts(planned),
        ]
    )
    return f"{text}\n\n{launch_text(launch, now)}" if verbose and launch is not None else text


def brief_text(planned: PlannedRun, launch: Plan | None) -> str:
    """Return the plan of a job without a question: a line on its machine, one on the job, and every warning."""
    request, machine = planned.request, planned.machine
    launch_lines = [] if launch is None else [plan_line(launch, for_job=True)]
    place = "" if machine is None else f" on {machine.name}"
    costs_text = "" if planned.planned_max is None else f", costs at most {planned.planned_max.text(2)}"
    text = f"{request.name}{place}: {shlex.join(request.argv)}; sends {_upload_text(planned.snapshot)}{costs_text}"
    notes = labelled_lines(
        [
            *_data_facts(planned),
            ("traffic", _traffic_text(planned, briefly=True)),
            ("secrets", _secrets_text(planned.snapshot)),
            *_note_facts(planned),
        ]
    )
    return "\n".join(filter(None, [*launch_lines, wrapped(text), notes]))


def _machine_facts(planned: PlannedRun, launch: Plan | None) -> Iterator[tuple[str, str | None]]:
    if launch is not None:
        yield from job_machine_facts(launch)
        return
    machine, slurm = planned.machine, planned.spec.get("slurm")
    if machine is not None and slurm is not None:
        target_text = (
            f"submitted on {machine.name}" if machine.cluster is None else f"the cluster {machine.cluster.name}"
        )
        yield "slurm", f"{target_text}: {_slurm_request_text(slurm)}; it queues until Slurm starts it"
        if slurm["cluster"] is None:
            yield "note", "its home is taken to be the same on all nodes; nothing is installed or stopped there"
    elif machine is not None:
        yield "machine", f"{machine.name}, which is there ({machine.provider}), and stays"


def _slurm_request_text(slurm: SlurmRecord) -> str:
    """Return what is requested from Slurm."""
    parts = [counted(slurm["nodes"], "node"), f"at most {duration_text(timedelta(minutes=slurm['minutes']))}"]
    parts += [f"{counted(slurm['gpus_per_node'], 'GPU')} on each"] if slurm["gpus_per_node"] else []
    options = {
        "array": slurm["array"],
        "after job": slurm["after"],
        "partition": slurm["partition"],
        "account": slurm["account"],
    }
    return ", ".join([*parts, *(f"{word} {value}" for word, value in options.items() if value)])


def _tariff_text(slurm: SlurmRecord) -> str:
    """Return what somebody else's Slurm charges."""
    price = slurm.get("usd_per_gpu_hour")
    return "nothing: it is free" if price is None else f"{Money(price).text(4)} for each hour of a GPU"


def _time_limit_text(slurm: SlurmRecord) -> str:
    """Return the time limit by which Slurm enforces --max-cost; empty if the plan has none."""
    price = slurm.get("per_hour")
    if price is None:
        return ""
    subject = "each element" if slurm["array"] else "it"
    time_limit = duration_text(timedelta(minutes=slurm["minutes"]))
    return f": Slurm ends {subject} after {time_limit}, at {Money(price).text(4)} an hour"


def _costs_text(planned: PlannedRun, launch: Plan | None) -> str | None:
    limit, slurm = planned.request.max_cost, planned.spec.get("slurm")
    if limit is not None and planned.planned_max is not None and planned.planned_max.nanos == limit.nanos:
        return f"at most {limit.text(2)} (--max-cost){'' if slurm is None else _time_limit_text(slurm)}"
    if launch is None:
        return "what the machine costs anyway" if slurm is None or slurm["cluster"] else _tariff_text(slurm)
    until = minute_text(launch.get("renew_until"))
    if planned.planned_max is None:
        return f"no limit is known: its price has none, and --max-cost is not set; its machine ends {until}"
    return f"at most {planned.planned_max.text(2)}, if it runs until {until}"


def deadline_facts(planned: PlannedRun, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the plan's facts about a deadline: when it is, what it costs, when on demand begins at the latest."""
    deadline = planned.deadline
    if deadline is None:
        return
    time_left = duration_text(timedelta(minutes=(deadline.at - now) // timedelta(minutes=1)))
    yield "deadline", f"{minute_text(iso(deadline.at))} (in {time_left}), for {duration_text(deadline.work)} of work"
    prices = f"spot {deadline.spot.text(2)} an hour, on demand {deadline.on_demand.text(2)}; policy {deadline.policy}"
    yield "prices", prices
    if deadline.quote is not None:
        yield "expected", deadline.quote.sentence()
    start_allowance = duration_text(timedelta(seconds=int(deadline.margins.start_s)))
    basis_text = (
        f"95% of {deadline.margins.measured} launches took less"
        if deadline.margins.measured
        else "nothing is measured yet"
    )
    yield (
        "latest",
        (
            f"on demand begins {minute_text(iso(deadline.on_demand_from))} at the latest; "
            f"{start_allowance} are kept for a start ({basis_text})"
        ),
    )
    yield "watch", "the deadline holds while somebody watches, on demand can be had, and --work is right"


def _timeout_text(planned: PlannedRun) -> str | None:
    timeout = planned.request.timeout
    return None if timeout is None else f"its command is ended after {duration_text(timeout)}"


def _upload_text(snapshot: Snapshot) -> str:
    return f"{files_text(len(snapshot.files))}, {size_text(snapshot.total_bytes)}"


def _left_out_text(snapshot: Snapshot) -> str | None:
    files = [file for file in snapshot.left_out if file.why not in ("secret", "excluded")]  # these are listed elsewhere
    if not files:
        return None
    hidden_count = snapshot.left_out_count - len(files) - len(snapshot.secrets)
    hidden_text = f", and {hidden_count:,} other{'s' * (hidden_count > 1)}" if hidden_count > 0 else ""
    files_listed = ", ".join(
        f"{file.path} ({'at least ' if file.at_least else ''}{size_text(file.size)})" for file in files
    )
    return f"{files_listed}{hidden_text}"


def _secrets_text(snapshot: Snapshot) -> str | None:
    """Return which files stay here because of their names."""
    if not snapshot.secrets:
        return None
    hidden_count = len(snapshot.secrets) - MAX_SECRETS_SHOWN
    hidden_text = f" and {hidden_count:,} more" if hidden_count > 0 else ""
    subject = "it" if len(snapshot.secrets) == 1 else "they"
    shown_names = ", ".join(snapshot.secrets[:MAX_SECRETS_SHOWN])
    stays_text = f"{subject} stay{'s' * (subject == 'it')} here"
    return f"{shown_names}{hidden_text}: by their names, {stays_text}; --secret or --env-file passes values"


def _data_facts(planned: PlannedRun) -> Iterator[tuple[str, str]]:
    """Yield what is fetched from buckets, and what that costs."""
    for data in planned.data:
        region_text = f" from {data.region}" if data.region else ""
        costs_text = f"; {data.traffic}" if data.traffic else ""
        objects = f"{data.objects:,} object{'s' * (data.objects != 1)}"
        yield "data", f"{data.source}: {objects}, {size_text(data.bytes)}{region_text}, to {data.target}{costs_text}"


def _asleep_text(planned: PlannedRun, launch: Plan | None) -> str:
    if planned.deadline is not None:
        return ASLEEP_DEADLINE
    if bucket_of(planned.request.results_to) is None:
        return ASLEEP if launch is not None else ASLEEP_ON_EXISTING
    end_text = "; its machine stops by its policy" if launch is not None else ""
    return f"it keeps running, and uploads for up to {PRESIGNED_POST_TTL_S // 3600} hours{end_text}"


def _results_text(planned: PlannedRun) -> str:
    request = planned.request
    if request.results_to is not None:
        volume = volume_of(request.results_to)
        zone_text = f"; the job runs only in the zone of the volume {volume}" if volume is not None else ""
        interval_text = "" if volume is not None else f", copied every {duration_text(request.every)}"
        costs_text = f"; for each GB, {planned.results_traffic}" if planned.results_traffic else ""
        return f"go to {request.results_to}, and so do checkpoints{interval_text}{zone_text}{costs_text}"
    checkpoints_text = "; so are checkpoints" if request.checkpoint else ""
    return (
        f"come back to {request.results}/{request.name}, copied every {duration_text(request.every)}{checkpoints_text}"
    )


def _traffic_text(planned: PlannedRun, *, briefly: bool = False) -> str | None:
    """Return what the job's network traffic costs; with `briefly`, only if incoming traffic has a price."""
    traffic = planned.traffic
    return None if traffic is None or (briefly and traffic.per_gb_in is None) else traffic_sentence(traffic)


def _restart_text(planned: PlannedRun, launch: Plan | None) -> str | None:
    """Return what happens after the loss of a spot machine; None for on demand, which is hardly ever lost."""
    if launch is None or launch["market"] != "spot" or planned.deadline is not None:
        return None
    restarts, capacity_wait = planned.request.restarts, duration_text(CAPACITY_WAIT)
    if not restarts:
        return "none: when its machine is taken, the job is lost"
    return f"up to {counted(restarts, 'time')} when its machine is taken, and waits at most {capacity_wait} for another"


def notice_text(fit: SpotNoticeFit | None, copy_interval: timedelta) -> str | None:
    """Return how much fits into the notice of a spot interruption, and if the last checkpoint does; None: unknown."""
    if fit is None:
        return None
    how = f"measured on {fit.measured_on}" if fit.measured_on else "assumed: nothing was measured yet"
    text = (
        f"{fit.notice.seconds} s before the end; a last copy begins within {fit.notice.copy_after_s} s while run is in "
        f"front, and a checkpoint of up to about {size_text(fit.copyable_bytes)} fits "
        f"at {size_text(int(fit.bytes_per_s))}/s ({how})"
    )
    if fit.previous_bytes is None:
        return text
    previous_text = f"the last one of {fit.previous_job} had {size_text(fit.previous_bytes)}"
    fits_text = (
        "it fits" if fit.previous_fits else f"it does not fit: the copy of every {duration_text(copy_interval)} counts"
    )
    return f"{text}; {previous_text}: {fits_text}"


def _note_facts(planned: PlannedRun) -> Iterator[tuple[str, str]]:
    from cloudgpu.control.jobs.inputs.command import is_unknown_program, proposed_setup

    request = planned.request
    if request.setup is None:
        if is_unknown_program(request.argv[0]):
            yield "note", f"{request.argv[0]} is not on this computer: if the machine lacks it, too, the job fails"
        setup = proposed_setup(request.workdir)
        if setup is not None:
            yield "setup", f"{setup[0]} is there and nothing installs it: add --setup '{setup[1]}'"
    secrets = [key for key in request.env if _SECRET_NAME.search(key)]
    if secrets:
        yield "note", f"the ledger keeps the value of --env {secrets[0]}; --secret {secrets[0]} is kept nowhere"
