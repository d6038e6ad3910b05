"""Starts, finds and stops JupyterLab on the machine it runs on.

This file's text is sent over SSH and run there by the agent's interpreter (`access/jupyter.py` does it), so that
what every machine carries from its first second stays small. Standard library only, Python 3.8+. It shares with the
agent the directory `~/.cloudgpu/jupyter`: `alive` is locked while the server lives, `server.json` says where it
answers, `token` (0600) is the only place of the token besides Jupyter's own 0600 files.

The answer is one line of JSON: {"pid", "port", "token_file", "root", "started"}, {"stopped"},
or {"error": a sentence, "missing": JupyterLab is not installed, "installing": it is being installed, "starting": it
may still come} with status 1.
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
TERM_S, KILL_S = 8.0, 2.0
LOG_SIZE = 1024 * 1024
MISSING = ("No module named", "not found", "No such file or directory: ")
PAGE = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
# Tornado logs the whole address of a request that failed, and an address may hold the token.
SCRUB = r"""import logging
import re

make = logging.getLogRecordFactory()


def scrubbed(*args, **more):
    record = make(*args, **more)
    if "token=" in str(record.msg) + str(record.args):
        record.msg, record.args = re.sub(r"token=[^&\s\"')]*", "token=...", record.getMessage()), ()
    return record


logging.setLogRecordFactory(scrubbed)
"""
# The user's own configuration is read, but for what would keep us out, or let others in.
PINNED = """
c = get_config()
with open({token!r}) as token:
    c.PasswordIdentityProvider.token = token.read()
