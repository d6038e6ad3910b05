"""Starts, lists and stops tunnels in background processes.

Each process keeps its file `ID.json` (0600, without secrets) locked while it lives. A file that is not locked belongs
to a process that has ended, and is removed. Process ids are only trusted under the lock.
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
from cloudgpu.access.files import explain_os_errors, locked, make_private_directory
from cloudgpu.errors import CloudgpuError, InvalidRequest, Unreachable

REPORT_FD_VARIABLE = "CLOUDGPU_REPORT_FD"  # names the pipe on which a new process reports its start
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
MAX_REPORT_BYTES = 64 * 1024
HIGHEST_PORT = 65535


def check_port(port: int) -> None:
    """Raise InvalidRequest for a number that is not a port."""
    if not 0 < port <= HIGHEST_PORT:
        raise InvalidRequest(
            f"{port} is not a port.", field="--port", value=str(port), next=f"Name one from 1 to {HIGHEST_PORT}."
        )


@dataclass(frozen=True, slots=True)
class BackgroundTunnel:
    """A tunnel in the background: id and name of its machine, its local port and process."""

    id: str
    name: str
    port: int
    pid: int


def spawn(command: Sequence[str], directory: Path, id: str, *, timeout: float = START_TIMEOUT_S) -> BackgroundTunnel:  # noqa: A002
    """Start `command` as a process that outlives this one, and wait until it serves.

    The command has to call `registered` when it serves, or `report` an error. Its output goes to `ID.log`. Raises the
    reported error, Unreachable without a report in `timeout` seconds, InvalidRequest if a tunnel with this id is
    running. Ctrl-C ends the process. Pass no secret in its arguments: all users of this computer can see them.
    """
    running_tunnel = find(directory, id)
    if running_tunnel is not None:
        raise _already_running_error(running_tunnel)
    reader, writer = os.pipe()
    try:
        try:
            process = _start_process(command, directory, id, writer)
        finally:
            os.close(writer)
        try:
            output = _wait_for_report(reader, timeout)
        except BaseException:  # Ctrl-C does not reach the process, and nobody would know of it
            _kill(process)
            raise
    finally:
        os.close(reader)
    if output is None:
        _kill(process)
        raise Unreachable(
            f"The tunnel to {id} was not ready after {timeout:g} seconds and was ended.",
            field="id",
            value=id,
            next=f"Its messages are in {_log(directory, id)}.",
        )
    return _tunnel_from_report(output, process, directory, id)


@contextlib.contextmanager
def registered(directory: Path, id: str, name: str, port: int) -> Iterator[None]:  # noqa: A002
    """Hold the lock of this machine's tunnel, and report to the parent process, if any, that the tunnel serves.

    Raises InvalidRequest if another process holds the lock.
    """
    tunnel = BackgroundTunnel(id, name, port, os.getpid())
    file = _file(directory, id)
    with locked(file):
        running_tunnel = _read_locked(file)
        if running_tunnel is not None:
            raise _already_running_error(running_tunnel)
        descriptor = _create_locked(file, tunnel)
    try:
        _write_report({"serving": asdict(tunnel)})
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()  # still locked, so it is ours
        os.close(descriptor)


def report(error: CloudgpuError) -> None:
    """Report to the parent process, if any, why this tunnel does not serve."""
    class_name = next(one.__name__ for one in type(error).__mro__ if hasattr(errors, one.__name__))
    _write_report({"fault": {"class": class_name, **error.as_dict()}})


def running(directory: Path) -> list[BackgroundTunnel]:
    """Return the running tunnels, sorted by name; files of ended ones are removed."""
    tunnels = [find(directory, file.stem) for file in sorted(directory.glob("*.json"))]
    return sorted((tunnel for tunnel in tunnels if tunnel is not None), key=lambda tunnel: tunnel.name)


def find(directory: Path, id: str) -> BackgroundTunnel | None:  # noqa: A002
    """Return this machine's tunnel if it is running."""
    file = _file(directory, id)
    tunnel = _read_locked(file)
    if tunnel is None and file.exists():
        with locked(file):  # a file that is being written now is not an old one
            tunnel = _read_locked(file)
            if tunnel is None:
                file.unlink(missing_ok=True)
    return tunnel


def stop(directory: Path, id: str, *, timeout: float = STOP_TIMEOUT_S) -> BackgroundTunnel | None:  # noqa: A002
    """End this machine's tunnel and return it; None if none is running.

    Its log and the page that opens Jupyter are removed. SIGTERM first, SIGKILL after `timeout` seconds; only to the
    process that holds the lock.
    """
    tunnel = find(directory, id)
    if tunnel is not None:
        _end_process(directory, tunnel, timeout)
    with explain_os_errors(_log(directory, id)):
        _log(directory, id).unlink(missing_ok=True)
    remove_jupyter_page(directory, id)
    return tunnel


def machine_ids(directory: Path) -> list[str]:
    """Return the ids of machines whose tunnels have files in this directory, running or not."""
    return sorted({path.name.partition(".")[0] for path in directory.iterdir()} - {""})


def jupyter_page_directory(directory: Path, id: str) -> Path:  # noqa: A002
    """Return the directory of the HTML page that opens this machine's Jupyter; it exists while the tunnel runs."""
    return directory / f"{id}.page"


