"""Renames an account or a host: the ledger records the new name once it is confirmed to be the same one."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cloudgpu.config.edit import rename_table, set_value, value_at
from cloudgpu.control.budgets.store import budgets_for_reaper_run
from cloudgpu.control.session.base import is_mine
from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup import init
from cloudgpu.control.setup.init import ExistingSetup
from cloudgpu.core.events.account_names import hosts_in
from cloudgpu.core.events.general_events import account_renamed
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.identity import LOCAL, SSH_HOST, account_text, is_local_or_ssh_host, may_cost_money
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import NAME, NAME_RULE, unknown_word
from cloudgpu.errors import InvalidRequest, NotReachableHere

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.init import RenameDocument


@dataclass(frozen=True, slots=True)
class AccountOrHost:
    """An account by its current name, or a host of it (None: the account itself). `kind` is its provider."""

    account: str
    host: str | None
    kind: str

    @property
    def name(self) -> str:
        """The name of the host, or of the account."""
        return self.host or self.account

    @property
    def text(self) -> str:
        """The account's table or the host in config.toml, as part of a sentence."""
        return f"[accounts.{self.account}]" if self.host is None else f"the host {self.host} in {self.account}"

    def with_name(self, name: str) -> AccountOrHost:
        """Return the same account or host under another name."""
        return replace(self, account=name) if self.host is None else replace(self, host=name)

    def is_in(self, setup: ExistingSetup) -> bool:
        """Say whether config.toml names it."""
        table = value_at(setup.table, ("accounts", self.account))
        return table is not None and (self.host is None or self.host in hosts_in(table))

    def machines_of(self, session: Session, machines: Iterable[Machine]) -> Iterator[Machine]:
        """Yield those of these machines that are recorded in it, compared by names; a colleague's are left out."""
        current_names = session.names()
        for machine in machines:
            is_here = machine.provider == self.kind and current_names.account(machine.account) == self.account
            if self.host is not None:
                is_here = is_here and current_names.host(self.account, machine.region or "") == self.host
            if is_here and (is_mine(session, machine) or not machine.owner):
                yield machine


def find_account_or_host(session: Session, setup: ExistingSetup, text: str, option: str) -> AccountOrHost:
    """Return what `text` names: an account, a host, or `ACCOUNT/HOST`.

    Raises InvalidRequest for what neither config.toml nor the ledger knows, and for a host's name that two have.
    """
    accounts, hosts = _known_accounts_and_hosts(session, setup)
    if text in accounts:
        return AccountOrHost(text, None, accounts[text])
    matching = [host for host in hosts if text in (host.host, f"{host.account}/{host.host}")]
    if len(matching) == 1:
        return matching[0]
    if matching:
        full_names = " or ".join(f"{host.account}/{host.host}" for host in matching)
        message = f"{len(matching)} accounts have a host {text}."
        raise InvalidRequest(message, field=option, value=text, next=f"Say which one is meant: {full_names}")
    known_names = sorted({*accounts, *(host.name for host in hosts)})
    raise unknown_word(
        f"Neither config.toml nor the ledger knows an account or a host {text!r}", text, known_names, field=option
    )


def _known_accounts_and_hosts(session: Session, setup: ExistingSetup) -> tuple[dict[str, str], list[AccountOrHost]]:
    """Return the provider of each account, by name, and all hosts, of config.toml and the ledger."""
    current_names, accounts, hosts = session.names(), dict[str, str](), dict[tuple[str, str], AccountOrHost]()
    for machine in session.ledger.billable_machines():  # ended ones, volumes and images, too
        account, kind = current_names.account(machine.account), machine.provider
        accounts[account] = kind
        if machine.identity and machine.identity.kind == SSH_HOST:
            host = current_names.host(account, machine.region)
            hosts[account, host] = AccountOrHost(account, host, kind)
    for name, settings in setup.settings.accounts.items():
        accounts.setdefault(name, settings.provider)
        for host in hosts_in(settings.options):
            hosts[name, host] = AccountOrHost(name, host, settings.provider)
    return accounts, list(hosts.values())


OPTION = "--rename"


@dataclass(frozen=True, slots=True)
class Renaming:
    """A planned renaming to the name `new`, with the change to config.toml (None: it has the new name already).

    `recorded` are all machines and resources of the account or host in the ledger, `machines` those that may exist.
    `notes` are settings that still use the old name.
    """

    target: AccountOrHost
    new: str
    recorded: tuple[Machine, ...]
    machines: tuple[Machine, ...]
    draft: init.ConfigDraft | None
    notes: tuple[str, ...]


