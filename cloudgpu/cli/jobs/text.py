"""Jobs as text: one job, its state in words, and what is said of it when it has ended."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.access.computer import hostname
from cloudgpu.cli.render import ago, dollars, facts, rounded, size, when
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.views.documents.jobs.jobs import JobDocument


def state_text(one: JobDocument) -> str:
    """Return a job's state in words, with its exit status where it failed."""
    word = one["state"].replace("_", " ")
    code = one["exit"]
    return f"{word} ({code['code']})" if one["state"] == "failed" and code is not None else word


def on_text(one: JobDocument) -> str:
    """Return where a job runs: its machine, and Slurm's id of it."""
    machine = "" if one["machine"] is None else one["machine"]["name"]
    return machine if one["slurm"] is None else f"{machine} Slurm {one['slurm']['id']}".lstrip()


def spent_text(one: JobDocument) -> str:
    """Return what a job has cost, with a `+` where a part of it has no price; somebody else's Slurm is free."""
    if one["slurm"] is not None and one["slurm"]["cluster"] is None:
        asks = one["slurm"]["tariff_usd"]
        return "free" if asks is None else dollars(asks)
    return dollars(one["spent_usd"]) + "+" * bool(one["unpriced"])


def job_text(one: JobDocument, now: datetime) -> str:
    """Return one job: state, progress, cost, results, and each attempt."""
    return facts(
        [
            ("job", f"{one['name']}: {shlex.join(one['command'])}"),
            ("state", _state(one)),
            ("waits", waits_text(one, now)),
            ("done", _progress(one, now)),
            ("machine", _where(one)),
            ("slurm", _slurm(one)),
            ("spent", _money(one)),
            ("deadline", _deadline(one, now)),
            ("ends", _expected(one, now)),
            ("exit", _exit(one)),
            ("results", _came_back(one)),
            *(("attempt", _attempt(one, number, now)) for number in range(len(one["attempts"]))),
            ("kept", f"its machine, until {when(one['kept_until'], now)}" if one["kept_until"] else None),
            ("asked", when(one["requested_at"], now)),
            ("owner", ", project ".join(filter(None, (one["owner"], one["project"])))),
            ("id", one["id"]),
        ]
    )


def _state(one: JobDocument) -> str:
    why = f": {one['why']}" if one["why"] else ""
    left = " (its results, or its machine, are still open)" if one["living"] and one["exit"] is not None else ""
    return f"{state_text(one)}{why}{left}"


def waits_text(one: JobDocument, now: datetime) -> str | None:
    """Return for what a job without a machine waits, and how long it does; None where it does not."""
    found = one["waits"]
    if found is None:
        return None
    return f"for capacity since {when(found['since'], now)}, until {when(found['until'], now)} at most: {found['why']}"


def _progress(one: JobDocument, now: datetime) -> str | None:
    found = one["progress"]
    if found is None:
        return None
    of = "" if found["of"] is None else f" of {found['of']:g} ({found['percent']:.0f} %)"
    return f"{found['done']:g}{of}, {ago(found['at'], now)}"


def _where(one: JobDocument) -> str | None:
    found = one["machine"]
    if found is None:
        return None
    price = "" if found["usd_per_hour"] is None else f", {dollars(found['usd_per_hour'], 4)} an hour"
    stays = "" if found["own"] else "; it was there, and stays"
    return f"{found['name']} ({found['state']}), {found['provider']} {found['region']}{price}{stays}"


def _slurm(one: JobDocument) -> str | None:
    found = one["slurm"]
    if found is None:
        return None
    nodes = f"{found['nodes']} node{'s' * (found['nodes'] != 1)}"
    return f"job {found['id']}, {nodes}: {', '.join(found['states'])}"


