"""An SSH server whose files are found in any case, as macOS's usually are; loaded in the server's own process."""

from __future__ import annotations

import os
from typing import Any

from cloudgpu.providers.local import sshd
from tests.access import sshserver

_RUN = sshserver._run


class AnyCase(sshd._SftpServer):
    """Finds a name in whatever case it is asked for, and keeps the case in which it was made."""

    def map_path(self, path: bytes) -> bytes:
        place = b"/"
        for name in super().map_path(path).split(b"/"):
            there = {one.lower(): one for one in os.listdir(place)} if os.path.isdir(place) else {}  # noqa: PTH112, PTH208
            place = os.path.join(place, there.get(name.lower(), name))  # noqa: PTH118
        return place


def run(*given: Any) -> None:
    """Be the server."""
    sshd._SftpServer = AnyCase
    _RUN(*given)
