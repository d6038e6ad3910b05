"""The text of a crontab entry or systemd timer: the command, its environment, its times, and our block in a crontab.

Nothing here reads or changes anything. A `%` is cron's own end of the line (crontab(5)) and systemd's own specifier
(systemd.unit(5)): both are escaped, so that a path may have one.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

DEFAULT_INTERVAL = timedelta(minutes=10)
REAP_ARGV, NIGHTLY_REAP_ARGV = ("reap", "--cron"), ("reap", "--cron", "--nightly")
# Bytes of a command: Vixie cron takes 1000 (its MAX_COMMAND), and refuses the whole table past it.
MAX_COMMAND_LENGTH = 990
_ALLOWED_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
_ALLOWED_HOURS = (1, 2, 3, 4, 6, 8, 12, 24)
_NIGHT_HOUR = 3  # o'clock, of a daily run


@dataclass(frozen=True, slots=True)
class CronJob:
    """A scheduled run of the reaper: `program` (absolute) with `argv`, in `environment`, at the interval `every`.

    `nightly`: once a night instead.
    """

    program: tuple[str, ...]
    environment: Mapping[str, str]
    every: timedelta = DEFAULT_INTERVAL
    nightly: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """The verb: a run each time, or only the nightly sweep, which is started every hour and made once a night.

        An interval other than the default is an argument, so that warnings are sent early enough.
        """
        if self.nightly:
            return (*NIGHTLY_REAP_ARGV, "--every", "24h")
        return (
            REAP_ARGV
            if self.every == DEFAULT_INTERVAL
            else (*REAP_ARGV, "--every", duration_text(self.every).replace(" ", ""))
        )

    @property
    def home(self) -> str:
        """The CLOUDGPU_HOME that it is for."""
        return self.environment["CLOUDGPU_HOME"]

    @property
    def offset_minutes(self) -> int:
        """The minute after the hour at which it begins: derived from the home, so that not all begin at once."""
        return hashlib.sha256(self.home.encode()).digest()[0] % 10


def check_every(every: timedelta) -> None:
    """Raise InvalidRequest for an interval that a crontab cannot express."""
    minutes, remainder = divmod(every, timedelta(minutes=1))
    is_allowed = minutes in _ALLOWED_MINUTES or (minutes % 60 == 0 and minutes // 60 in _ALLOWED_HOURS)
    if remainder or not is_allowed:
        raise InvalidRequest(
            f"A crontab cannot run every {duration_text(every)}: the time must divide an hour or a day evenly.",
            field="--every",
            value=duration_text(every),
            next="Use one of: 1m, 2m, 5m, 10m, 15m, 20m, 30m, 1h, 2h, 6h, 12h, 24h.",
        )


def shell_command(job: CronJob, argv: Sequence[str] | None = None) -> str:
    """Return the command as /bin/sh reads it, with its environment before it."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in job.environment.items()]
    return " ".join([*assignments, shlex.join([*job.program, *(job.argv if argv is None else argv)])])


def crontab_line(job: CronJob) -> str:
    """Return the line of a crontab; raise InvalidRequest for one that cron could not read."""
    _check_characters(job, "a crontab", forbidden=("\\",))
    command = shell_command(job).replace("%", r"\%")
    length = len(command.encode())
    if length > MAX_COMMAND_LENGTH:
        message = f"The command would be {length} bytes long; cron takes {MAX_COMMAND_LENGTH}."
        remedy = (
            "Run it again with a shorter PATH, for example: PATH=/usr/local/bin:/usr/bin:/bin cloudgpu cron install"
        )
        raise InvalidRequest(message, field="PATH", value=None, next=remedy)
    return f"{_crontab_schedule(job)} {command}"


def _crontab_schedule(job: CronJob) -> str:
    """Return the five time fields of a crontab line."""
    minutes, offset_minutes = (
        (timedelta(hours=1) if job.nightly else job.every) // timedelta(minutes=1),
        job.offset_minutes,
    )
    if minutes == 1:
        return "* * * * *"
    if minutes < 60:  # noqa: PLR2004  (of an hour)
        return f"{offset_minutes % minutes}-59/{minutes} * * * *"
    hours = minutes // 60
    hour = {1: "*", 24: str(_NIGHT_HOUR)}.get(hours, f"*/{hours}")
    return f"{offset_minutes} {hour} * * *"


def systemd_calendar(job: CronJob) -> str:
    """Return when a job runs, as an OnCalendar expression (systemd.time(7))."""
    minutes, offset_minutes = (
        (timedelta(hours=1) if job.nightly else job.every) // timedelta(minutes=1),
        job.offset_minutes,
    )
    if minutes < 60:  # noqa: PLR2004  (of an hour)
        return f"*:{offset_minutes % minutes:02d}/{minutes}"
    hours = minutes // 60
    hour = {1: "*", 24: f"{_NIGHT_HOUR:02d}"}.get(hours, f"00/{hours}")
    return f"{hour}:{offset_minutes:02d}"


def crontab_block(job: CronJob) -> str:
    """Return the block of one home in a crontab: a line above, the job, a line below."""
    begin_line, end_line = _marker_lines(job.home)
    return f"{begin_line}\n{crontab_line(job)}\n{end_line}\n"


