"""Runs a job's command on the machine it runs on, so that it outlives every connection and its end is known.

This file's text is sent over SSH behind those of the other modules `remote_*` that it imports, and run there by the
agent's interpreter (`access/jobs/program.py` does it). Standard library only, Python 3.8+.

Two processes watch a command. The keeper is its parent: it builds the tree, runs the setup, starts the command, waits
and writes exit.json. The supervisor is the keeper's parent and adopts what that leaves behind when it is killed. It
ends the command by its timeout or when asked, and notes the times of output. When the supervisor is killed, the next
look makes another; nothing ever starts the same attempt twice.

A request is JSON on standard input, with files behind it; an answer a line of JSON on standard output, with files
behind it, in frames. One follows the other until standard input ends. Each is carried out by a process of its own, so
what it locks, opens or remembers ends with it. Secrets come in the request alone and stay in the memory of the keeper.
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

from cloudgpu.access.jobs.remote_attempt import Attempt, detached, root_dir, size_of, write_role, written_until
from cloudgpu.access.jobs.remote_download import forget_data
from cloudgpu.access.jobs.remote_files import (
    ANSWER_PREFIX,
    CHUNK,
    Blobs,
    Fault,
    Tree,
    answer,
    fault_of,
    is_locked,
    load,
    locked,
    remove,
    safe_path,
    save,
    send,
    take_lock,
)
from cloudgpu.access.jobs.remote_keeper import environment_of, keep, lacks_command, no_command, pause_at_shutdown
from cloudgpu.access.jobs.remote_upload import state_with_uploads, stop_earlier_uploads, store, sync_results

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, of linux/prctl.h
POLL_S = 0.1
BEGIN_S = 2.0  # how long a start waits to say that the command has begun
SWEEP_S = 2.0  # what a command left has so long to end
HEARTBEAT_S = 10.0
MAX_CHUNKS = 16  # chunks of one stream before the other has its turn
FOLLOW_S, PIECE_S = 0.05, 0.01  # how long it waits for more output, and for more of what comes piece by piece
INDEX = 1024 * 1024  # bytes of the index of times in one answer
PHASE_S = 0.2  # how often it looks whether there will be more
UNREAD_STATUS = 3  # the status of a process that has answered, but not read all that came with its request


# -- start


def start(request: dict[str, Any]) -> None:
    """Begin an attempt, once; answer with what it looks like. `claimed` tells whether this call began it."""
    attempt = Attempt(request["job"], request["attempt"])
    attempt.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = take_lock(attempt.keeper)
    if keeper < 0 or attempt.process() or attempt.exit():
        watch(attempt)
        return answer({"claimed": False, **state_with_uploads(attempt)})
    stop_earlier_uploads(attempt)
    write_role(keeper, "keeper")
    if lacks_command(request):  # known before anything travels
        attempt.reserve()
        save(attempt.dir / "spec.json", request["spec"])
        no_command(attempt, environment_of(request))
        os.close(keeper)
        return answer({"claimed": True, **state_with_uploads(attempt)})
    blobs = Blobs(root_dir())
    with locked(blobs.base / ".lock", fcntl.LOCK_SH):  # nobody removes them before it is written that they are needed
        parts = [request["files"], *(part["files"] for part in request["restore"].values())]
        fetched = {one["name"] for one in (request.get("download") or {"files": ()})["files"]}
        wanted = [(one[3], one[1]) for part in parts for one in part if one[3] not in fetched]
        gone = blobs.missing(wanted)
        if gone:
            raise Fault("missing", f"{len(gone)} files of the job are not on the machine", hashes=gone)
        attempt.reserve()
        remove(attempt.dir / "setup.json")
        save(attempt.dir / "files.json", sorted({*dict(wanted), *fetched}))
        save(attempt.dir / "spec.json", request["spec"])
    supervisor = take_lock(attempt.supervisor, wait=SWEEP_S)
    if supervisor < 0:
        raise Fault("failed", "an earlier start of this attempt has not ended yet")
    detached(lambda: first_supervisor(attempt, request, keeper, supervisor))
    os.close(keeper)
    os.close(supervisor)
    end = time.monotonic() + BEGIN_S
    while not attempt.process() and not attempt.exit() and is_locked(attempt.keeper) and time.monotonic() < end:
        time.sleep(0.005)
    return answer({"claimed": True, **state_with_uploads(attempt)})


def first_supervisor(attempt: Attempt, request: dict[str, Any], keeper: int, lock: int) -> None:
    """Start the keeper and watch."""
    with contextlib.suppress(AttributeError, OSError):  # macOS has none: a killed keeper's command is an orphan there
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    if not os.fork():
        try:
            os.setsid()
            os.close(lock)
            keep(attempt, request)
        finally:
            os._exit(0)
    os.close(keeper)
    request.clear()
    supervise(attempt, lock, "parent")


# -- the supervisor


def watch(attempt: Attempt) -> None:
    """Have a living attempt supervised, where nobody does; what is lost is written down."""
    lock = attempt.adopt()
    if lock >= 0:
        detached(lambda: supervise(attempt, lock, "other"))
        os.close(lock)


def supervise(attempt: Attempt, lock: int, role: str) -> None:
    """Watch an attempt to its end, and end what it left behind in its process group."""
    write_role(lock, role)
    statuses: dict[int, int] = {}
    keeper = -1
    while not attempt.exit():
        with contextlib.suppress(OSError):  # a full disk, say: it may pass, and the command must be watched
            reap(statuses)
            if keeper < 0 <= (keeper := take_lock(attempt.keeper, wait=0.0)):
                write_role(keeper, role)
            process = attempt.process()
            if keeper >= 0 and not attempt.exit() and take_over(attempt, process, statuses):
                break
            if process:
                attempt.enforce(process)
                attempt.index()
        time.sleep(POLL_S)
    attempt.index(now=True)
    sweep(attempt)


def take_over(attempt: Attempt, process: dict[str, Any], statuses: dict[int, int]) -> bool:
    """Do what a killed keeper cannot do any more; return whether that was the end."""
    if not process:
        attempt.kill_setup()
        return True
    if process["pid"] not in statuses and attempt.lives(process):
        return False
    reap(statuses)
    status = statuses.get(process["pid"])
    pause_at_shutdown(status)
    attempt.record(status, "lost" if status is None else "exited")
    return True


def reap(statuses: dict[int, int]) -> None:
    """Note how children ended: the keeper, and what it left to us."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            statuses[pid] = status


