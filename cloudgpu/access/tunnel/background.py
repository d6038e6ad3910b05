"""Tunnels in processes of their own: started, listed and stopped by what a living process holds locked.

Each has a file `ID.json` (0600, no secret in it) that its process keeps locked as long as it lives. A file that
nobody holds belongs to the dead: it counts for nothing and is removed. Process ids are only believed under the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloudgpu import errors
from cloudgpu.access.files import explained, locked, private_directory
from cloudgpu.errors import CloudgpuError, InvalidRequest, Unreachable

REPORT_TO = "CLOUDGPU_REPORT_FD"  # the number of the pipe on which a new process says how its start went
START_S = 60.0
STOP_S = 10.0
LINE = 64 * 1024  # bytes that a report may have at most
HIGHEST_PORT = 65535


def check_port(port: int) -> None:
    """Raise InvalidRequest for a number that is no port."""
    if not 0 < port <= HIGHEST_PORT:
        way_out = f"Name one from 1 to {HIGHEST_PORT}."
        raise InvalidRequest(f"{port} is not a port.", field="--port", value=str(port), next=way_out)


@dataclass(frozen=True, slots=True)
class Background:
    """A tunnel that runs by itself: which machine, which local port, which process."""

    id: str
    name: str
    port: int
    pid: int


def spawn(command: Sequence[str], directory: Path, id: str, *, timeout: float = START_S) -> Background:  # noqa: A002
    """Start `command` as a process that outlives this one, and wait until it serves.

    The command has to call `serving` once it does, or `report` what keeps it from it. Its messages go to `ID.log`.
    Raises the very error that it reported, Unreachable when it says nothing for `timeout` seconds, InvalidRequest
    when one for this id is running already. Give it no secret among its words: they can be seen by everybody.
    """
    already = find(directory, id)
    if already is not None:
        raise _taken(already)
    reader, writer = os.pipe()
    try:
        try:
            process = _start(command, directory, id, writer)
        finally:
            os.close(writer)
        output = _listen(reader, timeout)
    finally:
        os.close(reader)
    if output is None:
        process.kill()
        process.wait()
        raise Unreachable(
            f"The tunnel to {id} was not ready after {timeout:g} seconds and was ended.",
            field="id",
            value=id,
            next=f"Its messages are in {_log(directory, id)}.",
        )
    return _outcome(output, process, directory, id)


@contextlib.contextmanager
def serving(directory: Path, id: str, name: str, port: int) -> Iterator[None]:  # noqa: A002
    """Hold the place of this machine's tunnel and tell the one who spawned us, if any, that it serves.

    Raises InvalidRequest when a living process holds it already.
    """
    own = Background(id, name, port, os.getpid())
    file = _file(directory, id)
    with locked(file):
        other = _look(file)
        if other is not None:
            raise _taken(other)
        descriptor = _claim(file, own)
    try:
        _tell({"serving": asdict(own)})
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()  # still locked, so it is ours
        os.close(descriptor)


def report(error: CloudgpuError) -> None:
    """Tell the process that spawned us, if any, why this tunnel does not serve."""
    _tell({"fault": {"class": type(error).__name__, **error.as_dict()}})


def running(directory: Path) -> list[Background]:
    """Return the tunnels whose processes live, by name; files of dead ones are removed."""
    found = [find(directory, file.stem) for file in sorted(directory.glob("*.json"))]
    return sorted((one for one in found if one is not None), key=lambda one: one.name)


def find(directory: Path, id: str) -> Background | None:  # noqa: A002
    """Return this machine's tunnel if its process lives."""
    file = _file(directory, id)
    found = _look(file)
    if found is None and file.exists():
        with locked(file):  # or a file that was written this moment could be taken for the dead one's
            found = _look(file)
            if found is None:
                file.unlink(missing_ok=True)
    return found


def stop(directory: Path, id: str, *, timeout: float = STOP_S) -> Background | None:  # noqa: A002
    """End this machine's tunnel and return it once it is gone; None when none is running.

    It is asked first, and killed after `timeout` seconds. Never touches a process that does not hold the lock.
    Its messages and its page are removed.
    """
    own = find(directory, id)
    if own is not None:
        _end(directory, own, timeout)
    with explained(_log(directory, id)):
        _log(directory, id).unlink(missing_ok=True)
    remove_page(directory, id)
    return own


def known(directory: Path) -> list[str]:
    """Return the machines whose tunnels have written something in this directory, living or not."""
    if not directory.is_dir():
        return []
    return sorted({path.name.partition(".")[0] for path in directory.iterdir()} - {""})


def page_directory(directory: Path, id: str) -> Path:  # noqa: A002
    """Return where the page stands that leads a browser to this machine's Jupyter, as long as its tunnel does."""
    return directory / f"{id}.page"


