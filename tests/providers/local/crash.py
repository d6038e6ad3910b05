"""Runs one provider call in a fork and dies by SIGKILL at its N-th step; it ends with 0 when it ended before that.

A step changes something: a file operation, a signal, a new process. Python announces them to audit hooks before they
are done, so the product needs no hook of its own. Whoever is killed at a look or at a lock, which ends with its
process, leaves what the next step finds: these are no steps.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.providers.local.cloud import Cloud, now

EVENTS = ("open", "os.", "shutil.", "subprocess.Popen", "tempfile.")
LOOKS = {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.listxattr", "os.getxattr"}
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND  # of the flags with which a file is opened


def main(home: str, call: str, point: int, argument: Any) -> None:
    """Make the call with `argument`, an attempt or the id of a machine, and die at this step of it."""
    provider = Cloud(Path(home)).provider
    provider.list()
    left = point

    def hook(event: str, about: tuple[object, ...]) -> None:
        nonlocal left
        if event.startswith(EVENTS) and event not in LOOKS and _matters(event, about, home):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if call == "launch":
        provider.launch(argument, deadline=now())
    else:
        getattr(provider, call)(argument)
    os._exit(0)


def _matters(event: str, about: tuple[Any, ...], home: str) -> bool:
    """Leave out what is read: of the cloud's own files, and elsewhere modules, and every process of this computer."""
    if event == "open" and isinstance(about[2], int) and not about[2] & CHANGES:
        return False
    return event == "subprocess.Popen" or not isinstance(about[0], str) or home in about[0]
