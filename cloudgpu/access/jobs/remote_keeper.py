"""The keeper: parent of a job's command. It creates the working directory, runs setup and command, records the exit.

`access/jobs/program.py` sends this text over SSH, between `remote_attempt.py` and `remote_job.py`. Standard library
only, Python 3.8+. Secrets are only in the memory of this process and in the environment of what it starts; those of a
job in Slurm are in a private file until its command starts.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from cloudgpu.access.jobs.remote_attempt import (
    ATTEMPT_VARIABLE,
    Attempt,
    boot_id,
    is_mounted,
    monotonic,
    proc_stat,
    root_dir,
    send_signal,
)
from cloudgpu.access.jobs.remote_download import DownloadFailed, download, place_data
from cloudgpu.access.jobs.remote_files import Blobs, Fault, build_tree, create, fault_from, save, take_lock

POLL_S = 0.1
SHUTDOWN_S = 0.25  # for a machine that shuts down to end this process too
MOUNT_S = 300.0  # how long mounting a volume may take: it is attached after the machine has started
NOT_FOUND, NOT_EXECUTABLE = 127, 126
NO_COMMAND = "no_command"  # the reason of an attempt whose command does not exist
PACKAGE_LISTS = ("requirements*.txt", "environment.yml", "environment.yaml", "pyproject.toml", "uv.lock")


def run_keeper(attempt: Attempt, request: dict[str, Any]) -> None:
    """Prepare the working directory, run the setup and the command, and record how it ended."""
    try:
        environ = prepare_work_dir(attempt, request)
        setup_status = run_setup(attempt, environ, request["files"])
        if setup_status is not None:
            attempt.record_exit(setup_status, "setup", "the setup failed: see setup.log")
        elif attempt.stop_request():
            attempt.record_exit(None, "cancelled")
        else:
            run_command(attempt, without_secrets(attempt, request, environ))
    except OSError as error:
        attempt.record_exit(None, "start", str(fault_from(error)))
    except DownloadFailed as error:
        attempt.record_exit(None, error.kind, str(error))
    except Fault as fault:
        attempt.record_exit(None, "start", str(fault))


def prepare_work_dir(attempt: Attempt, request: dict[str, Any]) -> dict[str, str]:
    """Create the attempt's working directory; return the command's environment."""
    shutil.rmtree(str(attempt.work_dir), ignore_errors=True)
    attempt.work_dir.mkdir(mode=0o700)
    blobs = Blobs(root_dir())
    download(attempt, request.pop("download", None))
    wait_for_volume(attempt)
    build_tree(blobs, attempt.work_dir, request["files"], request["links"])
    place_data(attempt, request.get("data", []))
    for path in (attempt.results, attempt.checkpoint):
        path.mkdir(parents=True, exist_ok=True)
    link_volume(attempt)
    for path, key in ((attempt.results, "results"), (attempt.checkpoint, "checkpoint")):
        build_tree(blobs, path, request["restore"][key]["files"], request["restore"][key]["links"])
    for path in (attempt.out, attempt.err):
        os.close(create(path))
    variables = {
        "CLOUDGPU_JOB": attempt.job,
        "CLOUDGPU_JOB_NAME": str(request["spec"].get("name", "")),
        "CLOUDGPU_RESTART_COUNT": str(attempt.number - 1),
        "CLOUDGPU_RESULTS": str(attempt.results),
        "CLOUDGPU_CHECKPOINT": str(attempt.checkpoint),
        "CLOUDGPU_PROGRESS": str(attempt.progress_file),
    }
    # Buffered output would be lost with the machine.
    return {"PYTHONUNBUFFERED": "1", **environment_of(request), **variables}


def environment_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the environment of this machine and the request, with secrets."""
    return {**os.environ, **request["spec"].get("env", {}), **request["secrets"]}


def without_secrets(attempt: Attempt, request: dict[str, Any], environ: dict[str, str]) -> dict[str, str]:
    """Return the command's environment; for Slurm, which stores it, without secrets, which go to a private file."""
    secrets = request["secrets"]
    if not attempt.spec.get("slurm") or not secrets:
        return environ
    with os.fdopen(create(attempt.dir / "secrets", os.O_WRONLY | os.O_TRUNC), "w") as file:
        json.dump(secrets, file)
    environ_without_secrets = environment_of({**request, "secrets": {}})
    inherited = {name: environ_without_secrets[name] for name in secrets if name in environ_without_secrets}
    return {**{name: value for name, value in environ.items() if name not in secrets}, **inherited}


