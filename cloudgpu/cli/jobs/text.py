"""Jobs as text: one job, its state in words, and the message when it has ended."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.access.computer import hostname
from cloudgpu.cli.render import ago, dollars, labelled_lines, short_duration, size_text, when
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.views.documents.jobs.jobs import JobDocument


def state_text(job: JobDocument) -> str:
    """Return a job's state in words, with its exit status where it failed."""
    words = job["state"].replace("_", " ")
    exit_result = job["exit"]
    return f"{words} ({exit_result['code']})" if job["state"] == "failed" and exit_result is not None else words


def on_text(job: JobDocument) -> str:
    """Return where a job runs: its machine, and Slurm's id of it."""
    machine = "" if job["machine"] is None else job["machine"]["name"]
    return machine if job["slurm"] is None else f"{machine} Slurm {job['slurm']['id']}".lstrip()


def spent_text(job: JobDocument) -> str:
    """Return what a job has cost, with a `+` if a part has no price; for somebody else's Slurm, what that charges."""
    if job["slurm"] is not None and job["slurm"]["cluster"] is None:
        tariff_usd = job["slurm"]["tariff_usd"]
        return "free" if tariff_usd is None else dollars(tariff_usd)
    return dollars(job["spent_usd"]) + "+" * bool(job["unpriced"])


def job_text(job: JobDocument, now: datetime) -> str:
    """Return one job: state, progress, cost, results, and each attempt."""
    return labelled_lines(
        [
            ("job", f"{job['name']}: {shlex.join(job['command'])}"),
            ("state", _state_with_reason(job)),
            ("waits", waits_text(job, now)),
            ("done", _progress_text(job, now)),
            ("machine", _machine_text(job)),
            ("slurm", _slurm_text(job)),
            ("spent", _cost_text(job)),
            ("deadline", _deadline_text(job, now)),
            ("ends", _expected_end_text(job, now)),
            ("exit", _exit_text(job)),
            ("results", _results_text(job)),
            *(("attempt", _attempt_text(job, number, now)) for number in range(len(job["attempts"]))),
            ("kept", f"its machine, until {when(job['kept_until'], now)}" if job["kept_until"] else None),
            ("asked", when(job["requested_at"], now)),
            ("owner", ", project ".join(filter(None, (job["owner"], job["project"])))),
            ("id", job["id"]),
        ]
    )


def _state_with_reason(job: JobDocument) -> str:
    why_text = f": {job['why']}" if job["why"] else ""
    open_text = " (its results, or its machine, are still open)" if job["living"] and job["exit"] is not None else ""
    return f"{state_text(job)}{why_text}{open_text}"


def waits_text(job: JobDocument, now: datetime) -> str | None:
    """Return for what a job waits that has not begun, and how long it does; None where it does not."""
    waits = job["waits"]
    if waits is None:
        return None
    waits_for = "for capacity" if job["attempts"][-1]["machine"] is None else "to begin"
    return f"{waits_for} since {when(waits['since'], now)}, until {when(waits['until'], now)} at most: {waits['why']}"


def _progress_text(job: JobDocument, now: datetime) -> str | None:
    progress = job["progress"]
    if progress is None:
        return None
    total = "" if progress["of"] is None else f" of {progress['of']:g} ({progress['percent']:.0f} %)"
    return f"{progress['done']:g}{total}, {ago(progress['at'], now)}"


def _machine_text(job: JobDocument) -> str | None:
    machine = job["machine"]
    if machine is None:
        return None
    price = "" if machine["usd_per_hour"] is None else f", {dollars(machine['usd_per_hour'], 4)} an hour"
    stays_text = "" if machine["own"] else "; it was there, and stays"
    return f"{machine['name']} ({machine['state']}), {machine['provider']} {machine['region']}{price}{stays_text}"


def _slurm_text(job: JobDocument) -> str | None:
    slurm = job["slurm"]
    if slurm is None:
        return None
    nodes = counted(slurm["nodes"], "node")
    return f"job {slurm['id']}, {nodes}: {', '.join(slurm['states'])}"


def _cost_text(job: JobDocument) -> str:
    if job["slurm"] is not None and job["slurm"]["cluster"] is None:
        tariff_usd = job["slurm"]["tariff_usd"]
        return (
            "nothing: it is free"
            if tariff_usd is None
            else f"{dollars(tariff_usd)} by usd_per_gpu_hour, billed elsewhere"
        )
    missing = f", without {' and '.join(job['unpriced'])}: no price is known" if job["unpriced"] else ""
    planned_max = (
        "" if job["planned_max_usd"] is None or job["exit"] else f" of at most {dollars(job['planned_max_usd'])}"
    )
    return f"{dollars(job['spent_usd'])}{planned_max}{missing}"


