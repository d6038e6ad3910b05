"""Runs one provider call and dies by SIGKILL at its N-th step: `crash.py HOME CALL N ID|FILE`.

A step is a file operation, a lock, a signal, a new process. Python announces them to audit hooks before they are
done, so the product needs no hook of its own. Prints `done` when the call ended before that.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

from tests.providers.local.cloud import Cloud, now

EVENTS = ("open", "os.", "shutil.", "fcntl.flock", "subprocess.Popen", "tempfile.")


def main(home: str, call: str, point: int, argument: str) -> None:
    provider = Cloud(Path(home)).provider
    given = pickle.loads(Path(argument).read_bytes()) if call == "launch" else argument  # noqa: S301  (the test's own)
    provider.list()
    left = point

    def hook(event: str, about: tuple[object, ...]) -> None:
        nonlocal left
        if event.startswith(EVENTS) and _matters(event, about, home):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if call == "launch":
        provider.launch(given, deadline=now())
    else:
        getattr(provider, call)(given)
    left = 0
    print("done")  # noqa: T201
    sys.stdout.flush()
    os._exit(0)


def _matters(event: str, about: tuple[object, ...], home: str) -> bool:
    """Leave out what is read elsewhere: modules, and every process of this computer."""
    return event == "subprocess.Popen" or not isinstance(about[0], str) or home in about[0]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
