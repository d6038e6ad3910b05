"""Asks the JupyterLab on the machine for its kernels."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import load, lock, read_text


def is_running(directory: Path) -> bool:
    """Tell whether JupyterLab runs: its process inherited a lock on the file `alive` from the one that started it."""
    with suppress(FileNotFoundError), (directory / "alive").open("r+") as file:
        return not lock(file, fcntl.LOCK_SH)
    return False


def kernels(directory: Path) -> Any:
    """Return JupyterLab's kernels, as its API describes them; none when it was not started or was shut down.

    Raises when they cannot be known: OSError while it starts and after it died, KeyError with the status of an error.
    """
    server_record = load(directory / "server.json")
    if is_running(directory):
        if "port" not in server_record:
            raise OSError("it is starting")
        connection = HTTPConnection("127.0.0.1", server_record["port"], timeout=3)
        token = read_text(directory / "token")
        connection.request("GET", "/api/kernels?no_track_activity=1", None, {"Authorization": "token " + token})
        response = connection.getresponse()
        return {200: json.load}[response.status](response)
    if os.path.exists(server_record.get("info", "")):  # noqa: PTH110  (an orderly shutdown removes it)
        raise OSError("it died")
    return []