def _deadline_text(job: JobDocument, now: datetime) -> str | None:
    deadline = job["deadline"]
    if deadline is None:
        return None
    market_text = {"spot": "on spot", "on_demand": "on demand", None: "it waits"}[deadline["market"]]
    saved_text = f"{short_duration(deadline['saved_s'])} of {short_duration(deadline['work_s'])} are saved"
    return (
        f"{when(deadline['at'], now)}; {market_text if job['living'] else 'over'}, {saved_text} (policy "
        f"{deadline['policy']})"
    )


def _expected_end_text(job: JobDocument, now: datetime) -> str | None:
    if job["expected_end"] is None:
        return None
    basis_text = "at this speed" if job["expected_by"] == "progress" else "at the latest: --timeout"
    return f"{when(job['expected_end'], now)}, {basis_text}"


def _exit_text(job: JobDocument) -> str | None:
    result = job["exit"]
    if result is None:
        return None
    code_text = f"signal {result['signal']}" if result["signal"] else f"status {result['status']}"
    exit_text = code_text if result["status"] is not None or result["signal"] else "its status is not known"
    return exit_text if result["by"] == "command" else f"{exit_text}; ended by cloudgpu"


def _results_text(job: JobDocument) -> str | None:
    results = job["results"]
    if results is None:
        return None
    is_here = results["host"] in ("", hostname())  # a bucket is on no host
    place_text = results["directory"] if is_here else f"{results['directory']} on {results['host']}"
    incomplete_text = "" if results["whole"] else f", not whole{': ' if results['why'] else ''}{results['why']}"
    text = f"{files_text(results['files'])}, {size_text(results['bytes'])}, in {place_text}{incomplete_text}"
    return f"{text}{_left_behind_text(job)}"


def _left_behind_text(job: JobDocument) -> str:
    """Return which results did not come with the others, after a semicolon; empty where all came."""
    results = job["results"]
    return f"; {results['why']}" if results is not None and results["whole"] and results["why"] else ""


def _attempt_text(job: JobDocument, index: int, now: datetime) -> str:
    attempt = job["attempts"][index]
    machine_text = f" on {attempt['machine']}" if attempt["machine"] else ""
    if attempt["began_at"] is None:
        return f"{attempt['number']}{machine_text}: not begun"
    setup = "" if attempt["setup_s"] is None else f" after a setup of {short_duration(attempt['setup_s'])}"
    end = "" if attempt["ended_at"] is None else f", ended {ago(attempt['ended_at'], now)}"
    why_text = f": {attempt['why']}" if attempt["why"] else ""
    return f"{attempt['number']}{machine_text}: began {ago(attempt['began_at'], now)}{setup}{end}{why_text}"


def ended_text(job: JobDocument, now: datetime) -> str:
    """Return what `run` says at the end: how it ended, how long it took, its results and what it has cost."""
    took_text = ""
    if job["began_at"] is not None and job["ended_at"] is not None:
        took_text = f" after {short_duration((from_iso(job['ended_at']) - from_iso(job['began_at'])).total_seconds())}"
    why_text = f" ({job['why']})" if job["why"] else ""
    results = _results_text(job)
    text = f"{job['name']} {_ENDED_TEXTS.get(job['state'], job['state'])}{took_text}{why_text}."
    has_results = results and job["results"] and job["results"]["files"]
    text += f" Results: {results}." if has_results else f" No results{_left_behind_text(job)}."
    kept_text = f" Its machine is kept until {when(job['kept_until'], now)}." if job["kept_until"] else ""
    return f"{text} It cost {_cost_text(job)}.{kept_text}{_how_to_get(job)}"


def _how_to_get(job: JobDocument) -> str:
    """Return how to get results that are on no computer; empty for others."""
    results = job["results"]
    if results is None or results["host"] or not results["files"]:
        return ""
    if results["directory"].startswith("volume:"):
        volume, _, path = results["directory"].removeprefix("volume:").partition("/")
        return f" To get them: cloudgpu up --volume {volume}, then cloudgpu cp MACHINE:/data/{path} ."
    return f" To get them: aws s3 cp --recursive {results['directory']} results"


_ENDED_TEXTS = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "setup_failed": "has not begun, since its setup failed",
    "timed_out": "ran out of time",
    "over_cost": "reached its --max-cost",
    "cancelled": "was cancelled",
    "lost": "was lost with its machine",
    "not_launched": "got no machine",
}


def files_text(count: int) -> str:
    """Return a number of files: `1 file`, `2,000 files`."""
    return f"{count:,} file{'s' * (count != 1)}"