def with_block(table: bytes, home: str, new_block: str) -> bytes:
    """Return the crontab with this home's block in its old place, else at its end; all else stays byte for byte."""
    before, _, after = _split_at_block(table, home)
    newline = b"" if before.endswith(b"\n") or not before else b"\n"
    return before + newline + new_block.encode() + after


def without_block(table: bytes, home: str) -> bytes:
    """Return the crontab without this home's block; all else stays byte for byte."""
    before, _, after = _split_at_block(table, home)
    return before + after


def find_block(table: bytes, home: str) -> str | None:
    """Return this home's block as it stands in the crontab; None for none."""
    return _split_at_block(table, home)[1].decode(errors="replace") or None


def _split_at_block(table: bytes, home: str) -> tuple[bytes, bytes, bytes]:
    """Return the text before our block, the block, and the text after it; without a block, all is before."""
    begin_line, end_line = (f"{marker}\n".encode() for marker in _marker_lines(home))
    lines = table.splitlines(keepends=True)
    if begin_line not in lines:
        return table, b"", b""
    first = lines.index(begin_line)
    if end_line not in lines[first:]:
        raise InvalidRequest(
            "The crontab has the first line of cloudgpu's block but not its last: it was changed by hand.",
            field="crontab",
            value=begin_line.decode().strip(),
            next="Remove that line and the one below it with crontab -e, then run it again.",
        )
    last = lines.index(end_line, first) + 1
    return b"".join(lines[:first]), b"".join(lines[first:last]), b"".join(lines[last:])


def _marker_lines(home: str) -> tuple[str, str]:
    """Return the comments above and below the block of a home."""
    return f"# cloudgpu begin: {home} (cloudgpu cron remove takes it out)", f"# cloudgpu end: {home}"


def unit_name(home: str) -> str:
    """Return the name of this home's systemd units, without their ending."""
    return f"cloudgpu-reap-{hashlib.sha256(home.encode()).hexdigest()[:8]}"


def unit_files(job: CronJob) -> dict[str, str]:
    """Return the files of a systemd user timer, by name; raise InvalidRequest for a job that they cannot express."""
    _check_characters(job, "a systemd unit")
    name = unit_name(job.home)
    assignments = " ".join(_quote_unit_word(f"{key}={value}") for key, value in job.environment.items())
    command = " ".join(_quote_unit_word(word).replace("$", "$$") for word in (*job.program, *job.argv))
    service = f"""\
# Written by cloudgpu cron install; cloudgpu cron remove takes it away.
[Unit]
Description=cloudgpu: end machines that nobody uses

[Service]
Type=oneshot
Environment={assignments}
ExecStart={command}
"""
    timer = f"""\
# Written by cloudgpu cron install; cloudgpu cron remove takes it away.
[Unit]
Description=cloudgpu: end machines that nobody uses

[Timer]
OnCalendar={systemd_calendar(job)}
Persistent=true

[Install]
WantedBy=timers.target
"""
    return {f"{name}.service": service, f"{name}.timer": timer}


def installed_command(text: str, argv: Sequence[str]) -> str | None:
    """Return what is installed (a block or both unit files) as a command for /bin/sh, with `argv` for its verb.

    None for a text that somebody has changed beyond reading.
    """
    for line in text.splitlines():
        if line.startswith("ExecStart="):
            program = _unit_command(text, line)
        elif line and line[0] in "*0123456789":
            program = line.split(maxsplit=5)[-1].replace(r"\%", "%").rpartition(f" {REAP_ARGV[0]} ")[0]
        else:
            continue
        return f"{program} {shlex.join(argv)}" if program else None
    return None


def _unit_command(text: str, exec_line: str) -> str:
    """Return the environment and the program of a service as /bin/sh reads them, without the verb."""
    assignments = []
    for line in text.splitlines():
        if line.startswith("Environment="):
            pairs = (word.partition("=") for word in _split_unit_line(line))
            assignments += [f"{name}={shlex.quote(value)}" for name, _, value in pairs]
    program = [word.replace("$$", "$") for word in _split_unit_line(exec_line)]
    return (
        " ".join([*assignments, shlex.join(program[: program.index(REAP_ARGV[0])])]) if REAP_ARGV[0] in program else ""
    )


def _split_unit_line(line: str) -> list[str]:
    return [word.replace("%%", "%") for word in shlex.split(line.partition("=")[2])]


def _quote_unit_word(text: str) -> str:
    """Return a word in double quotes, as systemd.syntax(7) reads it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _check_characters(job: CronJob, place: str, forbidden: Collection[str] = ()) -> None:
    """Raise InvalidRequest for a control character, a byte that is no text, or one of `forbidden`, in a command."""
    for name, text in [*job.environment.items(), *(("program", word) for word in job.program)]:
        if any(character in forbidden or _is_unwritable(ord(character)) for character in text):
            raise InvalidRequest(
                f"{name} holds a character that cannot be written into {place}: {text!r}.",
                field=name,
                value=text,
                next="Use a path without backslashes and control characters.",
            )


def _is_unwritable(code_point: int) -> bool:
    """Say whether a character is a control character, or stands for a byte that is no text."""
    return code_point < 32 or 0x7F <= code_point < 0xA0 or 0xD800 <= code_point < 0xE000  # noqa: PLR2004
