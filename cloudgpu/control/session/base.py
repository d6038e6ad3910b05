"""What a session knows without asking whose account a machine is of: settings, ledger, providers, names and locks.

Whether a machine's account is one of this home's, it says by what accounts here last said who they are, and by
config.toml: why a machine cannot be asked whose account or host that does not name any more, and the ways out. Imports
next to nothing: `ls` uses it.
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
from threading import Lock
from typing import TYPE_CHECKING

from cloudgpu.config.settings import CLOUDS, Account, Settings
from cloudgpu.core.events.account_names import SUBJECT, CurrentNames, hosts_in, names_now
from cloudgpu.core.model.identity import BY_REGION, AccountIdentity, identity_region
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


IdentitiesByAccount = dict[str, dict[str, list[str]]]  # kind and id, by account and region
_lock = Lock()


def remember(session: SessionBase, account: str, region: str | None, identity: AccountIdentity) -> None:
    """Keep what an account here said it is, for `reachable`. A full disk keeps nobody from their work."""
    region_key = identity_region(region, identity.kind)
    if session.identified.get((account, region_key)) == identity or not session.home.root.is_dir():
        return
    with _lock, suppress(OSError):
        known = remembered(session)
        by_region = known.setdefault(account, {})
        if by_region.get(region_key) != [identity.kind, identity.id]:
            by_region[region_key] = [identity.kind, identity.id]
            file = session.home.identities
            for left in file.parent.glob(f".{file.name}.*"):  # by a process that was killed, or that tells it again
                left.unlink(missing_ok=True)
            fresh = file.with_name(f".{file.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"at": session.place, "accounts": known}, indent=1) + "\n", encoding="utf-8")
            fresh.replace(file)
        session.identified[account, region_key] = identity


def reachable(session: SessionBase, machines: Sequence[Machine]) -> list[bool | None]:
    """Say of each machine whether its account is one of this home's; None where that is not known without asking."""
    known = remembered(session) if machines else {}
    return [_is_here(session, machine, known) for machine in machines]


def names_here(session: SessionBase, machines: Sequence[Machine]) -> set[str]:
    """Return what the accounts of these machines are called: where they were launched, and here, as far as is known."""
    known, names = remembered(session) if machines else {}, {machine.account for machine in machines}
    wanted = [[machine.identity.kind, machine.identity.id] for machine in machines if machine.identity]
    return names | {name for name, identities in known.items() if any(one in wanted for one in identities.values())}


def is_another_account(session: SessionBase, account: str, machine: Machine) -> bool:
    """Say whether this account last said that it is another one than a machine's.

    Of hosts, all that the settings name have to have said so where they do not name the machine's own. Without a region
    the first of them was asked.
    """
    identity = machine.identity
    if identity is None:
        return False
    known, wanted = remembered(session).get(account, {}), [identity.kind, identity.id]
    if identity.kind != BY_REGION:
        return known.get("", wanted) != wanted
    by_region = _identities_by_host(session, account, known)
    host = session.names().host(account, machine.region or "")
    if by_region.get(host) is not None:
        return by_region[host] != wanted
    return bool(by_region) and all(one is not None and one != wanted for one in by_region.values())


def _identities_by_host(session: SessionBase, account: str, known: dict[str, list[str]]) -> dict[str, list[str] | None]:
    """Return what the hosts of an account last said they are, None for nothing; without a region the first was asked.

    Only those that the settings name: what another one said tells of no machine any more.
    """
    names = hosts_in(session.settings.accounts[account].options)
    return {name: known.get(name, known.get("") if name == names[0] else None) for name in names}