def plan(session: Session, environ: Mapping[str, str], old: str, new: str) -> Renaming:
    """Return the plan to call the account or host `old` by the name `new` from now on. Changes nothing.

    config.toml has the old name, which is changed, or the user has put the new one there already. Raises InvalidRequest
    for a name that neither config.toml nor the ledger knows, and where the new name belongs to another account or
    computer; ProviderUnavailable where a provider does not say now which account that is.
    """
    setup = init.find_existing_setup(environ)
    target = find_account_or_host(session, setup, old, OPTION)
    if new in (old, target.name):
        raise InvalidRequest("That is its name already.", field=OPTION, value=new, next="Give it a new name.")
    if not NAME.fullmatch(new):
        raise InvalidRequest(f"{new!r} is not a name.", field=OPTION, value=new, next=f"{NAME_RULE}.".capitalize())
    renamed = target.with_name(new)
    if target.is_in(setup) and renamed.is_in(setup):
        raise InvalidRequest(
            f"config.toml has both {target.text} and {renamed.text}.",
            field=OPTION,
            value=new,
            next=f"Take out the one that is not meant, or give {new} another name until nothing runs on {target.name}.",
        )
    recorded = tuple(target.machines_of(session, session.ledger.billable_machines()))  # also volumes and images
    machines = tuple(machine for machine in recorded if not machine.is_named_resource and may_cost_money(machine))
    _check_files(target, machines)
    draft = _draft_with_new_name(setup, target, new) if target.is_in(setup) else None
    if draft is not None:
        _check_name_is_free(session, target, renamed)
    else:
        if not renamed.is_in(setup):
            find_account_or_host(session, setup, new, OPTION)  # raises, with known names, for an unknown one
            raise InvalidRequest(
                f"config.toml has neither {target.text} nor {renamed.text}.",
                field=OPTION,
                value=new,
                next=f"Add {renamed.text} to config.toml, or put {target.text} back.",
            )
        _check_is_same(session, renamed, recorded)
        text = _with_new_default(setup.text or "", setup, target, new)
        draft = init.make_draft(setup, text) if text != setup.text else None
    return Renaming(target, new, recorded, machines, draft, tuple(_notes(session, setup, draft, target)))


def rename(session: Session, renaming: Renaming) -> None:
    """Write the new name into the ledger, then into config.toml.

    In this order, because a renaming in the ledger has no effect while config.toml has the old name: if the file is not
    written, machines are found as before. Raises InvalidRequest where the file was changed meanwhile.
    """
    target = renaming.target
    event = account_renamed(
        target.account, target.host, renaming.new, renaming.recorded, platform.node(), session.clock()
    )
    session.ledger.append([event])
    session.forget_names()
    if renaming.draft is not None:
        init.write(renaming.draft)


def document(renaming: Renaming) -> RenameDocument:
    """Return the answer of `init --rename`."""
    draft = renaming.draft
    return {
        "account": renaming.target.account,
        "host": renaming.target.host,
        "new": renaming.new,
        "machines": [machine.name for machine in renaming.machines],
        "file": str(draft.setup.home.config_file) if draft else None,
        "diff": list(draft.diff) if draft else [],
        "notes": list(renaming.notes),
    }


def _check_files(target: AccountOrHost, machines: tuple[Machine, ...]) -> None:
    """Raise InvalidRequest for a local account with machines: their files are in a directory with its name."""
    local = [machine for machine in machines if machine.provider == "local"]
    if local:
        raise InvalidRequest(
            f"Account {target.account} cannot be renamed while {local[0].name} is there: the files of a local machine "
            "are in a directory with the account's name.",
            field=OPTION,
            value=target.account,
            next=f"Keep [accounts.{target.account}] in config.toml until it has ended: cloudgpu down {local[0].name}",
        )


def _draft_with_new_name(setup: init.ExistingSetup, target: AccountOrHost, new: str) -> init.ConfigDraft:
    """Return the draft of config.toml with the new name."""
    text = setup.text or ""
    if target.host is None:
        text = rename_table(text, ("accounts", target.account), new)
        return init.make_draft(setup, _with_new_default(text, setup, target, new))
    path = ("accounts", target.account, "hosts")
    entries = value_at(setup.table, path)
    hosts = [entry | {"name": new} if entry.get("name") == target.host else entry for entry in entries]
    return init.make_draft(setup, set_value(text, path, hosts))


