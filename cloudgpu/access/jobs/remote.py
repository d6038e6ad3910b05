"""A job's attempt on its machine, over a connection: upload, start, status, output, cancel, results, checkpoints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cloudgpu.access.jobs import checkpoints as checkpoint_copies
from cloudgpu.access.jobs.checkpoints import MAX_RETAINED, StoredCheckpoint
from cloudgpu.access.jobs.copies import (
    Copied,
    CopiedFile,
    FileReceiver,
    Manifest,
    Progress,
    is_same_file,
    local_files,
    make_links,
    make_way_for_directories,
    read_files,
    read_manifest,
    transfer_ended_error,
)
from cloudgpu.access.jobs.program import RequestRefused, StreamFrames, run_request
from cloudgpu.core.jobs.remote_state import EngineTask, Exit, Phase, RemoteState, SlurmJobState, Uploads
from cloudgpu.core.jobs.transfers import Transfers
from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.core.jobs.snapshot import Snapshot, SnapshotFile

GRACE_S = 10.0  # between SIGTERM and SIGKILL
TIMEOUT_S = 60.0  # for requests that transfer no files
TRIES = 3  # rounds of a transfer whose files change, or are removed, meanwhile


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """What an attempt runs. `env` is stored on the machine: secrets go to `start`. Times are in seconds.

    `results` and `checkpoint` are directories below the working directory; without `checkpoint`, checkpoints are stored
    beside it. `data` are links to data on the machine: (link, absolute or in the working directory; path there, or
    `volume:NAME`). `volume` is the directory on a volume that holds results and checkpoints; `mounts`: a volume has to
    be mounted before the command begins. `slurm` has the options of the submission, and the program that runs the
    command in Slurm (`control/jobs/slurm/submission.py`).
    """

    argv: tuple[str, ...]
    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    timeout_s: float | None = None
    grace_s: float = GRACE_S
    results: str = "results"
    checkpoint: str | None = None
    data: tuple[tuple[str, str], ...] = ()
    volume: str | None = None
    mounts: bool = False
    slurm: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON that the machine stores."""
        return {
            "argv": list(self.argv),
            "name": self.name,
            "env": dict(self.env),
            "setup": self.setup,
            "timeout": self.timeout_s,
            "grace": self.grace_s,
            "results": self.results,
            "checkpoint": self.checkpoint,
            "volume": self.volume,
            "mounts": self.mounts,
            "slurm": None if self.slurm is None else dict(self.slurm),
        }


