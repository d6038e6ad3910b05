"""Accounts and hosts that were renamed or retired, according to the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudgpu.core.events.log import Event
from cloudgpu.core.model.machine import Machine, has_retained_resources

# The subject of a ledger entry is what it is about: the id of a machine, or such a word for entries about no machine.
SUBJECT, FORGOTTEN, RENAMED = "accounts", "account_forgotten", "account_renamed"


@dataclass(frozen=True, slots=True)
class CurrentNames:
    """The current names of accounts and hosts that were renamed; its methods look up the current for an old one."""

    accounts: dict[str, str] = field(default_factory=dict)  # by the old name
    hosts: dict[tuple[str, str], str] = field(default_factory=dict)  # by (current account name, old host name)

    def account(self, name: str) -> str:
        """Return the current name of an account."""
        return self.accounts.get(name, name)

    def all_names(self, account: str) -> frozenset[str]:
        """Return every name that an account has or had, by any of them."""
        current = self.account(account)
        return frozenset((current, *(old for old, new in self.accounts.items() if new == current)))

    def host(self, account: str, name: str) -> str:
        """Return the current name of a host of an account."""
        return self.hosts.get((self.account(account), name), name)

    def among(self, settings: Mapping[str, Mapping[str, Any]]) -> CurrentNames:
        """Return the renamings that apply with these accounts in the settings, each with its table.

        An old name that is configured again keeps its own meaning, and a new name that is not configured has none.
        """
        accounts = {old: new for old, new in self.accounts.items() if new in settings and old not in settings}
        known = {name: hosts_in(table) for name, table in settings.items()}
        hosts = {
            (account, old): new
            for (account, old), new in self.hosts.items()
            if new in known.get(account, ()) and old not in known[account]
        }
        return CurrentNames(accounts, hosts)

    def hosts_of(self, account: str) -> dict[str, str]:
        """Return the current names of an account's renamed hosts, by their old names."""
        return {old: new for (name, old), new in self.hosts.items() if name == account}


def hosts_in(table: Mapping[str, Any]) -> list[str]:
    """Return the names of the hosts in the table of an account."""
    hosts = table.get("hosts")
    return [str(one.get("name")) for one in hosts if isinstance(one, Mapping)] if isinstance(hosts, list) else []


def current_names(lines: Iterable[Event]) -> CurrentNames:
    """Return the current names of what one user has renamed; `lines` are that user's of `SUBJECT`, in their order.

    Another user may use the same name for another account. A name that is used again keeps its own meaning.
    """
    accounts: dict[str, str] = {}
    hosts: dict[tuple[str, str], str] = {}
    for line in lines:
        if line.kind != RENAMED:
            continue
        account, host, new = (str(line.body[name] or "") for name in ("account", "region", "new"))  # `region`: the host
        if host:
            renamed_hosts = _with_renaming(
                {old: now for (name, old), now in hosts.items() if name == account}, host, new
            )
            hosts = {key: now for key, now in hosts.items() if key[0] != account}
            hosts |= {(account, old): now for old, now in renamed_hosts.items()}
        else:
            accounts = _with_renaming(accounts, account, new)
            hosts = {(new if name == account else name, old): now for (name, old), now in hosts.items()}
    return CurrentNames(accounts, hosts)


def _with_renaming(known: dict[str, str], old: str, new: str) -> dict[str, str]:
    """Return current names by old names after `old` became `new`; a name that is in use again is no old name."""
    names = {name: new if now == old else now for name, now in known.items()} | {old: new}
    return {name: now for name, now in names.items() if name not in (now, new)}


def forgotten_at(lines: Iterable[Event]) -> dict[str, str]:
    """Return when one user retired each account, by its name, as ledger time; `lines` are that user's of `SUBJECT`.

    Another user may use that name for another account.
    """
    return {str(line.body["account"]): line.occurred_at for line in lines if line.kind == FORGOTTEN}


def forgotten_times(lines: Iterable[Event]) -> dict[str, str]:
    """Return when each account was retired, by its identity, as ledger time."""
    return {one: line.occurred_at for line in lines if line.kind == FORGOTTEN for one in line.body["identities"]}


def may_cost(machine: Machine) -> str | None:
    """Return in words what of this machine or retained resource may cost something now; None for nothing."""
    if machine.is_named_resource:
        return None if machine.terminated_at else f"{machine.name or machine.id} ({machine.state}) is kept"
    if machine.terminated_at is None:
        return f"{machine.name} {_state(machine)}"
    return f"of {machine.name} a disk or an image is kept" if has_retained_resources(machine) else None


def is_unknown(machine: Machine) -> bool:
    """Return whether it is not known if this machine exists."""
    return (
        not machine.is_named_resource
        and machine.terminated_at is None
        and (machine.launch_status == "open" or machine.state == "unknown")
    )


def _state(machine: Machine) -> str:
    if machine.launch_status == "open":
        return "is an unfinished launch: whether it made a machine is not known"
    return "is not known to have ended" if machine.state == "unknown" else f"is {machine.state}"