def wait_for_volume(attempt: Attempt) -> None:
    """Wait until a volume that the job needs is mounted. Raises DownloadFailed."""
    deadline = time.monotonic() + MOUNT_S
    while attempt.spec.get("mounts") and not is_mounted() and not attempt.stop_request():
        if time.monotonic() > deadline:
            raise DownloadFailed("start", "its volume is not mounted on the machine")
        time.sleep(POLL_S)


def link_volume(attempt: Attempt) -> None:
    """Link the directories for results and checkpoints to those on the volume."""
    names = (attempt.spec.get("results"), attempt.spec.get("checkpoint")) if attempt.volume is not None else ()
    for name, path in zip(names, (attempt.results, attempt.checkpoint)):
        if name:
            link = attempt.work_dir / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(path)


def run_setup(attempt: Attempt, environ: dict[str, str], files: list[list[Any]]) -> int | None:
    """Run the setup unless it succeeded on this machine before; return its wait status if it failed, else None."""
    command = attempt.spec.get("setup")
    if not command:
        return None
    setup_dir = root_dir() / "setup"
    setup_dir.mkdir(mode=0o700, exist_ok=True)
    digest = setup_hash(command, files)
    save(attempt.dir / "setup.json", {"s": None})  # seconds that it took; None while it runs
    lock_fd = lock_setup(attempt, setup_dir / f"{digest}.lock")
    if lock_fd < 0:
        return None  # the attempt is to stop
    if (setup_dir / f"{digest}.done").exists():
        save(attempt.dir / "setup.json", {"s": 0.0})
        os.close(lock_fd)
        return None
    started_at = time.monotonic()
    status = wait_for_setup(attempt, start_setup(attempt, command, environ, lock_fd))
    seconds = round(time.monotonic() - started_at, 3)
    save(attempt.dir / "setup.json", {"s": seconds})
    if status == 0:
        save(setup_dir / f"{digest}.done", {"s": seconds, "ended": time.time()})
    os.close(lock_fd)
    return status or None


def setup_hash(command: str, files: list[list[Any]]) -> str:
    """Return the hash of a setup: of its command and the files that it depends on.

    Those are the files and directories that it names, and package lists at the top of the working directory.
    """
    names = {os.path.normpath(word) for word in re.split(r"""[\s;&|()<>"'`=]+""", command) if word.strip("./")}
    dependencies = sorted(
        (path, sha256) for path, _, _, sha256 in files if is_package_list(path) or is_below(path, names)
    )
    return hashlib.sha256(json.dumps([command, dependencies]).encode()).hexdigest()


def is_package_list(path: str) -> bool:
    """Tell whether a path is a package list at the top of the working directory."""
    return "/" not in path and any(fnmatch.fnmatchcase(path, pattern) for pattern in PACKAGE_LISTS)


def is_below(path: str, names: set[str]) -> bool:
    """Tell whether a path, or a directory above it, is one of these names."""
    return path in names or any(path[:index] in names for index, character in enumerate(path) if character == "/")


def lock_setup(attempt: Attempt, path: Path) -> int:
    """Wait for the setup's lock, so that two jobs do not run it at once; return it, -1 if the attempt is to stop."""
    lock_fd = -1
    while lock_fd < 0 and not attempt.stop_request():
        lock_fd = take_lock(path, wait=POLL_S)
    return lock_fd


def start_setup(attempt: Attempt, command: str, environ: dict[str, str], lock_fd: int) -> subprocess.Popen[bytes]:
    """Start the setup; its process holds the lock, even if the keeper is killed."""
    with os.fdopen(create(attempt.dir / "setup.log", os.O_WRONLY | os.O_APPEND), "wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [*container_command(), "/bin/sh", "-c", command],
            cwd=str(attempt.work_dir),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock_fd,),
        )
    save(
        attempt.dir / "setup.json",
        {"s": None, "boot": boot_id(), "pid": process.pid, "start": start_ticks(process.pid)},
    )
    return process


