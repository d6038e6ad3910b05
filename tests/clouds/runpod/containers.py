"""Runs the containers of our model of RunPod for real: what a pod's `args` say, with its environment, and no systemd.

A stop ends all of it and erases its disk; what is mounted as the persistent volume lasts until the pod ends. `env` has
what RunPod adds: the pod's id and its own key. The port that the container listens at is its public one: nothing maps.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.clouds.runpod.pods import Pod
from tests.clouds.runpod.server import RunpodServer
from tests.providers.machine.containers import MACHINE_VARIABLE, PATH, Container


class Containers:
    """The running containers of a server's pods, below `root`. The volume is where the pod mounts it."""

    def __init__(self, server: RunpodServer, root: Path) -> None:
        self.server, self.root = server, root
        self.running: dict[str, Container] = {}
        server.model.boot, server.model.halt = self.boot, self.halt

    def boot(self, pod: Pod) -> None:
        """Start the container with a new disk."""
        place = Container(self.root / pod.id)
        shutil.rmtree(place.root / "disk", ignore_errors=True)
        place.home.mkdir(parents=True)
        Path(pod.body["mounts"]["persistent"]["path"]).mkdir(parents=True, exist_ok=True)
        environ = {"PATH": PATH, "LANG": "C.UTF-8", **pod.body["env"], **self._added(pod)}
        environ |= _places(place.root / "disk")
        log = place.root / "log"
        with log.open("wb") as file:
            place.process = subprocess.Popen(
                shlex.split(pod.body["args"]),
                env=environ,
                cwd=place.root / "disk",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        pod.port = int(next(one for one in pod.body["ports"] if one.endswith("/tcp")).partition("/")[0])
        pod.user = pwd.getpwuid(os.getuid()).pw_name
        pod.read_log = lambda: log.read_text(errors="replace").splitlines()
        self.running[pod.id] = place

    def _added(self, pod: Pod) -> dict[str, str]:
        return {"RUNPOD_POD_ID": pod.id, "RUNPOD_API_KEY": pod.key, "CLOUDGPU_RUNPOD_ENDPOINT": self.server.url}

    def halt(self, pod: Pod) -> None:
        """End all processes of the container."""
        place = self.running.pop(pod.id, None)
        if place is not None:
            place.stop(pod.body["env"][MACHINE_VARIABLE])
            pod.read_log = list

    def close(self) -> None:
        """End all of them."""
        for id_ in list(self.running):
            self.halt(self.server.pod(id_))


def _places(disk: Path) -> dict[str, str]:
    """Return the paths of a container's own disk, which the start script takes from its environment."""
    return {
        "CLOUDGPU_HOME": f"{disk}/home",
        "CLOUDGPU_ETC": f"{disk}/etc",
        "CLOUDGPU_RUN": f"{disk}/run",
        "CLOUDGPU_LOG": "",
        "CLOUDGPU_LISTEN": "127.0.0.1",
        "CLOUDGPU_EVERY": "0.2",
        "CLOUDGPU_AGAIN": "0.2",
    }
