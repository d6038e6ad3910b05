"""The process of one local machine: its SSH server, its on_start script, its agent, its timer, its end.

`python -m cloudgpu.providers.local.machine DIR --alive FD` lives as long as the machine is on; FD is the
descriptor of DIR/alive, locked by whoever started it, so that no moment passes in which a living machine looks dead.
`python -m cloudgpu.providers.local.machine --power-off DIR REASON` ends it from inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from cloudgpu.core.values.times import iso
from cloudgpu.providers.local.build import rewrite_paths
from cloudgpu.providers.local.deadlines import INTERRUPTED, Deadlines
from cloudgpu.providers.local.layout import Layout, is_alive, read_json, recorded_pid, write_json
from cloudgpu.providers.local.processes import MARKER_VARIABLE, TERM_WAIT_S, end_all, marker, terminate_process

STEADY_S = 10.0  # an agent that lived this long has started well: its next death counts as the first
MAX_DEATHS = 3  # after this many deaths in a row the machine process watches the lease itself
MAX_PAUSE_S = 30.0  # between two starts of an agent that dies again and again
EXIT_NOT_STARTED = 127
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def session_environ() -> dict[str, str]:
    """Return the environment of sessions: this process's own without PYTHONPATH, which leads to cloudgpu's code."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


class Agent:
    """Keeps the machine's agent running, and reports whether it watches the lease."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._deaths = 0
        self._started_at: float | None = None
        self._process: asyncio.subprocess.Process | None = None

    def watches_lease(self) -> bool:
        """Say whether the agent runs well enough to end the lease; else this process does."""
        if not (self._layout.agent / "agent").exists():
            return False
        is_steady = self._started_at is not None and time.monotonic() - self._started_at >= STEADY_S
        return is_steady or self._deaths < MAX_DEATHS

    def move(self, layout: Layout) -> None:
        """Start the agent anew in the directory to which the machine's was moved."""
        self._layout = layout
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _record_process(self, layout: Layout, process: asyncio.subprocess.Process) -> None:
        self._process = process
        if layout != self._layout:  # moved while it was being started
            process.kill()

    async def keep_running(self) -> None:
        """Start the agent, and restart it whenever it dies, as long as the machine has one."""
        while (self._layout.agent / "agent").exists():
            self._started_at = time.monotonic()
            layout = self._layout
            command, log = [str(layout.agent / "agent"), "run"], layout.logs / "agent.log"
            await _run(command, layout, log, dict(os.environ), partial(self._record_process, layout))
            lived_s = time.monotonic() - self._started_at
            self._started_at = None
            self._deaths = 1 if lived_s >= STEADY_S else self._deaths + 1
            await asyncio.sleep(min(MAX_PAUSE_S, 0.1 * 3**self._deaths))


async def _run(
    command: list[str],
    layout: Layout,
    log: Path,
    env: dict[str, str],
    on_spawn: Callable[[asyncio.subprocess.Process], object] = repr,  # `repr` does nothing that lasts
) -> int:
    """Run a command with its output in a log; return its status, 127 when it could not be started.

    Without a log there is no start either: its directory is gone, or the disk is full.
    """
    try:
        out = log.open("ab")
    except OSError:
        return EXIT_NOT_STARTED
    with out:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=layout.home,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            out.write(f"{command[0]}: {error.strerror}\n".encode())
            return EXIT_NOT_STARTED
    on_spawn(process)
    status = await process.wait()
    return status if status >= 0 else 128 - status


def adopt_orphans() -> None:
    """Become the parent of this machine's orphans, so that they stay findable as descendants (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(dead_before: set[int]) -> set[int]:
    """Reap children that were dead at the last call, too (`dead_before`); return the newly dead.

    A child of asyncio's own is reaped by asyncio long before the second call.
    """
    dead: set[int] = set()
    for pid in _children():
        with contextlib.suppress(ChildProcessError):
            if pid in dead_before:
                os.waitpid(pid, os.WNOHANG)
            elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                dead.add(pid)
    return dead


def _children() -> list[int]:
    """Return the pids of our children where /proc has them (Linux); elsewhere orphans are not our children."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                pids += [int(word) for word in (task / "children").read_text().split()]
    return pids


