"""What a name in `init --rename` and `init --forget` means: an account, or a host of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cloudgpu.config.edit import value_at
from cloudgpu.control.session.base import is_mine
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup.init import ExistingSetup
from cloudgpu.core.events.account_names import hosts_in
from cloudgpu.core.model.identity import BY_REGION
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class AccountOrHost:
    """An account by its name now, or a host of it. `kind` is its provider."""

    account: str
    host: str | None
    kind: str

    @property
    def name(self) -> str:
        """What it is called."""
        return self.host or self.account

    @property
    def text(self) -> str:
        """How config.toml names it, for a sentence."""
        return f"[accounts.{self.account}]" if self.host is None else f"the host {self.host} in {self.account}"

    def called(self, name: str) -> AccountOrHost:
        """Return the place of another name that this one may be now."""
        return replace(self, account=name) if self.host is None else replace(self, host=name)

    def is_in(self, found: ExistingSetup) -> bool:
        """Say whether config.toml names it."""
        table = value_at(found.table, ("accounts", self.account))
        return table is not None and (self.host is None or self.host in hosts_in(table))

    def machines_of(self, session: Session, machines: Iterable[Machine]) -> Iterator[Machine]:
        """Yield those of these rows that the ledger has there, by names alone; a colleague's are left out."""
        names = session.names()
        for machine in machines:
            is_here = machine.provider == self.kind and names.account(machine.account) == self.account
            if self.host is not None:
                is_here = is_here and names.host(self.account, machine.region or "") == self.host
            if is_here and (is_mine(session, machine) or not machine.owner):
                yield machine


def find_account_or_host(session: Session, found: ExistingSetup, text: str, option: str) -> AccountOrHost:
    """Return what is meant by `text`: an account, a host, or `ACCOUNT/HOST`.

    Raises InvalidRequest for what neither config.toml nor the ledger knows, and for a host's name that two have.
    """
    accounts, hosts = _known(session, found)
    if text in accounts:
        return AccountOrHost(text, None, accounts[text])
    meant = [one for one in hosts if text in (one.host, f"{one.account}/{one.host}")]
    if len(meant) == 1:
        return meant[0]
    if meant:
        full = " or ".join(f"{one.account}/{one.host}" for one in meant)
        message = f"{len(meant)} accounts have a host {text}."
        raise InvalidRequest(message, field=option, value=text, next=f"Say which one is meant: {full}")
    known = sorted({*accounts, *(one.name for one in hosts)})
    raise unknown_word(
        f"Neither config.toml nor the ledger knows an account or a host {text!r}", text, known, field=option
    )


def _known(session: Session, found: ExistingSetup) -> tuple[dict[str, str], list[AccountOrHost]]:
    """Return the provider of every account that is known, and all hosts."""
    names, accounts, hosts = session.names(), dict[str, str](), dict[tuple[str, str], AccountOrHost]()
    for machine in session.ledger.billable_machines():
        account, kind = names.account(machine.account), machine.provider
        accounts[account] = kind
        if machine.identity and machine.identity.kind == BY_REGION:
            host = names.host(account, machine.region)
            hosts[account, host] = AccountOrHost(account, host, kind)
    for name, one in found.settings.accounts.items():
        accounts.setdefault(name, one.provider)
        for host in hosts_in(one.options):
            hosts[name, host] = AccountOrHost(name, host, one.provider)
    return accounts, list(hosts.values())
