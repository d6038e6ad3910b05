"""Retires an account: proves by the ledger, and by a sync where possible, that nothing of it costs any more."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudgpu.config.edit import remove_table, set_value, value_at
from cloudgpu.config.settings import settings_from_text
from cloudgpu.control.inventory.sync import sync_accounts
from cloudgpu.control.lifecycle.lost import check_lost, record_as_lost
from cloudgpu.control.session.accounts import detected_accounts
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup import init
from cloudgpu.control.setup.rename_account import AccountOrHost, find_account_or_host
from cloudgpu.core.events.account_names import SUBJECT, forgotten_at, is_unknown, may_cost
from cloudgpu.core.events.general_lines import account_forgotten
from cloudgpu.core.model.identity import AccountElsewhere, account_text, is_on_computer
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.model.resources import Kind, ResourceListing
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasOrphans

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.init import ForgetDocument

MAX_NAMED = 4  # reasons in a sentence


@dataclass(frozen=True, slots=True)
class Retirement:
    """What retiring an account means: its machines, all ended, and the change to config.toml (None: no table there).

    `lost` are machines that may still be there: nobody can ask them from here any more, and the person's word ends them
    in the ledger. `host` is set where it is a host of the account that is forgotten.

    `forgotten` is when it was retired already, and nothing has happened there since. `whose` says which rows of the
    ledger are its own: a colleague's account may bear its name. None: it could not be asked, and the name decides.
    """

    account: str
    provider: str
    machines: tuple[Machine, ...]
    draft: init.Draft | None
    forgotten: str | None = None
    whose: AccountScope | None = None
    host: str | None = None
    lost: tuple[Machine, ...] = ()

    @property
    def last_ended(self) -> str | None:
        """When the last of its machines ended; None where the ledger knows none."""
        return max((machine.terminated_at for machine in self.machines if machine.terminated_at), default=None)


def plan(session: Session, environ: Mapping[str, str], name: str) -> Retirement:
    """Return what retiring an account, or a host, means. Looks at what can be asked; changes nothing there.

    Machines of an account that no account here is any more, and of a host that does not answer, are named as `lost`.
    Raises InvalidRequest for what nobody knows, for an account that needs no table, or where something that can be
    asked lives or is kept; StopUnproved where it is not known whether something lives; ProviderUnavailable where it can
    be asked and does not answer.
    """
    found = init.find_existing_setup(environ)
    target = find_account_or_host(session, found, name, "--forget")
    return _of_account(session, found, target.account) if target.host is None else _of_host(session, found, target)


def _of_host(session: Session, setup: init.ExistingSetup, target: AccountOrHost) -> Retirement:
    machines = list(target.machines_of(session, session.ledger.billable_machines()))
    lost = tuple(machine for machine in machines if machine.terminated_at is None)
    for machine in lost:
        check_lost(session, machine, "--forget")
    draft = _without_host(setup, target) if target.is_in(setup) else None
    return Retirement(target.account, target.kind, tuple(machines), draft, host=target.host, lost=lost)


def _without_host(setup: init.ExistingSetup, target: AccountOrHost) -> init.Draft:
    path = ("accounts", target.account, "hosts")
    hosts = [entry for entry in value_at(setup.table, path) if entry.get("name") != target.host]
    return init.drafted(setup, set_value(setup.text or "", path, hosts))


def _of_account(session: Session, setup: init.ExistingSetup, account: str) -> Retirement:
    draft = _without(setup, account) if value_at(setup.table, ("accounts", account)) is not None else None
    if draft is None and account in setup.settings.accounts:
        raise _cannot_retire(account, setup.settings.accounts[account].provider)
    asked = draft is not None or account in detected_accounts(session)
    beside = _what_costs(session, account, configured=draft is not None) if asked else []
    bills = session.ledger.billable_machines()
    whose = AccountScope(session, account).query_for(bills) if asked else None
    rows = _recorded(session, bills, account, whose)
    if whose is not None and whose.error is not None:
        raise _not_known(account, whose.error.message, configured=draft is not None)
    lost = _lost(session, rows) if not asked else ()
    _check_costs_nothing(account, [machine for machine in rows if machine not in lost], beside)
    machines = tuple(machine for machine in rows if not machine.is_named_resource)
    at = forgotten_at(session.ledger.events(SUBJECT), session.settings.owner).get(account) if draft is None else None
    late = at is not None and any((machine.terminated_at or "") > at for machine in rows)
    known = session.account(account) if asked else None
    provider = rows[-1].provider if known is None else known.provider
    return Retirement(account, provider, machines, draft, None if late or lost else at, whose, lost=lost)


def _lost(session: Session, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return those of these machines that may be there and that nobody here can ask; raise for one that can be.

    Not an unfinished launch in a cloud: that may still make a machine.
    """
    there = [machine for machine in machines if not machine.is_named_resource and machine.terminated_at is None]
    found = tuple(machine for machine in there if machine.launch_status != "open" or is_on_computer(machine))
    for machine in found:
        _check_no_files(session, machine)
        check_lost(session, machine, "--forget")
    return found


def _check_no_files(session: Session, machine: Machine) -> None:
    """Refuse for a machine of a local account whose files are here: it can be asked once the table is back."""
    account = machine.account
    if machine.provider == "local" and session.home.provider("local", account).is_dir():
        raise InvalidRequest(
            f"{machine.name} is on this computer: its files are in {session.home.provider('local', account)}.",
            field="--forget",
            value=account,
            next=f"Put [accounts.{account}] back into config.toml, and run: cloudgpu down {command_name(machine)}",
        )


