"""The part of a session that asks no provider: settings, ledger, opened providers, names and locks.

Whether a machine's account is one of this home's is read from config.toml and from the identities that accounts last
reported. For a machine whose account or host is not in config.toml any more, this says why it cannot be reached, and
the remedies. Imports next to nothing: `ls` uses it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from cloudgpu.config.settings import CLOUDS, Account, Settings
from cloudgpu.core.events.account_names import SUBJECT, CurrentNames, current_names, hosts_in
from cloudgpu.core.model.identity import SSH_HOST, AccountIdentity, identity_region
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.values.naming import tag_value, unknown_word
from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log import files

if TYPE_CHECKING:
    from cloudgpu.config.files.user_files import Home
    from cloudgpu.config.policies.find import HomeTerms
    from cloudgpu.core.alerts.alerts import AlertState
    from cloudgpu.core.events.log import Event
    from cloudgpu.core.policies.guards import ScheduledRun
    from cloudgpu.core.team.rights import Published
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.providers.base import Provider

Report = Callable[[str], None]  # shows the user a sentence
NAMES_CACHED_FOR = timedelta(minutes=1)  # so that a run reads them once, not for each machine


def report_nothing(_sentence: str) -> None:
    """Report nothing."""


def utc_now() -> datetime:
    """Return the present as aware UTC."""
    return datetime.now(UTC)


@dataclass
class SessionBase:
    """What every verb works with, as far as it asks no provider whose account a machine is in."""

    home: Home
    settings: Settings
    ledger: Ledger
    clock: Callable[[], datetime] = utc_now
    report: Report = report_nothing
    pause: Callable[[float], None] = time.sleep  # sleeps so many seconds
    _providers: dict[str, Provider] = field(default_factory=dict)
    detected: set[str] = field(default_factory=set)  # accounts of clouds that are not in config.toml
    clock_ahead: Callable[[], timedelta] = timedelta  # by how much this computer's own clock is ahead of `clock`
    report_waits: Report | None = None  # gets what is waited for, where `report` prints nothing
    as_reaper: bool = False  # a run of the reaper acts for the whole lab, whoever runs it
    ledger_away: bool = False  # entries go into the outbox until it is back
    alert_state_cache: tuple[Event, AlertState] | None = None  # the state after this last event
    current_run: ScheduledRun | None = None  # the run of the reaper that is under way here, not recorded yet
    before_change: Callable[[], None] | None = None  # called before each change at a cloud; raises to prevent it
    # The identities that this process has stored, by account and region.
    identified: dict[tuple[str, str], AccountIdentity] = field(default_factory=dict)
    regions_in_use: Mapping[str, Collection[str]] | None = None  # by kind of provider, in `use_remembered_regions`
    _names: tuple[datetime, CurrentNames] | None = None  # when that was read, and what was renamed

    def provider(self, account: str) -> Provider:
        """Return the configured account's provider, opened once; raise InvalidRequest for an unknown account."""
        if account not in self._providers:
            self._providers[account] = self._open_provider(account)
        return self._providers[account]

    def names(self) -> CurrentNames:
        """Return the current names of this owner's accounts and hosts that were renamed in config.toml."""
        now = self.clock()
        if self._names is None or not timedelta(0) <= now - self._names[0] < NAMES_CACHED_FOR:
            names = CurrentNames()
            with suppress(LedgerUnavailable):  # without a ledger, identities alone tell
                names = current_names(self.own_account_events())
            self._names = now, names.among({name: account.options for name, account in self.settings.accounts.items()})
        return self._names[1]

    def own_account_events(self) -> list[Event]:
        """Return this user's events about accounts: written as a database user in a team, else as the owner."""
        events = list(self.ledger.events(SUBJECT))
        writers = {self.settings.owner, self.ledger.person()} if events else set()
        return [event for event in events if event.actor in writers]

    def published_policies(self) -> dict[str, Published]:
        """Return the policies and limits, by name, that payers published: they decide about the lab's money."""
        from cloudgpu.core.team.rights import SUBJECT, published_of

        return published_of(self.ledger.events(SUBJECT))

    @property
    def location(self) -> list[str]:
        """The computer, user and directory of this home. They differ where it was copied or moved."""
        from cloudgpu.access.computer import computer_id

        return [computer_id(), str(os.geteuid()), os.path.realpath(self.home.root)]

    @property
    def home_terms(self) -> HomeTerms:
        """The policy files and settings of this home; its id is the computer and the directory."""
        from cloudgpu.access.computer import computer_id
        from cloudgpu.config.policies.find import HomeTerms, policy_paths

        id_, settings = f"{computer_id()}{os.path.realpath(self.home.root)}", self.settings
        price_jump = str(settings.alerts.price_jump)
        return HomeTerms(id_, policy_paths(self.home), settings.tz, price_jump, settings.policy, settings.policies)

    @contextmanager
    def for_the_lab(self) -> Iterator[None]:
        """Act for the whole lab in this block, by its policies, leases and budgets, whoever runs it."""
        was_reaper, self.as_reaper = self.as_reaper, True
        try:
            yield
        finally:
            self.as_reaper = was_reaper

    def forget_names(self) -> None:
        """Read the names again at next use: this process has just renamed an account or host."""
        self._names = None

    def _open_provider(self, account: str) -> Provider:
        from cloudgpu.providers.base import ProviderSettings
        from cloudgpu.providers.registry import open_provider

        configured = self.account(account)
        if configured is None:
            raise self.unknown_account(account)
        ledger, ledger_id = self.ledger, ""
        with suppress(LedgerUnavailable):  # not needed to query an account
            ledger_id = ledger.id
        provider_settings = ProviderSettings(
            account,
            dict(configured.options),
            self.home.provider_dir(configured.provider, account),
            self.clock,
            self.pause,
            ledger_id,
            lambda: ledger.id,
            self._report_sentence,
            renamed_hosts=self.names().hosts_of(account),
            regions_in_use=lambda: self.regions_in_use and self.regions_in_use.get(configured.provider, ()),
            clock_ahead=self.clock_ahead,
        )
        return open_provider(configured.provider, provider_settings)

    @contextmanager
    def use_remembered_regions(self, in_use: Mapping[str, Collection[str]]) -> Iterator[None]:
        """Have listings in this block query only regions that were found within the last day, and those `in_use`.

        `in_use` has the regions where the ledger has machines, by the kind of provider.
        """
        self.regions_in_use = in_use
        try:
            yield
        finally:
            self.regions_in_use = None

    def report_wait(self, sentence: str) -> None:
        """Report what is waited for, also where nothing else is reported."""
        (self.report_waits or self.report)(sentence)

    def _report_sentence(self, sentence: str) -> None:
        self.report(sentence)  # looked up late: a verb may replace `report` after the session was opened

    def account(self, name: str) -> Account | None:
        """Return the account called `name`, None for none such.

        Where no account of a cloud is configured, the cloud's name means one with default settings, from then on.
        """
        accounts = self.settings.accounts
        if name in CLOUDS and all(account.provider != name for account in accounts.values()):
            self.settings = replace(self.settings, accounts={**accounts, name: Account(name, name)})
            self.detected.add(name)
        return self.settings.accounts.get(name)

    def unknown_account(self, account: str) -> InvalidRequest:
        """Return the error that lists the accounts, or says how to forget one that only the ledger has."""
        with suppress(LedgerUnavailable):
            missing_error = missing_account_error(self, account)
            if missing_error is not None:
                return missing_error
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

        Each waits for ever (True), not at all, or so many seconds. Raises LockBusy when somebody else
        holds it to the end, LedgerUnavailable when no lock can be made, LedgerMoved where the ledger is not in use.
        """
        self.ledger.check_in_use()  # before anything is sent: it could not be recorded
        with ExitStack() as locks:
            try:
                locks.enter_context(files.lock(self.home.locks, name, wait=wait))
            except LedgerUnavailable:
                if not self.ledger_away:  # else a full disk may refuse a lock: the stand-in ledger takes one elsewhere
                    raise
            locks.enter_context(self.ledger.lock(name, wait=wait))
            yield

    def is_locked(self, name: str) -> bool:
        """Say whether a living process holds the lock `name`, this one too, here or at another client."""
        with suppress(*[LedgerUnavailable] if self.ledger_away else []):
            return files.is_locked(self.home.locks, name) or self.ledger.is_locked(name)
        return False

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable where this process has lost the lock `name`, and what `before_change` raises."""
        if not self.ledger_away:  # else a full disk may have refused the file of the lock
            files.check_lock(self.home.locks, name)
        self.ledger.check_lock(name)
        if self.before_change is not None:
            self.before_change()


