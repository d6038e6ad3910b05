"""A disk that fills up: a small tmpfs where one can be mounted, else a limit on the size of every file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cli.many import QuickProgram, shared
from tests.cli.program import Program

SIZE_K = 1024


class SmallDisk:
    """A tmpfs in a mount namespace of its own, which ends with the processes in it: nothing to unmount.

    Words behind `before` run on it, as `program` does.
    """

    def __init__(self, at: Path) -> None:
        self.at = at
        at.mkdir()
        script = f'mount -t tmpfs -o size={SIZE_K}k,mode=700 tmpfs "$1" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.mounted = self._holder.stdout.readline() == b"mounted\n"
        self.program = QuickProgram(at / "home", many=shared(), mounts_of=self._holder.pid)
        self.before = ["nsenter", "--mount", f"--target={self._holder.pid}", "--"]

    def leave_free(self, kib: int) -> None:
        """Fill the disk up to the last `kib` KiB."""
        script = 'rm -f "$1/fill"; set -- "$1" $(df -k --output=avail "$1" | tail -1); '
        script += f'dd if=/dev/zero of="$1/fill" bs=1024 count=$(($2 - {kib})) status=none'
        subprocess.run([*self.before, "sh", "-c", script, "sh", str(self.at)], check=True)

    def leave_no_file(self) -> None:
        """Refuse every new file, an empty one too."""
        script = 'mount -o remount,nr_inodes=$(df --output=iused "$1" | tail -1 | tr -d " ") "$1"'
        subprocess.run([*self.before, "sh", "-c", script, "sh", str(self.at)], check=True)

    def close(self) -> None:
        self._holder.communicate()


class LimitedFiles:
    """Where nothing can be mounted: no file may grow beyond as many KiB as the disk would have had free."""

    before: Sequence[str] = ()

    def __init__(self, at: Path) -> None:
        at.mkdir()
        self.program = Inside(at / "home", {"PYTHONDONTWRITEBYTECODE": "1"}, [])

    def leave_free(self, kib: int) -> None:
        script = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({kib * 128}, -1)); "
        self.program.before = [sys.executable, "-c", script + "os.execvp(sys.argv[1], sys.argv[1:])"]

    def leave_no_file(self) -> None:
        """Do nothing: that cannot be had here."""

    def close(self) -> None:
        self.program.before = []


class Inside(Program):
    """The program behind words that put it onto that disk."""

    def __init__(self, home: Path, environ: dict[str, str], before: list[str]) -> None:
        super().__init__(home, environ)
        self.before = before

    def argv(self, *args: str) -> list[str]:
        return [*self.before, *super().argv(*args)]


def make_disk(at: Path) -> SmallDisk | LimitedFiles:
    """Return a disk that can be filled, the real one where this user may mount it."""
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("nsenter"):
        disk = SmallDisk(at)
        if disk.mounted:
            return disk
        disk.close()
        shutil.rmtree(at)
    return LimitedFiles(at)