def sweep(attempt: Attempt) -> None:
    """End what the command left, in its group and outside: it would keep a machine busy."""
    process, end = attempt.process(), time.monotonic() + SWEEP_S
    if process and (attempt.lives(process) or attempt.outside_group()):
        attempt.signal_all(process, signal.SIGTERM)
        attempt.signal_all(process, signal.SIGCONT)
        while (attempt.lives(process) or attempt.outside_group()) and time.monotonic() < end:
            reap({})
            time.sleep(0.05)
        attempt.kill(process)


# -- what is asked of an attempt


def status(request: dict[str, Any]) -> None:
    """Answer with what an attempt looks like."""
    attempt = Attempt(request["job"], request["attempt"])
    watch(attempt)
    answer(state_with_uploads(attempt))


def cancel(request: dict[str, Any]) -> None:
    """Have an attempt ended; answer with what it looks like now."""
    attempt = Attempt(request["job"], request["attempt"])
    if attempt.dir.exists() and not attempt.exit():
        attempt.ask_to_stop(str(request["reason"]), float(request["grace"]))
    watch(attempt)
    keeper = take_lock(attempt.keeper) if attempt.dir.exists() else -1
    if keeper >= 0 and not attempt.process():
        attempt.record(None, "cancelled")
    answer(state_with_uploads(attempt))


def tail(request: dict[str, Any]) -> None:
    """Write frames: number of the stream (1 out, 2 err, 0 nothing, 3 the end as JSON), length, bytes."""
    attempt = Attempt(request["job"], request["attempt"])
    watch(attempt)
    at = [0, int(request["out"]), int(request["err"])]
    if request.get("since") is not None:
        at[1:] = map(max, at[1:], written_until(attempt.times, float(request["since"])))
    answer({"out": at[1], "err": at[2]})
    stream, last_sent, checked, over = sys.stdout.buffer, time.monotonic(), 0.0, not request["follow"]
    while True:
        if not over and (time.monotonic() - checked > PHASE_S or attempt.exit()):
            over, checked = attempt.phase() in ("absent", "exited", "lost"), time.monotonic()
        sent = sum([pump(attempt.out, at, 1, stream), pump(attempt.err, at, 2, stream)])
        if sent:
            stream.flush()
            last_sent = time.monotonic()
            if over or sent > CHUNK:
                continue
        if over or hung_up(PIECE_S if sent else FOLLOW_S):
            break
        if time.monotonic() - last_sent > HEARTBEAT_S:
            last_sent = time.monotonic()
            stream.write(struct.pack(">BI", 0, 0))
            stream.flush()
    end = json.dumps({"phase": attempt.phase(), "out": at[1], "err": at[2]}).encode()
    stream.write(struct.pack(">BI", 3, len(end)) + end)
    stream.flush()


def written(request: dict[str, Any]) -> None:
    """Answer with how much of each stream had been written by then."""
    out, err = written_until(Attempt(request["job"], request["attempt"]).times, float(request["since"]))
    answer({"out": out, "err": err})


def times(request: dict[str, Any]) -> None:
    """Answer with what the index of times has from this byte on: whole lines, and one of now if there was output."""
    attempt, text = Attempt(request["job"], request["attempt"]), b""
    if attempt.dir.exists():
        attempt.index_rest()
    with contextlib.suppress(FileNotFoundError), attempt.times.open("rb") as file:
        file.seek(int(request["offset"]))
        text = file.read(INDEX)
    answer({"times": text[: text.rfind(b"\n") + 1].decode()})


