"""The parent of a job's command on the machine it runs on: builds the tree, runs setup and command, keeps the status.

This file's text is sent over SSH between those of `remote_attempt.py` and `remote_job.py` (`access/jobs/program.py`
does it). Standard library only, Python 3.8+. Secrets are in the memory of this process and in the environment of what
it starts, and nowhere else; those of a job in Slurm lie in a private file until its command has them.
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
    VARIABLE,
    Attempt,
    boot,
    facts,
    is_mounted,
    monotonic,
    root_dir,
    send_signal,
)
from cloudgpu.access.jobs.remote_download import Failed, download, place
from cloudgpu.access.jobs.remote_files import Blobs, Fault, build, create, fault_of, save, take_lock

POLL_S = 0.1
SHUTDOWN_S = 0.25  # at most, between two signals to all processes of a machine
MOUNT_S = 300.0  # how long a volume may take to be mounted: it is attached once the machine runs
NOT_FOUND, NOT_EXECUTABLE = 127, 126
NO_COMMAND = "no_command"  # why an attempt ended whose command is not there
PACKAGES = ("requirements*.txt", "environment.yml", "environment.yaml", "pyproject.toml", "uv.lock")


def keep(attempt: Attempt, request: dict[str, Any]) -> None:
    """Build the tree, set the machine up, run the command, and write how it ended."""
    try:
        environ = prepared(attempt, request)
        failed = set_up(attempt, environ, request["files"])
        if failed is not None:
            attempt.record(failed, "setup", "the setup failed: see setup.log")
        elif attempt.stop():
            attempt.record(None, "cancelled")
        else:
            run(attempt, without_secrets(attempt, request, environ))
    except OSError as error:
        attempt.record(None, "start", str(fault_of(error)))
    except Failed as error:
        attempt.record(None, error.kind, str(error))
    except Fault as fault:
        attempt.record(None, "start", str(fault))


def prepared(attempt: Attempt, request: dict[str, Any]) -> dict[str, str]:
    """Build the attempt's tree anew; return the command's environment."""
    shutil.rmtree(str(attempt.work), ignore_errors=True)
    attempt.work.mkdir(mode=0o700)
    blobs = Blobs(root_dir())
    download(attempt, request.pop("download", None))
    wait_for_volume(attempt)
    build(blobs, attempt.work, request["files"], request["links"])
    place(attempt, request.get("data", []))
    for path in (attempt.results, attempt.checkpoint):
        path.mkdir(parents=True, exist_ok=True)
    show_volume(attempt)
    for path, part in ((attempt.results, "results"), (attempt.checkpoint, "checkpoint")):
        build(blobs, path, request["restore"][part]["files"], request["restore"][part]["links"])
    for path in (attempt.out, attempt.err):
        os.close(create(path))
    own = {
        "CLOUDGPU_JOB": attempt.job,
        "CLOUDGPU_JOB_NAME": str(request["spec"].get("name", "")),
        "CLOUDGPU_RESTART_COUNT": str(attempt.number - 1),
        "CLOUDGPU_RESULTS": str(attempt.results),
        "CLOUDGPU_CHECKPOINT": str(attempt.checkpoint),
        "CLOUDGPU_PROGRESS": str(attempt.progress),
    }
    # Output that waits in a buffer would be lost with the machine.
    return {"PYTHONUNBUFFERED": "1", **environment_of(request), **own}


def environment_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the environment that a request gives, with that of this machine."""
    return {**os.environ, **request["spec"].get("env", {}), **request["secrets"]}


def without_secrets(attempt: Attempt, request: dict[str, Any], environ: dict[str, str]) -> dict[str, str]:
    """Return the environment of what takes a command through Slurm, which writes it down: secrets go to a file."""
    values = request["secrets"]
    if not attempt.spec.get("slurm") or not values:
        return environ
    with os.fdopen(create(attempt.dir / "secrets", os.O_WRONLY | os.O_TRUNC), "w") as file:
        json.dump(values, file)
    others = environment_of({**request, "secrets": {}})
    kept = {name: others[name] for name in values if name in others}
    return {**{name: value for name, value in environ.items() if name not in values}, **kept}


