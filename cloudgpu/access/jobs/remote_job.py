"""Runs a job's command on the machine it runs on, independent of any connection, and records how it ends.

`access/jobs/program.py` sends this text over SSH, after the modules `remote_*` that it imports; the agent's interpreter
runs it. Standard library only, Python 3.8+.

Two processes watch a command. The keeper is its parent: it creates the working directory, runs the setup, starts the
command, waits for it and writes exit.json. The supervisor is the keeper's parent, and takes over when the keeper is
killed. It ends the command at its timeout or on request, and indexes the times of output. When the supervisor is
killed, the next request for the status starts another. The same attempt is never started twice.

A request is JSON on standard input, files may follow; an answer is a line of JSON on standard output, files may follow,
all in frames. Requests follow each other until standard input ends. Each runs in its own process, so its locks and open
files end with it. Secrets are only in the request and in the memory of processes; for Slurm also in a private file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import json
import os
import select
import shutil
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable

from cloudgpu.access.jobs.remote_attempt import (
    Attempt,
    output_sizes_at,
    root_dir,
    run_detached,
    write_lock_holder,
)
from cloudgpu.access.jobs.remote_download import remove_unused_data
from cloudgpu.access.jobs.remote_files import (
    ANSWER_PREFIX,
    CHUNK_BYTES,
    Blobs,
    Fault,
    fault_from,
    is_locked,
    load,
    locked,
    names_in,
    remove,
    safe_path,
    save,
    send_files,
    size_of,
    take_lock,
    write_answer,
)
from cloudgpu.access.jobs.remote_keeper import (
    environment_of,
    is_program_missing,
    record_missing_command,
    run_keeper,
    wait_for_possible_shutdown,
)
from cloudgpu.access.jobs.remote_upload import start_upload, state_with_uploads, stop_earlier_uploads, sync_results

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, of linux/prctl.h
POLL_S = 0.1
BEGIN_S = 2.0  # how long `start` waits for the command to begin
SWEEP_S = 2.0  # how long left-over processes may take to end
HEARTBEAT_S = 10.0  # between empty frames of `tail`, by which it notices a lost connection
MAX_CHUNKS = 16  # of one stream, before the other is read
FOLLOW_S, MORE_S = 0.05, 0.01  # pause for more output, and pause while output arrives
MAX_INDEX_BYTES = 1024 * 1024  # bytes of the index in one answer
PHASE_S = 0.2  # how often `tail` checks whether the attempt has ended
UNREAD_STATUS = 3  # exit status after an answer without reading all input


# -- start


def start(attempt: Attempt, request: dict[str, Any]) -> None:
    """Start an attempt, once; answer with its state. `claimed` tells whether this request started it."""
    attempt.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper_fd = take_lock(attempt.keeper_lock)
    if keeper_fd < 0 or attempt.process() or attempt.exit():
        ensure_supervisor(attempt)
        return write_answer({"claimed": False, **state_with_uploads(attempt)})
    stop_earlier_uploads(attempt)
    write_lock_holder(keeper_fd, "keeper")
    if is_program_missing(request):  # known before any file is sent
        attempt.reserve_disk()
        save(attempt.dir / "spec.json", request["spec"])
        record_missing_command(attempt, environment_of(request))
        os.close(keeper_fd)
        return write_answer({"claimed": True, **state_with_uploads(attempt)})
    blobs = Blobs(root_dir())
    with locked(
        blobs.directory / ".lock", fcntl.LOCK_SH
    ):  # no file is removed before files.json says that it is needed
        file_lists = [request["files"], *(files["files"] for files in request["restore"].values())]
        download_names = {file["name"] for file in (request.get("download") or {"files": ()})["files"]}
        needed_files = [(file[3], file[1]) for files in file_lists for file in files if file[3] not in download_names]
        missing_digests = blobs.missing(needed_files)
        if missing_digests:
            raise Fault(
                "missing", f"{len(missing_digests)} files of the job are not on the machine", hashes=missing_digests
            )
        attempt.reserve_disk()
        remove(attempt.dir / "setup.json")
        save(attempt.dir / "files.json", sorted({*dict(needed_files), *download_names}))
        save(attempt.dir / "spec.json", request["spec"])
    supervisor_fd = take_lock(attempt.supervisor_lock, wait=SWEEP_S)
    if supervisor_fd < 0:
        raise Fault("failed", "an earlier start of this attempt has not ended yet")
    run_detached(lambda: run_supervisor(attempt, request, keeper_fd, supervisor_fd))
    os.close(keeper_fd)
    os.close(supervisor_fd)
    deadline = time.monotonic() + BEGIN_S
    while (
        not attempt.process() and not attempt.exit() and is_locked(attempt.keeper_lock) and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    return write_answer({"claimed": True, **state_with_uploads(attempt)})


def run_supervisor(attempt: Attempt, request: dict[str, Any], keeper_fd: int, supervisor_fd: int) -> None:
    """Start the keeper, then supervise."""
    with contextlib.suppress(AttributeError, OSError):  # not on macOS: there a killed keeper's command is an orphan
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    if not os.fork():
        try:
            os.setsid()
            os.close(supervisor_fd)
            run_keeper(attempt, request)
        finally:
            os._exit(0)
    os.close(keeper_fd)
    request.clear()
    supervise(attempt, supervisor_fd, "parent")


# -- the supervisor


def ensure_supervisor(attempt: Attempt) -> None:
    """Start a supervisor for a running attempt that has none; record a lost one."""
    supervisor_fd = attempt.lock_as_supervisor()
    if supervisor_fd >= 0:
        run_detached(lambda: supervise(attempt, supervisor_fd, "other"))
        os.close(supervisor_fd)


def supervise(attempt: Attempt, supervisor_fd: int, holder: str) -> None:
    """Watch an attempt to its end, then end its left-over processes; `holder`: as `write_lock_holder` says."""
    write_lock_holder(supervisor_fd, holder)
    statuses: dict[int, int] = {}
    keeper_fd = -1
    while not attempt.exit():
        with contextlib.suppress(OSError):  # a full disk may have space again, and the command must be watched
            collect_statuses(statuses)
            if keeper_fd < 0 <= (keeper_fd := take_lock(attempt.keeper_lock, wait=0.0)):
                write_lock_holder(keeper_fd, holder)
            process = attempt.process()
            if keeper_fd >= 0 and not attempt.exit() and take_over(attempt, process, statuses):
                break
            if process:
                attempt.enforce(process)
                attempt.index_output()
        time.sleep(POLL_S)
    attempt.index_output(immediately=True)
    end_leftovers(attempt)


def take_over(attempt: Attempt, process: dict[str, Any], statuses: dict[int, int]) -> bool:
    """Act for a killed keeper: record the exit of the command; return whether it has ended."""
    if not process:
        attempt.kill_setup()
        return True
    if process["pid"] not in statuses and attempt.is_running(process):
        return False
    collect_statuses(statuses)
    status = statuses.get(process["pid"])
    wait_for_possible_shutdown(status)
    attempt.record_exit(status, "lost" if status is None else "exited")
    return True


def collect_statuses(statuses: dict[int, int]) -> None:
    """Collect the exit statuses of children: the keeper, and processes that it left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            statuses[pid] = status