def is_mine(session: SessionBase, machine: Machine) -> bool:
    """Say whether a machine's owner is the one in the settings, also as tags spell that name."""
    owner = session.settings.owner
    return machine.owner in (owner, tag_value(owner) or owner)


def missing_account_error(session: SessionBase, account: str) -> InvalidRequest | None:
    """Return the error for an account that the ledger knows and config.toml does not; None for one it does not know.

    It has both remedies, and the account that may be the same one under a new name.
    """
    names = session.names()
    kinds = {names.account(machine.account): machine.provider for machine in session.ledger.billable_machines()}
    if account not in kinds:
        return None
    new_names = sorted(
        name
        for name, configured in session.settings.accounts.items()
        if configured.provider == kinds[account] and name not in kinds and name != configured.provider
    )
    rename_hint = (
        f" If {' or '.join(new_names)} is its new name: cloudgpu init --rename {account} {new_names[0]}."
        if new_names
        else ""
    )
    return InvalidRequest(
        f"Account {account} has machines in the ledger and is not in config.toml. Put [accounts.{account}] back, or "
        f"retire it: cloudgpu init --forget {account}.{rename_hint}",
        field="account",
        value=account,
        next=f'Add [accounts.{account}] with provider = "{kinds[account]}" to {session.home.config_file}, or, when '
        f"nothing of it costs any more, run: cloudgpu init --forget {account}",
    )