def _money(one: JobDocument) -> str:
    if one["slurm"] is not None and one["slurm"]["cluster"] is None:
        asks = one["slurm"]["tariff_usd"]
        return "nothing: it is free" if asks is None else f"{dollars(asks)} by usd_per_gpu_hour, billed elsewhere"
    missing = f", without {' and '.join(one['unpriced'])}: no price is known" if one["unpriced"] else ""
    most = "" if one["dearest_usd"] is None or one["exit"] else f" of at most {dollars(one['dearest_usd'])}"
    return f"{dollars(one['spent_usd'])}{most}{missing}"


def _deadline(one: JobDocument, now: datetime) -> str | None:
    found = one["deadline"]
    if found is None:
        return None
    on = {"spot": "on spot", "on_demand": "on demand", None: "it waits"}[found["market"]]
    saved = f"{rounded(found['saved_s'])} of {rounded(found['work_s'])} are saved"
    return f"{when(found['at'], now)}; {on if one['living'] else 'over'}, {saved} (policy {found['policy']})"


def _expected(one: JobDocument, now: datetime) -> str | None:
    if one["expected_end"] is None:
        return None
    by = "at this speed" if one["expected_by"] == "progress" else "at the latest: --timeout"
    return f"{when(one['expected_end'], now)}, {by}"


def _exit(one: JobDocument) -> str | None:
    found = one["exit"]
    if found is None:
        return None
    own = f"signal {found['signal']}" if found["signal"] else f"status {found['status']}"
    known = own if found["status"] is not None or found["signal"] else "its status is not known"
    return known if found["by"] == "command" else f"{known}; ended by cloudgpu"


def _came_back(one: JobDocument) -> str | None:
    found = one["results"]
    if found is None:
        return None
    here = found["host"] in ("", hostname())  # a bucket is on no host
    where = found["directory"] if here else f"{found['directory']} on {found['host']}"
    partly = "" if found["whole"] else f", not whole{': ' if found['why'] else ''}{found['why']}"
    return f"{files_text(found['files'])}, {size(found['bytes'])}, in {where}{partly}"


def _attempt(one: JobDocument, place: int, now: datetime) -> str:
    found = one["attempts"][place]
    on = f" on {found['machine']}" if found["machine"] else ""
    if found["began_at"] is None:
        return f"{found['number']}{on}: not begun"
    setup = "" if found["setup_s"] is None else f" after a setup of {rounded(found['setup_s'])}"
    end = "" if found["ended_at"] is None else f", ended {ago(found['ended_at'], now)}"
    why = f": {found['why']}" if found["why"] else ""
    return f"{found['number']}{on}: began {ago(found['began_at'], now)}{setup}{end}{why}"


def ended_text(one: JobDocument, now: datetime) -> str:
    """Return what `run` says at the end: how it ended, how long it took, its results and what it has cost."""
    took = ""
    if one["began_at"] is not None and one["ended_at"] is not None:
        took = f" after {rounded((from_iso(one['ended_at']) - from_iso(one['began_at'])).total_seconds())}"
    why = f" ({one['why']})" if one["why"] else ""
    results = _came_back(one)
    said = f"{one['name']} {_ENDED.get(one['state'], one['state'])}{took}{why}."
    said += f" Results: {results}." if results and one["results"] and one["results"]["files"] else " No results."
    kept = f" Its machine is kept until {when(one['kept_until'], now)}." if one["kept_until"] else ""
    return f"{said} It cost {_money(one)}.{kept}{_how_to_get(one)}"


def _how_to_get(one: JobDocument) -> str:
    """Return how to get results that are on no computer; empty for others."""
    found = one["results"]
    if found is None or found["host"] or not found["files"]:
        return ""
    if found["directory"].startswith("volume:"):
        volume, _, path = found["directory"].removeprefix("volume:").partition("/")
        return f" To get them: cloudgpu up --volume {volume}, then cloudgpu cp -r MACHINE:/data/{path} ."
    return f" To get them: aws s3 cp --recursive {found['directory']} results"


_ENDED = {
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