def end_leftovers(attempt: Attempt) -> None:
    """End all processes that the command left: they would count as activity of the machine."""
    process, deadline = attempt.process(), time.monotonic() + SWEEP_S
    if process and (attempt.is_running(process) or attempt.processes_outside_group()):
        attempt.signal_all(process, signal.SIGTERM)
        attempt.signal_all(process, signal.SIGCONT)
        while (attempt.is_running(process) or attempt.processes_outside_group()) and time.monotonic() < deadline:
            collect_statuses({})
            time.sleep(0.05)
        attempt.kill(process)


# -- requests


def status(attempt: Attempt, _request: dict[str, Any]) -> None:
    """Answer with an attempt's state."""
    ensure_supervisor(attempt)
    write_answer(state_with_uploads(attempt))


def cancel(attempt: Attempt, request: dict[str, Any]) -> None:
    """Request the end of an attempt; answer with its state."""
    if attempt.dir.exists() and not attempt.exit():
        attempt.request_stop(str(request["reason"]), float(request["grace"]))
    ensure_supervisor(attempt)
    keeper_fd = take_lock(attempt.keeper_lock) if attempt.dir.exists() else -1
    if keeper_fd >= 0 and not attempt.process():
        attempt.record_exit(None, "cancelled")
    write_answer(state_with_uploads(attempt))


