"""Installs scheduled runs of the reaper on this computer: what is installed, what would be, the answers of `cron`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.scheduler.crontab_store import Table, Timers, choose_table, find_tables
from cloudgpu.control.scheduler.crontab_text import DEFAULT_INTERVAL, CronJob, check_every
from cloudgpu.control.scheduler.redaction import COPIED_VARIABLES, secrets_in
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import files

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import CronChangeDocument, CronDocument, LastRun
    from cloudgpu.views.documents.parts import UnansweredScope

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class CronChange:
    """What `install` or `remove` would do to a table (the crontab, or systemd's timers).

    `installed_text` and `planned_text` are our text in it; None: no text.
    """

    table: Table
    job: CronJob
    installed_text: str | None
    planned_text: str | None

    @property
    def changes_nothing(self) -> bool:
        """Say whether everything is as it should be already."""
        return self.installed_text == self.planned_text


def plan_install(session: Session, environ: Mapping[str, str], *, every: timedelta | None, nightly: bool,
                 kind: str | None) -> CronChange:  # fmt: skip
    """Return what would be installed. Changes nothing. `kind` chooses a table: `crontab` or `systemd`; None: the first.

    Raises InvalidRequest for what cannot be written, for a ledger that cron could not find, and where a job of this
    home is installed in the other table.
    """
    if every is not None and nightly:
        raise InvalidRequest(
            "--nightly runs once a night, so --every does not go with it.",
            field="--every",
            value=None,
            next="Leave one of them out.",
        )
    check_every(every or DEFAULT_INTERVAL)
    _check_ledger(environ)
    tables = find_tables(environ)
    table = choose_table(tables, kind)
    job = job_of_home(session, environ, every=every or DEFAULT_INTERVAL, nightly=nightly)
    for other_table in tables:
        if other_table is not table and other_table.installed(job.home) is not None:
            raise InvalidRequest(
                f"A job of this home is installed in {other_table.kind} already, and this would be one more in "
                f"{table.kind}.",
                field=f"--{table.kind}",
                value=None,
                next=f"Run: cloudgpu cron remove --{other_table.kind}, or leave --{table.kind} out.",
            )
    return CronChange(table, job, table.installed(job.home), table.planned(job))


def plan_remove(session: Session, environ: Mapping[str, str], *, kind: str | None) -> CronChange | None:
    """Return what would be removed, from all tables or that of this kind; None: nothing is there. Changes nothing."""
    tables, job = find_tables(environ), job_of_home(session, environ)
    for table in [choose_table(tables, kind)] if kind else tables:
        installed_text = table.installed(job.home)
        if installed_text is not None:
            return CronChange(table, job, installed_text, None)
    return None


def apply_change(session: Session, change: CronChange, environ: Mapping[str, str]) -> CronChangeDocument:
    """Make the change, and return the answer of `cron install` and `cron remove`."""
    # The lock is a file in the home: a table belongs to one computer. A home that is gone is not created again for it.
    needs_lock = session.home.root.is_dir() or change.planned_text is not None
    with files.lock(session.home.locks, "cron", wait=10) if needs_lock else nullcontext():
        if change.planned_text is None:
            change.table.remove(change.job.home)
        elif not change.changes_nothing:
            change.table.install(change.job)
    return change_document(change, environ)


def change_document(change: CronChange, environ: Mapping[str, str]) -> CronChangeDocument:
    """Return a change as plain values."""
    return {
        "table": change.table.kind,
        "changed": not change.changes_nothing,
        "lines": _text_lines(change.planned_text),
        "replaced": _text_lines(change.installed_text)
        if change.planned_text is not None and not change.changes_nothing
        else [],
        "notes": _install_notes(change, environ),
    }


def show_cron(session: Session, environ: Mapping[str, str]) -> CronDocument:
    """Return the answer of `cron show`: what is installed here, and when a run last succeeded.

    A ledger that cannot be read is named under `unanswered`: then the last run is not known.
    """
    from cloudgpu.control.scheduler.stale_lines import find_stale_lines

    home = str(session.home.root)
    installed = [(table, text) for table in find_tables(environ) if (text := table.installed(home)) is not None]
    last_run: LastRun | None = None
    unanswered: list[UnansweredScope] = []
    try:
        last_run = last_run_document(session)
    except LedgerUnavailable as error:
        unanswered.append({"scope": "ledger", "why": error.message})
    return {
        "installed": [{"table": table.kind, "lines": _text_lines(text)} for table, text in installed],
        "stale": find_stale_lines(session, environ),
        "program": " ".join(program_argv()),
        "last_run": last_run,
        "unanswered": unanswered,
    }


def last_run_document(session: Session) -> LastRun | None:
    """Return the last run of the reaper as a document; None for none yet. Raises LedgerUnavailable."""
    last_run = read_last_run(session.ledger)
    if last_run.at is None or last_run.latest is None:
        return None
    return {
        "at": iso(last_run.at),
        "ok": bool(last_run.ok),
        "host": last_run.latest.body.get("host"),
        "verb": last_run.latest.body.get("verb"),
        "succeeded_at": None if last_run.ok_at is None else iso(last_run.ok_at),
        "full_run_at": None if last_run.sweep_at is None else iso(last_run.sweep_at),
    }


def job_of_home(
    session: Session, environ: Mapping[str, str], *, every: timedelta = DEFAULT_INTERVAL, nightly: bool = False
) -> CronJob:
    """Return what cron is to run for this home."""
    argv = program_argv()
    settings = {"CLOUDGPU_HOME": str(session.home.root), "PATH": _command_path(argv[0], environ.get("PATH", ""))}
    secret_names = secrets_in(environ)
    settings |= {name: environ[name] for name in COPIED_VARIABLES if environ.get(name) and name not in secret_names}
    return CronJob(argv, settings, every, nightly)


def program_argv() -> tuple[str, ...]:
    """Return the command that runs cloudgpu, with an absolute path; with Python where it was started as a module."""
    start_path = Path(sys.argv[0])
    if start_path.name == "cloudgpu":
        path = shutil.which(str(start_path)) or shutil.which("cloudgpu")
        if path:
            return (os.path.abspath(path),)  # noqa: PTH100  (a link is kept: it outlives an upgrade of what it names)
    return (sys.executable, "-m", "cloudgpu")


def _command_path(program_path: str, path: str) -> str:
    """Return the directories in which commands are found: this program's, the user's that are there, the system's."""
    user_directories = [
        directory for directory in path.split(os.pathsep) if directory.startswith("/") and Path(directory).is_dir()
    ]
    return os.pathsep.join(dict.fromkeys([os.path.dirname(program_path), *user_directories, *SYSTEM_PATH]))  # noqa: PTH120


def _check_ledger(environ: Mapping[str, str]) -> None:
    """Raise InvalidRequest for CLOUDGPU_LEDGER: cron would use another ledger, and report that all is well."""
    if environ.get("CLOUDGPU_LEDGER"):
        raise InvalidRequest(
            "CLOUDGPU_LEDGER is set in this shell alone: cron would use another ledger, and a crontab must not contain "
            "a password.",
            field="CLOUDGPU_LEDGER",
            value=None,
            next='Write ledger = "..." into config.toml (chmod 600), unset CLOUDGPU_LEDGER, and run it again.',
        )


def _install_notes(change: CronChange, environ: Mapping[str, str]) -> list[str]:
    """Return notes on an installed job: variables that cron will not have, and when it does not run."""
    if change.planned_text is None:
        return []
    kind = change.table.kind
    notes = [
        f"{name} is set in this shell and is not written down: cron runs without it. {_secret_remedy(name, kind)}"
        for name in secrets_in(environ)
    ]
    if isinstance(change.table, Timers) and not change.table.lingers():
        notes.append("The timer rests while you are logged out. To have it run then, too: loginctl enable-linger")
    return notes


def _secret_remedy(name: str, kind: str) -> str:
    """Return where the secret in this environment variable can be stored, so that this kind of table has it."""
    if name.startswith("CLOUDGPU_"):
        return "Write it into config.toml: [alerts]."
    if name in COPIED_VARIABLES:
        place = "the crontab: crontab -e" if kind == "crontab" else "a file of ~/.config/environment.d"
        return f"Other users would see its password among the processes. Write it as a line of its own into {place}"
    if name == "PGPASSWORD":
        return "Write it into ~/.pgpass, which only you may read (mode 0600)."
    return "Use a profile or a login that cron can read, and see: cloudgpu cron test"


def _text_lines(text: str | None) -> list[str]:
    return [] if text is None else text.rstrip("\n").split("\n")
