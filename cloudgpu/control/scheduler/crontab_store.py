"""Reads and changes scheduled jobs of this user: the crontab, or systemd's user timers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudgpu.control.scheduler.crontab_text import (
    CronJob,
    crontab_block,
    find_block,
    unit_files,
    unit_name,
    with_block,
    without_block,
)
from cloudgpu.errors import CloudgpuError, InvalidRequest

TIMEOUT_S = 30
# What `crontab -l` prints for a user without a crontab.
_NO_CRONTAB = re.compile(rb"no crontab for|can't open '[^'/]+': No such file")  # Vixie cron, cronie and macOS; busybox


class Crontab:
    """The user's crontab, read and written by the `crontab` command only."""

    kind = "crontab"

    def installed(self, home: str) -> str | None:
        """Return the block of this home (a CLOUDGPU_HOME) in the crontab; None for none."""
        return find_block(self._read(), home)

    def text(self) -> str:
        """Return the whole crontab, others' jobs too. Raises InvalidRequest where it cannot be read."""
        return self._read().decode(errors="replace")

    def planned(self, job: CronJob) -> str:
        """Return the block that would be written; raise InvalidRequest for what a crontab cannot hold."""
        return crontab_block(job)

    def install(self, job: CronJob) -> None:
        """Write the crontab with our block in it, and read it back."""
        self._write(with_block(self._read(), job.home, crontab_block(job)))

    def remove(self, home: str) -> None:
        """Write the crontab without our block; one that was ours alone is removed."""
        other_lines = without_block(self._read(), home)
        if other_lines:
            self._write(other_lines)
        else:
            _run_or_raise(["crontab", "-r"])

    def _read(self) -> bytes:
        process = _run(["crontab", "-l"])
        if process.returncode == 0:
            return process.stdout
        if _NO_CRONTAB.search(process.stderr):
            return b""
        # Taking a failure for an empty table would delete the user's own jobs.
        raise _failed_command("crontab -l", process)

    def _write(self, table: bytes) -> None:
        _run_or_raise(["crontab", "-"], stdin=table)
        if self._read() != table:
            raise CloudgpuError(
                "The crontab does not contain what was written into it.", field="crontab", next="Look at: crontab -l"
            )


class Timers:
    """systemd's timers of this user: two files, and systemctl."""

    kind = "systemd"

    def __init__(self, environ: Mapping[str, str]) -> None:
        config_home = environ.get("XDG_CONFIG_HOME", "")
        self.directory = (
            (Path(config_home) if config_home.startswith("/") else Path.home() / ".config") / "systemd" / "user"
        )

    def installed(self, home: str) -> str | None:
        """Return both files of this home's timer one below the other; None for none."""
        try:
            return "".join((self.directory / name).read_text(encoding="utf-8") for name in _unit_file_names(home))
        except FileNotFoundError:
            return None

    def text(self) -> str:
        """Return every service of this user, one below the other."""
        return "\n".join(
            service_file.read_text(encoding="utf-8", errors="replace")
            for service_file in sorted(self.directory.glob("*.service"))
            if service_file.is_file()
        )

    def planned(self, job: CronJob) -> str:
        """Return both files one below the other."""
        return "".join(unit_files(job)[name] for name in _unit_file_names(job.home))

    def install(self, job: CronJob) -> None:
        """Write both files, and have systemd start the timer now and after each boot; undo all if one step fails."""
        self.directory.mkdir(parents=True, exist_ok=True)
        texts, timer = unit_files(job), f"{unit_name(job.home)}.timer"
        earlier_contents = {
            path: path.read_bytes() if path.exists() else None for path in map(self.directory.joinpath, texts)
        }
        try:
            for name, text in texts.items():
                (self.directory / name).write_text(text, encoding="utf-8")
            for arguments in (["daemon-reload"], ["enable", timer], ["restart", timer]):
                _run_or_raise(["systemctl", "--user", *arguments])
        except BaseException:
            self._restore(earlier_contents, timer)
            raise

    def _restore(self, earlier_contents: Mapping[Path, bytes | None], timer: str) -> None:
        """Give these files their earlier contents, None for none, and have systemd follow as far as it answers."""
        is_new = None in earlier_contents.values()
        if is_new:
            _run(["systemctl", "--user", "disable", "--now", timer])
        for path, content in earlier_contents.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        _run(["systemctl", "--user", "daemon-reload"])
        if not is_new:
            _run(["systemctl", "--user", "restart", timer])

    def remove(self, home: str) -> None:
        """Stop the timer and take both files away."""
        _run_or_raise(["systemctl", "--user", "disable", "--now", f"{unit_name(home)}.timer"])
        for name in _unit_file_names(home):
            (self.directory / name).unlink(missing_ok=True)
        _run_or_raise(["systemctl", "--user", "daemon-reload"])

    @staticmethod
    def lingers() -> bool | None:
        """Say whether timers run while the user is logged out; None where that is not known."""
        process = _run(["loginctl", "show-user", str(os.getuid()), "--property=Linger"])
        return None if process.returncode else process.stdout.strip() == b"Linger=yes"


# Where a scheduled job can be installed. Its `kind`, `crontab` or `systemd`, is also the name of the option for it.
Table = Crontab | Timers


def find_tables(environ: Mapping[str, str]) -> list[Table]:
    """Return the tables that this computer has, the crontab first."""
    tables: list[Table] = [Crontab()] if shutil.which("crontab") else []
    return [*tables, Timers(environ)] if _systemd_answers() else tables


def choose_table(tables: Sequence[Table], kind: str | None) -> Table:
    """Return the table of this kind, or (None) the first one; raise InvalidRequest where there is none."""
    for table in tables:
        if kind in (None, table.kind):
            return table
    known = " and ".join(table.kind for table in tables) or "neither a crontab nor a systemd of this user"
    remedy = f"Leave --{kind} out" if tables else "Install cron (Debian: apt-get install cron)"
    raise InvalidRequest(
        f"There is no {kind or 'place to install a job'} here: this computer has {known}.",
        field="--systemd" if kind == "systemd" else "--crontab",
        value=None,
        next=f"{remedy}, or keep a watch running: cloudgpu watch",
    )


def _systemd_answers() -> bool:
    return bool(shutil.which("systemctl")) and _run(["systemctl", "--user", "show-environment"]).returncode == 0


def _unit_file_names(home: str) -> tuple[str, str]:
    return f"{unit_name(home)}.service", f"{unit_name(home)}.timer"


def _run(argv: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a system command with English output; one that is missing or hangs counts as failed."""
    try:
        return subprocess.run(  # noqa: S603  (no word of it is a user's)
            argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, env=os.environ | {"LC_ALL": "C"}, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, b"", f"{argv[0]} is not installed".encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, b"", b"it did not answer")


def _run_or_raise(argv: list[str], stdin: bytes = b"") -> None:
    process = _run(argv, stdin)
    if process.returncode:
        raise _failed_command(" ".join(argv), process)


def _failed_command(command: str, process: subprocess.CompletedProcess[bytes]) -> CloudgpuError:
    output = (process.stderr or process.stdout).decode(errors="replace").strip().splitlines()
    return InvalidRequest(
        f"{command} refused ({process.returncode}): {output[-1] if output else 'it printed nothing'}.",
        field="crontab" if command.startswith("crontab") else "systemctl",
        value=None,
        next="Nothing else was changed. To see what is installed: cloudgpu cron show",
    )
