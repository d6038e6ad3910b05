"""Writes a line to the terminals of a machine's people, over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.access.connection import connect

if TYPE_CHECKING:
    from cloudgpu.access.target import Target

# A terminal is a machine's where a process with its user's HOME has it: on a computer that is several machines (the
# local provider) it may be another's. What does not take the text at once is left out. A terminal's times are set back
# to what they were: what we say there is nobody's work, and no sign of life. Python 3.8: it runs over there.
_SAY = r"""
import glob, os, sys
text = sys.stdin.read().replace("\n", "\r\n").encode()
told = set()
for place in glob.glob("/proc/[0-9]*"):
    try:
        with open(place + "/environ", "rb") as file:
            if ("HOME=" + os.environ["HOME"]).encode() not in file.read().split(b"\0"):
                continue
        terminal = os.readlink(place + "/fd/0")
        if terminal in told or not terminal.startswith("/dev/pts/"):
            continue
        handle = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            before = os.fstat(handle)
            os.write(handle, b"\r\n" + text + b"\r\n")
            told.add(terminal)
            os.utime(terminal, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(handle)
    except OSError:
        continue
print(len(told))
"""
_RUN = f"\"$HOME\"/.cloudgpu/agent python -c '{_SAY}'"


def say(target: Target, text: str, *, timeout: float) -> int:
    """Write `text` to the terminals of this machine's user and return how many took it; `timeout` is in seconds.

    Raises Unreachable for a machine that does not answer, and for one on which no Python of the agent's runs.
    """
    with connect(target, timeout=timeout) as connection:
        done = connection.capture(_RUN, timeout=timeout, input=f"[cloudgpu] {text}".encode(), at_most=1000)
    return int(done.stdout) if done.status == 0 and done.stdout.strip().isdigit() else 0
