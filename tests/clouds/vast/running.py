"""Runs the containers of our model of vast.ai for real: what a contract's `onstart` and `args` say, and no systemd.

A stop ends all processes of one; its disk stays. `env` has what vast.ai adds: the contract's id and its own key. The
port at which the container listens is its host's: nothing maps here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.clouds.vast.contracts import Contract
from tests.clouds.vast.server import VastServer
from tests.providers.machine.containers import MACHINE_VARIABLE, PATH, Container


class Containers:
    """The running containers of a server's contracts, below `root`."""

    def __init__(self, server: VastServer, root: Path) -> None:
        self.root = root
        self.running: dict[int, Container] = {}
        server.boot, server.halt = self.boot, self.halt

    def boot(self, one: Contract) -> None:
        """Start the container; its disk is as it was."""
        place = Container(self.root / str(one.id))
        place.home.mkdir(parents=True, exist_ok=True)
        disk = place.root / "disk"
        env = {name: value for name, value in one.body["env"].items() if not name.startswith("-p ")}
        environ = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "CONTAINER_ID": str(one.id),
            "CONTAINER_API_KEY": one.key,
            **env,
            "CLOUDGPU_HOME": f"{place.home}",
            "CLOUDGPU_ETC": f"{disk}/etc",
            "CLOUDGPU_RUN": f"{disk}/run",
            "CLOUDGPU_LOG": "",
            "CLOUDGPU_LISTEN": "127.0.0.1",
            "CLOUDGPU_EVERY": "0.5",
            "CLOUDGPU_AGAIN": "0.2",
        }
        log = place.root / "log"
        with log.open("wb") as file:
            place.process = subprocess.Popen(
                [one.body["onstart"], *one.body["args"]],
                env=environ,
                cwd=disk,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        one.port = int(one.inside.partition("/")[0])
        one.read_log = lambda: log.read_text(errors="replace")
        self.running[one.id] = place

    def halt(self, one: Contract) -> None:
        """End all processes of the container."""
        place = self.running.pop(one.id, None)
        if place is not None:
            place.stop(one.body["env"][MACHINE_VARIABLE])

    def close(self, server: VastServer) -> None:
        """End all of them."""
        for id_ in list(self.running):
            self.halt(server.contracts[id_])
