"""Finds cloudgpu's lines in this user's crontab and timers that cannot work: what they name is gone, or has moved."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.files.user_files import Home, find_home
from cloudgpu.config.settings import load_settings
from cloudgpu.control.scheduler.crontab_store import find_tables
from cloudgpu.control.scheduler.redaction import ASSIGNMENT, ledger_location, redacted_line
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.ledger.open import open_ledger

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import StaleLine

_TABLE_ASSIGNMENT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_BLOCK_BEGIN = re.compile(r"# cloudgpu begin: (.*) \(cloudgpu cron remove takes it out\)")
# Words of a shell command after which a program's name may stand.
_WORDS_BEFORE_PROGRAM = ("&&", "||", ";", "|", "env", "exec", "nice", "nohup", "chronic")
# Every first word of a verb; `cli` has their table.
_VERBS = frozenset(
    """init doctor demo up ls show ssh exec cp tunnel bench stop start down hold extend image volume allow share spot
    run jobs logs cancel gpus regions quota catalog estimate recommend cost budget compare report export ledger reap
    watch cron orphans policy""".split()
)
_EXEC_PREFIXES = "-@:+!|"  # before the program of ExecStart=, in any order: systemd.service(5)
_DEFAULT_PATH = "/usr/bin:/bin"  # of a job of cron's that names none


@dataclass(frozen=True, slots=True)
class ScheduledCommand:
    """A scheduled job that runs cloudgpu. `table` is `crontab` or `systemd`, `line` its line there, without secrets.

    `program` is the word of the command that is cloudgpu; `is_ours`: `cron install` has written it.
    """

    table: str
    line: str
    environment: Mapping[str, str]
    program: str
    is_ours: bool

    @property
    def home(self) -> Path | None:
        """The CLOUDGPU_HOME that it works on; None where only a shell could expand it."""
        value = self.environment.get("CLOUDGPU_HOME", "")
        path = Path(value) if value else find_home({}).root
        return path if path.is_absolute() and "$" not in value else None


def find_stale_lines(session: Session, environ: Mapping[str, str]) -> list[StaleLine]:
    """Return each job that cannot help any more or works on another home: its line, what is wrong, the remedy."""
    stale_lines: list[StaleLine] = []
    for scheduled in find_scheduled_commands(environ):
        why_and_remedy = _find_fault(scheduled, session.clock) or _other_home_fault(scheduled, session.home.root)
        if why_and_remedy is not None:
            why, remedy = why_and_remedy
            stale_lines.append({"table": scheduled.table, "line": scheduled.line, "why": why, "next": remedy})
    return stale_lines


def lines_with_ledger(environ: Mapping[str, str], location: str) -> Iterator[tuple[str, str]]:
    """Yield (table, line without a password) of each job that names the ledger at `location` by CLOUDGPU_LEDGER."""
    for scheduled in find_scheduled_commands(environ):
        url = scheduled.environment.get("CLOUDGPU_LEDGER")
        if url and ledger_location(url) == location:
            yield scheduled.table, scheduled.line


def find_scheduled_commands(environ: Mapping[str, str]) -> Iterator[ScheduledCommand]:
    """Yield every job of this user that runs cloudgpu; none from a table that cannot be read."""
    for table in find_tables(environ):
        try:
            text = table.text()
        except InvalidRequest:
            continue
        yield from _crontab_commands(text) if table.kind == "crontab" else _unit_commands(text)


def _crontab_commands(text: str) -> Iterator[ScheduledCommand]:
    """Yield the jobs of a crontab that run cloudgpu."""
    table_variables: dict[str, str] = {}
    is_ours = False
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            is_ours = bool(_BLOCK_BEGIN.fullmatch(line)) or (is_ours and not line.startswith("# cloudgpu end: "))
            continue
        assignment = _TABLE_ASSIGNMENT.fullmatch(line)
        if assignment and line.lstrip()[0] not in "*@0123456789":
            table_variables[assignment[1]] = assignment[2].strip("\"'")
            continue
        command_text = line.strip().split(maxsplit=1 if line.lstrip().startswith("@") else 5)[-1]
        # A `%` ends what the shell is given, unless a backslash stands before it (crontab(5)).
        command = re.split(r"(?<!\\)%", command_text)[0].replace(r"\%", "%")
        yield from _read_command("crontab", line, command, table_variables, is_ours=is_ours)


def _unit_commands(text: str) -> Iterator[ScheduledCommand]:
    """Yield the jobs of systemd service files that run cloudgpu."""
    variables: dict[str, str] = {}
    is_ours = False
    for line in text.splitlines():
        if line.startswith("# Written by cloudgpu cron install"):
            variables, is_ours = {}, True
        elif line == "[Service]":
            variables = {}
        elif line.startswith("Environment="):
            assignments = (
                ASSIGNMENT.fullmatch(word.replace("%%", "%")) for word in _split_words(line.partition("=")[2])
            )
            variables |= {assignment[1]: assignment[2] for assignment in assignments if assignment}
        elif line.startswith("ExecStart="):
            command = line.partition("=")[2].lstrip(_EXEC_PREFIXES).replace("%%", "%")
            yield from _read_command("systemd", line, command, variables, is_ours=is_ours)
            is_ours = False


def _read_command(
    table: str, line: str, command: str, outer_variables: Mapping[str, str], *, is_ours: bool
) -> Iterator[ScheduledCommand]:
    """Yield the job of this shell command, if it runs cloudgpu; `outer_variables` are set before its own."""
    words = _split_words(command)
    program_index = next((index for index, word in enumerate(words) if _is_program(words, index)), None)
    if program_index is None:
        return
    assignments = (ASSIGNMENT.fullmatch(word) for word in words[:program_index])
    environment = {**outer_variables, **{assignment[1]: assignment[2] for assignment in assignments if assignment}}
    yield ScheduledCommand(table, redacted_line(line, environment), environment, words[program_index], is_ours)


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _is_program(words: list[str], index: int) -> bool:
    """Say whether this word is cloudgpu itself, or the Python that runs it; not an argument of another program.

    Behind a program that runs others (`timeout 600 /opt/cloudgpu reap`), it is cloudgpu by its path and a verb after
    it.
    """
    # A variable's value may end in /cloudgpu, as the default home does. What follows `sh -c` is a command.
    is_command_text = bool(re.fullmatch("-[a-z]*c", "".join(words[:index][-1:])))
    if ASSIGNMENT.fullmatch(words[index]) and not is_command_text:
        return False
    name = os.path.basename(words[index])  # noqa: PTH119  (a word of a shell, not a path yet)
    if name != "cloudgpu":
        return name.startswith("python") and words[index + 1 : index + 3] == ["-m", "cloudgpu"]
    word_before = next((word for word in reversed(words[:index]) if not ASSIGNMENT.fullmatch(word)), "&&")
    if word_before in _WORDS_BEFORE_PROGRAM:
        return True
    return words[index] != "cloudgpu" and (is_command_text or _has_verb(words[index + 1 :]))


def _has_verb(words: list[str]) -> bool:
    """Say whether the first of these words that is no option, and no value of one, is a verb of cloudgpu."""
    for before, word in pairwise(["", *words]):
        if not word.startswith("-") and (word in _VERBS or not before.startswith("-")):
            return word in _VERBS
    return False


def _find_fault(scheduled: ScheduledCommand, clock: Any) -> tuple[str, str] | None:
    """Return what is wrong with a job, and the remedy; None for one that can run."""
    home = scheduled.home
    if home is not None and not home.is_dir():
        return f"its home {home} is not there", _remedy(scheduled, home, "cron remove")
    if not _has_program(scheduled):
        why = f"its program {redacted_line(scheduled.program, scheduled.environment)} is not there"
        return why, _remedy(scheduled, home, "cron install (or cron remove)")
    ledger_fault = None if home is None else _ledger_fault(scheduled, home, clock)
    return None if ledger_fault is None else (ledger_fault, _new_ledger_remedy(scheduled, home))


def _has_program(scheduled: ScheduledCommand) -> bool:
    """Say whether the job's program is there, or may be: where only a shell knows the place, it counts as there."""
    if "/" in scheduled.program:
        is_exact = scheduled.program.startswith("/") and "$" not in scheduled.program
        return not is_exact or os.access(scheduled.program, os.X_OK)
    path = scheduled.environment.get("PATH", _DEFAULT_PATH)
    # A shell expands the PATH of the command itself; cron and systemd expand nothing in theirs.
    is_expanded = re.search(r"[$~]", path) and re.search(r"\bPATH=", scheduled.line)
    return bool(is_expanded) or shutil.which(scheduled.program, path=path) is not None