def wait_for_volume(attempt: Attempt) -> None:
    """Wait until a volume that the job needs is mounted. Raises Failed."""
    end = time.monotonic() + MOUNT_S
    while attempt.spec.get("mounts") and not is_mounted() and not attempt.stop():
        if time.monotonic() > end:
            raise Failed("start", "its volume is not mounted on the machine")
        time.sleep(POLL_S)


def show_volume(attempt: Attempt) -> None:
    """Make the directories for results and checkpoints in the tree links to those on the volume."""
    names = (attempt.spec.get("results"), attempt.spec.get("checkpoint")) if attempt.volume is not None else ()
    for name, path in zip(names, (attempt.results, attempt.checkpoint)):
        if name:
            where = attempt.work / name
            where.parent.mkdir(parents=True, exist_ok=True)
            if not where.exists():
                where.symlink_to(path)


def set_up(attempt: Attempt, environ: dict[str, str], files: list[list[Any]]) -> int | None:
    """Run the setup where this machine has not had it yet; return its status where it failed, else None."""
    command = attempt.spec.get("setup")
    if not command:
        return None
    place = root_dir() / "setup"
    place.mkdir(mode=0o700, exist_ok=True)
    digest = set_up_with(command, files)
    save(attempt.dir / "setup.json", {"s": None})
    lock = lock_setup(attempt, place / f"{digest}.lock")
    if lock < 0:
        return None  # it is to stop
    if (place / f"{digest}.done").exists():
        save(attempt.dir / "setup.json", {"s": 0.0})
        os.close(lock)
        return None
    began = time.monotonic()
    status = waited(attempt, set_up_process(attempt, command, environ, lock))
    took = round(time.monotonic() - began, 3)
    save(attempt.dir / "setup.json", {"s": took})
    if status == 0:
        save(place / f"{digest}.done", {"s": took, "ended": time.time()})
    os.close(lock)
    return status or None


def set_up_with(command: str, files: list[list[Any]]) -> str:
    """Return what tells one setup from another: the hash of its command and of the files that it depends on.

    Those are the ones it names, or whose directory it names, and the lists of packages at the top of the tree.
    """
    names = {os.path.normpath(word) for word in re.split(r"""[\s;&|()<>"'`=]+""", command) if word.strip("./")}
    wanted = sorted((path, sha256) for path, _, _, sha256 in files if lists_packages(path) or is_below(path, names))
    return hashlib.sha256(json.dumps([command, wanted]).encode()).hexdigest()


def lists_packages(path: str) -> bool:
    """Tell whether a path is a list of packages at the top of the tree."""
    return "/" not in path and any(fnmatch.fnmatchcase(path, one) for one in PACKAGES)


def is_below(path: str, names: set[str]) -> bool:
    """Tell whether a path, or a directory that it is in, is one of these names."""
    return path in names or any(path[:at] in names for at, letter in enumerate(path) if letter == "/")


def lock_setup(attempt: Attempt, path: Path) -> int:
    """Wait for the setup's lock: two jobs do not run it at once. Return it, -1 when the attempt is to stop."""
    lock = -1
    while lock < 0 and not attempt.stop():
        lock = take_lock(path, wait=POLL_S)
    return lock


def set_up_process(attempt: Attempt, command: str, environ: dict[str, str], lock: int) -> subprocess.Popen[bytes]:
    """Start the setup; it holds the lock as long as it runs, whatever becomes of us."""
    with os.fdopen(create(attempt.dir / "setup.log", os.O_WRONLY | os.O_APPEND), "wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [*container_command(), "/bin/sh", "-c", command],
            cwd=str(attempt.work),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock,),
        )
    save(attempt.dir / "setup.json", {"s": None, "boot": boot(), "pid": process.pid, "start": started(process.pid)})
    return process


def waited(attempt: Attempt, process: subprocess.Popen[bytes]) -> int:
    """Wait for the setup, and end it when the attempt is to stop; return its status as waitpid does."""
    while process.poll() is None:
        if attempt.stop():
            send_signal(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    return -process.returncode if process.returncode < 0 else process.returncode << 8


def started(pid: int) -> str:
    """Return when a process began, in the kernel's ticks; empty where the system does not say."""
    words = facts(pid)
    return words[19] if words else ""


def container_command() -> list[str]:
    """Return what runs a command in this machine's container; empty where it has none."""
    program = root_dir() / "inside"
    return [str(program)] if program.exists() else []


def run(attempt: Attempt, environ: dict[str, str]) -> None:
    """Run the command to its end."""
    argv = through_slurm(attempt) or [*container_command(), *attempt.spec["argv"]]
    found = shutil.which(argv[0], path=environ.get("PATH", os.defpath))
    if "/" in argv[0]:
        path = str(attempt.work / argv[0])  # joined with an absolute one, it is that one
        found = path if os.access(path, os.X_OK) and not os.path.isdir(path) else None  # noqa: PTH112
    if found is None:
        no_command(attempt, environ)
        return
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        become(attempt, found, argv, {**environ, VARIABLE: attempt.mark}, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        fault = pipe.read().decode("utf-8", "replace")  # empty: it runs
    _, status = os.waitpid(pid, 0)
    if attempt.process().get("pid") != pid:
        attempt.record(None, "start", fault or "it was killed before it began")
        return
    pause_at_shutdown(status)
    attempt.record(status, "exited", fault)


def through_slurm(attempt: Attempt) -> list[str]:
    """Return what takes the command through Slurm; empty for a command that runs here."""
    asked = attempt.spec.get("slurm")
    if not asked:
        return []
    for name, text in asked["program"].items():
        with os.fdopen(create(attempt.dir / name, os.O_WRONLY | os.O_TRUNC), "w") as file:
            file.write(text)
    return [sys.executable, "-IS", str(attempt.dir / "begin.py"), str(attempt.dir)]


def lacks_command(request: dict[str, Any]) -> bool:
    """Tell whether no file that travels, and no setup, can change that this machine does not have the command."""
    word, path = str(request["spec"]["argv"][0]), environment_of(request).get("PATH", os.defpath)
    elsewhere = "/" in word or request["spec"].get("slurm") or container_command()  # there are other programs
    if elsewhere or request["spec"].get("setup") or not all(os.path.isabs(one) for one in path.split(os.pathsep)):  # noqa: PTH117
        return False
    return shutil.which(word, path=path) is None


def no_command(attempt: Attempt, environ: dict[str, str]) -> None:
    """Write that the command is not there, or cannot be executed, with what helps."""
    word = str(attempt.spec["argv"][0])
    there = "/" in word and (attempt.work / word).exists()
    if there:
        why = f"{word} cannot be executed: run chmod +x {word}, or name its interpreter"
    elif "/" in word:
        why = f"{word} is not on the machine"
    else:
        after = ", not even after --setup" if attempt.spec.get("setup") else "; install it with --setup"
        why = f"{word}: command not found on the machine{after}"
        print_error(attempt, f"PATH={environ.get('PATH', os.defpath)}")
    print_error(attempt, why)
    attempt.record((NOT_EXECUTABLE if there else NOT_FOUND) << 8, NO_COMMAND, why)


def pause_at_shutdown(status: int | None) -> None:
    """Give a machine that shuts down the time to end us, too: what it ended is not what the command would have said.

    A command may answer SIGTERM with any status, 0 too; ours comes at about the same time.
    """
    if status is not None:
        time.sleep(SHUTDOWN_S)


def become(attempt: Attempt, path: str, argv: list[str], environ: dict[str, str], fault: int) -> NoReturn:
    """Turn this process into the command; the last thing before is the note that it has begun."""
    status = NOT_EXECUTABLE
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(str(attempt.work))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(str(attempt.out), os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(os.open(str(attempt.err), os.O_WRONLY | os.O_APPEND), 2)
        record_begin(attempt)
        os.execve(path, argv, environ)  # noqa: S606
    except BaseException as error:  # noqa: BLE001
        os.write(fault, f"{error}".encode()[:500])
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    finally:
        os._exit(status)


def record_begin(attempt: Attempt) -> None:
    """Write that the command begins. Raises FileExistsError where it has begun before."""
    pid, fresh = os.getpid(), attempt.dir / f".begun.{os.getpid()}"
    value = {"pid": pid, "epoch": time.time(), "mono": monotonic(), "boot": boot(), "start": started(pid)}
    with os.fdopen(create(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(str(fresh), str(attempt.dir / "begun"))
    finally:
        fresh.unlink()


def print_error(attempt: Attempt, why: str) -> None:
    """Say on the command's own errors why there was none."""
    with contextlib.suppress(OSError), os.fdopen(create(attempt.err, os.O_WRONLY | os.O_APPEND), "w") as file:
        file.write(f"cloudgpu: {why}\n")
