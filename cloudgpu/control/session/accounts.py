"""Resolves which account an option means, and which accounts an answer covers.

An option means the account that it names, the only one of a provider, or the only one with an ability. An answer also
lists accounts of which this computer has a credential that is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from cloudgpu.config.settings import ANY_PROVIDER, CLOUDS
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.account_names import SUBJECT, forgotten_at, forgotten_times
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.identity import QueriedAccount, Unanswered
from cloudgpu.core.model.machine import ON_PREMISES_PROVIDERS, Machine, has_retained_resources
from cloudgpu.core.values.times import iso
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest

USED_WITHIN = timedelta(days=30)  # an account counts as used for so long after its last machine has ended


def used_accounts(session: Session) -> list[str]:
    """Return the accounts to query for machines and resources, sorted.

    Those are all of config.toml, one of each other cloud of which this computer has a credential, as `up` would use it,
    and those where the ledger has a machine that exists, or that ended within `USED_WITHIN`: a cloud's account needs no
    table in config.toml, and what a launch has left there shall be found. An account that was forgotten (`init
    --forget`) counts again once config.toml has it, or a machine there exists or has ended since. An account that has
    another name in this config.toml is listed under that name alone.
    """
    names, used, not_found_here = session.names(), set[str](), dict[tuple[str, ...], Machine]()
    for machine in recent_machines(session):
        name = names.account(machine.account)
        if name in used or session.account(name) is not None:
            used.add(name)
        elif machine.owner == session.settings.owner:  # not a colleague's
            not_found_here[_account_and_region(machine)] = machine
    if not_found_here:
        from cloudgpu.control.session.identity import by_account

        _, errors = by_account(session, list(not_found_here.values()))  # of those that belong to no account here
        used |= {names.account(machine.account) for machine in not_found_here.values() if machine.id in errors}
    return sorted(used.union(accounts_here(session)))


def _account_and_region(machine: Machine) -> tuple[str, ...]:
    identity = machine.identity or RecordedIdentity("", machine.id, "")
    return machine.account, machine.provider, machine.region or "", identity.kind, identity.id


def recent_machines(session: Session) -> list[Machine]:
    """Return the machines of all accounts that exist, that ended within `USED_WITHIN`, or that ended and retain a disk.

    Named volumes and images count as machines here, until `USED_WITHIN` after they were deleted. Left out is what had
    ended when its account was forgotten, unless it retains a disk.
    """
    recent_since = iso(session.clock() - USED_WITHIN)
    machines, forgotten_at_by_id = session.ledger.billable_machines(), forgotten_times(session.ledger.events(SUBJECT))
    return [
        machine
        for machine in machines
        if machine.terminated_at is None
        or (not machine.is_named_resource and has_retained_resources(machine))
        or machine.terminated_at
        > max(recent_since, forgotten_at_by_id.get(machine.identity.id, "") if machine.identity else "")
    ]


def accounts_here(session: Session) -> list[str]:
    """Return the accounts of this computer, sorted: those of config.toml, and those it has a credential of."""
    return sorted({*_configured(session), *detected_accounts(session)})


def _configured(session: Session) -> set[str]:
    """Return the accounts of config.toml, and those that were detected here and are not forgotten."""
    return {
        name for name in session.settings.accounts if name not in session.detected or not is_forgotten(session, name)
    }


def is_forgotten(session: Session, account: str) -> bool:
    """Say whether an account was forgotten (`init --forget`) and every machine there had ended by then."""
    account_forgotten_at = forgotten_at(session.own_account_events()).get(account)
    return account_forgotten_at is not None and all(
        machine.terminated_at and machine.terminated_at <= account_forgotten_at
        for machine in session.ledger.billable_machines()
        if machine.account == account
    )


def detected_accounts(session: Session) -> set[str]:
    """Return one account of each cloud that is not in config.toml and of which this computer has a credential.

    One that was forgotten is left out until it is used again.
    """
    from cloudgpu.config.credentials import clouds_with_credentials
    from cloudgpu.providers.registry import kinds

    configured = {account.provider for account in session.settings.accounts.values()}
    # The SDKs look for credentials in this process's environment, whatever the session was opened with.
    unconfigured = clouds_with_credentials(os.environ).intersection(CLOUDS, kinds()) - configured
    return {kind for kind in unconfigured if not is_forgotten(session, kind) and session.account(kind) is not None}


def is_any_provider(session: Session, *, account: str | None, provider: str | None) -> bool:
    """Say whether these options mean every cloud account; raise InvalidRequest for `any` with one account."""
    if account is not None and provider == ANY_PROVIDER:
        raise InvalidRequest(
            f"--provider any means every cloud account, and --account {account} only one.",
            field="--account",
            value=account,
            next="Leave one of them out.",
        )
    return account is None and (session.settings.provider if provider is None else provider) == ANY_PROVIDER


def cloud_accounts(session: Session) -> list[str]:
    """Return the names of all accounts that `any` stands for.

    Those are all of config.toml but local and ssh, and one of each other cloud of which this computer has a
    credential, unless it was forgotten. Raises InvalidRequest where there is none.
    """
    names = {
        name for name in _configured(session) if session.settings.accounts[name].provider not in ON_PREMISES_PROVIDERS
    }
    names |= detected_accounts(session)
    if names:
        return sorted(names)
    raise InvalidRequest(
        "No cloud account is configured, and no credentials of a cloud were found here.",
        field="--provider",
        value=ANY_PROVIDER,
        next="Log in with the cloud's own tool, or add an [accounts.NAME] table to config.toml. Machines of your own: "
        "--provider local or ssh.",
    )


def account_of(session: Session, *, account: str | None, provider: str | None) -> str:
    """Return the name of the account that these options mean; without any, that of the default provider.

    Raises InvalidRequest where they mean none, or several.
    """
    if account is not None:
        return _named_account(session, account, provider)
    kind = session.settings.provider if provider is None else provider
    accounts = session.settings.accounts
    if kind == ANY_PROVIDER:
        raise _one_account_error(session)
    matching_accounts = [name for name, configured in accounts.items() if configured.provider == kind]
    if len(matching_accounts) == 1:
        return matching_accounts[0]
    if session.settings.account in matching_accounts:
        return str(session.settings.account)
    if matching_accounts:
        any_hint = "" if kind in ON_PREMISES_PROVIDERS else "; up takes the cheapest of all with --provider any"
        raise InvalidRequest(
            f"There are {len(matching_accounts)} accounts of {kind}.",
            field="--account",
            value=None,
            next=f"Name one: --account {' | '.join(sorted(matching_accounts))}{any_hint}",
        )
    if session.account(kind) is not None:
        return kind
    raise _no_account_error(session, kind)


def _named_account(session: Session, account: str, provider: str | None) -> str:
    configured = session.account(account)
    if configured is None:
        raise session.unknown_account(account)
    if provider in (None, configured.provider):
        return account
    raise InvalidRequest(
        f"Account {account} belongs to {configured.provider}, not to {provider}.",
        field="--account",
        value=account,
        next="Leave --provider out, or name another --account.",
    )


def _one_account_error(session: Session) -> InvalidRequest:
    names = " | ".join(
        name
        for name, account in sorted(session.settings.accounts.items())
        if account.provider not in ON_PREMISES_PROVIDERS
    )
    return InvalidRequest(
        "This command works on one account, and --provider any means all of them.",
        field="--provider",
        value=ANY_PROVIDER,
        next=f"Name one: --account {names}" if names else "Name a --provider.",
    )


def _no_account_error(session: Session, kind: str) -> InvalidRequest:
    """Return the error for an installed provider that has no account yet; raise that of one that is not installed."""
    from cloudgpu.providers.registry import load

    load(kind)  # raises for an unknown kind, and for one that needs an extra
    add = (
        f"Add these two lines, and what {kind} asks for, to {session.home.config_file}:\n"
        f'  [accounts.{kind}]\n  provider = "{kind}"'
    )
    return InvalidRequest(
        f"The provider {kind!r} is installed, but config.toml has no account of it.",
        field="--provider",
        value=kind,
        next="Add a machine of yours: cloudgpu init --host NAME=USER@HOST" if kind == "ssh" else add,
    )


def provider_kinds() -> tuple[str, ...]:
    """Return the kinds of all installed providers, plug-ins too, sorted."""
    from cloudgpu.providers.registry import kinds

    return kinds()


def provider_with(
    session: Session, ability: Any, ability_text: str, *, account: str | None, provider: str | None
) -> Any:
    """Return the provider of the account that these options mean, which has to have `ability`.

    `ability` is a protocol of providers/abilities.py, `ability_text` its name in messages. Without options, and where
    the default provider lacks the ability, it is the only configured account that has it.
    Raises InvalidRequest where there is none, or several.
    """
    if account is None and provider is None:
        only_provider = _only_provider_with(session, ability)
        if only_provider:
            return only_provider
    chosen = session.provider(account_of(session, account=account, provider=provider))
    if isinstance(chosen, ability):
        return chosen
    capable = {
        provider.kind for provider in map(session.provider, session.settings.accounts) if isinstance(provider, ability)
    }
    raise InvalidRequest(
        f"The {chosen.kind} provider has no {ability_text}.",
        field="--provider",
        value=chosen.kind,
        next=f"Name another: --provider {' | '.join(sorted(capable) or CLOUDS)}",
    )


def _only_provider_with(session: Session, ability: Any) -> Any:
    """Return the default provider, else the only one, that has the ability; None for none or several."""
    default_accounts = [
        name
        for name, configured in session.settings.accounts.items()
        if configured.provider == session.settings.provider
    ]
    for names in (default_accounts, list(session.settings.accounts)):
        capable = [provider for provider in map(session.provider, names) if isinstance(provider, ability)]
        if len(capable) == 1:
            return capable[0]
    return None


class AccountRefused(Unanswered):
    """A whole account that could not be queried, because its credential is refused or incomplete."""


def account_gap(account: str, error: Exception) -> Unanswered:
    """Return the gap in an answer that this error of a whole account causes, which may be a defect of its provider."""
    if not isinstance(error, CloudgpuError):
        return Unanswered(account, f"it could not be read ({type(error).__name__}: {error})")
    is_refused = isinstance(error, AuthFailed | InvalidRequest)
    return (AccountRefused if is_refused else Unanswered)(account, error.message)


def split_gaps(session: Session, gaps: Iterable[Unanswered]) -> tuple[list[Unanswered], list[Unanswered]]:
    """Return the gaps that make an answer incomplete, and the refused accounts that do not.

    The latter are not in config.toml, and this user has never launched anything there: only a credential on this
    computer, or a colleague's launch, led to them.
    """
    incomplete, refused = list[Unanswered](), list[Unanswered]()
    for gap in gaps:
        is_only_detected = (
            isinstance(gap, AccountRefused) and gap.scope in session.detected and not _is_used(session, gap.scope)
        )
        (refused if is_only_detected else incomplete).append(gap)
    return incomplete, refused


def _is_used(session: Session, account: str) -> bool:
    owner = session.settings.owner
    return any(machine.account == account and machine.owner == owner for machine in session.ledger.billable_machines())


def queried_accounts(
    session: Session, accounts: Iterable[str], refused: Iterable[Unanswered]
) -> tuple[QueriedAccount, ...]:
    """Return those of these accounts that were queried: all but the refused ones."""
    refused_accounts, configured = {gap.scope for gap in refused}, session.settings.accounts
    return tuple(
        QueriedAccount(account, configured[account].provider if account in configured else "?")
        for account in accounts
        if account not in refused_accounts
    )