c.ServerApp.identity_provider_class = "jupyter_server.auth.identity.PasswordIdentityProvider"
c.ServerApp.base_url = "/"
c.ServerApp.certfile = c.ServerApp.keyfile = c.ServerApp.sock = ""
"""
CONFIGURED = ("jupyter_server_config.py", "jupyter_lab_config.py")
# The package of this name takes two seconds to import, for a check of addresses that nobody here asks for; what would
# use it does without. Kernels are processes of their own and have it. A file in the directory of notebooks that has the
# name of one of Python's modules is not for the server.
QUICK = """import runpy, sys
sys.path[:] = filter(None, sys.path)
sys.modules["rfc3987_syntax"] = None
runpy.run_module(sys.argv.pop(1), None, "__main__", True)
"""
OPTIONS = (  # loopback only, no question to the network
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.allow_remote_access=False",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)


class Fault(Exception):
    """A sentence for the user.

    `missing`: JupyterLab is not installed; `installing`: it is being installed; `starting`: it runs, and may answer.
    """

    def __init__(
        self, sentence: str, *, missing: bool = False, starting: bool = False, installing: bool = False
    ) -> None:
        super().__init__(sentence)
        self.why = {"missing": missing, "starting": starting, "installing": installing}


class Lab:
    """The one JupyterLab of this machine, with its files in `home`/jupyter."""

    def __init__(self, home: Path) -> None:
        settings = load(home / "agent.json")
        self.home = home
        self.base = home / "jupyter"
        self.record = self.base / "server.json"
        self.token = self.base / "token"
        self.command: list[str] = settings.get("jupyter") or []
        self.root = str(settings.get("root") or home.parent)

    def ensure(self, wait: float) -> dict[str, Any]:
        """Return where it answers; start it when it does not run. Raises Fault, after `wait` seconds at the latest."""
        if not self.command:
            raise Fault("this machine was launched without JupyterLab", missing=True)
        self.check_installed()
        end = time.monotonic() + wait
        self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.base / "lock", end):
            started = not self.is_alive()
            if started:
                self.start()
            record = self.ready(end)
        return {**record, "token_file": str(self.token), "root": self.root, "started": started}

    def check_installed(self) -> None:
        """Raise Fault where it is being installed, or could not be: on a host whose Python has no JupyterLab."""
        how_far = read_text(self.home / "jupyter.status")
        if how_far == "installing" and is_locked(self.home / "on_start.alive"):
            raise Fault("it is being installed there, see ~/.cloudgpu/jupyter.log", installing=True)
        if how_far in ("installing", "failed"):
            lines = read_text(self.home / "jupyter.log").splitlines() or ["its installation was interrupted"]
            raise Fault(f"it could not be installed: {lines[-1].strip()[:300]}", missing=True)

    def stop(self, wait: float) -> dict[str, Any]:
        """End it, its kernels and terminals; what does not end in 8 seconds is killed. Raises Fault."""
        if not self.base.exists():
            return {"stopped": False}
        with locked(self.base / "lock", time.monotonic() + wait):
            stopped = self.is_alive()
            self.send(signal.SIGTERM, TERM_S)
            self.send(signal.SIGKILL, KILL_S)
            if self.is_alive():
                raise Fault("JupyterLab does not end")
            remove(self.record)
            self.forget()
        return {"stopped": stopped}

    def is_alive(self) -> bool:
        """Tell whether the server's process lives: it inherited a lock."""
        return is_locked(self.base / "alive")

    def send(self, number: int, wait: float) -> None:
        """Send a signal to its process group, and wait for its end."""
        end, sent = time.monotonic() + wait, False
        while self.is_alive() and time.monotonic() < end:
            pid = self.located()["pid"]
            if pid and not sent:  # while the lock is held, the number is still its own
                with contextlib.suppress(OSError):
                    os.killpg(os.getpgid(pid), number)
                sent = True
            time.sleep(POLL_S)

    def start(self) -> None:
        """Start it, detached. It keeps its port where it can, so that pages which are open find it again."""
        port = free_port(load(self.record).get("port") or 0)
        self.prepare()
        held, log = create(self.base / "alive"), appended(self.base / "log")
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            pid = self.launch([*quick(self.command), *self.options(port)], held, log)
        except OSError as error:
            raise Fault(str(error), missing=isinstance(error, FileNotFoundError)) from None
        finally:
            os.close(held)
            os.close(log)
        save(self.record, json.dumps({"pid": pid, "port": 0}))

    def launch(self, command: list[str], held: int, log: int) -> int:
        """Start the process in a session of its own; return its number."""
        return subprocess.Popen(  # noqa: S603
            command,
            cwd=self.root,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(held,),
        ).pid

    def prepare(self) -> None:
        """Make the token once; keep it out of the log; switch the news off; forget what a dead server left."""
        self.forget()
        if not read_text(self.token):
            # 128 bits in 26 letters and digits: the whole address fits a line of 60 columns.
            save(self.token, base64.b32encode(os.urandom(16)).decode().rstrip("=").lower())
        config = self.base / "config"
        (config / "labconfig").mkdir(parents=True, exist_ok=True)
        save(config / "labconfig" / "page_config.json", json.dumps(PAGE))
        for name in CONFIGURED:
            save(config / name, SCRUB + PINNED.format(token=str(self.token)))
        self.take_settings(config / "lab" / "user-settings")

    def take_settings(self, place: Path) -> None:
        """Begin with the user's own settings of JupyterLab, such as theme and shortcuts; changes stay here."""
        owners = Path.home() / ".jupyter" / "lab" / "user-settings"
        if owners.is_dir() and not place.exists():
            shutil.copytree(str(owners), str(place))

    def forget(self) -> None:
        """Remove the runtime files of a dead server: they hold the token."""
        for old in self.base.glob("runtime/jpserver-*"):
            remove(old)

    def options(self, port: int) -> list[str]:
        """Return the command's options."""
        own = [f"--ServerApp.port={port}", f"--ServerApp.root_dir={self.root}"]
        return [*OPTIONS, *own, *["--allow-root"] * (os.geteuid() == 0)]

    def env(self) -> dict[str, str]:
        """Return its environment: what it writes stays in our directory, the token is named by its file only."""
        env = {name: value for name, value in os.environ.items() if name != "JUPYTER_TOKEN"}
        kernels = str(Path.home() / ".local" / "share" / "jupyter")  # the user's own kernels are found nevertheless
        env["JUPYTER_PATH"] = os.pathsep.join(filter(None, (env.get("JUPYTER_PATH"), kernels)))
        settings = (str(self.base / "config"), env.get("JUPYTER_CONFIG_PATH"), str(Path.home() / ".jupyter"))
        env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, settings))
        for name in ("runtime", "config", "data"):
            env[f"JUPYTER_{name.upper()}_DIR"] = str(self.base / name)
        return {**env, "JUPYTER_TOKEN_FILE": str(self.token)}

    def ready(self, end: float) -> dict[str, Any]:
        """Wait until it answers; return its pid and port. Raises Fault."""
        while True:
            record = self.located()
            within = max(POLL_S, min(ANSWER_TIMEOUT_S, end - time.monotonic()))
            status = answers(record["port"], read_text(self.token), within) if record["port"] else None
            if status == HTTPStatus.OK:
                save(self.record, json.dumps(record))
                return {"pid": record["pid"], "port": record["port"]}
            if status == HTTPStatus.FORBIDDEN:
                raise Fault("it does not take our token: Jupyter's own configuration here sets another")
            if not self.is_alive():
                raise self.died()
            if time.monotonic() > end:
                raise Fault("JupyterLab runs but does not answer", starting=True)
            time.sleep(POLL_S)

    def located(self) -> dict[str, Any]:
        """Return the record, with the port that the server itself has written down.

        Its own word for its number counts only where whoever started it was killed before writing it.
        """
        record = {"pid": 0, "port": 0, **load(self.record)}
        for path in [] if record["port"] else self.base.glob("runtime/jpserver-*.json"):
            own = load(path)
            record.update(port=own.get("port", 0), pid=record["pid"] or own.get("pid", 0), info=str(path))
        return record

    def died(self) -> Fault:
        """Return the fault of a server that ended while it started, in its own last words."""
        remove(self.record)
        lines = read_text(self.base / "log").splitlines()
        line = lines[-1].strip()[:300] if lines else "it ended without a word"
        return Fault(line, missing=any(word in line for word in MISSING))


