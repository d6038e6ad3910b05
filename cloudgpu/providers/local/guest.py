"""What runs inside a local machine beside its SSH server: the template's on_start, the agent, orphans."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cloudgpu.providers.local.layout import Layout

STEADY_S = 10.0  # an agent that lived this long has started well
DEATHS = 3  # so many deaths in a row, and the machine process watches the lease itself
LONGEST_PAUSE_S = 30.0
NOT_STARTED = 127
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def environ() -> dict[str, str]:
    """Return the environment of sessions: this process's own without the way to our code."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


async def run_on_start(layout: Layout) -> int:
    """Run the template's script as the user, in the machine's home; return its exit status."""
    return await _run(["/bin/sh", "-e", str(layout.on_start)], layout, layout.logs / "on_start.log", environ())


class Agent:
    """Keeps the agent alive, and says whether it can be relied on."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._deaths = 0
        self._started_at: float | None = None
        self._process: asyncio.subprocess.Process | None = None

    def watches(self) -> bool:
        """Say whether the agent looks after the lease."""
        if not (self._layout.agent / "agent").exists():
            return False
        steady = self._started_at is not None and time.monotonic() - self._started_at >= STEADY_S
        return steady or self._deaths < DEATHS

    def move(self, layout: Layout) -> None:
        """Start the agent anew in the directory to which the machine's was moved."""
        self._layout = layout
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _begun(self, layout: Layout, process: asyncio.subprocess.Process) -> None:
        self._process = process
        if layout != self._layout:  # moved while it was being started
            process.kill()

    async def keep(self) -> None:
        """Start the agent, and again whenever it dies, for ever."""
        while (self._layout.agent / "agent").exists():
            self._started_at = time.monotonic()
            here = self._layout
            command, log, begun = (
                [str(here.agent / "agent"), "run"],
                here.logs / "agent.log",
                partial(self._begun, here),
            )
            await _run(command, here, log, dict(os.environ), begun)
            lived = time.monotonic() - self._started_at
            self._started_at = None
            self._deaths = 1 if lived >= STEADY_S else self._deaths + 1
            await asyncio.sleep(min(LONGEST_PAUSE_S, 0.1 * 3**self._deaths))


async def _run(
    command: list[str],
    layout: Layout,
    log: Path,
    env: dict[str, str],
    begun: Callable[[asyncio.subprocess.Process], object] = repr,
) -> int:
    """Run a command with its output in a log; return its status, 127 when it could not be started."""
    with log.open("ab") as out:
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
            return NOT_STARTED
    begun(process)
    status = await process.wait()
    return status if status >= 0 else 128 - status


def adopt_orphans() -> None:
    """Become the parent of this machine's orphans, so that they stay findable as descendants (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(seen: set[int]) -> set[int]:
    """Collect dead children that were dead at the last look too; return the newly dead.

    A child of asyncio's own is collected by asyncio long before the second look.
    """
    dead: set[int] = set()
    for number in _children():
        with contextlib.suppress(ChildProcessError):
            if number in seen:
                os.waitpid(number, os.WNOHANG)
            elif os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                dead.add(number)
    return dead


def _children() -> list[int]:
    """Return our children's numbers where /proc tells them (Linux); nowhere else are orphans ours."""
    numbers: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                numbers += [int(word) for word in (task / "children").read_text().split()]
    return numbers
