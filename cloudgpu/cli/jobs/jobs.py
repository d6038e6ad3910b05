"""`cloudgpu jobs`: the living jobs, or all of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.jobs.text import on_text, spent_text, state_text, waits_text
from cloudgpu.cli.render import ago, clipped, short_duration, table, wrapped
from cloudgpu.cli.terminal import table_columns

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.views.documents.jobs.jobs import JobDocument, JobsDocument

HEADINGS = ("NAME", "STATE", "DONE", "ON", "SPENT", "END", "COMMAND")
MAX_COMMAND_WIDTH, MIN_COMMAND_WIDTH = 40, 12
LAST_SEEN_NOTE = "As run, watch or cron last saw it; cloudgpu reap looks now."


def command(
    *,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Show those that are over, too.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Show only your own jobs.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List jobs: state, progress, machine, cost so far and expected end.

    Answers from the ledger: a job is as whoever watches has last seen it. One lives until its results are back and its
    machine has ended.

    The expected end goes by the progress that the command writes to $CLOUDGPU_PROGRESS, else by its --timeout. For one
    job: cloudgpu show job:NAME.
    """
    from cloudgpu.control.jobs.listing import list_jobs

    session = open_session()
    document = list_jobs(session, ended=ended, mine=mine)
    emit(output, document, table_text(document, session.clock(), ended=ended))


def table_text(document: JobsDocument, now: datetime, *, ended: bool) -> str:
    """Return the table of `jobs`."""
    if not document["jobs"]:
        all_hint = "" if ended else " Those that are over: cloudgpu jobs --all"
        return f"No job {'is known' if ended else 'is running'}.{all_hint}"

    headings, rows = list(HEADINGS), [_job_row(job, now) for job in document["jobs"]]
    if all(job["progress"] is None for job in document["jobs"]):
        done_column = headings.index("DONE")
        headings, *rows = ([*cells[:done_column], *cells[done_column + 1 :]] for cells in (headings, *rows))
    width = _command_width(rows, headings)
    rows = [[*row[:-1], clipped(row[-1], width, "..")] for row in rows]
    waiting = [f"{job['name']} waits {waits_text(job, now)}" for job in document["jobs"] if job["waits"] is not None]
    waiting += [f"{job['name']} {job['why']}" for job in document["jobs"] if job["state"] == "queued"]
    waiting += [f"{job['name']} {why}" for job in document["jobs"] if (why := _missing_results_text(job))]
    table_text = table(rows, headings, [headings.index(name) for name in ("DONE", "SPENT") if name in headings])
    last_seen_notes = [LAST_SEEN_NOTE] if any(job["ended_at"] is None for job in document["jobs"]) else []
    return "\n".join([table_text, *map(wrapped, (*waiting, *last_seen_notes))])


def _missing_results_text(job: JobDocument) -> str:
    """Return why the results of a job that is over are not here yet; empty where nothing is left to do for it."""
    results = job["results"]
    is_waiting_for_results = job["living"] and results is not None and not results["whole"] and results["why"]
    return (
        f"is not closed, as its results are not all here: {results['why']}"
        if results and is_waiting_for_results
        else ""
    )


def _command_width(rows: list[list[str]], headings: list[str]) -> int:
    """Return how much of a command fits into its row, if that says enough of it; else all that is ever shown."""
    columns = table_columns()
    other_widths = [max(map(len, cells)) for cells in zip(headings[:-1], *(row[:-1] for row in rows), strict=True)]
    width = MAX_COMMAND_WIDTH if columns is None else columns - sum(other_widths) - 2 * len(other_widths)
    return min(width, MAX_COMMAND_WIDTH) if width >= MIN_COMMAND_WIDTH else MAX_COMMAND_WIDTH


def _job_row(job: JobDocument, now: datetime) -> list[str]:
    command = shlex.join(job["command"])
    return [
        job["name"],
        state_text(job),
        _progress_text(job),
        on_text(job),
        spent_text(job),
        _end_text(job, now),
        command,
    ]


def _progress_text(job: JobDocument) -> str:
    progress = job["progress"]
    if progress is None:
        return ""
    return f"{progress['done']:g}" if progress["percent"] is None else f"{progress['percent']:.0f} %"


def _end_text(job: JobDocument, now: datetime) -> str:
    from cloudgpu.core.values.times import from_iso

    if job["ended_at"] is not None:
        return ago(job["ended_at"], now)
    if job["expected_end"] is None:
        return "?"
    remaining_s = max(0.0, (from_iso(job["expected_end"]) - now).total_seconds())
    return (
        f"in {short_duration(remaining_s)}" if job["expected_by"] == "progress" else f"by {short_duration(remaining_s)}"
    )
