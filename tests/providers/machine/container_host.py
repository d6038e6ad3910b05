"""A machine with a container in the tests: its two scripts in a directory, with stand-ins for Docker, sudo and apt."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
import sys
from pathlib import Path

from cloudgpu.providers.machine import source

IMAGE = "nvcr.io/nvidia/pytorch:24.12-py3"
TOOLS = "sh env grep sed ls touch mkdir cat date id install rm mv sleep ln setsid kill uname tr"
SUDO = '#!/bin/sh\n[ "$1 $2" = "-n -E" ] || exit 99\nshift 2\nexec "$@"\n'


class Host:
    """Directories and programs of a machine; its PATH has nothing but what is named here."""

    def __init__(self, root: Path, *, gpu: bool = True, jupyter: str = "") -> None:
        self.root, self.user = root, getpass.getuser()
        names = "here run bin etc/apt/sources.list.d keys dev state data"
        for name in names.split():
            (root / name).mkdir(parents=True)
        self.home = root / "homes" / self.user
        self.base = self.home / ".cloudgpu"
        self.base.mkdir(parents=True)
        for tool in TOOLS.split():
            (root / "bin" / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        if gpu:
            (root / "dev" / "nvidia0").touch()
        (root / "here" / "launch").write_text(f"user={self.user}\ncontainer={IMAGE}\njupyter='{jupyter}'\n")
        for name in ("container", "inside"):
            text = source("container_run.sh" if name == "container" else "inside.sh")
            self.program(root / "here" / name, text)
        self.stands_in("sudo", SUDO)
        (root / "state" / "image").mkdir()
        python = f'#!/bin/sh\necho "$*" >>{root}/state/python\ncase "$*" in -c*) [ -e {root}/state/has ] ;; esac\n'
        self.program(root / "state" / "image" / "python3", python)

    def program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def stands_in(self, name: str, text: str) -> None:
        self.program(self.root / "bin" / name, text)

    def has_docker(self, *, toolkit: bool = True) -> None:
        """Put Docker there, and with it NVIDIA's toolkit."""
        program = Path(__file__).with_name("docker.py")
        self.stands_in("docker", f'#!/bin/sh\nSTAND_IN={self.root}/state exec {sys.executable} -S {program} "$@"\n')
        if toolkit:
            (self.root / "state" / "nvidia").touch()
            self.stands_in("nvidia-ctk", f'#!/bin/sh\necho "nvidia-ctk $*" >>{self.root}/done\n')

    @property
    def environ(self) -> dict[str, str]:
        places = {"HERE": "here", "RUN": "run", "BIN": "bin", "ETC": "etc", "KEYS": "keys", "DEV": "dev"}
        more = {"HOMES": f"{self.root}/homes", "DATA": f"{self.root}/data", "PAUSE": "0"}
        own = {"CLOUDGPU_RUN": f"{self.root}/run", "HOME": str(self.home), "PATH": f"{self.root}/bin"}
        return {**{key: f"{self.root}/{name}" for key, name in places.items()}, **more, **own}

    def boots(self) -> str:
        """Run what systemd runs at a start; return its log."""
        command = [f"{self.root}/here/container"]
        subprocess.run(command, env=self.environ, check=True, timeout=60, stdin=subprocess.DEVNULL)
        return (self.base / "container.log").read_text()

    def inside(self, *words: str, input: str = "", **environ: str) -> subprocess.CompletedProcess[str]:  # noqa: A002
        env = {**self.environ, **environ}
        command = [f"{self.root}/here/inside", *words]
        return subprocess.run(
            command, env=env, cwd=self.home, input=input, capture_output=True, text=True, check=False, timeout=60
        )

    def enter(self, home: Path) -> None:
        """Put the way inside into another home, as a machine's first boot does; its programs are found by it alone."""
        env = "".join(f"{key}='{self.environ[key]}' " for key in ("CLOUDGPU_RUN", "PATH"))
        (home / ".cloudgpu").mkdir(exist_ok=True)
        self.program(home / ".cloudgpu" / "inside", f'#!/bin/sh\n{env}exec {self.root}/here/inside "$@"\n')

    def calls(self, verb: str) -> list[list[str]]:
        """Return the words of each call of Docker's with this verb."""
        path = self.root / "state" / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [words for first, *words in lines if first == verb]

    def said(self, name: str) -> bool:
        """Tell whether the start ended so: ready, failed."""
        return (self.root / "run" / f"container.{name}").exists()
