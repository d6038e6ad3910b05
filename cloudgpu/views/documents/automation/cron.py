"""Documents of `cron` and `watch`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import Fault, Time, UnansweredScope


class CronChangeDocument(TypedDict):
    """What was installed or removed."""

    table: str | None
    """`crontab` or `systemd`; null: nothing was installed that could be removed."""
    changed: bool
    """Something was written."""
    lines: list[str]
    """What is installed now, line by line."""
    replaced: list[str]
    """The lines that were there before."""
    notes: list[str]
    """Variables that cron's environment lacks, and when no run happens."""


class StaleLine(TypedDict):
    """A job that cannot work."""

    table: str
    """`crontab` or `systemd`."""
    line: str
    """The line, with the ledger's password left out."""
    why: str
    """What is wrong with it."""
    next: str
    """What to do."""


class CronJob(TypedDict):
    """What one table has installed."""

    table: str
    """`crontab` or `systemd`."""
    lines: list[str]
    """What is installed there."""


class LastRun(TypedDict):
    """A run of the reaper."""

    at: Time
    """When it ended."""
    ok: bool
    """Everything answered, and each stop was confirmed."""
    host: str | None
    """On which computer."""
    verb: str | None
    """The verb of cloudgpu that made it: `reap` or `watch`."""
    succeeded_at: Time | None
    """When one last succeeded."""
    full_run_at: Time | None
    """When a full run last succeeded."""


class CronDocument(TypedDict):
    """What is installed."""

    installed: list[CronJob]
    """What is installed for this home: one entry for each table."""
    stale: list[StaleLine]
    """Jobs of cloudgpu that cannot work any more, or work on another home."""
    program: str
    """The program that `install` would write."""
    last_run: LastRun | None
    """The last run; null: none yet, or not known."""
    unanswered: list[UnansweredScope]
    """`ledger`, where it cannot be read: then the last run is not known."""


class CredentialStatus(TypedDict):
    """A credential, as cron sees it."""

    account: str
    """The configured account."""
    what: str
    """What the credential is, or why there is none."""
    until: Time | None
    """When it ends unless it is renewed; null: it does not, or nobody can say."""
    renews_itself: bool | None
    """It needs nobody to renew it; null: nobody can say."""
    lasts_until_morning: bool | None
    """It is good until `morning`; null: nobody can say."""


class CronTestDocument(TypedDict):
    """A run as cron would run it."""

    environment: dict[str, str]
    """The environment that cron gives."""
    command: str
    """What /bin/sh was given."""
    morning: str
    """Until when planned actions and credentials are checked."""
    planned_actions: list[str]
    """What runs would do until then if nothing changes."""
    credentials: list[CredentialStatus]
    """Each account's credential, as seen from there."""
    exit_code: int
    """What the run ended with."""
    error: Fault | None
    """Why there was no run, as in [error](#error)."""


class Watcher(TypedDict):
    """A process of `watch`."""

    pid: int
    """Its process."""
    since: Time
    """Since when."""
    every_s: float
    """How often a run is made, in seconds."""
    metrics: str | None
    """The URL of its metrics; null: it serves none."""


class WatchDocument(TypedDict):
    """Which processes of `watch` run."""

    watching: list[Watcher]
    """The processes of this home that watch on this computer."""
    running: bool
    """A run is being made now, by anybody."""
    last_run: LastRun | None
    """The last run, on any computer; null: none yet."""
    next_at: Time | None
    """When the next is due; null: nothing watches here."""
    overdue: str | None
    """That none has succeeded for 26 hours while machines run; null: all is well."""
