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
    """Tell whether JupyterLab's process runs: it holds an inherited lock on `alive`."""
    with suppress(FileNotFoundError), (directory / "alive").open("r+") as file:
        return not lock(file, fcntl.LOCK_SH)
    return False


def kernels(directory: Path) -> Any:
    """Return its kernels; none when JupyterLab was not started or was shut down. Raises when that cannot be known."""
    server = load(directory / "server.json")
    if is_running(directory):
        if "port" not in server:
            raise OSError("it is starting")
        connection = HTTPConnection("127.0.0.1", server["port"], timeout=3)
        headers = {"Authorization": "token " + read_text(directory / "token")}
        connection.request("GET", "/api/kernels?no_track_activity=1", headers=headers)
        return json.load(connection.getresponse())
    if os.path.exists(server.get("info", "")):  # noqa: PTH110  (an orderly shutdown removes it)
        raise OSError("it died")
    return []
