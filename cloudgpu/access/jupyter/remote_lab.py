"""Starts, finds and stops JupyterLab on the machine it runs on.

`access/jupyter/client.py` sends this text over SSH; the agent's interpreter runs it. So the user data of a machine
stays small. Standard library only, Python 3.8+. It shares the directory `~/.cloudgpu/jupyter` with the agent: `alive`
is locked while the server lives, `server.json` has its port, `token` (0600) is the only place of the token except for
Jupyter's own 0600 files.

The answer is one line of JSON: {"pid", "port", "token_file", "root", "started"}, {"stopped"}, or {"error": a sentence,
"missing": why JupyterLab is not installed, "installing": it is being installed, "starting": it may still come} with
status 1.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from typing import Any

POLL_S = 0.05
ANSWER_TIMEOUT_S = 5.0
TERM_S, KILL_S = 8.0, 2.0  # how long a server may take to end after SIGTERM, and after SIGKILL
MAX_LOG_BYTES = 1024 * 1024
MISSING_MESSAGES = ("No module named", "not found", "No such file or directory: ")
PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
# Tornado logs the URL of a failed request, and a URL may contain the token.
HIDE_TOKENS = r"""import logging
import re

make = logging.getLogRecordFactory()


def make_without_token(*args, **more):
    record = make(*args, **more)
    if "token=" in str(record.msg) + str(record.args):
        record.msg, record.args = re.sub(r"token=[^&\s\"')]*", "token=...", record.getMessage()), ()
    return record