def _recorded(session: Session, machines: Iterable[Machine], account: str, whose: AccountScope | None) -> list[Machine]:
    """Return what the ledger knows of an account: by what it is, where it can be asked, else by its name."""
    names = session.names()
    return [
        machine
        for machine in machines
        if (names.account(machine.account) == account if whose is None else whose.covers(machine))
    ]


def forget(session: Session, farewell: Retirement) -> str:
    """Write which machines are lost, and that the account is retired; return when, as ledger time.

    Then its table, or its host, is taken out of the file. In this order: a table that stays makes the account live
    again, and nothing is lost. What the ledger says is checked once more as the line is written. Raises as `plan` does,
    and InvalidRequest where the file was changed meanwhile.
    """
    for row in farewell.lost:
        record_as_lost(
            session, row, f"{farewell.host or farewell.account} was removed; nothing there can be queried any more"
        )
    account, at = farewell.account, iso(session.clock())

    def decide(view: Any) -> list[Any]:
        machines = _recorded(session, view.billable_machines(), account, farewell.whose)
        _check_costs_nothing(account, machines)
        return [account_forgotten(account, farewell.provider, machines, platform.node(), session.clock())]

    if farewell.host is None:
        (line,) = session.ledger.decide(decide)
        at = line.occurred_at
    if farewell.draft is not None:
        init.write(farewell.draft)
    return at


def document(farewell: Retirement, at: str | None) -> ForgetDocument:
    """Return the answer of `init --forget`; `at` is when it was retired."""
    made = farewell.draft
    return {
        "account": farewell.account,
        "host": farewell.host,
        "provider": farewell.provider,
        "forgotten_at": at,
        "machines": len(farewell.machines),
        "lost": [
            {"name": machine.name, "state": machine.state, "where": account_text(machine)} for machine in farewell.lost
        ],
        "last_ended": farewell.last_ended,
        "file": str(made.found.home.config_file) if made else None,
        "diff": list(made.diff) if made else [],
    }


def _without(setup: init.ExistingSetup, account: str) -> init.Draft:
    """Return the file without the account's table; raise InvalidRequest where other settings need the account."""
    draft = init.drafted(setup, remove_table(setup.text or "", ("accounts", account)))
    accounts = settings_from_text(draft.after, login=setup.settings.owner).accounts
    if account in accounts:
        raise _cannot_retire(account, accounts[account].provider)
    return draft


def _what_costs(session: Session, account: str, *, configured: bool) -> list[str]:
    """Look at an account; return what of this ledger costs there, or can, beside its rows."""
    look, provider = sync_accounts(session, [account], retained=True), session.provider(account)
    for sentence in look.sentences:
        session.report(sentence)
    beside = provider.orphans() if isinstance(provider, HasOrphans) and not look.unanswered else ResourceListing(())
    here = (gap for gap in look.unanswered if not isinstance(gap, AccountElsewhere))  # that is a colleague's account
    for gap in (*here, *beside.unanswered):
        raise _not_known(account, f"{gap.scope}: {gap.why}", configured=configured)
    ours = (one for one in (*look.resources, *beside.items) if one.tags.get(TAG_LEDGER) == session.ledger.id)
    costs = (one for one in ours if one.stored_as or one.kind is Kind.SPOT_REQUEST)
    return [f"{one.kind.replace('_', ' ')} {one.id} is there" for one in costs]


def _not_known(account: str, why: str, *, configured: bool) -> ProviderUnavailable:
    table = f"take [accounts.{account}] out of config.toml by hand"
    remedy = table if configured else f"take the credentials of {account} away from this computer"
    return ProviderUnavailable(
        f"Account {account} cannot be removed while it is not known what is there: {why}",
        field="--forget",
        value=account,
        next=f"Run it again later. If the account is closed, {remedy} and run it again: then the ledger alone decides.",
    )


def _check_costs_nothing(account: str, machines: list[Machine], beside: Sequence[str] = ()) -> None:
    reasons = [*(words for machine in machines if (words := may_cost(machine))), *beside]
    if not reasons:
        return
    more = f", and {len(reasons) - MAX_NAMED} more" if len(reasons) > MAX_NAMED else ""
    first_reasons = "; ".join(reasons[:MAX_NAMED])
    message = f"Account {account} cannot be forgotten while something there may cost: {first_reasons}{more}."
    if any(map(is_unknown, machines)):
        remedy = f"Resolve it first: with [accounts.{account}] in config.toml, run: cloudgpu ls --refresh"
        raise StopUnproved(message, field="--forget", value=account, next=remedy)
    remedy = f"Remove it first, with [accounts.{account}] in config.toml: cloudgpu down NAME, or: cloudgpu orphans"
    raise InvalidRequest(message, field="--forget", value=account, next=remedy)


def _cannot_retire(account: str, kind: str) -> InvalidRequest:
    why = (
        "this computer is always an account" if kind == "local" else f'provider = "{kind}" in config.toml stands for it'
    )
    return InvalidRequest(
        f"Account {account} cannot be forgotten: {why}.",
        field="--forget",
        value=account,
        next="Nothing needs to be done there." if kind == "local" else "Set another provider first: cloudgpu init",
    )
