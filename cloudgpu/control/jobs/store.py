"""Where jobs are stored: their events in the ledger, and each one's own directory in the home."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from cloudgpu.access.files import explain_os_errors, write_atomically
from cloudgpu.access.jobs.journal import append_to_journal, read_journal, snapshot_in_use
from cloudgpu.control.session.session import Session, all_jobs
from cloudgpu.core.events.job_events import SUBJECT
from cloudgpu.core.events.log import Draft
from cloudgpu.core.jobs.job import Job
from cloudgpu.core.jobs.notice import MeasuredCopies
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import InstanceNotFound, InvalidRequest

JOB_ID_PREFIX = "job-"  # of the id of every job
PRINT_CHUNK = 256 * 1024  # bytes


def job_by_id(session: Session, job_id: str) -> Job:
    """Return the job with this id; raise InstanceNotFound where the ledger has none such."""
    job = all_jobs(session).get(job_id)
    if job is None:
        raise InstanceNotFound(
            f"No job has the id {job_id}.", field="NAME", value=job_id, next="See: cloudgpu jobs --all"
        )
    return job


def append(session: Session, job_id: str, drafts: Sequence[Draft]) -> None:
    """Write events of the job with this id: into the ledger, then into their copy (journal) in its own directory."""
    session.ledger.append(drafts)
    append_to_journal(_journal(session, job_id), session.ledger.id, drafts)


def restore_missing_events(session: Session, job_id: str) -> bool:
    """Write the events of a job that this computer has and the ledger lacks; say whether there were any.

    A ledger that was restored from a backup may lack the end of a job, and its command would be run once more.
    """
    drafts = read_journal(_journal(session, job_id), session.ledger.id)
    recorded = {line.dedupe for line in session.ledger.events(SUBJECT)} if drafts else set()
    missing = [draft for draft in drafts if draft.dedupe not in recorded]
    if missing:
        session.ledger.append(missing)
        session.report(f"{job_id}: the ledger lacked {len(missing)} of its lines; this computer had them")
    return bool(missing)


def snapshots_of_unknown_jobs(session: Session, known: Container[str]) -> set[str]:
    """Return the snapshots (of the files that were submitted) of open jobs in this home that are not among these ids.

    They are in another ledger, or this one was restored from a backup. Raises InvalidRequest for one that cannot be
    read: its snapshot is not known.
    """
    ids = {path.name for path in session.home.jobs.glob(f"{JOB_ID_PREFIX}*") if path.name not in known}
    snapshots: set[str | None] = set()
    for journal in (_journal(session, job_id) for job_id in ids):
        with explain_os_errors(journal):
            snapshots.add(snapshot_in_use(journal))
    return set(filter(None, snapshots))


def _journal(session: Session, job_id: str) -> Path:
    """Return the file with the copies of a job's events."""
    return session.home.jobs / job_id / "ledger.jsonl"


def check_not_busy(machine: Machine, jobs: Iterable[Job]) -> None:
    """Raise InvalidRequest where one of these jobs is not closed and runs on this machine."""
    running_job = next(
        (job for job in jobs if job.is_open and machine.id in (job.spec["machine"], *job.machines)), None
    )
    if running_job is not None:
        raise InvalidRequest(
            f"{machine.name} is busy: the job {running_job.name} runs on it.",
            field="--on",
            value=machine.name,
            next=f"Wait for it (cloudgpu logs -f {running_job.name}), cancel it (cloudgpu cancel {running_job.name}), "
            "or leave --on out.",
        )


def directory_of(session: Session, job: Job) -> Path:
    """Return the job's own directory in the home: copies of its output, results and checkpoints."""
    return session.home.jobs / job.id


def log_file(directory: Path, attempt: int, stream: str) -> Path:
    """Return where the output of an attempt is copied to (`out`, `err`; `times`: an index of when it was written).

    It stays when the job is over.
    """
    return directory / f"{stream}-{attempt}"


def print_output(
    directory: Path, attempt: int, files: tuple[IO[bytes], IO[bytes]], starts: tuple[int, int]
) -> tuple[int, int]:
    """Write the copied stdout and stderr of an attempt to these files, from byte offsets `starts`; return the ends."""
    ends = list(starts)
    for index, stream in enumerate(("out", "err")):
        with suppress(FileNotFoundError), log_file(directory, attempt, stream).open("rb") as source:
            source.seek(starts[index])
            shutil.copyfileobj(source, files[index], PRINT_CHUNK)
            files[index].flush()
            ends[index] = source.tell()
    return ends[0], ends[1]


def last_sync(directory: Path) -> float | None:
    """Return when results were last copied from the job's machine, as seconds since 1970; None for never."""
    with suppress(OSError, ValueError, TypeError):
        return float(json.loads((directory / "synced").read_text()))
    return None


def record_sync(directory: Path, now: float) -> None:
    """Write down that results were copied just now."""
    write_atomically(directory / "synced", json.dumps(now).encode())


def read_measured(directory: Path) -> MeasuredCopies:
    """Return the measured speed and sizes of a job's copies on this computer; kept when the job is over."""
    with suppress(OSError, ValueError, TypeError):
        return MeasuredCopies(**json.loads((directory / "measured.json").read_text()))
    return MeasuredCopies()


def record_measured(directory: Path, measured: MeasuredCopies) -> None:
    """Record new measurements of a job's copies; those that are None keep their earlier value."""
    earlier = read_measured(directory)
    merged = {name: value if value is not None else getattr(earlier, name) for name, value in asdict(measured).items()}
    with suppress(OSError):  # only plans show it
        write_atomically(directory / "measured.json", json.dumps(merged).encode())


def delete_copies(directory: Path) -> None:
    """Remove the copies of results and checkpoints of a job that is over; its output stays."""
    for name in ("results", "checkpoints"):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / "synced").unlink(missing_ok=True)