logging.setLogRecordFactory(make_without_token)
"""
# The user's own configuration applies, except for what would lock us out or let others in.
FIXED_CONFIG = """
c = get_config()
with open({token!r}) as token:
    c.PasswordIdentityProvider.token = token.read()
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.PasswordIdentityProvider"
c.ServerApp.base_url = "/"
c.ServerApp.certfile = c.ServerApp.keyfile = c.ServerApp.sock = ""
"""
CONFIG_FILES = ("jupyter_server_config.py", "jupyter_lab_config.py")
# rfc3987_syntax takes two seconds to import, and JupyterLab runs without it; kernels have it. The server
# does not import modules from the directory of notebooks.
FAST_START = """import runpy, sys
sys.path[:] = filter(None, sys.path)
sys.modules["rfc3987_syntax"] = None
runpy.run_module(sys.argv.pop(1), None, "__main__", True)
"""
OPTIONS = (  # loopback only, no requests to the network
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.allow_remote_access=False",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)


class Fault(Exception):
    """An error, as a sentence for the user.

    `missing`: why JupyterLab is not installed (`template`: the machine's has none; `installation`: that failed;
    `program`: it was removed, or never there), empty otherwise; `installing`: it is being installed; `starting`: it
    runs but does not answer.
    """

    def __init__(self, sentence: str, *, missing: str = "", starting: bool = False, installing: bool = False) -> None:
        super().__init__(sentence)
        self.flags = {"missing": missing, "starting": starting, "installing": installing}


class Lab:
    """The JupyterLab of this machine; `home` is ~/.cloudgpu, its files are in `home`/jupyter."""

    def __init__(self, home: Path) -> None:
        settings = load(home / "agent.json")
        self.home = home
        self.directory = home / "jupyter"
        self.record_file = self.directory / "server.json"
        self.token_file = self.directory / "token"
        self.command: list[str] = settings.get("jupyter") or []
        self.root = str(settings.get("root") or home.parent)

    def ensure(self, wait: float) -> dict[str, Any]:
        """Return its pid and port; start it if it does not run. Raises Fault, after `wait` seconds at the latest."""
        if not self.command:
            raise Fault("this machine was launched without JupyterLab", missing="template")
        self.check_installed()
        deadline = time.monotonic() + wait
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.directory / "lock", deadline):
            started = not self.is_alive()
            if started:
                self.start()
            record = self.wait_until_ready(deadline)
        return {**record, "token_file": str(self.token_file), "root": self.root, "started": started}

    def check_installed(self) -> None:
        """Raise Fault if it is being installed, or its installation failed."""
        status = read_text(self.home / "jupyter.status")
        if status == "installing" and is_locked(self.home / "on_start.alive"):
            raise Fault("it is being installed there, see ~/.cloudgpu/jupyter.log", installing=True)
        if status in ("installing", "failed"):
            lines = read_text(self.home / "jupyter.log").splitlines() or ["its installation was interrupted"]
            raise Fault(f"it could not be installed: {lines[-1].strip()[:300]}", missing="installation")

    def stop(self, wait: float) -> dict[str, Any]:
        """End it, its kernels and terminals: SIGTERM, and SIGKILL after TERM_S. Raises Fault."""
        if not self.directory.exists():
            return {"stopped": False}
        with locked(self.directory / "lock", time.monotonic() + wait):
            stopped = self.is_alive()
            self.end_by_signal(signal.SIGTERM, TERM_S)
            self.end_by_signal(signal.SIGKILL, KILL_S)
            if self.is_alive():
                raise Fault("JupyterLab does not end")
            remove(self.record_file)
            self.remove_runtime_files()
        return {"stopped": stopped}

    def is_alive(self) -> bool:
        """Tell whether the server's process lives: it holds an inherited lock."""
        return is_locked(self.directory / "alive")

    def end_by_signal(self, signal_number: int, wait_s: float) -> None:
        """Send a signal to its process group, and wait for its end."""
        deadline, is_sent = time.monotonic() + wait_s, False
        while self.is_alive() and time.monotonic() < deadline:
            pid = self.read_record()["pid"]
            if pid and not is_sent:  # while the lock is held, the process id is not reused
                with contextlib.suppress(OSError):
                    os.killpg(os.getpgid(pid), signal_number)
                is_sent = True
            time.sleep(POLL_S)

    def start(self) -> None:
        """Start it, detached; on its earlier port if possible, so that open pages find it again."""
        port = free_port(load(self.record_file).get("port") or 0)
        self.prepare()
        lock_fd, log_fd = create(self.directory / "alive"), open_log(self.directory / "log")
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX)
            pid = self.start_process([*faster_command(self.command), *self.options(port)], lock_fd, log_fd)
        except OSError as error:
            raise Fault(str(error), missing="program" if isinstance(error, FileNotFoundError) else "") from None
        finally:
            os.close(lock_fd)
            os.close(log_fd)
        save(self.record_file, json.dumps({"pid": pid, "port": 0}))

    def start_process(self, command: list[str], lock_fd: int, log_fd: int) -> int:
        """Start the process in its own session, with the lock; return its process id."""
        return subprocess.Popen(  # noqa: S603
            command,
            cwd=self.root,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,
            pass_fds=(lock_fd,),
        ).pid

    def prepare(self) -> None:
        """Create the token and the configuration; remove files of an ended server.

        Its record too: if this start is killed before it writes its own, the new server's runtime file counts.
        """
        remove(self.record_file)
        self.remove_runtime_files()
        if not read_text(self.token_file):
            # 128 bits in 26 letters and digits: the URL fits a line of 60 columns.
            save(self.token_file, base64.b32encode(os.urandom(16)).decode().rstrip("=").lower())
        config = self.directory / "config"
        (config / "labconfig").mkdir(parents=True, exist_ok=True)
        save(config / "labconfig" / "page_config.json", json.dumps(PAGE_CONFIG))
        for name in CONFIG_FILES:
            save(config / name, HIDE_TOKENS + FIXED_CONFIG.format(token=str(self.token_file)))
        self.copy_user_settings(config / "lab" / "user-settings")

    def copy_user_settings(self, settings_dir: Path) -> None:
        """Copy the user's own settings of JupyterLab, such as theme and shortcuts, the first time."""
        user_settings = Path.home() / ".jupyter" / "lab" / "user-settings"
        if user_settings.is_dir() and not settings_dir.exists():
            shutil.copytree(str(user_settings), str(settings_dir))

    def remove_runtime_files(self) -> None:
        """Remove the runtime files of an ended server: they contain the token."""
        for file in self.directory.glob("runtime/jpserver-*"):
            remove(file)

    def options(self, port: int) -> list[str]:
        """Return the command's options."""
        own_options = [f"--ServerApp.port={port}", f"--ServerApp.root_dir={self.root}"]
        return [*OPTIONS, *own_options, *["--allow-root"] * (os.geteuid() == 0)]

    def env(self) -> dict[str, str]:
        """Return its environment: its files are in our directory, and the token is only in a file."""
        env = {name: value for name, value in os.environ.items() if name != "JUPYTER_TOKEN"}
        kernels_dir = str(Path.home() / ".local" / "share" / "jupyter")  # so that the user's own kernels are found
        env["JUPYTER_PATH"] = os.pathsep.join(filter(None, (env.get("JUPYTER_PATH"), kernels_dir)))
        config_dirs = (str(self.directory / "config"), env.get("JUPYTER_CONFIG_PATH"), str(Path.home() / ".jupyter"))
        env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, config_dirs))
        for name in ("runtime", "config", "data"):
            env[f"JUPYTER_{name.upper()}_DIR"] = str(self.directory / name)
        return {**env, "JUPYTER_TOKEN_FILE": str(self.token_file)}

    def wait_until_ready(self, deadline: float) -> dict[str, Any]:
        """Wait until it answers; return its pid and port. Raises Fault."""
        while True:
            record = self.read_record()
            timeout_s = max(POLL_S, min(ANSWER_TIMEOUT_S, deadline - time.monotonic()))
            status = http_status(record["port"], read_text(self.token_file), timeout_s) if record["port"] else None
            if status == HTTPStatus.OK:
                save(self.record_file, json.dumps(record))
                return {"pid": record["pid"], "port": record["port"]}
            if status == HTTPStatus.FORBIDDEN:
                raise Fault("it does not take our token: Jupyter's own configuration here sets another")
            if not self.is_alive():
                raise self.start_fault()
            if time.monotonic() > deadline:
                raise Fault("JupyterLab runs but does not answer", starting=True)
            time.sleep(POLL_S)

    def read_record(self) -> dict[str, Any]:
        """Return server.json, with the port from the server's own runtime file.

        The process id of that file counts only if the process that started the server was killed before it wrote
        server.json.
        """
        record = {"pid": 0, "port": 0, **load(self.record_file)}
        for path in [] if record["port"] else self.directory.glob("runtime/jpserver-*.json"):
            runtime = load(path)
            record.update(port=runtime.get("port", 0), pid=record["pid"] or runtime.get("pid", 0), info=str(path))
        return record

    def start_fault(self) -> Fault:
        """Return the Fault of a server that ended during its start, with its last line of output."""
        remove(self.record_file)
        lines = read_text(self.directory / "log").splitlines()
        line = lines[-1].strip()[:300] if lines else "it ended without a message"
        return Fault(line, missing="program" if any(message in line for message in MISSING_MESSAGES) else "")


