"""Many command lines from one process: each runs in a fork of it, with arguments, environment and streams of its own.

`python many.py` reads one job per line, `{"args", "environ", "out", "err"}`, and answers with the exit code. What
runs in the fork is `main()`, as the installed command calls it; only the start of the interpreter is shared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cli.program import Done, Program


@dataclass
class Many:
    """The process that forks. `done` takes a program and its arguments, and returns how it ended."""

    process: subprocess.Popen[str]

    @classmethod
    def open(cls) -> Many:
        argv = [sys.executable, "-m", "tests.cli.many"]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path[:1], os.environ.get("PYTHONPATH", "")])}
        root = Path(__file__).parents[2]
        return cls(subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, cwd=root, env=environ))

    def done(self, program: Program, args: Sequence[str], place: Path) -> Done:
        out, err = place / "out", place / "err"
        job = {"args": list(args), "environ": program.env(), "out": str(out), "err": str(err)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return Done(code, out.read_text(), err.read_text())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


def _serve() -> None:
    import cloudgpu.cli.app
    import cloudgpu.cli.up
    import cloudgpu.control.launch
    import cloudgpu.control.prepare  # noqa: F401  (here once, not in every fork)

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(job: dict[str, object]) -> None:
    from cloudgpu.cli.app import main

    code: object = 70
    try:
        for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags, 0o600), number)
        sys.stdin = os.fdopen(0)
        os.environ.clear()
        os.environ.update(job["environ"])
        sys.argv = ["cloudgpu", *job["args"]]
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
