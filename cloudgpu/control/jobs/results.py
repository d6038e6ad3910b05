"""Brings a job's results, checkpoints and output to this computer: at an interval, and whole at its end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from stat import S_ISLNK
from typing import TYPE_CHECKING

from cloudgpu.access.computer import hostname
from cloudgpu.access.files import explain_os_errors, write_atomically
from cloudgpu.access.jobs.copies import explain_disk_errors, measure_copies
from cloudgpu.control.jobs.store import directory_of, log_file, record_measured, record_sync
from cloudgpu.core.jobs.notice import MeasuredCopies
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cloudgpu.access.jobs.remote import FetchedResults, RemoteJob
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.jobs.job import Job

RETAINED_CHECKPOINTS = 2  # how many complete ones are kept on this computer
FULL_CHUNK = 512 * 1024  # bytes: an answer that is shorter is the last of an index


def sync(remote: RemoteJob, directory: Path, now: float) -> FetchedResults:
    """Copy what is new of results, complete checkpoints and output into the job's own directory.

    Results that an interrupted delivery has moved to their destination are not copied again. `now` is seconds since
    1970. Raises Unreachable, and InvalidRequest where this computer's disk is full.
    """
    fetch_output(remote, directory)
    with measure_copies() as meter:
        copies = remote.sync_checkpoints(directory / "checkpoints", retain=RETAINED_CHECKPOINTS)
        fetched = remote.fetch_results(directory / "results", _interrupted_target(directory))
    record_measured(directory, MeasuredCopies(meter.bytes_per_s, copies[-1].bytes if copies else None, fetched.bytes))
    record_sync(directory, now)
    return fetched


def fetch_output(remote: RemoteJob, directory: Path) -> None:
    """Append what is new of the output, and of the index of when it was written, to their copies. Raises as `sync`."""
    out, err = (log_file(directory, remote.attempt, stream) for stream in ("out", "err"))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with out.open("ab") as to_out, err.open("ab") as to_err:
            remote.tail(to_out, to_err, out_from=to_out.tell(), err_from=to_err.tell())
        with log_file(directory, remote.attempt, "times").open("ab") as to_times:
            while to_times.write(remote.output_times(to_times.tell())) >= FULL_CHUNK:
                pass
    except OSError as error:
        raise InvalidRequest(
            f"The output cannot be written to {directory}: {error.strerror}.",
            field="home",
            value=str(directory),
            next="Free some space, or correct its permissions. The output is still on the machine.",
        ) from error


def results_directory(session: Session, job: Job) -> Path:
    """Return where the job's results go on this computer: `RESULTS/NAME` in its workdir. The choice is remembered.

    It is in the file `place` of the job's own directory.

    On another computer than the one that requested the job, they stay in the job's own directory. Where `RESULTS/NAME`
    has files already, the job's id is added to NAME. Raises InvalidRequest where this computer refuses to look.
    """
    job_directory = directory_of(session, job)
    interrupted_target = _interrupted_target(job_directory)
    if interrupted_target is not None:  # a delivery that was interrupted goes on where it was
        return interrupted_target
    target = Path(job.spec["workdir"]) / job.spec["results"] / job.name
    with explain_disk_errors(target):  # such as a network drive that is gone
        if hostname() != job.host or not Path(job.spec["workdir"]).is_dir():
            target = job_directory / "delivered"
        elif target.exists() and not (target.is_dir() and not any(target.iterdir())):
            target = target.with_name(f"{job.name}-{job.id.removeprefix('job-')}")
    write_atomically(job_directory / "place", str(target).encode())
    return target


def _interrupted_target(directory: Path) -> Path | None:
    """Return the destination of a delivery that has begun from this directory of a job; None where none has."""
    destination_file = directory / "place"
    with explain_os_errors(destination_file):
        return Path(destination_file.read_text()) if destination_file.exists() else None


def deliver(session: Session, job: Job, relative_paths: Sequence[str]) -> tuple[Path, int, int]:
    """Move these copied results to where the user wants them; return that directory, and how many files and bytes.

    Links are moved as links, and not counted. May be interrupted and called again. Raises InvalidRequest where they
    cannot be written.
    """
    source, parent = directory_of(session, job) / "results", results_directory(session, job)
    try:
        for name in relative_paths:
            target = parent / name
            if (source / name).exists() or (source / name).is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                _move(source / name, target)
        return parent, *_count([parent / name for name in relative_paths])
    except OSError as error:
        raise InvalidRequest(
            f"The results of {job.name} cannot be written to {parent}: {error.strerror}.",
            field="--results",
            value=str(parent),
            next="Free some space, or correct its permissions. The results are still where they were.",
        ) from error


def deliver_copied(session: Session, job: Job) -> tuple[Path, int, int] | None:
    """Deliver what was copied of results that never came completely, as `deliver`; None where nothing was.

    What an interrupted delivery moved there before counts, too.
    """
    job_directory = directory_of(session, job)
    source = job_directory / "results"
    if not source.is_dir() and not (job_directory / "place").exists():
        return None
    target, *_ = deliver(session, job, [str(path.relative_to(source)) for path in _walk_files(source)])
    return target, *_count(_walk_files(target))


def _count(paths: Iterable[Path]) -> tuple[int, int]:
    """Return how many of these are files, and their bytes; links are none. Raises OSError for one that is missing."""
    sizes = [status.st_size for path in paths if not S_ISLNK((status := path.lstat()).st_mode)]
    return len(sizes), sum(sizes)


def _walk_files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, and the links, those to directories too."""
    for top, directories, names in os.walk(directory):
        links = (name for name in directories if (Path(top) / name).is_symlink())
        yield from (Path(top) / name for name in sorted([*names, *links]))


def _move(path: Path, target: Path) -> None:
    """Move a file; one that has to be copied to another file system gets its name only when it is complete."""
    try:
        path.replace(target)
    except OSError:
        partial = target.with_name(f".{target.name}.part")
        partial.unlink(missing_ok=True)  # of a copy that was cut off: a link would not be replaced
        shutil.copy2(path, partial, follow_symlinks=False)
        partial.replace(target)
        path.unlink()