def faster_command(command: list[str]) -> list[str]:
    """Return a faster form of a command `python -m module ...`; any other command as it is."""
    python, option, *arguments = command if len(command) > 1 else ("", "")
    return [python, "-c", FAST_START, *arguments] if option == "-m" and arguments else command


def http_status(port: int, token: str, timeout_s: float) -> int | None:
    """Return the HTTP status of the server's answer to this token, None for no answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/api/status?no_track_activity=1", headers={"Authorization": f"token {token}"})
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def free_port(requested: int) -> int:
    """Return a free port of the loopback, `requested` if it is free. Jupyter tries others if it is taken meanwhile."""
    for port in (requested, 0):
        with contextlib.suppress(OSError), socket() as probe:
            probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Fault("no port is free")


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the lock on a file."""
    if not path.exists():
        return False
    handle = create(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def locked(path: Path, deadline: float) -> Iterator[None]:
    """Hold a lock; raise Fault if it is not free by `deadline`."""
    handle = create(path)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Fault("JupyterLab is being started by somebody else") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def create(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file, created with mode 0600."""
    return os.open(str(path), flags | os.O_CREAT, 0o600)


def open_log(path: Path) -> int:
    """Open a log to append to; a large one is rotated."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))
    return create(path, os.O_WRONLY | os.O_APPEND)


def save(path: Path, text: str) -> None:
    """Replace a file atomically, mode 0600."""
    new_file = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(create(new_file, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(text)  # without a newline, which Jupyter would take for a part of the token
    new_file.replace(path)


def read_text(path: Path) -> str:
    """Return a file's text, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        value = json.loads(read_text(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(OSError):
        path.unlink()


def main(argv: list[str]) -> int:
    """Run one command; print its answer."""
    parser = argparse.ArgumentParser(prog="lab")
    parser.add_argument("verb", choices=("ensure", "stop"))
    parser.add_argument("--home", type=Path, default=Path.home() / ".cloudgpu")
    parser.add_argument("--wait", type=float, default=30.0)
    args = parser.parse_args(argv)
    lab = Lab(args.home)
    try:
        answer = lab.ensure(args.wait) if args.verb == "ensure" else lab.stop(args.wait)
    except Fault as fault:
        answer = {"error": str(fault), **fault.flags}
    except OSError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