def wait_for_setup(attempt: Attempt, process: subprocess.Popen[bytes]) -> int:
    """Wait for the setup, and kill it when the attempt is to stop; return its status as waitpid does."""
    while process.poll() is None:
        if attempt.stop_request():
            send_signal(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    return -process.returncode if process.returncode < 0 else process.returncode << 8


def start_ticks(pid: int) -> str:
    """Return the start of a process in ticks; empty without /proc."""
    stat = proc_stat(pid)
    return stat[19] if stat else ""


def container_command() -> list[str]:
    """Return the prefix that runs a command in this machine's container; empty without a container."""
    program = root_dir() / "inside"
    return [str(program)] if program.exists() else []


def run_command(attempt: Attempt, environ: dict[str, str]) -> None:
    """Run the command, wait for it and record its exit."""
    argv = slurm_command(attempt) or [*container_command(), *attempt.spec["argv"]]
    executable = shutil.which(argv[0], path=environ.get("PATH", os.defpath))
    if "/" in argv[0]:
        path = str(attempt.work_dir / argv[0])  # an absolute path replaces the working directory
        executable = path if os.access(path, os.X_OK) and not os.path.isdir(path) else None  # noqa: PTH112
    if executable is None:
        record_missing_command(attempt, environ)
        return
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        exec_command(attempt, executable, argv, {**environ, ATTEMPT_VARIABLE: attempt.process_tag}, write_fd)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        error = pipe.read().decode("utf-8", "replace")  # empty: execve succeeded
    _, status = os.waitpid(pid, 0)
    if attempt.process().get("pid") != pid:
        attempt.record_exit(None, "start", error or "it was killed before it began")
        return
    wait_for_possible_shutdown(status)
    attempt.record_exit(status, "exited", error)


def slurm_command(attempt: Attempt) -> list[str]:
    """Return the program that runs the command in Slurm; empty for a command that runs here."""
    options = attempt.spec.get("slurm")
    if not options:
        return []
    for name, text in options["program"].items():
        with os.fdopen(create(attempt.dir / name, os.O_WRONLY | os.O_TRUNC), "w") as file:
            file.write(text)
    return [sys.executable, "-IS", str(attempt.dir / "begin.py"), str(attempt.dir)]


def is_program_missing(request: dict[str, Any]) -> bool:
    """Tell whether the command is missing here, and neither an uploaded file nor the setup could provide it."""
    program, path = str(request["spec"]["argv"][0]), environment_of(request).get("PATH", os.defpath)
    may_exist_elsewhere = (
        "/" in program or request["spec"].get("slurm") or container_command()
    )  # not decided by this PATH
    are_absolute = all(Path(directory).is_absolute() for directory in path.split(os.pathsep))
    if may_exist_elsewhere or request["spec"].get("setup") or not are_absolute:
        return False
    return shutil.which(program, path=path) is None


def record_missing_command(attempt: Attempt, environ: dict[str, str]) -> None:
    """Record that the command does not exist or cannot be executed, with a remedy."""
    program = str(attempt.spec["argv"][0])
    exists = "/" in program and (attempt.work_dir / program).exists()
    if exists:
        message = f"{program} cannot be executed: run chmod +x {program}, or name its interpreter"
    elif "/" in program:
        message = f"{program} is not on the machine"
    else:
        remedy = ", not even after --setup" if attempt.spec.get("setup") else "; install it with --setup"
        message = f"{program}: command not found on the machine{remedy}"
        print_error(attempt, f"PATH={environ.get('PATH', os.defpath)}")
    print_error(attempt, message)
    attempt.record_exit((NOT_EXECUTABLE if exists else NOT_FOUND) << 8, NO_COMMAND, message)


def wait_for_possible_shutdown(status: int | None) -> None:
    """Wait after a command has ended: if the machine shuts down, it ends this process before the status is recorded.

    At a shutdown all processes get SIGTERM, and the status of the command would not be its own result.
    """
    if status is not None:
        time.sleep(SHUTDOWN_S)


def exec_command(attempt: Attempt, path: str, argv: list[str], environ: dict[str, str], error_pipe: int) -> NoReturn:
    """Execute the command in this process, after recording that it begins; errors go to the pipe `error_pipe`."""
    status = NOT_EXECUTABLE
    try:
        os.setsid()
        for signal_number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
            signal.signal(signal_number, signal.SIG_DFL)
        os.chdir(str(attempt.work_dir))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(str(attempt.out), os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(os.open(str(attempt.err), os.O_WRONLY | os.O_APPEND), 2)
        record_begin(attempt)
        os.execve(path, argv, environ)  # noqa: S606
    except BaseException as error:  # noqa: BLE001
        os.write(error_pipe, f"{error}".encode()[:500])
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    finally:
        os._exit(status)


def record_begin(attempt: Attempt) -> None:
    """Record that the command begins. Raises FileExistsError if it began before."""
    pid, new_file = os.getpid(), attempt.dir / f".begun.{os.getpid()}"
    record = {"pid": pid, "epoch": time.time(), "mono": monotonic(), "boot": boot_id(), "start": start_ticks(pid)}
    with os.fdopen(create(new_file, os.O_WRONLY | os.O_TRUNC), "w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(str(new_file), str(attempt.dir / "begun"))
    finally:
        new_file.unlink()


def print_error(attempt: Attempt, message: str) -> None:
    """Append a message to the command's stderr."""
    with contextlib.suppress(OSError), os.fdopen(create(attempt.err, os.O_WRONLY | os.O_APPEND), "w") as file:
        file.write(f"cloudgpu: {message}\n")
