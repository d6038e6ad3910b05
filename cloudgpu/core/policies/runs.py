"""Which scheduled runs of the reaper guard a machine that nothing else can end: how often and how lately. Pure.

A run counts where it is no older than twice its own interval, where it checked the machine's account, and where its
computer did not run on a battery: such a computer sleeps when it is closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from cloudgpu.core.model.records import ScheduledRunRecord
from cloudgpu.core.values.times import duration_text, from_iso, iso

LATE_FACTOR = 2  # times its interval: a run that is older than that has fallen silent
MAX_HOMES = 16  # homes that are remembered


class ScheduledRun(NamedTuple):
    """The latest scheduled run of one home, as the ledger heard of it.

    `home` tells it from all others: two computers may have the same name, and one computer two homes. `host` is the
    name of its computer, for people. `at` is when it ended, `every` how often that home makes one. `battery`: it ran on
    one then; None: not known. `accounts` are those that answered it, by the subjects of their syncs
    (`core.values.naming.scope_of`).
    """

    home: str
    host: str
    at: datetime
    every: timedelta
    battery: bool | None
    accounts: frozenset[str]

    @classmethod
    def of(cls, record: ScheduledRunRecord) -> Self:
        """Return the value of a record."""
        every = timedelta(seconds=record["every_s"])
        at, accounts = from_iso(record["at"]), frozenset(record["accounts"])
        return cls(record["home"], record["host"], at, every, record["battery"], accounts)

    def record(self) -> ScheduledRunRecord:
        """Return it as a ledger event stores it."""
        return {
            "home": self.home,
            "host": self.host,
            "at": iso(self.at),
            "every_s": round(self.every.total_seconds(), 3),
            "battery": self.battery,
            "accounts": sorted(self.accounts),
        }


def is_recent(run: ScheduledRun, now: datetime) -> bool:
    """Say whether a run is within twice its own interval of `now`; one that is far ahead was made by a wrong clock."""
    return abs(now - run.at) <= LATE_FACTOR * run.every


def guarding_run(runs: Iterable[ScheduledRun], account: str, now: datetime) -> ScheduledRun | None:
    """Return the run that guards the machines of an account, the most frequent of several; None where none does."""
    fit = [run for run in runs if account in run.accounts and run.battery is False and is_recent(run, now)]
    return min(fit, key=lambda run: (run.every, abs(now - run.at), run.host, run.home), default=None)


def with_run(
    before: Iterable[ScheduledRun], scheduled_run: ScheduledRun | None, now: datetime
) -> tuple[ScheduledRun, ...]:
    """Return the runs that the next line carries: `scheduled_run` in place of that home's last, the recent ones first.

    At most `MAX_HOMES`: containers with a new home each time must not fill the ledger, nor push out a run that guards
    an account.
    """
    others = [run for run in before if scheduled_run is None or run.home != scheduled_run.home]
    runs = [*([] if scheduled_run is None else [scheduled_run]), *others]
    accounts = {account for run in runs for account in run.accounts}
    guards = {guarding_run(runs, account, now) for account in accounts}

    def order(run: ScheduledRun) -> tuple[bool, bool, bool, timedelta, str]:
        return run is not scheduled_run, run not in guards, not is_recent(run, now), abs(now - run.at), run.home

    return tuple(sorted(runs, key=order)[:MAX_HOMES])


def missing_for_guard(runs: Iterable[ScheduledRun], account: str, now: datetime) -> str:
    """Return what is missing for a run to guard an account, as the second half of a sentence."""
    known = list(runs)
    if not known:
        return "none has been heard yet"
    checking = [run for run in known if account in run.accounts]
    if not checking:
        return f"those that were heard (on {_hosts(known)}) do not check this account"
    recent = [run for run in checking if is_recent(run, now)]
    if not recent:
        last = max(checking, key=lambda run: run.at)
        return f"the last one, on {last.host}, {age_text(last, now)}"
    if any(run.battery for run in recent):
        return f"{_hosts(run for run in recent if run.battery)} runs on a battery, and sleeps when it is closed"
    return f"it is not known whether {_hosts(recent)} runs on a battery"


def age_text(run: ScheduledRun, now: datetime) -> str:
    """Return how old a run is beside how often it should come: `was 3h ago and should come every 10m`."""
    if run.at > now:
        return "is of a time that is still to come, by this computer's clock"
    return f"was {duration_text(now - run.at)} ago and should come every {duration_text(run.every)}"


def _hosts(runs: Iterable[ScheduledRun]) -> str:
    return ", ".join(dict.fromkeys(run.host for run in runs))