IdentitiesByAccount = dict[str, dict[str, list[str]]]  # kind and id, by account and region


def remember_identity(session: SessionBase, account: str, region: str | None, identity: AccountIdentity) -> None:
    """Store the identity that an account reported, for `are_accounts_here`. A full disk is ignored."""
    region_key = identity_region(region, identity.kind)
    if session.identified.get((account, region_key)) == identity or not session.home.root.is_dir():
        return
    from cloudgpu.access.files import locked, write_atomically

    reported, file = [identity.kind, identity.id], session.home.identities
    with suppress(OSError, InvalidRequest):
        if remembered_identities(session).get(account, {}).get(region_key) != reported:
            with locked(file):
                identities = remembered_identities(session)
                identities.setdefault(account, {})[region_key] = reported
                text = json.dumps({"at": session.location, "accounts": identities}, indent=1)
                write_atomically(file, f"{text}\n".encode())
        session.identified[account, region_key] = identity


def are_accounts_here(session: SessionBase, machines: Sequence[Machine]) -> list[bool | None]:
    """Say of each machine whether its account is one of this home's; None where that is not known without asking."""
    identities = remembered_identities(session) if machines else {}
    return [_is_here(session, machine, identities) for machine in machines]


def account_names(session: SessionBase, machines: Sequence[Machine]) -> set[str]:
    """Return all names of these machines' accounts: where they were launched, and here, as far as is known."""
    identities_by_account, names = (
        remembered_identities(session) if machines else {},
        {machine.account for machine in machines},
    )
    machine_identities = [[machine.identity.kind, machine.identity.id] for machine in machines if machine.identity]
    return names | {
        name
        for name, identities in identities_by_account.items()
        if any(identity in machine_identities for identity in identities.values())
    }


def is_another_account(session: SessionBase, account: str, machine: Machine) -> bool:
    """Say whether this account last reported another identity than that of the machine's account.

    For on-premises hosts: the machine's own host has to have reported another one, or, where the settings do not name
    it, all hosts that they name.
    """
    identity = machine.identity
    if identity is None:
        return False
    known, machine_identity = remembered_identities(session).get(account, {}), [identity.kind, identity.id]
    if identity.kind != SSH_HOST:
        return known.get("", machine_identity) != machine_identity
    by_region = _identities_by_host(session, account, known)
    host = session.names().host(account, machine.region or "")
    if by_region.get(host) is not None:
        return by_region[host] != machine_identity
    return bool(by_region) and all(reported not in (None, machine_identity) for reported in by_region.values())


def _identities_by_host(session: SessionBase, account: str, known: dict[str, list[str]]) -> dict[str, list[str] | None]:
    """Return the identity that each host of an account in the settings last reported; None where it reported none.

    An identity that was queried without a region is that of the first host.
    """
    names = hosts_in(session.settings.accounts[account].options)
    return {name: known.get(name, known.get("") if name == names[0] else None) for name in names}