def _with_new_default(text: str, setup: init.ExistingSetup, target: AccountOrHost, new: str) -> str:
    is_default = target.host is None and value_at(setup.table, ("account",)) == target.account
    return set_value(text, ("account",), new) if is_default else text


def _check_name_is_free(session: Session, target: AccountOrHost, renamed: AccountOrHost) -> None:
    """Raise InvalidRequest where the ledger has machines of another account or host under the new name.

    Those of this one may be there: it had that name before. Accounts of other computers (`local`) may share a name.
    """
    compared = set[tuple[str, RecordedIdentity]]()
    for machine in session.ledger.billable_machines():
        identity, of_its_provider = machine.identity, replace(renamed, kind=machine.provider)
        if identity is None or identity.kind == LOCAL or (machine.region, identity) in compared:
            continue
        if any(of_its_provider.machines_of(session, [machine])):
            compared.add((machine.region, identity))
            if not _is_of_target(session, target, machine):
                raise InvalidRequest(
                    f"{machine.name} was launched at {account_text(machine)}, which is not {target.text}.",
                    field=OPTION,
                    value=renamed.name,
                    next="Give it a name that the ledger does not know.",
                )


def _is_of_target(session: Session, target: AccountOrHost, machine: Machine) -> bool:
    """Say whether a machine was launched at this account or host, which is asked for its identity."""
    if machine.provider != target.kind:
        return False
    try:
        return identity_of(session, target.account, target.host or machine.region).is_of(machine.identity)
    except NotReachableHere:
        return not may_cost_money(machine)  # it ended long ago, and its host need not answer any more


def _check_is_same(session: Session, renamed: AccountOrHost, machines: tuple[Machine, ...]) -> None:
    """Raise InvalidRequest unless the account or host with the new name is where the machines were launched.

    It is asked for its identity. Machines that may cost money are compared; if there are none, the latest one.
    """
    to_compare = [machine for machine in machines if may_cost_money(machine) and machine.identity]
    to_compare = to_compare or [machine for machine in machines if machine.identity][-1:]
    for machine in to_compare:
        try:
            identity = identity_of(session, renamed.account, renamed.host or machine.region)
        except NotReachableHere as error:
            if not may_cost_money(machine):  # it ended long ago, and its host need not answer any more
                continue
            message = f"{machine.name} runs on {account_text(machine)}. {error.message}"
            raise InvalidRequest(message, field=OPTION, value=renamed.name, next=error.next) from error
        if not identity.is_of(machine.identity):
            kind = "another computer, user or home" if is_local_or_ssh_host(machine) else "another account"
            other_text = f"{kind}: {identity.display_name}"
            raise InvalidRequest(
                f"{machine.name} was launched at {account_text(machine)}, and {renamed.name} is {other_text}.",
                field=OPTION,
                value=renamed.name,
                next="Name what it is called now, or put the old name back into config.toml.",
            )


def _notes(
    session: Session, setup: init.ExistingSetup, draft: init.ConfigDraft | None, target: AccountOrHost
) -> Iterator[str]:
    """Yield a note on each budget and setting that still names the account, and is not changed."""
    if target.host is not None:
        return
    budgets, _ = budgets_for_reaper_run(session)
    for budget in budgets:
        if budget.scope.account == target.account:
            where = f" in {budget.file}" if budget.file else f": cloudgpu budget set {budget.name}"
            yield (
                f"the budget {budget.name} counts account {target.account} under both names; for other users of this "
                f"ledger, give it the new name{where}"
            )
    for key in _keys_naming(setup.table if draft is None else tomllib.loads(draft.after), target.account):
        yield f"config.toml: {key} names {target.account}"


def _keys_naming(value: object, name: str, key: str = "") -> Iterator[str]:
    """Yield the dotted keys `account` and `accounts` in this TOML value whose value is this name."""
    if isinstance(value, Mapping):
        for subkey, nested in value.items():
            yield from _keys_naming(nested, name, f"{key}.{subkey}".lstrip("."))
    elif isinstance(value, list):
        for nested in value:
            yield from _keys_naming(nested, name, key)
    elif value == name and key.rpartition(".")[2] in ("account", "accounts"):
        yield key