def remove_jupyter_page(directory: Path, id: str) -> None:  # noqa: A002
    """Remove the page that opens Jupyter, which contains the token, and `directory` if it is empty then."""
    shutil.rmtree(jupyter_page_directory(directory, id), ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _end_process(directory: Path, tunnel: BackgroundTunnel, timeout: float) -> None:
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        _send_signal(directory, tunnel, signal_number)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if find(directory, tunnel.id) != tunnel:
                return
            time.sleep(0.02)
    raise Unreachable(
        f"The tunnel to {tunnel.name} (process {tunnel.pid}) could not be ended.",
        field="id",
        value=tunnel.id,
        next=f"Run: kill -9 {tunnel.pid}",
    )


def _start_process(command: Sequence[str], directory: Path, id: str, writer: int) -> subprocess.Popen[bytes]:  # noqa: A002
    log = _log(directory, id)
    with explain_os_errors(log):
        make_private_directory(directory)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            return subprocess.Popen(  # noqa: S603  (cloudgpu's own command)
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                pass_fds=(writer,),
                env={**os.environ, REPORT_FD_VARIABLE: str(writer)},
                start_new_session=True,  # Ctrl-C and hang-up of the terminal do not reach it
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _wait_for_report(reader: int, timeout: float) -> bytes | None:
    """Return the report of the new process, empty if it ended without one; None on a timeout."""
    deadline, output = time.monotonic() + timeout, b""
    poller = select.poll()  # select() takes no descriptor above 1,023
    poller.register(reader, select.POLLIN)
    while not output.endswith(b"\n"):
        if not poller.poll(1000 * max(0.0, deadline - time.monotonic())):
            return None
        data = os.read(reader, MAX_REPORT_BYTES)
        if not data:
            return b""
        output += data
    return output


def _tunnel_from_report(output: bytes, process: subprocess.Popen[bytes], directory: Path, id: str) -> BackgroundTunnel:  # noqa: A002
    report: dict[str, Any] = json.loads(output) if output else {}
    if "serving" in report:
        # It outlives this process: without a status, Python would warn that it still runs.
        process.returncode = 0
        return BackgroundTunnel(**report["serving"])
    process.wait()
    if "fault" in report:
        raise _error_of(report["fault"])
    raise Unreachable(
        f"The tunnel's process ended at once with status {process.returncode}.",
        field="id",
        value=id,
        next=f"Its messages are in {_log(directory, id)}.",
    )


def _error_of(reported_error: Mapping[str, Any]) -> CloudgpuError:
    """Return the reported error, in its own class or the nearest base class in `cloudgpu.errors`."""
    error_class = getattr(errors, str(reported_error["class"]), CloudgpuError)
    error: CloudgpuError = error_class(
        reported_error["message"],
        field=reported_error["field"],
        value=reported_error["value"],
        next=reported_error["next"],
    )
    return error


def _write_report(report: Mapping[str, Any]) -> None:
    descriptor = os.environ.pop(REPORT_FD_VARIABLE, None)
    if descriptor is None:
        return
    with contextlib.suppress(OSError), os.fdopen(int(descriptor), "wb") as stream:  # the parent may have ended
        stream.write(json.dumps(report).encode() + b"\n")


def _create_locked(file: Path, tunnel: BackgroundTunnel) -> int:
    """Create the file, complete and already locked, and return the descriptor that keeps it locked."""
    with explain_os_errors(file):
        descriptor, part_file = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, json.dumps(asdict(tunnel)).encode())
            Path(part_file).replace(file)
        except OSError:
            os.close(descriptor)
            Path(part_file).unlink(missing_ok=True)
            raise
    return descriptor


def _read_locked(file: Path) -> BackgroundTunnel | None:
    """Return the tunnel in this file if a process holds it locked; else None."""
    with explain_os_errors(file):
        try:
            stream = file.open("rb")
        except FileNotFoundError:
            return None
        with stream:
            try:
                # A shared lock: two readers at once do not mistake each other for the tunnel.
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _parse_tunnel(file, stream.read())
        return None


def _parse_tunnel(file: Path, content: bytes) -> BackgroundTunnel:
    try:
        return BackgroundTunnel(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"{file} does not say which tunnel it belongs to.",
            field="tunnels",
            value=str(file),
            next=f"Find the process that holds it open (lsof '{file}'), end it, and remove the file.",
        ) from error


def _send_signal(directory: Path, tunnel: BackgroundTunnel, signal_number: int) -> None:
    """Send a signal to the process, if it is still the one that holds the lock."""
    with contextlib.suppress(ProcessLookupError):
        # The handle is opened before the check, which fails if another process has reused the process id.
        try:
            handle = os.pidfd_open(tunnel.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # an older Python or kernel, or a container whose filter forbids it
            if find(directory, tunnel.id) == tunnel:
                os.kill(tunnel.pid, signal_number)
            return
        try:
            if find(directory, tunnel.id) == tunnel:
                signal.pidfd_send_signal(handle, signal_number)
        finally:
            os.close(handle)


def _already_running_error(running_tunnel: BackgroundTunnel) -> InvalidRequest:
    return InvalidRequest(
        f"A tunnel to {running_tunnel.name} is running already, on http://127.0.0.1:{running_tunnel.port}.",
        field="name",
        value=running_tunnel.name,
        next=f"Use it, or end it: cloudgpu tunnel {running_tunnel.name} --stop",
    )


def _file(directory: Path, id: str) -> Path:  # noqa: A002
    return directory / f"{id}.json"


def _log(directory: Path, id: str) -> Path:  # noqa: A002
    return directory / f"{id}.log"