def tail(attempt: Attempt, request: dict[str, Any]) -> None:
    """Write output as frames: stream (1 stdout, 2 stderr, 0 keepalive, 3 end as JSON), length, bytes.

    Without `follow`, only what is there at the start: a command may write faster than its output is sent.
    """
    ensure_supervisor(attempt)
    offsets = [0, int(request["out"]), int(request["err"])]
    ends = [0, *(sys.maxsize if request["follow"] else size_of(log) for log in (attempt.out, attempt.err))]
    write_answer({"out": offsets[1], "err": offsets[2]})
    stream, sent_at, checked_at, has_ended = sys.stdout.buffer, time.monotonic(), 0.0, not request["follow"]
    while True:
        if not has_ended and (time.monotonic() - checked_at > PHASE_S or attempt.exit()):
            has_ended, checked_at = attempt.phase() in ("absent", "exited", "lost"), time.monotonic()
        logs = ((1, attempt.out), (2, attempt.err))
        sent_bytes = sum([send_output(log, offsets, number, stream, ends[number]) for number, log in logs])
        if sent_bytes:
            stream.flush()
            sent_at = time.monotonic()
            if has_ended or sent_bytes > CHUNK_BYTES:
                continue
        if has_ended or is_reader_gone(MORE_S if sent_bytes else FOLLOW_S):
            break
        if time.monotonic() - sent_at > HEARTBEAT_S:
            sent_at = time.monotonic()
            stream.write(struct.pack(">BI", 0, 0))
            stream.flush()
    end_json = json.dumps({"phase": attempt.phase(), "out": offsets[1], "err": offsets[2]}).encode()
    stream.write(struct.pack(">BI", 3, len(end_json)) + end_json)
    stream.flush()


def written(attempt: Attempt, request: dict[str, Any]) -> None:
    """Answer with the bytes of each stream that were written before `since`, an epoch."""
    out, err = output_sizes_at(attempt.times_file, float(request["since"]))
    write_answer({"out": out, "err": err})


def times(attempt: Attempt, request: dict[str, Any]) -> None:
    """Answer with the index of output times from byte `offset` on, in complete lines, up to now."""
    text = b""
    if attempt.dir.exists():
        attempt.index_last_output()
    with contextlib.suppress(FileNotFoundError), attempt.times_file.open("rb") as file:
        file.seek(int(request["offset"]))
        text = file.read(MAX_INDEX_BYTES)
    write_answer({"times": text[: text.rfind(b"\n") + 1].decode()})


def send_output(path: Path, offsets: list[int], stream_number: int, stream: Any, end: int = sys.maxsize) -> int:
    """Write a few chunks of new output of a stream, up to its byte `end`; return their bytes."""
    start = offsets[stream_number]
    if min(size_of(path), end) > start:
        with path.open("rb", 0) as file:
            file.seek(start)
            for _ in range(MAX_CHUNKS):
                data = file.read(min(CHUNK_BYTES, end - offsets[stream_number]))
                if not data:
                    break
                stream.write(struct.pack(">BI", stream_number, len(data)))
                stream.write(data)
                offsets[stream_number] += len(data)
    return offsets[stream_number] - start