def _is_here(session: SessionBase, machine: Machine, identities: IdentitiesByAccount) -> bool | None:
    """Return whether an account of the settings last reported the machine's identity; None if that is not known."""
    identity = machine.identity
    if identity is None:
        return None
    accounts = [
        name for name, configured in session.settings.accounts.items() if configured.provider == machine.provider
    ]
    if identity.kind == SSH_HOST:
        reported = [
            host_identity
            for name in accounts
            for host_identity in _identities_by_host(session, name, identities.get(name, {})).values()
        ]
    else:
        reported = [identities.get(name, {}).get("") for name in accounts]
        if not reported and machine.provider in CLOUDS:
            return None
    return True if [identity.kind, identity.id] in reported else None if None in reported else False


def remembered_identities(session: SessionBase) -> IdentitiesByAccount:
    """Return the identities that accounts reported, by account and region; none where this home was copied or moved."""
    location = session.location
    with suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(session.home.identities.read_text(encoding="utf-8"))
        if stored["at"] == location:
            return {str(name): dict(identities) for name, identities in stored["accounts"].items()}
    return {}


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """An account, or a host of one, that is not in config.toml: `why` and `remedy` are sentences."""

    name: str
    why: str
    remedy: str


def missing_settings(
    session: SessionBase, machines: Sequence[Machine], known: Sequence[bool | None]
) -> list[NotConfigured | None]:
    """Return for each of these machines which account or host of it is not in the settings any more; else None.

    None also where an account here is known to be the machine's, whatever its name: `known` is what
    `are_accounts_here` returns for them.
    """
    return [
        None if is_here else missing_setting(session, machine) for machine, is_here in zip(machines, known, strict=True)
    ]


def missing_setting(session: SessionBase, machine: Machine) -> NotConfigured | None:
    """Return which account or host of a machine is not in the settings, by their names alone; None where both are.

    Also None for a colleague's machine, whose account need not be here, and for one of which nothing is left.
    """
    if (
        (machine.owner and not is_mine(session, machine))
        or machine.identity is None
        or (machine.terminated_at is not None and not has_retained_resources(machine))
    ):
        return None
    names = session.names()
    account = names.account(machine.account)
    if account in CLOUDS and account == machine.provider:
        return None  # a cloud's name means its account, with or without a table
    configured = session.settings.accounts.get(account)
    if configured is None:
        table = f"[accounts.{account}]"
        put_back = f"Put {table} back into config.toml: the files of its machines are under that name"
        remedy = put_back if machine.provider == "local" else _restore_remedy(table, account)
        return NotConfigured(account, f"config.toml has no account {account}.", remedy)
    if configured.provider != machine.provider:
        why = f"Account {account} in config.toml is one of {configured.provider} now, not of {machine.provider}."
        return NotConfigured(account, why, _restore_remedy(f"the table of {machine.provider}", account))
    host = names.host(account, machine.region or "")
    if machine.identity.kind != SSH_HOST or host in hosts_in(configured.options):
        return None
    why = f"The host {host} is not in the settings of account {account}."
    return NotConfigured(host, why, _restore_remedy("it", host))


def _restore_remedy(missing: str, name: str) -> str:
    return (
        f"Put {missing} back into config.toml. If it has another name now: cloudgpu init --rename {name} NEW. "
        f"If it will never answer again: cloudgpu init --forget {name}"
    )


# What reads an account's table, by provider. A plug-in reads its own when it is opened: `ls` may not load that much.
OPTION_READERS = {
    "aws": ("cloudgpu.providers.aws.ids", "aws_options"),
    "azure": ("cloudgpu.providers.azure.ids", "azure_options"),
    "gcp": ("cloudgpu.providers.gcp.options", "gcp_options"),
    "runpod": ("cloudgpu.providers.runpod.options", "runpod_options"),
    "lambda": ("cloudgpu.providers.lambdalabs.options", "lambda_options"),
    "local": ("cloudgpu.providers.local.options", "local_options"),
    "vast": ("cloudgpu.providers.vast.options", "vast_options"),
}


def account_table_errors(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each account of a shipped provider whose table has a fault, such as an unknown key."""
    for account in settings.accounts.values():
        if account.options and account.provider in OPTION_READERS:
            module, reader = OPTION_READERS[account.provider]
            try:
                getattr(import_module(module), reader)(account.name, account.options)
            except InvalidRequest as error:
                yield error.message