def _is_here(session: SessionBase, machine: Machine, known: IdentitiesByAccount) -> bool | None:
    identity = machine.identity
    accounts = [name for name, one in session.settings.accounts.items() if one.provider == machine.provider]
    if identity is None:
        return None
    wanted = [identity.kind, identity.id]
    if identity.kind == BY_REGION:
        hosts = [
            identities
            for name in accounts
            for identities in _identities_by_host(session, name, known.get(name, {})).values()
        ]
        return True if wanted in hosts else None if None in hosts else False
    identities = [known.get(name, {}).get("") for name in accounts]
    if wanted in identities:
        return True
    if not identities and machine.provider in CLOUDS:
        return None
    return None if None in identities else False


def remembered(session: SessionBase) -> IdentitiesByAccount:
    """Return what accounts said, by account and region; nothing where this home is a copy, or was moved, since."""
    here = session.place
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(session.home.identities.read_text(encoding="utf-8"))
        if found["at"] == here:
            return {str(name): dict(identities) for name, identities in found["accounts"].items()}
    return {}


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """An account, or a host of one, that config.toml does not name: `why` and `way` are sentences."""

    name: str
    why: str
    way: str


def absences(
    session: SessionBase, machines: Sequence[Machine], known: Sequence[bool | None]
) -> list[NotConfigured | None]:
    """Return for each of these machines what of it the settings do not name any more; None where they do.

    Only for machines of this owner that may be there: a colleague's account need not be in these settings. And not
    where an account here has said that it is the one, whatever it is called: `known` is what `reachable` says of them.
    """
    return [None if here else absence(session, row) for row, here in zip(machines, known, strict=True)]


def absence(session: SessionBase, machine: Machine) -> NotConfigured | None:
    """Return what of a machine the settings do not name, by its names alone."""
    mine = machine.owner in (session.settings.owner, tag_value(session.settings.owner), "", None)
    if (
        not mine
        or machine.identity is None
        or (machine.terminated_at is not None and not has_retained_resources(machine))
    ):
        return None
    names = session.names()
    account = names.account(machine.account)
    if account in CLOUDS and account == machine.provider:
        return None  # its own name stands for it, with or without a table
    found = session.settings.accounts.get(account)
    if found is None:
        table = f"[accounts.{account}]"
        kept = f"Put {table} back into config.toml: the files of its machines are under that name"
        way = kept if machine.provider == "local" else _way(table, account)
        return NotConfigured(account, f"config.toml has no account {account}.", way)
    if found.provider != machine.provider:
        why = f"Account {account} in config.toml is one of {found.provider} now, not of {machine.provider}."
        return NotConfigured(account, why, _way(f"the table of {machine.provider}", account))
    host = names.host(account, machine.region or "")
    if machine.identity.kind != BY_REGION or host in hosts_in(found.options):
        return None
    why = f"The host {host} is not in the settings of account {account}."
    return NotConfigured(host, why, _way("it", host))


def _way(what: str, name: str) -> str:
    return (
        f"Put {what} back into config.toml. If it has another name now: cloudgpu init --rename {name} NEW. "
        f"If it will never answer again: cloudgpu init --forget {name}"
    )


# Who reads a table, by provider. A plug-in reads its own when it is opened, which takes more than `ls` may load.
READERS = {
    "aws": ("cloudgpu.providers.aws.ids", "aws_options"),
    "azure": ("cloudgpu.providers.azure.ids", "azure_options"),
    "gcp": ("cloudgpu.providers.gcp.options", "gcp_options"),
    "runpod": ("cloudgpu.providers.runpod.options", "runpod_options"),
    "lambda": ("cloudgpu.providers.lambdalabs.options", "lambda_options"),
    "local": ("cloudgpu.providers.local.options", "local_options"),
    "vast": ("cloudgpu.providers.vast.options", "vast_options"),
}


def table_faults(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each account of a shipped provider whose table has a fault, such as an unknown key."""
    for account in settings.accounts.values():
        if account.options and account.provider in READERS:
            module, reader = READERS[account.provider]
            try:
                getattr(import_module(module), reader)(account.name, account.options)
            except InvalidRequest as error:
                yield error.message
