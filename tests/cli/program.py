"""The real command line in a home of its own, for tests: every call is a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.documents import check_output


@dataclass
class Done:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@dataclass
class Program:
    """`cloudgpu` with CLOUDGPU_HOME at `home`."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDGPU_")}
        return kept | {"CLOUDGPU_HOME": str(self.home), "HOME": str(self.home.parent)} | self.environ

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "cloudgpu", *args]

    def __call__(self, *args: str, stdin: bytes = b"", timeout: float = 60) -> Done:
        done = subprocess.run(
            self.argv(*args), input=stdin, capture_output=True, env=self.env(), timeout=timeout, check=False
        )
        out = done.stdout.decode(errors="surrogateescape")
        check_output(args, out, done.returncode)
        return Done(done.returncode, out, done.stderr.decode())

    def start(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.argv(*args), env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
        )

    def config(self, text: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.toml").write_text(text)

    def machines(self) -> list[dict[str, Any]]:
        return self("ls", "-o", "json").json["machines"]


def until(found: Callable[[], Any], *, within_s: float = 20) -> Any:
    """What `found` returns once it is true; the last answer when it never was. For real processes only."""
    deadline = time.monotonic() + within_s
    while not (answer := found()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer
