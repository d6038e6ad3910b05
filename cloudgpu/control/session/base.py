"""What a session knows without asking whose account a machine is of: settings, ledger, providers, names and locks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.config.settings import CLOUDS, Account, Settings
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import tag_value, unknown_word
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import files

if TYPE_CHECKING:
    from cloudgpu.config.files.paths import Home
    from cloudgpu.config.policies.find import HomeTerms
    from cloudgpu.core.alerts.alerts import AlertState
    from cloudgpu.core.events.account_names import CurrentNames
    from cloudgpu.core.events.log import Event
    from cloudgpu.core.model.identity import AccountIdentity
    from cloudgpu.core.policies.runs import ScheduledRun
    from cloudgpu.core.team.rights import Published
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.providers.base import Provider

Report = Callable[[str], None]
NAMES_HOLD = timedelta(minutes=1)  # a run asks for them once, not for each machine


def silent(_sentence: str) -> None:
    """Report nobody."""


def utc_now() -> datetime:
    """Return the present as aware UTC."""
    return datetime.now(UTC)


@dataclass
class SessionBase:
    """What every verb works with, as far as it needs no machine's account. The fields are told at `Session`."""

    home: Home
    settings: Settings
    ledger: Ledger
    clock: Callable[[], datetime] = utc_now
    report: Report = silent
    pause: Callable[[float], None] = time.sleep  # seconds between two looks
    _providers: dict[str, Provider] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)  # accounts of clouds that config.toml does not name
    clock_ahead: Callable[[], timedelta] = timedelta  # by how much this computer's own clock is ahead of `clock`
    tell_waits: Report | None = None  # who is told what is waited for, where `report` tells nobody
    for_lab: bool = False  # a run is under way, which acts for the lab, whoever runs it
    ledger_away: bool = False  # the ledger is away, and what stands in for it waits to be written
    alerts_told: tuple[Event, AlertState] | None = None  # what `alerts` has folded of its lines, up to this one
    own_run: ScheduledRun | None = None  # the one of the reaper that is under way here, not recorded yet
    identified: dict[tuple[str, str], AccountIdentity] = field(default_factory=dict)  # as written down
    regions_in_use: Mapping[str, Collection[str]] | None = None  # by kind of provider, in `by_remembered_regions`
    _names: tuple[datetime, CurrentNames] | None = None  # what was renamed, and when that was read

    def provider(self, account: str) -> Provider:
        """Return the configured account's provider, made once; raise InvalidRequest when there is none such."""
        if account not in self._providers:
            self._providers[account] = self._make(account)
        return self._providers[account]

    def names(self) -> CurrentNames:
        """Return what accounts and hosts of this owner are called in config.toml that were renamed."""
        from cloudgpu.core.events.account_names import SUBJECT, CurrentNames, names_now

        now = self.clock()
        if self._names is None or not timedelta(0) <= now - self._names[0] < NAMES_HOLD:
            found = CurrentNames()
            with suppress(LedgerUnavailable):  # who has no ledger goes by identities alone
                found = names_now(self.ledger.events(SUBJECT), self.settings.owner)
            self._names = now, found.among({name: one.options for name, one in self.settings.accounts.items()})
        return self._names[1]

    def published(self) -> dict[str, Published]:
        """Return what the lab's payers have published in the ledger, by name."""
        from cloudgpu.core.team.rights import SUBJECT, published_of

        return published_of(self.ledger.events(SUBJECT))

    @property
    def place(self) -> list[str]:
        """Which computer, user and directory this home is of: another one where it is a copy, or was moved."""
        from cloudgpu.access.computer import computer

        return [computer(), str(os.geteuid()), os.path.realpath(self.home.root)]

    @property
    def home_terms(self) -> HomeTerms:
        """What this home says of its machines; its id is the computer and the directory."""
        from cloudgpu.access.computer import computer
        from cloudgpu.config.policies.find import HomeTerms, policy_paths

        id_, settings = f"{computer()}{os.path.realpath(self.home.root)}", self.settings
        jump = str(settings.alerts.price_jump)
        return HomeTerms(id_, policy_paths(self.home), settings.tz, jump, settings.policy, settings.policies)

    @contextmanager
    def for_the_lab(self) -> Iterator[None]:
        """Let what happens meanwhile happen for the lab, by its policies, leases and budgets, whoever runs it."""
        before, self.for_lab = self.for_lab, True
        try:
            yield
        finally:
            self.for_lab = before

    def forget_names(self) -> None:
        """Read anew what was renamed: this process has just written it."""
        self._names = None

    def _make(self, account: str) -> Provider:
        from cloudgpu.providers.base import ProviderSettings
        from cloudgpu.providers.registry import open_provider

        configured = self.account(account)
        if configured is None:
            raise self.unknown_account(account)
        home = self.home.provider(configured.provider, account)
        options, ledger = dict(configured.options), self.ledger
        called = self.names().hosts_of(account)
        whose = ("", lambda: ledger.id, self._report_line)
        with suppress(LedgerUnavailable):  # what only asks an account does without
            whose = (ledger.id, *whose[1:])
        made = ProviderSettings(
            account,
            options,
            home,
            self.clock,
            self.pause,
            *whose,
            renamed_hosts=called,
            regions_in_use=lambda: self._regions_of(configured.provider),
            clock_ahead=self.clock_ahead,
        )
        return open_provider(configured.provider, made)

    def _regions_of(self, kind: str) -> Collection[str] | None:
        return None if self.regions_in_use is None else self.regions_in_use.get(kind, ())

    @contextmanager
    def by_remembered_regions(self, in_use: Mapping[str, Collection[str]]) -> Iterator[None]:
        """Let listings inside go by the regions that were found within the last day, and by those `in_use`.

        `in_use` has, by the kind of provider, where the ledger has machines.
        """
        self.regions_in_use = in_use
        try:
            yield
        finally:
            self.regions_in_use = None

    def waits(self, sentence: str) -> None:
        """Say what is waited for, also where nothing else is said."""
        (self.tell_waits or self.report)(sentence)

    def _report_line(self, sentence: str) -> None:
        self.report(sentence)  # whatever that is by then: a session is opened before a verb says how it speaks

    def account(self, name: str) -> Account | None:
        """Return the account called `name`, None for none such.

        Where no account of a cloud is configured, its own name stands for one with the usual settings, from then on.
        """
        accounts = self.settings.accounts
        if name in CLOUDS and all(one.provider != name for one in accounts.values()):
            self.settings = replace(self.settings, accounts={**accounts, name: Account(name, name)})
            self.found.add(name)
        return self.settings.accounts.get(name)

    def unknown_account(self, account: str) -> InvalidRequest:
        """Return the error that names the accounts there are, or how to retire one that the ledger alone knows."""
        with suppress(LedgerUnavailable):
            gone = gone_from_settings(self, account)
            if gone is not None:
                return gone
        known = sorted(self.settings.accounts)
        return unknown_word(
            f"No account is called {account!r}",
            account,
            known,
            field="account",
            next=f"Use one of: {', '.join(known)}; or add [accounts.{account}] to {self.home.config_file}.",
        )

    @contextmanager
    def lock(self, name: str, *, wait: bool | float) -> Iterator[None]:
        """Hold the lock `name` alone, among this home's processes and among all clients of a shared ledger.

        Each waits for ever (True), not at all, or so many seconds. Raises ProviderUnavailable when somebody else
        holds it to the end, LedgerUnavailable when no lock can be made, LedgerMoved where the ledger is not in use.
        """
        self.ledger.check_in_use()  # before anything is sent: what is done could not be written down
        with ExitStack() as both:
            try:
                both.enter_context(files.lock(self.home.locks, name, wait=wait))
            except LedgerUnavailable:
                if not self.ledger_away:  # else a full disk may refuse a lock: `AsideLedger.hold` takes one elsewhere
                    raise
            both.enter_context(self.ledger.lock(name, wait=wait))
            yield

    def is_locked(self, name: str) -> bool:
        """Say whether a living process holds the lock `name`, this one too, here or at another client."""
        with suppress(*[LedgerUnavailable] if self.ledger_away else []):
            return files.is_locked(self.home.locks, name) or self.ledger.is_locked(name)
        return False

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable where the lock `name`, which this process held by `lock`, is lost unawares."""
        if not self.ledger_away:  # else a full disk may have refused the file of the lock
            files.check_lock(self.home.locks, name)
        self.ledger.check_lock(name)


def is_mine(session: SessionBase, machine: Machine) -> bool:
    """Say whether a machine is of the owner that the settings name; one found by its tags has the name as tags do."""
    return machine.owner in (session.settings.owner, tag_value(session.settings.owner))


def gone_from_settings(session: SessionBase, account: str) -> InvalidRequest | None:
    """Return the error for an account that the ledger knows and config.toml does not; None for one it does not know.

    It names both ways out, and the account that may be the same one under a new name.
    """
    names = session.names()
    kinds = {names.account(machine.account): machine.provider for machine in session.ledger.billable_machines()}
    if account not in kinds:
        return None
    new = sorted(
        name
        for name, one in session.settings.accounts.items()
        if one.provider == kinds[account] and name not in kinds and name != one.provider
    )
    renamed = f" If {' or '.join(new)} is its new name: cloudgpu init --rename {account} {new[0]}." if new else ""
    return InvalidRequest(
        f"Account {account} has machines in the ledger and is not in config.toml. Put [accounts.{account}] back, or "
        f"retire it: cloudgpu init --forget {account}.{renamed}",
        field="account",
        value=account,
        next=f'Add [accounts.{account}] with provider = "{kinds[account]}" to {session.home.config_file}, or, when '
        f"nothing of it costs any more, run: cloudgpu init --forget {account}",
    )
