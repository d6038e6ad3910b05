"""Finds cloudgpu's lines in this user's crontab and timers that cannot work: what they name is gone, or has moved."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.files.user_files import Home, find_home
from cloudgpu.config.settings import load_settings
from cloudgpu.control.scheduler.crontab_store import find_tables
from cloudgpu.control.scheduler.redaction import ledger_location, redacted_line
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.ledger.open import open_ledger

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import StaleLine

_SET = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_TABLE_SETS = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_BEGIN = re.compile(r"# cloudgpu begin: (.*) \(cloudgpu cron remove takes it out\)")
_BEFORE = ("&&", "||", ";", "|", "env", "exec", "nice", "nohup", "chronic")
_PATH = "/usr/bin:/bin"  # of a job of cron's that names none


@dataclass(frozen=True, slots=True)
class Entry:
    """One job that runs cloudgpu: its line without secrets, its environment, the program, and whether it is ours."""

    table: str
    line: str
    environment: Mapping[str, str]
    program: str
    is_ours: bool

    @property
    def home(self) -> Path | None:
        """The home that it works on; None where only a shell could tell."""
        named = self.environment.get("CLOUDGPU_HOME", "")
        found = Path(named) if named else find_home({}).root
        return found if found.is_absolute() and "$" not in named else None


def stale(session: Session, environ: Mapping[str, str]) -> list[StaleLine]:
    """Return each job that cannot help any more or works on another home: its line, what is wrong, the remedy."""
    found: list[StaleLine] = []
    for entry in entries(environ):
        fault = _fault(entry, session.clock) or _elsewhere(entry, session.home.root)
        if fault is not None:
            why, way = fault
            found.append({"table": entry.table, "line": entry.line, "why": why, "next": way})
    return found


def lines_with_ledger(environ: Mapping[str, str], location: str) -> Iterator[tuple[str, str]]:
    """Yield (table, line without a password) of each job that names the ledger at `location` by CLOUDGPU_LEDGER."""
    for entry in entries(environ):
        url = entry.environment.get("CLOUDGPU_LEDGER")
        if url and ledger_location(url) == location:
            yield entry.table, entry.line


def entries(environ: Mapping[str, str]) -> Iterator[Entry]:
    """Yield every job of this user that runs cloudgpu; none from a table that cannot be read."""
    for table in find_tables(environ):
        try:
            text = table.text()
        except InvalidRequest:
            continue
        yield from _of_crontab(text) if table.kind == "crontab" else _of_units(text)


def _of_crontab(text: str) -> Iterator[Entry]:
    of_table: dict[str, str] = {}
    is_ours = False
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            is_ours = bool(_BEGIN.fullmatch(line)) or (is_ours and not line.startswith("# cloudgpu end: "))
            continue
        sets = _TABLE_SETS.fullmatch(line)
        if sets and line.lstrip()[0] not in "*@0123456789":
            of_table[sets[1]] = sets[2].strip("\"'")
            continue
        command = line.strip().split(maxsplit=1 if line.lstrip().startswith("@") else 5)[-1]
        yield from _entry("crontab", line, _before_percent(command), of_table, is_ours=is_ours)


def _before_percent(command: str) -> str:
    """Return what the shell is given: a `%` ends it, unless a backslash stands before it (crontab(5))."""
    return re.split(r"(?<!\\)%", command)[0].replace(r"\%", "%")


def _of_units(text: str) -> Iterator[Entry]:
    settings: dict[str, str] = {}
    is_ours = False
    for line in text.splitlines():
        if line.startswith("# Written by cloudgpu cron install"):
            settings, is_ours = {}, True
        elif line == "[Service]":
            settings = {}
        elif line.startswith("Environment="):
            words = (_SET.fullmatch(word.replace("%%", "%")) for word in _words(line.partition("=")[2]))
            settings |= {found[1]: found[2] for found in words if found}
        elif line.startswith("ExecStart="):
            yield from _entry("systemd", line, line.partition("=")[2].replace("%%", "%"), settings, is_ours=is_ours)
            is_ours = False


def _entry(table: str, line: str, command: str, around: Mapping[str, str], *, is_ours: bool) -> Iterator[Entry]:
    words = _words(command)
    at = next((number for number, word in enumerate(words) if _is_program(words, number)), None)
    if at is None:
        return
    sets = (_SET.fullmatch(word) for word in words[:at])
    environment = {**around, **{found[1]: found[2] for found in sets if found}}
    yield Entry(table, redacted_line(line, environment), environment, words[at], is_ours)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _is_program(words: list[str], number: int) -> bool:
    """Say whether this word is cloudgpu itself, or the Python that runs it. A name alone may be any program's word."""
    # A variable's value may end in /cloudgpu, as the default home does. What follows `sh -c` is a command.
    if _SET.fullmatch(words[number]) and not re.fullmatch("-[a-z]*c", "".join(words[:number][-1:])):
        return False
    name = os.path.basename(words[number])  # noqa: PTH119  (a word of a shell, not a path yet)
    if words[number] == "cloudgpu":
        before = next((word for word in reversed(words[:number]) if not _SET.fullmatch(word)), "&&")
        return before in _BEFORE
    return name == "cloudgpu" or (name.startswith("python") and words[number + 1 : number + 3] == ["-m", "cloudgpu"])


