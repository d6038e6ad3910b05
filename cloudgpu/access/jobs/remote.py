"""A job's attempt on its machine, over a connection: upload, start, look, follow, cancel, fetch, clean."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from cloudgpu.access.jobs import checkpoints as copies_of_checkpoints
from cloudgpu.access.jobs.checkpoints import MAX_KEPT, StoredCheckpoint
from cloudgpu.access.jobs.copies import (
    Copied,
    CopiedFile,
    FileReceiver,
    Manifest,
    Progress,
    cut_short,
    is_same_file,
    local_files,
    make_links,
    read_files,
    read_manifest,
)
from cloudgpu.access.jobs.program import Refused, StreamFrames, run_request
from cloudgpu.core.jobs.remote_state import EngineState, EngineTask, Exit, Phase, RemoteState, Uploads
from cloudgpu.core.jobs.transfers import Transfers
from cloudgpu.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

GRACE_S = 10.0
TIMEOUT_S = 60.0  # how long a machine may take for what is no transfer
TRIES = 3  # rounds of a transfer whose files change, or are removed, meanwhile


class File(Protocol):
    """One file of a snapshot."""

    @property
    def path(self) -> str:
        """Its path below the working directory."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def mode(self) -> int:
        """Permission bits."""

    @property
    def sha256(self) -> str:
        """The name of its content in the store."""


class Link(Protocol):
    """One symbolic link of a snapshot."""

    @property
    def path(self) -> str:
        """Where it is, below the working directory."""

    @property
    def target(self) -> str:
        """Where it leads."""