def _ledger_fault(scheduled: ScheduledCommand, home: Path, clock: Any) -> str | None:
    """Return a clause that the job's ledger is gone or has moved; None where it is in use, or cannot be read."""
    try:
        variable = scheduled.environment.get("CLOUDGPU_LEDGER")
        url = variable or load_settings(Home(home), {}).ledger_url
        ledger = open_ledger(url, home / "ledger", actor="", clock=clock)
        move_mark = ledger.moved()
        is_lost = move_mark is None and variable is not None and ledger.head()[0] == 0
        ledger.close()
    except CloudgpuError:
        return None
    if is_lost:
        return f"there is no ledger at {ledger.location}"
    if move_mark is None or move_mark.came_from:  # while it is being moved to here, it is in use
        return None
    return f"its ledger {ledger.location} has moved to {move_mark.to}"


def _other_home_fault(scheduled: ScheduledCommand, home: Path) -> tuple[str, str] | None:
    """Return a clause that a job is for another home, and the remedy; None where it is for this one."""
    other_home = scheduled.home
    if other_home is None or other_home == home:
        return None
    return (
        f"it looks after another home, {other_home}",
        f"Look there: {_home_assignment(other_home)} cloudgpu cron show",
    )


def _home_assignment(home: Path) -> str:
    return f"CLOUDGPU_HOME={shlex.quote(str(home))}"


def _remedy(scheduled: ScheduledCommand, home: Path | None, verb: str) -> str:
    """Return the command that repairs a job of ours, or how to take any other out by hand."""
    if scheduled.is_ours and home is not None:
        return f"Run: {_home_assignment(home)} cloudgpu {verb}"
    return f"Take the line out: {_edit_command(scheduled)}"


def _new_ledger_remedy(scheduled: ScheduledCommand, home: Path | None) -> str:
    if "CLOUDGPU_LEDGER" in scheduled.environment or home is None:
        return f"Take CLOUDGPU_LEDGER out of the line, or name the new place in it: {_edit_command(scheduled)}"
    return f"Run: {_home_assignment(home)} cloudgpu ledger move --follow"


def _edit_command(scheduled: ScheduledCommand) -> str:
    return "crontab -e" if scheduled.table == "crontab" else "systemctl --user list-timers names its unit"