def remove_page(directory: Path, id: str) -> None:  # noqa: A002
    """Remove that page, which holds the token, and the directory where nothing else is in it."""
    shutil.rmtree(page_directory(directory, id), ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _end(directory: Path, own: Background, timeout: float) -> None:
    for number, patience in ((signal.SIGTERM, timeout), (signal.SIGKILL, timeout)):
        _send(directory, own, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if find(directory, own.id) != own:
                return
            time.sleep(0.02)
    raise Unreachable(
        f"The tunnel to {own.name} (process {own.pid}) could not be ended.",
        field="id",
        value=own.id,
        next=f"Run: kill -9 {own.pid}",
    )


def _start(command: Sequence[str], directory: Path, id: str, writer: int) -> subprocess.Popen[bytes]:  # noqa: A002
    log = _log(directory, id)
    with explained(log):
        private_directory(directory)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            return subprocess.Popen(  # noqa: S603  (cloudgpu's own command)
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                pass_fds=(writer,),
                env={**os.environ, REPORT_TO: str(writer)},
                start_new_session=True,  # the terminal's Ctrl-C and hang-up are not meant for it
            )


def _listen(reader: int, timeout: float) -> bytes | None:
    """Return the one line that the new process says, nothing if it ended without; None when time is up."""
    deadline, output = time.monotonic() + timeout, b""
    waiting = select.poll()  # select() takes no descriptor above 1,023
    waiting.register(reader, select.POLLIN)
    while not output.endswith(b"\n"):
        ready = waiting.poll(1000 * max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(reader, LINE)
        if not piece:
            return b""
        output += piece
    return output


def _outcome(output: bytes, process: subprocess.Popen[bytes], directory: Path, id: str) -> Background:  # noqa: A002
    answer: dict[str, Any] = json.loads(output) if output else {}
    if "serving" in answer:
        # It is never waited for: it lives on as its own. Python would warn about that at our end.
        process.returncode = 0
        return Background(**answer["serving"])
    process.wait()
    if "fault" in answer:
        raise _fault(answer["fault"])
    raise Unreachable(
        f"The tunnel's process ended at once with status {process.returncode}.",
        field="id",
        value=id,
        next=f"Its messages are in {_log(directory, id)}.",
    )


def _fault(answer: Mapping[str, Any]) -> CloudgpuError:
    """Return the error that was reported, in its own class where the tree of errors has it."""
    kind = getattr(errors, str(answer["class"]), CloudgpuError)
    fault: CloudgpuError = kind(answer["message"], field=answer["field"], value=answer["value"], next=answer["next"])
    return fault


def _tell(answer: Mapping[str, Any]) -> None:
    number = os.environ.pop(REPORT_TO, None)
    if number is None:
        return
    with contextlib.suppress(OSError), os.fdopen(int(number), "wb") as stream:  # nobody may be listening any more
        stream.write(json.dumps(answer).encode() + b"\n")


def _claim(file: Path, own: Background) -> int:
    """Put the file under its name, complete and already locked, and return what keeps it locked."""
    with explained(file):
        descriptor, part = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, json.dumps(asdict(own)).encode())
            Path(part).replace(file)
        except OSError:
            os.close(descriptor)
            Path(part).unlink(missing_ok=True)
            raise
    return descriptor


def _look(file: Path) -> Background | None:
    """Return what a living process says in this file; None when there is no file, or only a dead one's."""
    with explained(file):
        try:
            stream = file.open("rb")
        except FileNotFoundError:
            return None
        with stream:
            try:
                # A shared lock: two who look at once do not take each other for the living.
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file, stream.read())
        return None


def _read(file: Path, content: bytes) -> Background:
    try:
        return Background(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"{file} does not say which tunnel it belongs to.",
            field="tunnels",
            value=str(file),
            next=f"Find the process that holds it open (lsof '{file}'), end it, and remove the file.",
        ) from error


def _send(directory: Path, own: Background, number: int) -> None:
    """Send a signal to the process, if it is still the one that holds the lock."""
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if find(directory, own.id) == own:
                os.kill(own.pid, number)
            return
        # The handle is taken before the look: if the number was given to another process since, the look says so.
        handle = os.pidfd_open(own.pid)
        try:
            if find(directory, own.id) == own:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _taken(other: Background) -> InvalidRequest:
    return InvalidRequest(
        f"A tunnel to {other.name} is running already, on http://127.0.0.1:{other.port}.",
        field="name",
        value=other.name,
        next=f"Use it, or end it: cloudgpu tunnel {other.name} --stop",
    )


def _file(directory: Path, id: str) -> Path:  # noqa: A002
    return directory / f"{id}.json"


def _log(directory: Path, id: str) -> Path:  # noqa: A002
    return directory / f"{id}.log"