class Files(Protocol):
    """A snapshot: what a job starts from, by content."""

    @property
    def files(self) -> Sequence[File]:
        """All files."""

    @property
    def links(self) -> Iterable[Link]:
        """Links, each with its target."""


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """What an attempt runs. `env` is stored on the machine: secrets go to `start`. Times are in seconds.

    `results` and `checkpoint` are below the working directory; without one, checkpoints lie beside it. `data` are
    links to what is on the machine already: (link, absolute or in the working directory; path there, or `volume:NAME`).
    `volume` names the directory of both on a volume; `mounts`: one has to be mounted before the command begins.
    `slurm` is what is asked of Slurm (`core/clusters/submission.py`), with the program that takes the command there.
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
        """Return what the machine stores."""
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
    """Files that an attempt begins with besides its snapshot; they are on the machine already."""

    results: tuple[CopiedFile, ...] = ()
    results_links: tuple[tuple[str, str], ...] = ()
    checkpoint: tuple[CopiedFile, ...] = ()
    checkpoint_links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Where the output was left off, for the next `tail`, and how far the attempt was then."""

    out: int
    err: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class FetchedResults:
    """What came back. `whole`: every size and sha256 agrees with the machine's, before and after; else `why` not.

    `files` is exactly what the machine has; other files that lie in the directory are of earlier fetches. `sent` is
    the bytes that travelled. `skipped` names what cannot be copied, such as links out of the directory, and why.
    """

    files: tuple[CopiedFile, ...]
    bytes: int
    sent: int
    whole: bool
    why: str = ""
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """One attempt of a job on the machine at the other end of a connection.

    Every method raises Unreachable (Frozen) when the connection is lost or the machine does not answer; all may be
    called again, and by two callers at once.
    """

    connection: Connection
    job: str
    attempt: int

    def upload(self, snapshot: Files, store: Path, *, progress: Progress | None = None) -> int:
        """Send the snapshot's files that the machine lacks, from `store`/SHA256; return the bytes sent.

        Raises InvalidRequest where the machine's disk is full or a file of the store is damaged.
        """
        return self._send({one.sha256: (one.size, store / one.sha256) for one in snapshot.files}, progress)

    def start(
        self,
        spec: RemoteSpec,
        snapshot: Files,
        store: Path,
        *,
        secrets: Mapping[str, str] | None = None,
        restored: Restored | None = None,
        transfers: Transfers | None = None,
        progress: Progress | None = None,
    ) -> RemoteState:
        """Send what is missing and begin the attempt, at most once; return what it looks like.

        An attempt that has begun, or ended, is only looked at. `secrets` and the addresses of `transfers` travel on
        standard input, stored nowhere; in Slurm, secrets lie in a private file at first. Raises InvalidRequest.
        """
        values = {
            "spec": spec.as_dict(),
            "files": [_item(one) for one in snapshot.files],
            "links": [[one.path, one.target] for one in snapshot.links],
            "secrets": dict(secrets or {}),
            "restore": _restore(restored or Restored()),
            **(transfers or Transfers()).as_dict(spec.data),
        }
        ours = {one.sha256: (one.size, store / one.sha256) for one in snapshot.files}
        for left in reversed(range(TRIES)):  # what another job's end removes between the two is sent again
            try:
                return _state(self._ask("start", timeout=TIMEOUT_S, **values))
            except Refused as error:
                if error.kind != "missing" or not left:
                    raise self._fault(error) from error
                self._send_missing(error.answer.get("hashes", ()), ours, progress)
        raise AssertionError

    def state(self, *, timeout_s: float = TIMEOUT_S) -> RemoteState:
        """Return how far the attempt is. A supervisor that was killed is replaced."""
        return _state(self._request("status", timeout=timeout_s))

    def cancel(self, reason: str, *, grace_s: float = GRACE_S) -> RemoteState:
        """Have the attempt ended: SIGTERM to its process group, SIGKILL after the grace; return what it looks like.

        It may still run then. Its exit has this `reason`, a word; the first one counts, and the shortest grace.
        """
        return _state(self._request("cancel", timeout=TIMEOUT_S, reason=reason, grace=grace_s))

    def tail(
        self,
        out: IO[bytes],
        err: IO[bytes],
        *,
        out_from: int = 0,
        err_from: int = 0,
        since: float | None = None,
        follow: bool = False,
    ) -> OutputPosition:
        """Write the command's output, each stream to its own file, from these offsets on; return where it ended.

        `since` leaves out what was written before (epoch seconds by the machine's clock). `follow`: until the attempt
        has ended. Memory is bounded: a slow file slows the machine's sending. Raises what writing raises.
        """
        frames = StreamFrames(out, err)
        self._request("tail", sink=frames.write, out=out_from, err=err_from, since=since, follow=follow)
        if frames.end is None:
            raise cut_short(self.connection.target.name)
        return OutputPosition(int(frames.end["out"]), int(frames.end["err"]), Phase(frames.end["phase"]))

    def offsets_at(self, since: float) -> tuple[int, int]:
        """Return how many bytes of stdout and stderr were written by then (epoch seconds by the machine's clock)."""
        positions = self._request("written", timeout=TIMEOUT_S, since=since)
        return int(positions["out"]), int(positions["err"])

    def output_times(self, place: int) -> bytes:
        """Return what is new of the index of when output was written, from this byte of it on; empty for nothing."""
        return str(self._request("times", timeout=TIMEOUT_S, offset=place)["times"]).encode()

    def manifest(self, which: str = "results", names: Sequence[str] | None = None) -> Manifest:
        """Return what the results, or these checkpoints (`which` is `checkpoint`), hold, with hashes."""
        data = self._request("manifest", which=which, names=None if names is None else list(names))
        try:
            return read_manifest(data)
        except ValueError as error:
            name = self.connection.target.name
            raise Unreachable(
                f"{name} says of its files what cannot be: {error}.", field="name", value=name, next="Look at it there."
            ) from error

    def fetch_results(self, into: Path, delivered: Path | None = None) -> FetchedResults:
        """Bring the results into a directory here; files that are there, or in `delivered`, do not travel.

        Raises InvalidRequest where this computer's disk is full; what came is kept, and the machine loses nothing.
        """
        before, sent = self.manifest(), 0
        for _ in range(TRIES):
            copied = self.copy("results", before.files, into, delivered)
            sent += copied.bytes
            make_links(into, before)
            after = self.manifest() if copied.bytes else before  # nothing was read there since
            whole = after == before and not after.changed and not copied.changed
            if whole:
                break
            before = after
        if sent:
            os.sync()  # the machine may be terminated for it
        why = "" if whole else f"{_changed_files(before)} changed while they were fetched"
        return FetchedResults(before.files, before.size, sent, whole, why, before.skipped)

    def copy(self, which: str, files: Sequence[CopiedFile], into: Path, delivered: Path | None = None) -> Copied:
        """Bring those files that are not here already, nor in `delivered`.

        What changed on the machine meanwhile is left out, and told. Raises InvalidRequest, as `fetch_results`.
        """
        here = {into, delivered or into}
        needed = [one for one in files if not any(is_same_file(place / one.path, one) for place in here)]
        if not needed:
            return Copied(0, ())
        copying = FileReceiver(into, needed)
        try:
            self._request("fetch", sink=copying.write, which=which, files=[[one.path, one.size] for one in needed])
        finally:
            whole = copying.close()
        if not whole:
            raise cut_short(self.connection.target.name)
        return Copied(copying.bytes, tuple(copying.torn))

    def sync_checkpoints(self, into: Path, *, keep: int = MAX_KEPT) -> tuple[StoredCheckpoint, ...]:
        """Copy the newest finished checkpoints into a directory here; return the whole copies, the newest last.

        Each entry of the checkpoint directory is one; it is finished when its name is no `.tmp`, `.part` or hidden one.
        One that changes while it is copied is left out, and the older copies stay. Raises InvalidRequest where this
        computer's disk is full.
        """
        for name in reversed(self.state().checkpoints[:keep]):
            copies_of_checkpoints.copy_checkpoint(self, name, into)
        copies_of_checkpoints.prune(into, keep)
        return copies_of_checkpoints.stored(into)

    def restore(self, results: Path | None, checkpoints: Path | None) -> Restored:
        """Send what earlier attempts left on this computer; give what it returns to `start`.

        `results` is the directory of `fetch_results`, `checkpoints` that of `sync_checkpoints`; a newer copy of a
        checkpoint wins over an older one of the same name. Raises InvalidRequest where the machine's disk is full.
        """
        own = local_files(results) if results is not None else ([], [])
        copies = [] if checkpoints is None else copies_of_checkpoints.stored(checkpoints)
        listed = {one.name: local_files(one.path) for one in copies}  # by name: the newest
        rest = [pair for files, _ in listed.values() for pair in files]
        self._send({one.sha256: (one.size, path) for one, path in (*own[0], *rest)}, None)
        return Restored(
            tuple(one for one, _ in own[0]),
            tuple(own[1]),
            tuple(one for one, _ in rest),
            tuple(link for _, links in listed.values() for link in links),
        )

    def call(self, verb: str, **values: Any) -> dict[str, Any]:
        """Have a verb of the program carried out that moves no files over this connection; return its answer."""
        return self._request(verb, timeout=TIMEOUT_S, **values)

    def clean(self) -> int:
        """Remove the job's attempts from the machine, and the files that no other job needs; return bytes freed.

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
        wanted = [(digest, *files[digest]) for digest in missing if digest in files]
        if not wanted:
            return 0
        rows = [[digest, size] for digest, size, _ in wanted]
        pieces = read_files([(size, path) for _, size, path in wanted], progress)
        return int(self._request("receive", pieces=pieces, files=rows)["bytes"])

    def _request(self, verb: str, **values: Any) -> dict[str, Any]:
        try:
            return self._ask(verb, **values)
        except Refused as error:
            raise self._fault(error) from error

    def _ask(self, verb: str, **values: Any) -> dict[str, Any]:
        return run_request(self.connection, verb, job=self.job, attempt=self.attempt, **values)

    def _fault(self, error: Refused) -> Exception:
        name = self.connection.target.name
        if error.kind == "busy":
            return InvalidRequest(
                f"{error} on {name}.", field="job", value=self.job, next=f"End it: cloudgpu cancel {self.job}"
            )
        return Unreachable(
            f"{name} did not do it for {self.job}: {str(error)[:300]}.",
            field="name",
            value=name,
            next=f"Look at ~/.cloudgpu/jobs/{self.job} there: cloudgpu ssh {name}",
        )


def busy(connection: Connection) -> tuple[tuple[str, int], ...]:
    """Return the jobs, with their attempts, that live on a machine. Raises Unreachable."""
    return tuple((str(job), int(number)) for job, number in run_request(connection, "busy", timeout=TIMEOUT_S)["busy"])


def _item(file: File) -> list[Any]:
    return [file.path, file.size, file.mode, file.sha256]


def _restore(restored: Restored) -> dict[str, Any]:
    return {
        "results": {"files": [_item(one) for one in restored.results], "links": list(restored.results_links)},
        "checkpoint": {"files": [_item(one) for one in restored.checkpoint], "links": list(restored.checkpoint_links)},
    }


def _changed_files(manifest: Manifest) -> str:
    return ", ".join(manifest.changed[:3]) or "some of the files"


def _state(data: Mapping[str, Any]) -> RemoteState:
    ended, progress = data.get("exit"), data.get("progress")
    return RemoteState(
        phase=Phase(data["phase"]),
        now=float(data["now"]),
        started=data["started"],
        setup_s=data["setup_s"],
        exit=None
        if not ended
        else Exit(**{name: ended[name] for name in ("status", "signal", "reason", "ended", "why")}),
        out=int(data["out"]),
        err=int(data["err"]),
        last_output=data["last_output"],
        progress=(float(progress[0]), progress[1]) if progress else None,
        disk_free=data["disk_free"],
        results_bytes=int(data["results_bytes"]),
        checkpoints=tuple(map(str, data["checkpoints"])),
        data=(int(data["data"][0]), int(data["data"][1])) if data.get("data") else None,
        storing=_storing(data.get("storing") or {}),
        checkpointed=data.get("checkpointed"),
        notice=bool(data.get("notice")),
        engine=_engine(data.get("engine")),
    )


def _engine(data: Any) -> EngineState | None:
    """Return what Slurm says of a job; None for one that it does not know."""
    try:
        tasks = tuple(
            EngineTask(
                id=str(one["id"]),
                task=str(one["task"]),
                state=str(one["state"]),
                reason=str(one["reason"])[:200],
                nodes=tuple(map(str, one["nodes"])),
                begin=None if one["begin"] is None else float(one["begin"]),
                end=None if one["end"] is None else float(one["end"]),
            )
            for one in data["tasks"]
        )
        return EngineState(str(data["id"]), str(data["name"]), tasks)
    except (KeyError, TypeError, ValueError):
        return None


def _storing(data: Mapping[str, Any]) -> Uploads | None:
    """Return how far the uploads are; None where nobody ever was to upload anything."""
    if data.get("until") is None:
        return None
    at = None if data.get("at") is None else float(data["at"])
    return Uploads(bool(data["alive"]), float(data["until"]), at, bool(data.get("final")), str(data.get("error") or ""))