CHECK_INTERVAL_S = 0.25  # how often tags, notice and timers are looked at
TOUCH_S = 1.0  # how often `alive` is touched: the time of that file is when a killed machine was last alive
TYPING_TOUCH_S = 5.0  # how often, at most, it is recorded that somebody types
END_REQUESTED = "asked"


class Machine:
    """One machine, from the moment its process runs until it is powered off.

    `reported` is what this process writes into run.json, `previous_run` what the last one wrote. `mark` marks the
    machine's processes (`processes.marker`). `descriptor` is that of the file `alive`, whose lock it holds.
    """

    def __init__(self, root: Path, descriptor: int) -> None:
        self.layout = Layout(root)
        self.descriptor = descriptor
        self.record = read_json(self.layout.record) or {}
        self.mark = self.record["mark"]
        self.previous_run = _read_or_empty(self.layout.run)
        self.reported: dict[str, Any] = {"boot": self.record["boots"], "on_start": None}
        self.agent = Agent(self.layout)
        self._end_requested = asyncio.Event()
        self._typing_recorded_at = 0.0

    def report(self, **facts: Any) -> None:
        """Add facts to this process's report in run.json."""
        self.reported |= facts
        write_json(self.layout.run, self.reported)

    async def run_until_end(self) -> str:
        """Run until there is a reason to end; return the reason."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end_requested.set)
        self._tasks = [asyncio.create_task(self.agent.keep_running()), asyncio.create_task(self._run_on_start())]
        await asyncio.sleep(0)  # both begin before the SSH server's imports take the processor
        deadlines = Deadlines(self.layout, time.time, time.monotonic)
        # Read before anybody is told that the machine runs: they also hold when its directory is gone.
        deadlines.end_reason(with_lease=False)
        await self._listen()
        return await self._watch(deadlines)

    async def _run_on_start(self) -> None:
        if self.layout.on_start.exists():  # at every start, as on a cloud: a template's script may be run again
            self._write_on_start_status("running")
            command, log = ["/bin/sh", "-e", str(self.layout.on_start)], self.layout.logs / "on_start.log"
            status = await _run(command, self.layout, log, session_environ())
            self._write_on_start_status(status)
            self.report(on_start={"status": status})

    def _write_on_start_status(self, status: object) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep the machine from starting
            self.layout.on_start_status.write_text(f"{status}\n")

    async def _listen(self) -> None:
        from cloudgpu.providers.local.sshd import serve

        server_options = {
            "host_key": self.layout.host_key.read_text(),
            "authorized_keys": self.layout.authorized_keys.read_text().splitlines(),
            "user": self.record["user"],
            "home": self.layout.home,
            "environ": session_environ(),
            "shell": os.environ.get("SHELL", "/bin/sh"),
            "on_input": self._record_typing,
        }
        try:
            self.acceptor = await serve(**server_options, port=self.previous_run.get("port") or 0)
        except OSError:  # somebody else has taken the port of the last time
            self.acceptor = await serve(**server_options, port=0)
        started_at = self.reported.get("started_at") or _now()
        self.report(port=self.acceptor.get_port(), pid=os.getpid(), started_at=started_at)

    async def _watch(self, deadlines: Deadlines) -> str:
        touched_at = 0.0
        orphans: set[int] = set()
        while True:
            if time.monotonic() - touched_at >= TOUCH_S:
                touched_at = time.monotonic()
                await self._follow_move(deadlines)
                os.utime(self.descriptor)
                orphans = reap_orphans(orphans)
            reason = deadlines.end_reason(with_lease=not self.agent.watches_lease())
            if reason is not None:
                return reason
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end_requested.wait(), CHECK_INTERVAL_S)
                return self._end_reason()

    async def _follow_move(self, deadlines: Deadlines) -> None:
        """Use the machine's directory where it was moved to. If it was removed, the known deadlines hold."""
        old_root = self.layout.root
        if old_root.exists():
            return
        with contextlib.suppress(OSError):  # removed, or moved to another disk
            new_layout = Layout(Path.cwd().parent)  # we were started in it: still the same directory, wherever it is
            if not new_layout.record.exists():
                return
            rewrite_paths(new_layout, str(old_root))
            for name, value in os.environ.items():
                os.environ[name] = value.replace(str(old_root), str(new_layout.root))
            self.layout = new_layout
            deadlines.move(new_layout)
            self.agent.move(new_layout)
            if self._tasks[0].done():
                self._tasks[0] = asyncio.create_task(self.agent.keep_running())
            self.acceptor.close()  # frees the port at once; sessions go on, so their end is not waited for
            self.previous_run = self.reported
            await self._listen()

    def _end_reason(self) -> str:
        power_off_file = _read_or_empty(self.layout.power_off)
        if "reason" in power_off_file:
            return str(power_off_file["reason"])
        is_requested = _read_or_empty(self.layout.record).get("wanted") != "running"
        return END_REQUESTED if is_requested else "SIGTERM from outside"

    def _record_typing(self) -> None:
        if time.monotonic() - self._typing_recorded_at >= TYPING_TOUCH_S:
            self._typing_recorded_at = time.monotonic()
            with contextlib.suppress(OSError):
                (self.layout.agent / "terminal-input").touch()

    def power_off(self, reason: str) -> None:
        """End every process of the machine, report why and when, and exit. Does not return."""
        state = "terminated" if reason == INTERRUPTED else "stopped"
        try:
            self._report_end(state, reason)
            end_all(self.mark, roots=(os.getpid(),), term_wait_s=TERM_WAIT_S)
            self._report_end(state, reason)
        finally:
            sys.stderr.flush()
            os._exit(0)

    def _report_end(self, state: str, reason: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep the machine on
            self.report(end={"state": state, "reason": reason, "at": _now()})


def power_off_from_inside(root: Path, reason: str) -> None:
    """Ask the machine process to end; if it is dead, end the processes that it left."""
    layout = Layout(root)
    mark = str(_read_or_empty(layout.record).get("mark") or marker(root))
    reason_line = reason.strip().splitlines()[0][:200] if reason.strip() else END_REQUESTED
    write_json(layout.power_off, {"reason": reason_line, "at": _now()})
    pid = recorded_pid(layout)
    if is_alive(layout) and pid is not None:
        terminate_process(pid, mark)
    else:
        end_all(mark, term_wait_s=TERM_WAIT_S)


def run(root: Path, descriptor: int) -> None:
    """Be the machine process of `root` until it is powered off."""
    with contextlib.suppress(OSError):  # only when we lead a session already
        os.setsid()
    for signal_number in (
        signal.SIGINT,
        signal.SIGQUIT,
    ):  # a shell's background job ignores them, and so would all sessions
        signal.signal(signal_number, signal.SIG_DFL)
    os.set_inheritable(descriptor, False)  # noqa: FBT003
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    adopt_orphans()
    try:
        asyncio.run(_run_machine(Machine(root, descriptor)))
    except BaseException:
        end_all(
            os.environ.get(MARKER_VARIABLE) or marker(root), roots=(os.getpid(),)
        )  # what was begun must not outlive us
        raise  # the last line of the log says why


async def _run_machine(machine: Machine) -> None:
    # powered off inside the loop: leaving it would kill the children before they are asked
    machine.power_off(await machine.run_until_end() if machine.record["wanted"] == "running" else END_REQUESTED)


def _read_or_empty(path: Path) -> Mapping[str, Any]:
    try:
        return read_json(path) or {}
    except (OSError, ValueError):
        return {}


def _now() -> str:
    return iso(datetime.now(UTC))


def main(arguments: list[str]) -> None:
    """Run as the machine process, or end the machine. Resets the signals that `nohup` or cron made us ignore."""
    for signal_number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(signal_number, signal.SIG_DFL)
    match arguments:
        case ["--power-off", root, *reason_words]:
            power_off_from_inside(Path(root), " ".join(reason_words))
        case [root, "--alive", descriptor]:
            run(Path(root), int(descriptor))
        case _:
            sys.exit("usage: machine DIR --alive FD | machine --power-off DIR REASON")


if __name__ == "__main__":
    main(sys.argv[1:])