def pump(path: Path, at: list[int], number: int, stream: Any) -> int:
    """Write what is new of a stream, a few chunks of it; return how much."""
    before = at[number]
    if size_of(path) > before:
        with path.open("rb", 0) as file:
            file.seek(before)
            for _ in range(MAX_CHUNKS):
                data = file.read(CHUNK)
                if not data:
                    break
                stream.write(struct.pack(">BI", number, len(data)))
                stream.write(data)
                at[number] += len(data)
    return at[number] - before


def hung_up(wait: float) -> bool:
    """Wait a moment; tell whether nobody reads what we write any more."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(wait * 1000))


def attempt_and_root(request: dict[str, Any]) -> tuple[Attempt, Path]:
    """Return the attempt and the directory that is asked for."""
    attempt = Attempt(request["job"], request["attempt"])
    return attempt, attempt.checkpoint if request["which"] == "checkpoint" else attempt.results


def manifest(request: dict[str, Any]) -> None:
    """Answer with the files below the results or of some checkpoints."""
    attempt, root = attempt_and_root(request)
    names = request.get("names")
    if names is None:
        try:
            names = attempt.checkpoints() if request["which"] == "checkpoint" else os.listdir(str(root))  # noqa: PTH208
        except FileNotFoundError:
            names = []
    if request["which"] == "checkpoint":
        names = attempt.with_links(names)
    answer(Tree(root, attempt.dir / f"hashes-{request['which']}.json").read(names))


def fetch(request: dict[str, Any]) -> None:
    """Write files of the results or of checkpoints."""
    _, root = attempt_and_root(request)
    for name, _ in request["files"]:
        safe_path(name)
    answer({})
    send(root, request["files"], sys.stdout.buffer)


def missing(request: dict[str, Any]) -> None:
    """Answer with the files that are not here."""
    answer({"missing": Blobs(root_dir()).missing((one[0], one[1]) for one in request["files"])})


def receive(request: dict[str, Any]) -> None:
    """Take files."""
    answer({"bytes": Blobs(root_dir()).receive(sys.stdin.buffer, [(one[0], one[1]) for one in request["files"]])})


def busy(_request: dict[str, Any]) -> None:
    """Answer with the attempts that live here."""
    found = []
    for lock in (root_dir() / "jobs").glob("*/*/keeper.lock"):
        with contextlib.suppress(Fault, ValueError):
            attempt = Attempt(lock.parent.parent.name, int(lock.parent.name))
            if attempt.phase() in ("claimed", "setup", "running", "orphaned"):
                found.append([attempt.job, attempt.number])
    answer({"busy": sorted(found)})


def clean(request: dict[str, Any]) -> None:
    """Remove a job's attempts, and the files that no other job needs."""
    blobs, here = Blobs(root_dir()), Attempt(request["job"], 1).dir.parent
    numbers = [int(path.name) for path in here.glob("[0-9]*")]
    for number in numbers:
        attempt = Attempt(request["job"], number)
        over = attempt.phase() in ("absent", "exited", "lost")
        if not over or take_lock(attempt.supervisor, wait=2 * SWEEP_S) < 0:  # which still ends what the command left
            raise Fault("busy", f"attempt {number} of {request['job']} still runs")
        attempt.kill(attempt.process())  # what a supervisor that was killed did not end
    with locked(blobs.base / ".lock"):
        mine = [one for number in numbers for one in load(here / str(number) / "files.json") or []]
        others = [path for path in here.parent.glob("*/*/files.json") if path.parent.parent != here]
        needed = [one for path in others for one in load(path) or []]
        freed = blobs.clean(mine, needed) + forget_data({*mine, *needed})
        shutil.rmtree(str(here), ignore_errors=True)
    answer({"freed": freed, "removed": not here.exists()})


VERBS = {
    one.__name__: one
    for one in (
        start,
        status,
        store,
        sync_results,
        cancel,
        tail,
        written,
        times,
        manifest,
        fetch,
        missing,
        receive,
        busy,
        clean,
    )
}


def main(take: Callable[[int], bytes]) -> int:
    """Carry out requests until standard input ends; `take` reads so many bytes of it, and ends us at its end."""
    os.write(1, ANSWER_PREFIX)
    while True:
        child = in_child(take(int(take(8))))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, UNREAD_STATUS):
            os.write(1, struct.pack(">I", 0))
        if status:
            return 1


def in_child(text: bytes) -> int:
    """Have a process carry out a request; return its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        status = carry_out(text)
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # nobody listens
    except Exception:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def carry_out(text: bytes) -> int:
    """Carry out a request; return 0, or UNREAD_STATUS where some of its input may still come."""
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(Frames(), CHUNK))
    request = json.loads(text)
    try:
        VERBS[request["verb"]](request)
    except BrokenPipeError:
        raise
    except Fault as fault:
        answer(fault.answer)
    except OSError as error:
        answer(fault_of(error).answer)
    else:
        return 0
    return UNREAD_STATUS if request["verb"] == "receive" else 0


class Frames(io.RawIOBase):
    """Standard output in frames: the length, the bytes. One of length 0, which `main` writes, ends an answer."""

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:
        """Write all of it as one frame."""
        size = len(data)
        rest = memoryview(struct.pack(">I", size) + bytes(data) if size else b"")
        while rest:
            rest = rest[os.write(1, rest) :]
        return size