def quick(command: list[str]) -> list[str]:
    """Return a command of the form `python -m module ...` as one that starts sooner; any other as it is."""
    python, option, *rest = command if len(command) > 1 else ("", "")
    return [python, "-c", QUICK, *rest] if option == "-m" and rest else command


def answers(port: int, token: str, within: float) -> int | None:
    """Return the status with which a server on loopback answers one who shows this token, None for silence."""
    link = HTTPConnection("127.0.0.1", port, timeout=within)
    try:
        link.request("GET", "/api/status?no_track_activity=1", headers={"Authorization": f"token {token}"})
        return link.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        link.close()


def free_port(requested: int) -> int:
    """Return a free port of the loopback, `requested` if it is. Jupyter tries others when it was taken meanwhile."""
    for port in (requested, 0):
        with contextlib.suppress(OSError), socket() as probe:
            probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Fault("no port is free")


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock on a file."""
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
def locked(path: Path, end: float) -> Iterator[None]:
    """Hold a lock; raise Fault when it cannot be had by `end`."""
    handle = create(path)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Fault("JupyterLab is being started by somebody else") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def create(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file that only we may read."""
    return os.open(str(path), flags | os.O_CREAT, 0o600)


def appended(path: Path) -> int:
    """Open a log at its end; one that has grown is moved aside."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_SIZE:
            path.replace(path.with_name(path.name + ".1"))
    return create(path, os.O_WRONLY | os.O_APPEND)


def save(path: Path, text: str) -> None:
    """Write a file whole, for us alone: readers see the old or the new."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(create(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(text)  # no newline: Jupyter would take it for a part of the token
    fresh.replace(path)


def read_text(path: Path) -> str:
    """Return a file's text, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def load(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, empty when there is none."""
    try:
        found = json.loads(read_text(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def remove(path: Path) -> None:
    """Remove a file that may be gone."""
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
        answer = {"error": str(fault), **fault.why}
    except OSError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
