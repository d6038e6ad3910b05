"""Retires an account or a host (`init --forget`), once the ledger, and a sync if possible, show that nothing costs."""

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
from cloudgpu.core.events.account_names import forgotten_at, is_unknown, may_cost
from cloudgpu.core.events.general_events import account_forgotten
from cloudgpu.core.model.identity import AccountElsewhere, account_text, is_local_or_ssh_host
from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.model.resources import Kind, ResourceListing
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, StopUnproved
from cloudgpu.providers.abilities import HasOrphans

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.init import ForgetDocument

MAX_NAMED = 4  # reasons that an error names


@dataclass(frozen=True, slots=True)
class Retirement:
    """A planned retirement of an account: its machines, and the change to config.toml (None: it has no table there).

    `lost` are machines that may still exist: they cannot be queried from here any more, and are recorded as gone
    because the user says so. `host` is set where a host of the account is forgotten.

    `forgotten_at` is when the account was retired before, None where a machine of it has ended since then. `scope` says
    which machines of the ledger are its own, as a colleague's account may have its name; None: the account could not be
    queried, and the name decides.
    """

    account: str
    provider: str
    machines: tuple[Machine, ...]
    draft: init.ConfigDraft | None
    forgotten_at: str | None = None
    scope: AccountScope | None = None
    host: str | None = None
    lost: tuple[Machine, ...] = ()

    @property
    def last_ended(self) -> str | None:
        """When the latest end of its machines was proved; None where none of them has ended."""
        return max((machine.terminated_at for machine in self.machines if machine.terminated_at), default=None)


def plan(session: Session, environ: Mapping[str, str], name: str) -> Retirement:
    """Return the plan to retire an account, or a host. Queries the account if that is possible; changes nothing.

    Machines of an account that is not configured here any more, and of a host that does not answer, become `lost`.
    Raises InvalidRequest for an unknown name, for an account that needs no table, or where a machine or resource that
    can be queried still exists; StopUnproved where it is not known whether one exists; ProviderUnavailable where the
    account can be queried and does not answer.
    """
    setup = init.find_existing_setup(environ)
    target = find_account_or_host(session, setup, name, "--forget")
    return (
        _plan_for_account(session, setup, target.account)
        if target.host is None
        else _plan_for_host(session, setup, target)
    )


def _plan_for_host(session: Session, setup: init.ExistingSetup, target: AccountOrHost) -> Retirement:
    machines = list(target.machines_of(session, session.ledger.billable_machines()))
    lost = tuple(machine for machine in machines if machine.terminated_at is None)
    for machine in lost:
        check_lost(session, machine, "--forget")
    draft = _without_host(setup, target) if target.is_in(setup) else None
    return Retirement(target.account, target.kind, tuple(machines), draft, host=target.host, lost=lost)


def _without_host(setup: init.ExistingSetup, target: AccountOrHost) -> init.ConfigDraft:
    path = ("accounts", target.account, "hosts")
    hosts = [entry for entry in value_at(setup.table, path) if entry.get("name") != target.host]
    return init.make_draft(setup, set_value(setup.text or "", path, hosts))


def _plan_for_account(session: Session, setup: init.ExistingSetup, account: str) -> Retirement:
    draft = _without_account(setup, account) if value_at(setup.table, ("accounts", account)) is not None else None
    if draft is None and account in setup.settings.accounts:
        raise _cannot_retire_error(account, setup.settings.accounts[account].provider)
    can_be_queried = draft is not None or account in detected_accounts(session)
    other_cost_reasons = _find_cost_reasons(session, account, configured=draft is not None) if can_be_queried else []
    machines_and_resources = session.ledger.billable_machines()
    scope = AccountScope(session, account).query_for(machines_and_resources) if can_be_queried else None
    recorded = _recorded_machines(session, machines_and_resources, account, scope)
    if scope is not None and scope.error is not None:
        raise _unknown_costs_error(account, scope.error.message, configured=draft is not None)
    lost = _lost_machines(session, recorded) if not can_be_queried else ()
    _check_costs_nothing(account, [machine for machine in recorded if machine not in lost], other_cost_reasons)
    machines = tuple(machine for machine in recorded if not machine.is_named_resource)
    retired_at = forgotten_at(session.own_account_events()).get(account) if draft is None else None
    ended_since = retired_at is not None and any((machine.terminated_at or "") > retired_at for machine in recorded)
    configured_account = session.account(account) if can_be_queried else None
    provider = recorded[-1].provider if configured_account is None else configured_account.provider
    return Retirement(account, provider, machines, draft, None if ended_since or lost else retired_at, scope, lost=lost)


