"""Reads and changes scheduled jobs of this user: the crontab, or systemd's user timers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cloudgpu.control.scheduler.crontab_text import Job, block, block_of, unit_name, units, with_block, without_block
from cloudgpu.errors import CloudgpuError, InvalidRequest

WAIT_S = 30
_NONE_YET = (b"no crontab for", b"No such file")  # Vixie cron, cronie and macOS; busybox


class Table(Protocol):
    """One place in which a job can be installed; `kind` is its name."""

    kind: str

    def installed(self, home: str) -> str | None:
        """Return what is installed for this home, as text; None for nothing."""
        ...

    def text(self) -> str:
        """Return everything that is there, others' jobs too. Raises InvalidRequest where it cannot be read."""
        ...

    def planned(self, job: Job) -> str:
        """Return the text that would be installed; raise InvalidRequest for what cannot be written there."""
        ...

    def install(self, job: Job) -> None:
        """Install the job, replacing this home's one, if any."""
        ...

    def remove(self, home: str) -> None:
        """Take this home's job out, and nothing else."""
        ...


class Crontab:
    """The user's crontab, read and written by the `crontab` command only."""

    kind = "crontab"

    def installed(self, home: str) -> str | None:
        """Return our block in the crontab."""
        return block_of(self._read(), home)

    def text(self) -> str:
        """Return the whole crontab."""
        return self._read().decode(errors="replace")

    def planned(self, job: Job) -> str:
        """Return the block that would be written."""
        return block(job)

    def install(self, job: Job) -> None:
        """Write the crontab with our block in it, and read it back."""
        self._write(with_block(self._read(), job.home, block(job)))

    def remove(self, home: str) -> None:
        """Write the crontab without our block; one that was ours alone is removed."""
        rest = without_block(self._read(), home)
        if rest:
            self._write(rest)
        else:
            self._run("-r")

    def _read(self) -> bytes:
        done = _run(["crontab", "-l"])
        if done.returncode == 0:
            return done.stdout
        if any(word in done.stderr for word in _NONE_YET):
            return b""
        raise _refused("crontab -l", done)  # taking a failure for an empty table would delete the user's own jobs

    def _write(self, table: bytes) -> None:
        self._run("-", given=table)
        if self._read() != table:
            raise CloudgpuError(
                "The crontab does not contain what was written into it.", field="crontab", next="Look at: crontab -l"
            )

    @staticmethod
    def _run(word: str, given: bytes = b"") -> None:
        done = _run(["crontab", word], given)
        if done.returncode:
            raise _refused(f"crontab {word}", done)


class Timers:
    """systemd's timers of this user: two files, and systemctl."""

    kind = "systemd"

    def __init__(self, environ: Mapping[str, str]) -> None:
        base = environ.get("XDG_CONFIG_HOME", "")
        self.directory = (Path(base) if base.startswith("/") else Path.home() / ".config") / "systemd" / "user"

    def installed(self, home: str) -> str | None:
        """Return both files one below the other."""
        try:
            return "".join((self.directory / name).read_text(encoding="utf-8") for name in _files(home))
        except FileNotFoundError:
            return None

    def text(self) -> str:
        """Return every service of this user, one below the other."""
        files = sorted(self.directory.glob("*.service"))
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())

    def planned(self, job: Job) -> str:
        """Return both files one below the other."""
        return "".join(units(job)[name] for name in _files(job.home))

    def install(self, job: Job) -> None:
        """Write both files, and have systemd start the timer now and after each boot."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, text in units(job).items():
            (self.directory / name).write_text(text, encoding="utf-8")
        timer = f"{unit_name(job.home)}.timer"
        for words in (["daemon-reload"], ["enable", timer], ["restart", timer]):
            self._call(words)

    def remove(self, home: str) -> None:
        """Stop the timer and take both files away."""
        self._call(["disable", "--now", f"{unit_name(home)}.timer"])
        for name in _files(home):
            (self.directory / name).unlink(missing_ok=True)
        self._call(["daemon-reload"])

    @staticmethod
    def lingers() -> bool | None:
        """Say whether timers run while the user is logged out; None where that is not known."""
        done = _run(["loginctl", "show-user", str(os.getuid()), "--property=Linger"])
        return None if done.returncode else done.stdout.strip() == b"Linger=yes"

    @staticmethod
    def _call(words: list[str]) -> None:
        done = _run(["systemctl", "--user", *words])
        if done.returncode:
            raise _refused(f"systemctl --user {' '.join(words)}", done)


def find_tables(environ: Mapping[str, str]) -> list[Table]:
    """Return the tables that this computer has, the crontab first."""
    found: list[Table] = []
    if shutil.which("crontab"):
        found.append(Crontab())
    if _systemd_answers():
        found.append(Timers(environ))
    return found


def the_table(tables: Sequence[Table], kind: str | None) -> Table:
    """Return the table of this kind, or the first one; raise InvalidRequest where there is none such."""
    for table in tables:
        if kind in (None, table.kind):
            return table
    known = " and ".join(table.kind for table in tables) or "neither a crontab nor a systemd of this user"
    raise InvalidRequest(
        f"There is no {kind or 'place to install a job'} here: this computer has {known}.",
        field="--systemd" if kind == "systemd" else "--crontab",
        value=None,
        next="Install cron (Debian: apt-get install cron), or keep a watch running: cloudgpu watch",
    )


def _systemd_answers() -> bool:
    return bool(shutil.which("systemctl")) and _run(["systemctl", "--user", "show-environment"]).returncode == 0


def _files(home: str) -> tuple[str, str]:
    return f"{unit_name(home)}.service", f"{unit_name(home)}.timer"


def _run(argv: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a system command with English output; one that is missing or hangs counts as failed."""
    environ = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603  (no word of it is a user's)
            argv, input=given, capture_output=True, timeout=WAIT_S, env=environ, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, b"", f"{argv[0]} is not installed".encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, b"", b"it did not answer")


def _refused(command: str, done: subprocess.CompletedProcess[bytes]) -> CloudgpuError:
    output = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return InvalidRequest(
        f"{command} refused ({done.returncode}): {output[-1] if output else 'it printed nothing'}.",
        field="crontab" if command.startswith("crontab") else "systemctl",
        value=None,
        next="Nothing else was changed. To see what is installed: cloudgpu cron show",
    )
