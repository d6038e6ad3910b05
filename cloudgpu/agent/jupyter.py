"""What JupyterLab on the machine says of its kernels."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import load, lock, read_text


def is_responding(base: Path) -> bool:
    """Tell whether JupyterLab's process lives: it holds a lock that it inherited."""
    with suppress(FileNotFoundError), (base / "alive").open("r+") as file:
        return not lock(file, fcntl.LOCK_SH)
    return False


def kernels(base: Path) -> Any:
    """Return the kernels; none when JupyterLab was not started or was shut down. Raises where nothing is known."""
    record = load(base / "server.json")
    if is_responding(base):
        if "port" not in record:
            raise OSError("it is starting")
        link = HTTPConnection("127.0.0.1", record["port"], timeout=3)
        token = {"Authorization": "token " + read_text(base / "token")}
        link.request("GET", "/api/kernels?no_track_activity=1", headers=token)
        return json.load(link.getresponse())
    if os.path.exists(record.get("info", "")):  # noqa: PTH110  (an orderly end removes it)
        raise OSError("it died")
    return []