def _lost_machines(session: Session, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return those of these machines that may exist and cannot be queried from here; raise for one that can be.

    Without an unfinished launch in a cloud: that may still make a machine.
    """
    lost = tuple(
        machine
        for machine in machines
        if not machine.is_named_resource
        and machine.terminated_at is None
        and (machine.launch_status != "open" or is_local_or_ssh_host(machine))
    )
    for machine in lost:
        _check_no_files(session, machine)
        check_lost(session, machine, "--forget")
    return lost


def _check_no_files(session: Session, machine: Machine) -> None:
    """Raise InvalidRequest for a local machine whose files are here: it can be queried once its table is back."""
    account = machine.account
    if machine.provider == "local" and session.home.provider_dir("local", account).is_dir():
        raise InvalidRequest(
            f"{machine.name} is on this computer: its files are in {session.home.provider_dir('local', account)}.",
            field="--forget",
            value=account,
            next=f"Put [accounts.{account}] back into config.toml, and run: cloudgpu down {command_name(machine)}",
        )


def _recorded_machines(
    session: Session, machines: Iterable[Machine], account: str, scope: AccountScope | None
) -> list[Machine]:
    """Return the machines and resources of an account in the ledger: by its identity (`scope`), else by its name."""
    names = session.names()
    return [
        machine
        for machine in machines
        if (names.account(machine.account) == account if scope is None else scope.covers(machine))
    ]


def forget(session: Session, retirement: Retirement) -> str:
    """Record which machines are lost, and that the account is retired; return when, as ISO time.

    Only then is its table, or its host, removed from the file: if the file cannot be written, the account counts as
    active, as before, and nothing is lost. The ledger is checked once more in the transaction of the write. Raises as
    `plan` does, and InvalidRequest where the file was changed meanwhile.
    """
    for machine in retirement.lost:
        record_as_lost(
            session,
            machine,
            f"{retirement.host or retirement.account} was removed; nothing there can be queried any more",
        )
    account, at = retirement.account, iso(session.clock())

    def build_events(view: Any) -> list[Any]:
        machines = _recorded_machines(session, view.billable_machines(), account, retirement.scope)
        _check_costs_nothing(account, machines)
        return [account_forgotten(account, retirement.provider, machines, platform.node(), session.clock())]

    if retirement.host is None:
        (event,) = session.ledger.decide(build_events)
        at = event.occurred_at
    if retirement.draft is not None:
        init.write(retirement.draft)
    return at


def document(retirement: Retirement, at: str | None) -> ForgetDocument:
    """Return the answer of `init --forget`; `at` is when it was retired."""
    draft = retirement.draft
    return {
        "account": retirement.account,
        "host": retirement.host,
        "provider": retirement.provider,
        "forgotten_at": at,
        "machines": len(retirement.machines),
        "lost": [
            {"name": machine.name, "state": machine.state, "account": account_text(machine)}
            for machine in retirement.lost
        ],
        "last_ended": retirement.last_ended,
        "file": str(draft.setup.home.config_file) if draft else None,
        "diff": list(draft.diff) if draft else [],
    }


def _without_account(setup: init.ExistingSetup, account: str) -> init.ConfigDraft:
    """Return the file without the account's table; raise InvalidRequest where other settings need the account."""
    draft = init.make_draft(setup, remove_table(setup.text or "", ("accounts", account)))
    accounts = settings_from_text(draft.after, login=setup.settings.owner).accounts
    if account in accounts:
        raise _cannot_retire_error(account, accounts[account].provider)
    return draft


def _find_cost_reasons(session: Session, account: str, *, configured: bool) -> list[str]:
    """Query an account; return a sentence for each resource there that costs, or may cost, apart from machines.

    Only resources with this ledger's tag count. Raises ProviderUnavailable where a part of the account did not answer.
    """
    synced, provider = sync_accounts(session, [account], retained=True), session.provider(account)
    for sentence in synced.sentences:
        session.report(sentence)
    orphans = provider.orphans() if isinstance(provider, HasOrphans) and not synced.unanswered else ResourceListing(())
    # An AccountElsewhere is a colleague's account.
    own_gaps = (gap for gap in synced.unanswered if not isinstance(gap, AccountElsewhere))
    for gap in (*own_gaps, *orphans.unanswered):
        raise _unknown_costs_error(account, f"{gap.scope}: {gap.why}", configured=configured)
    own_resources = (
        resource
        for resource in (*synced.resources, *orphans.items)
        if resource.tags.get(TAG_LEDGER) == session.ledger.id
    )
    costly = (
        own_resource
        for own_resource in own_resources
        if own_resource.stored_as or own_resource.kind is Kind.SPOT_REQUEST
    )
    return [f"{resource.kind.replace('_', ' ')} {resource.id} is there" for resource in costly]


def _unknown_costs_error(account: str, why: str, *, configured: bool) -> ProviderUnavailable:
    table = f"take [accounts.{account}] out of config.toml by hand"
    remedy = table if configured else f"take the credentials of {account} away from this computer"
    return ProviderUnavailable(
        f"Account {account} cannot be removed while it is not known what is there: {why}",
        field="--forget",
        value=account,
        next=f"Run it again later. If the account is closed, {remedy} and run it again: then the ledger alone decides.",
    )


def _check_costs_nothing(account: str, machines: list[Machine], other_cost_reasons: Sequence[str] = ()) -> None:
    """Raise InvalidRequest where something of the account may still cost, StopUnproved where that is not known."""
    reasons = [*(reason for machine in machines if (reason := may_cost(machine))), *other_cost_reasons]
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


def _cannot_retire_error(account: str, kind: str) -> InvalidRequest:
    """Return the error of an account that exists without a table in config.toml."""
    why = (
        "this computer is always an account" if kind == "local" else f'provider = "{kind}" in config.toml stands for it'
    )
    return InvalidRequest(
        f"Account {account} cannot be forgotten: {why}.",
        field="--forget",
        value=account,
        next="Nothing needs to be done there." if kind == "local" else "Set another provider first: cloudgpu init",
    )
