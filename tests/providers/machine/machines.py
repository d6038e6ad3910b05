"""A machine's files in a directory, and its lease script run by sh as systemd runs it: its power takes notes."""

from __future__ import annotations

import os
import subprocess

from cloudgpu.providers.machine import source

NOW = 1_800_000_000
HOUR = 3600
SILENT = "http://127.0.0.1:1/latest"  # nobody listens there
OFF = ["shutdown -h now"]


class Machine:
    """A machine's files, and what was done to its power."""

    def __init__(self, root, imds, cloud="aws"):
        self.root, self.imds, self.now, self.up = root, imds, NOW, 5000
        self.here, self.state, self.run, self.agent = (root / name for name in ("here", "state", "run", "agent"))
        for place in (self.here, self.run, self.agent, root / "bin"):
            place.mkdir()
        (self.here / "lease").write_text(source("lease.sh"))
        (self.here / "cloud").write_text(source(f"cloud_{cloud}.sh"))
        (self.run / "began").touch()
        for name in ("shutdown", "systemctl", "poweroff"):
            self.stands_in(name, f'echo "{name} $*" >>{root}/done\nexit ${{REFUSES:-0}}')
        self.launched()

    def stands_in(self, name, text):
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def launched(self, launch="first", *, expires=NOW + HOUR, renew_until=NOW + 8 * HOUR, spot="", deallocates=""):
        text = f"token={launch}\nexpires={expires}\nrenew_until={renew_until}\nspot={spot}\ndeallocates={deallocates}\n"
        (self.here / "launch").write_text(text)

    def ran(self, *words, imds=None, **more):
        """Run it once, and return what it left: its status and what it said."""
        (self.root / "uptime").write_text(f"{self.up}.42 1000.00\n")
        places = {"HERE": self.here, "STATE": self.state, "RUN": self.run, "AGENT": self.agent}
        environ = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "UPTIME": self.root / "uptime",
            "NOW": self.now,
            **self.imds.environ,
            **({"IMDS": imds} if imds else {}),
            **places,
            **more,
        }
        command = ["/bin/sh", self.here / "lease", *words]
        env = {key: str(value) for key, value in environ.items()}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)

    def tick(self, *words, imds=None, **more):
        """Run it once, and return how the machine was powered off: nothing, where it stays on."""
        done = self.ran(*words, imds=imds, **more)
        assert (done.returncode, done.stderr) == (0, "")
        notes = self.root / "done"
        said = notes.read_text().splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return said