@dataclass(frozen=True, slots=True)
class Restored:
    """Files on the machine that an attempt begins with, in addition to its snapshot. Links are (path, target)."""

    results: tuple[CopiedFile, ...] = ()
    results_links: tuple[tuple[str, str], ...] = ()
    checkpoint: tuple[CopiedFile, ...] = ()
    checkpoint_links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Where the output ended, in bytes of stdout and stderr, for the next `tail`; and the attempt's phase then."""

    out: int
    err: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class FetchedResults:
    """The results after a fetch. `is_complete`: all sizes and hashes match those on the machine, else `why` not.

    `files` is what the machine has; other files in the local directory are of earlier fetches. `bytes` is their size,
    `sent` the bytes transferred. `skipped` is (path, reason) of what cannot be copied, as links out of the directory.
    `links` are the paths of the links.
    """

    files: tuple[CopiedFile, ...]
    bytes: int
    sent: int
    is_complete: bool
    why: str = ""
    skipped: tuple[tuple[str, str], ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """One attempt of a job on the machine at the other end of `connection`: the job's id, and the attempt's number.

    Every method raises Unreachable when the connection is lost, Frozen when it is open but the machine does not answer.
    All are idempotent, and two callers may use them at once.
    """

    connection: Connection
    job: str
    attempt: int

    def upload(self, snapshot: Snapshot, store: Path, *, progress: Progress | None = None) -> int:
        """Send the snapshot's files that the machine lacks, from `store`/SHA256; return the bytes sent.

        Raises InvalidRequest where the machine's disk is full or a file of the store is damaged.
        """
        return self._send({file.sha256: (file.size, store / file.sha256) for file in snapshot.files}, progress)

    def start(
        self,
        spec: RemoteSpec,
        snapshot: Snapshot,
        store: Path,
        *,
        secrets: Mapping[str, str] | None = None,
        restored: Restored | None = None,
        transfers: Transfers | None = None,
        progress: Progress | None = None,
    ) -> RemoteState:
        """Send missing files and start the attempt, unless it was started before; return its state.

        `secrets` and the URLs of `transfers` are sent on standard input and not stored; in Slurm, secrets are in a
        private file until the command starts. Raises InvalidRequest.
        """
        values = {
            "spec": spec.as_dict(),
            "files": [_file_row(one) for one in snapshot.files],
            "links": [[one.path, one.target] for one in snapshot.links],
            "secrets": dict(secrets or {}),
            "restore": _restored_as_dict(restored or Restored()),
            **(transfers or Transfers()).as_dict(spec.data),
        }
        files_by_hash = {one.sha256: (one.size, store / one.sha256) for one in snapshot.files}
        for tries_left in reversed(range(TRIES)):  # files that another job's cleanup removed meanwhile are sent again
            try:
                return _parse_state(self._send_request("start", timeout=TIMEOUT_S, **values))
            except RequestRefused as error:
                if error.kind != "missing" or not tries_left:
                    raise self._error_of(error) from error
                self._send_missing(error.answer.get("hashes", ()), files_by_hash, progress)
        raise AssertionError

    def state(self, *, timeout_s: float = TIMEOUT_S) -> RemoteState:
        """Return the attempt's state. The machine restarts a supervisor that was killed."""
        return _parse_state(self._request("status", timeout=timeout_s))

    def cancel(self, reason: str, *, grace_s: float = GRACE_S) -> RemoteState:
        """End the attempt.

        SIGTERM to its process group, SIGKILL after the grace; return its state, which may be running. Its exit has this
        `reason`, a word. When called twice, the first reason and the shorter grace count.
        """
        return _parse_state(self._request("cancel", timeout=TIMEOUT_S, reason=reason, grace=grace_s))

    def tail(
        self,
        out: IO[bytes],
        err: IO[bytes],
        *,
        out_from: int = 0,
        err_from: int = 0,
        follow: bool = False,
    ) -> OutputPosition:
        """Write the command's output from these byte offsets on, each stream to its own file; return where it ended.

        `follow`: until the attempt has ended. Memory is bounded: slow writing slows the machine's sending. Raises what
        writing raises.
        """
        frames = StreamFrames(out, err)
        self._request("tail", sink=frames.write, out=out_from, err=err_from, follow=follow)
        if frames.end is None:
            raise transfer_ended_error(self.connection.target.name)
        return OutputPosition(int(frames.end["out"]), int(frames.end["err"]), Phase(frames.end["phase"]))

    def offsets_at(self, since: float) -> tuple[int, int]:
        """Return the bytes of stdout and stderr written before `since` (epoch seconds, the machine's clock)."""
        positions = self._request("written", timeout=TIMEOUT_S, since=since)
        return int(positions["out"]), int(positions["err"])

    def output_times(self, offset: int) -> bytes:
        """Return the index of output times (when each byte was written) from byte `offset` on; empty if none is new."""
        return str(self._request("times", timeout=TIMEOUT_S, offset=offset)["times"]).encode()

    def manifest(self, kind: str = "results", names: Sequence[str] | None = None) -> Manifest:
        """Return the manifest of the results, or of these checkpoints if `kind` is `checkpoint`."""
        data = self._request("manifest", which=kind, names=None if names is None else list(names))
        try:
            return read_manifest(data)
        except ValueError as error:
            name = self.connection.target.name
            raise Unreachable(
                f"{name} sent an invalid list of files: {error}.", field="name", value=name, next="Look at it there."
            ) from error

    def fetch_results(self, local_dir: Path, delivered: Path | None = None) -> FetchedResults:
        """Copy the results to `local_dir`. Files there, or of an earlier fetch in `delivered`, are not transferred.

        Raises InvalidRequest where this computer's disk is full; complete files are retained, here and on the machine.
        """
        manifest, sent = self.manifest(), 0
        for _ in range(TRIES):
            make_way_for_directories(local_dir, manifest)
            copied = self.copy("results", manifest.files, local_dir, delivered)
            sent += copied.bytes
            make_links(local_dir, manifest)
            manifest_after = (
                self.manifest() if copied.bytes else manifest
            )  # nothing was transferred: nothing has to be verified
            is_complete = manifest_after == manifest and manifest_after.is_readable and not copied.changed
            if is_complete:
                break
            manifest = manifest_after
        if sent:
            os.sync()  # the machine may be terminated for it
        reason = "" if is_complete else manifest.incomplete_reason
        links = tuple(path for path, _ in manifest.links)
        return FetchedResults(manifest.files, manifest.size, sent, is_complete, reason, manifest.skipped, links)

    def copy(self, kind: str, files: Sequence[CopiedFile], local_dir: Path, delivered: Path | None = None) -> Copied:
        """Copy the files that are neither in `local_dir` nor, by an earlier fetch, in `delivered`.

        `kind` is `results` or `checkpoint`. Files that changed on the machine meanwhile are not replaced, but named.
        Raises as `fetch_results`.
        """
        local_dirs = {local_dir, delivered or local_dir}
        needed = [
            file for file in files if not any(is_same_file(directory / file.path, file) for directory in local_dirs)
        ]
        if not needed:
            return Copied(0, ())
        receiver = FileReceiver(local_dir, needed)
        try:
            self._request("fetch", sink=receiver.write, which=kind, files=[[file.path, file.size] for file in needed])
        finally:
            is_complete = receiver.close()
        if not is_complete:
            raise transfer_ended_error(self.connection.target.name)
        return Copied(receiver.bytes, tuple(receiver.changed))

    def sync_checkpoints(self, local_dir: Path, *, retain: int = MAX_RETAINED) -> tuple[StoredCheckpoint, ...]:
        """Copy the newest finished checkpoints to `local_dir`; return the complete copies, the newest last.

        Each entry of the checkpoint directory is one, unless it is hidden or its name ends with `.tmp` or `.part`. One
        that changes while it is copied is left out, and older copies stay. Raises InvalidRequest where this computer's
        disk is full.
        """
        for name in reversed(self.state().checkpoints[:retain]):
            checkpoint_copies.copy_checkpoint(self, name, local_dir)
        checkpoint_copies.prune(local_dir, retain)
        return checkpoint_copies.stored_checkpoints(local_dir)

    def restore(self, results: Path | None, checkpoints: Path | None) -> Restored:
        """Send the results and checkpoints of earlier attempts to the machine; pass the return value to `start`.

        `results` is the directory of `fetch_results`, `checkpoints` that of `sync_checkpoints`; of two copies of one
        checkpoint the newer is sent. Raises InvalidRequest where the machine's disk is full.
        """
        result_files = local_files(results) if results is not None else ([], [])
        copies = [] if checkpoints is None else checkpoint_copies.stored_checkpoints(checkpoints)
        trees_by_name = {one.name: local_files(one.path) for one in copies}  # by name: the newest
        checkpoint_files = [file_and_path for files, _ in trees_by_name.values() for file_and_path in files]
        self._send({one.sha256: (one.size, path) for one, path in (*result_files[0], *checkpoint_files)}, None)
        return Restored(
            tuple(one for one, _ in result_files[0]),
            tuple(result_files[1]),
            tuple(one for one, _ in checkpoint_files),
            tuple(link for _, links in trees_by_name.values() for link in links),
        )

    def call(self, verb: str, **values: Any) -> dict[str, Any]:
        """Send a request of this verb that transfers no files, and return its answer."""
        return self._request(verb, timeout=TIMEOUT_S, **values)

    def clean(self) -> int:
        """Remove the job's attempts from the machine, and files that no other job needs; return the bytes freed.

        Raises InvalidRequest while one of them runs.
        """
        return int(self._request("clean", timeout=TIMEOUT_S)["freed"])

    def _send(self, files: Mapping[str, tuple[int, Path]], progress: Progress | None) -> int:
        rows = [[digest, size] for digest, (size, _) in files.items()]
        missing = self._request("missing", timeout=TIMEOUT_S, files=rows)["missing"] if rows else []
        return self._send_missing(missing, files, progress)

    def _send_missing(
        self, missing: Sequence[str], files: Mapping[str, tuple[int, Path]], progress: Progress | None
    ) -> int:
        missing_files = [(digest, *files[digest]) for digest in missing if digest in files]
        if not missing_files:
            return 0
        rows = [[digest, size] for digest, size, _ in missing_files]
        chunks = read_files([(size, path) for _, size, path in missing_files], progress)
        try:
            return int(self._send_request("receive", chunks=chunks, files=rows)["bytes"])
        except RequestRefused as error:
            damaged = _delete_damaged(missing_files) if error.kind == "damaged" else 0
            if not damaged:
                raise self._error_of(error) from error
        raise InvalidRequest(
            f"{damaged} file{'s' * (damaged > 1)} of the job's snapshot had another content on this computer than its "
            "hash says, perhaps after a power cut.",
            field="snapshot",
            value=self.job,
            next="Run the job again from its directory: cloudgpu run takes a new snapshot.",
        )

    def _request(self, verb: str, **values: Any) -> dict[str, Any]:
        try:
            return self._send_request(verb, **values)
        except RequestRefused as error:
            raise self._error_of(error) from error

    def _send_request(self, verb: str, **values: Any) -> dict[str, Any]:
        return run_request(self.connection, verb, job=self.job, attempt=self.attempt, **values)

    def _error_of(self, error: RequestRefused) -> Exception:
        name = self.connection.target.name
        if error.kind == "busy":
            return InvalidRequest(
                f"{error} on {name}.", field="job", value=self.job, next=f"End it: cloudgpu cancel {self.job}"
            )
        return Unreachable(
            f"{name} refused a request for {self.job}: {str(error)[:300]}.",
            field="name",
            value=name,
            next=f"Look at ~/.cloudgpu/jobs/{self.job} there: cloudgpu ssh {name}",
        )


def _delete_damaged(files: Sequence[tuple[str, int, Path]]) -> int:
    """Delete those of these files of a store that have not the content of their hash; return how many.

    The next snapshot stores them again. Files elsewhere, such as copies of results, are left.
    """
    count = 0
    for digest, _, path in files:
        if path.name == digest and path.is_file():
            with path.open("rb") as stream:
                is_damaged = hashlib.file_digest(stream, "sha256").hexdigest() != digest
            if is_damaged:
                path.unlink(missing_ok=True)
                count += 1
    return count


def _file_row(file: SnapshotFile | CopiedFile) -> list[Any]:
    return [file.path, file.size, file.mode, file.sha256]


def _restored_as_dict(restored: Restored) -> dict[str, Any]:
    return {
        "results": {"files": [_file_row(file) for file in restored.results], "links": list(restored.results_links)},
        "checkpoint": {
            "files": [_file_row(file) for file in restored.checkpoint],
            "links": list(restored.checkpoint_links),
        },
    }


def _parse_state(data: Mapping[str, Any]) -> RemoteState:
    ended, progress = data.get("exit"), data.get("progress")
    return RemoteState(
        phase=Phase(data["phase"]),
        now=float(data["now"]),
        started_at=data["started"],
        setup_s=data["setup_s"],
        exit=None
        if not ended
        else Exit(ended["status"], ended["signal"], ended["reason"], ended["ended"], ended["why"]),
        out=int(data["out"]),
        err=int(data["err"]),
        last_output_at=data["last_output"],
        progress=(float(progress[0]), progress[1]) if progress else None,
        free_disk_bytes=data["disk_free"],
        results_bytes=int(data["results_bytes"]),
        checkpoints=tuple(map(str, data["checkpoints"])),
        data=(int(data["data"][0]), int(data["data"][1])) if data.get("data") else None,
        uploads=_parse_uploads(data.get("storing") or {}),
        checkpointed_at=data.get("checkpointed"),
        notice=bool(data.get("notice")),
        engine=_parse_engine(data.get("engine")),
    )


def _parse_engine(data: Any) -> SlurmJobState | None:
    """Return the state of a job in Slurm; None if Slurm does not know it."""
    try:
        tasks = tuple(
            EngineTask(
                id=str(task["id"]),
                task=str(task["task"]),
                state=str(task["state"]),
                reason=str(task["reason"])[:200],
                nodes=tuple(map(str, task["nodes"])),
                begin=None if task["begin"] is None else float(task["begin"]),
                end=None if task["end"] is None else float(task["end"]),
            )
            for task in data["tasks"]
        )
        return SlurmJobState(str(data["id"]), str(data["name"]), tasks)
    except (KeyError, TypeError, ValueError):
        return None


def _parse_uploads(data: Mapping[str, Any]) -> Uploads | None:
    """Return the state of the uploads to a bucket; None if the job has none."""
    if data.get("until") is None:
        return None
    last_upload_at = None if data.get("at") is None else float(data["at"])
    return Uploads(
        bool(data["alive"]), float(data["until"]), last_upload_at, bool(data.get("final")), str(data.get("error") or "")
    )