def is_reader_gone(wait_s: float) -> bool:
    """Wait `wait_s` seconds; tell whether the reader of our output is gone."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(wait_s * 1000))


def manifest(attempt: Attempt, request: dict[str, Any]) -> None:
    """Answer with the manifest of the results, or of these checkpoints (None: all that are finished)."""
    kind, names = request["which"], request["names"]
    if names is None:
        is_checkpoint = kind == "checkpoint"
        names = [name for _, name in attempt.finished_checkpoints()] if is_checkpoint else names_in(attempt.results)
    write_answer(attempt.list_files(kind, names))


def fetch(attempt: Attempt, request: dict[str, Any]) -> None:
    """Send files of the results or of checkpoints."""
    for name, _ in request["files"]:
        safe_path(name)
    write_answer({})
    send_files(attempt.tree(request["which"]), request["files"], sys.stdout.buffer)


def missing(_attempt: Attempt, request: dict[str, Any]) -> None:
    """Answer with the hashes of files that are not here."""
    write_answer({"missing": Blobs(root_dir()).missing((file[0], file[1]) for file in request["files"])})


def receive(_attempt: Attempt, request: dict[str, Any]) -> None:
    """Receive files into the blobs."""
    write_answer(
        {"bytes": Blobs(root_dir()).receive(sys.stdin.buffer, [(file[0], file[1]) for file in request["files"]])}
    )


def clean(any_attempt: Attempt, _request: dict[str, Any]) -> None:
    """Remove a job's attempts, and the files that no other job needs."""
    blobs, job_dir = Blobs(root_dir()), any_attempt.dir.parent
    numbers = [int(path.name) for path in job_dir.glob("[0-9]*")]
    for number in numbers:
        attempt = Attempt(any_attempt.job, number)
        has_ended = attempt.phase() in ("absent", "exited", "lost")
        # An ended attempt's supervisor may still end processes that were left over.
        if not has_ended or take_lock(attempt.supervisor_lock, wait=2 * SWEEP_S) < 0:
            raise Fault("busy", f"attempt {number} of {attempt.job} still runs")
        attempt.kill(attempt.process())  # left by a killed supervisor
    with locked(blobs.directory / ".lock"):
        digests = [digest for number in numbers for digest in load(job_dir / str(number) / "files.json") or []]
        other_files = [path for path in job_dir.parent.glob("*/*/files.json") if path.parent.parent != job_dir]
        needed = [digest for path in other_files for digest in load(path) or []]
        freed = blobs.clean(digests, needed) + remove_unused_data({*digests, *needed})
        shutil.rmtree(str(job_dir), ignore_errors=True)
    write_answer({"freed": freed, "removed": not job_dir.exists()})


VERBS = {
    verb.__name__: verb
    for verb in (
        start,
        status,
        start_upload,
        sync_results,
        cancel,
        tail,
        written,
        times,
        manifest,
        fetch,
        missing,
        receive,
        clean,
    )
}


def main(read: Callable[[int], bytes]) -> int:
    """Handle requests until standard input ends; `read(size)` reads from it, and exits at its end."""
    os.write(1, ANSWER_PREFIX)
    while True:
        child = handle_in_child(read(int(read(8))))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, UNREAD_STATUS):
            os.write(1, struct.pack(">I", 0))
        if status:
            return 1


def handle_in_child(text: bytes) -> int:
    """Handle a request in a child process; return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        status = handle_request(text)
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the connection is closed
    except Exception:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def handle_request(text: bytes) -> int:
    """Handle a request; return 0, or UNREAD_STATUS if some of its input was not read."""
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(Frames(), CHUNK_BYTES))
    request = json.loads(text)
    try:
        VERBS[request["verb"]](Attempt(request["job"], request["attempt"]), request)
    except BrokenPipeError:
        raise
    except Fault as fault:
        write_answer(fault.answer)
    except OSError as error:
        write_answer(fault_from(error).answer)
    else:
        return 0
    return UNREAD_STATUS if request["verb"] == "receive" else 0


class Frames(io.RawIOBase):
    """Standard output in frames: length, bytes. `main` ends an answer with an empty frame."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write the data as one frame."""
        size = len(data)
        unwritten = memoryview(struct.pack(">I", size) + bytes(data) if size else b"")
        while unwritten:
            unwritten = unwritten[os.write(1, unwritten) :]
        return size