def _fault(entry: Entry, clock: Any) -> tuple[str, str] | None:
    """Return what is wrong with a job, and the remedy; None for one that can run."""
    home = entry.home
    if home is not None and not home.is_dir():
        return f"its home {home} is not there", _remove(entry, home)
    if not _is_there(entry):
        return f"its program {redacted_line(entry.program, entry.environment)} is not there", _mend(entry, home)
    moved = None if home is None else _moved(entry, home, clock)
    return None if moved is None else (moved, _follow(entry, home))


def _is_there(entry: Entry) -> bool:
    if "/" in entry.program:
        return "$" in entry.program or os.access(entry.program, os.X_OK)
    return shutil.which(entry.program, path=entry.environment.get("PATH", _PATH)) is not None


def _moved(entry: Entry, home: Path, clock: Any) -> str | None:
    """Return that the job's ledger is gone or has moved; None where it is in use, or cannot be read from here."""
    try:
        named = entry.environment.get("CLOUDGPU_LEDGER")
        url = named or load_settings(Home(home), {}).ledger_url
        ledger = open_ledger(url, home / "ledger", actor="", clock=clock)
        mark = ledger.moved()
        is_lost = mark is None and named is not None and ledger.head()[0] == 0
        ledger.close()
    except CloudgpuError:
        return None
    if is_lost:
        return f"there is no ledger at {ledger.location}"
    return None if mark is None or mark.came_from else f"its ledger {ledger.location} has moved to {mark.to}"


def _elsewhere(entry: Entry, home: Path) -> tuple[str, str] | None:
    """Return that a job is for another home: it works, but does nothing for this one."""
    other = entry.home
    if other is None or other == home:
        return None
    return f"it looks after another home, {other}", f"Look there: {_at(other)} cloudgpu cron show"


def _at(home: Path) -> str:
    return f"CLOUDGPU_HOME={shlex.quote(str(home))}"


def _remove(entry: Entry, home: Path) -> str:
    if entry.is_ours:
        return f"Run: {_at(home)} cloudgpu cron remove"
    return _by_hand(entry)


def _mend(entry: Entry, home: Path | None) -> str:
    if entry.is_ours and home is not None:
        return f"Run: {_at(home)} cloudgpu cron install (or cron remove)"
    return _by_hand(entry)


def _follow(entry: Entry, home: Path | None) -> str:
    if "CLOUDGPU_LEDGER" in entry.environment or home is None:
        return f"Take CLOUDGPU_LEDGER out of the line, or name the new place in it: {_editor(entry)}"
    return f"Run: {_at(home)} cloudgpu ledger move --follow"


def _by_hand(entry: Entry) -> str:
    return f"Take the line out: {_editor(entry)}"


def _editor(entry: Entry) -> str:
    return "crontab -e" if entry.table == "crontab" else "systemctl --user list-timers names its unit"
