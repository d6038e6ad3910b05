"""Says which account is meant, and which accounts an answer is about.

The account meant is the one that was named, the only one of a provider, or the one that has what is asked about. An
answer also names accounts that a credential here names and does not open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from cloudgpu.config.settings import ANY, CLOUDS
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.account_names import SUBJECT, forgotten_at, forgotten_times
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.identity import QueriedAccount, Unanswered
from cloudgpu.core.model.machine import OWNED_PROVIDERS, Machine, has_retained_resources
from cloudgpu.core.values.times import iso
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest

LOOK_BACK = timedelta(days=30)


def used_accounts(session: Session) -> list[str]:
    """Return the accounts to ask for what there is, sorted.

    Those are all of config.toml, one of each further cloud of which this computer has a credential, as `up` would use
    it, and those of which the ledger knows something that is not over, or has been for less than `LOOK_BACK`: an
    account of a cloud needs no table, and what a launch has left there shall be found. One that was forgotten
    (`init --forget`) counts again once config.toml has it, and with what is not over, or has ended since. A name that
    stands for an account of another name here, as it does on another computer of the same person, is left out.
    """
    names, used, other = session.names(), set[str](), dict[tuple[str, ...], Machine]()
    for machine in recent_machines(session):
        name = names.account(machine.account)
        if name in used or session.account(name) is not None:
            used.add(name)
        elif machine.owner == session.settings.owner:  # a colleague's is no business of ours
            other[_account_and_region(machine)] = machine
    if other:
        used |= {names.account(machine.account) for machine in _not_here(session, list(other.values()))}
    return sorted(used.union(accounts_here(session)))


def _account_and_region(machine: Machine) -> tuple[str, ...]:
    identity = machine.identity or RecordedIdentity("", machine.id, "")
    return machine.account, machine.provider, machine.region or "", identity.kind, identity.id


def _not_here(session: Session, machines: list[Machine]) -> list[Machine]:
    """Return those of these machines that are of no account here, as far as is known."""
    from cloudgpu.control.session.identity import by_account

    _, faults = by_account(session, machines)
    return [machine for machine in machines if machine.id in faults]


def recent_machines(session: Session) -> list[Machine]:
    """Return what the ledger knows that is not over, or has been for less than `LOOK_BACK`, in all accounts.

    Without what had ended when its account was retired.
    """
    since = iso(session.clock() - LOOK_BACK)
    machines, left = session.ledger.billable_machines(), forgotten_times(session.ledger.events(SUBJECT))
    return [
        machine
        for machine in machines
        if machine.terminated_at is None
        or (not machine.is_named_resource and has_retained_resources(machine))
        or machine.terminated_at > max(since, left.get(machine.identity.id, "") if machine.identity else "")
    ]


def accounts_here(session: Session) -> list[str]:
    """Return the accounts of this computer, sorted: those of config.toml, and those it has a credential of."""
    return sorted({*_configured(session), *found_here(session)})


def _configured(session: Session) -> set[str]:
    """Return the accounts of config.toml, and those that were found here and are not forgotten."""
    return {name for name in session.settings.accounts if name not in session.found or not is_forgotten(session, name)}


def is_forgotten(session: Session, account: str) -> bool:
    """Say whether an account was retired (`init --forget`) and nothing has been launched there since."""
    at = forgotten_at(session.ledger.events(SUBJECT), session.settings.owner).get(account)
    machines = session.ledger.billable_machines() if at is not None else ()
    return at is not None and all(
        machine.terminated_at and machine.terminated_at <= at for machine in machines if machine.account == account
    )


def found_here(session: Session) -> set[str]:
    """Return one account of each cloud that config.toml does not name and of which this computer has a credential.

    One that was forgotten is left out until it is used again.
    """
    from cloudgpu.config.credentials import clouds_here
    from cloudgpu.providers.registry import kinds

    having = {one.provider for one in session.settings.accounts.values()}
    # The SDKs look for credentials in this process's environment, whatever the session was opened with.
    further = clouds_here(os.environ).intersection(CLOUDS, kinds()) - having
    return {kind for kind in further if not is_forgotten(session, kind) and session.account(kind) is not None}


def is_any_provider(session: Session, *, account: str | None, provider: str | None) -> bool:
    """Say whether these words mean every cloud account; raise InvalidRequest where one is named beside `any`."""
    if account is not None and provider == ANY:
        raise InvalidRequest(
            f"--provider any means every cloud account, and --account {account} only one.",
            field="--account",
            value=account,
            next="Leave one of them out.",
        )
    return account is None and (session.settings.provider if provider is None else provider) == ANY


def cloud_accounts(session: Session) -> list[str]:
    """Return the names of all accounts that `any` stands for.

    Those are all of config.toml but local and ssh, and one of each further cloud of which this computer has a
    credential, unless it was forgotten. Raises InvalidRequest where there is none.
    """
    found = {name for name in _configured(session) if session.settings.accounts[name].provider not in OWNED_PROVIDERS}
    found |= found_here(session)
    if found:
        return sorted(found)
    raise InvalidRequest(
        "No cloud account is configured, and no credentials of a cloud were found here.",
        field="--provider",
        value=ANY,
        next="Log in with the cloud's own tool, or add an [accounts.NAME] table to config.toml. Machines of your own: "
        "--provider local or ssh.",
    )


def account_of(session: Session, *, account: str | None, provider: str | None) -> str:
    """Return the name of the account that these words mean; without any, the settings' provider's.

    Raises InvalidRequest where they mean none, or several.
    """
    if account is not None:
        return _named(session, account, provider)
    kind = session.settings.provider if provider is None else provider
    accounts = session.settings.accounts
    if kind == ANY:
        raise _one_is_needed(session)
    of_kind = [name for name, one in accounts.items() if one.provider == kind]
    if len(of_kind) == 1:
        return of_kind[0]
    if session.settings.account in of_kind:
        return str(session.settings.account)
    if of_kind:
        or_any = "" if kind in OWNED_PROVIDERS else "; up takes the cheapest of all with --provider any"
        raise InvalidRequest(
            f"There are {len(of_kind)} accounts of {kind}.",
            field="--account",
            value=None,
            next=f"Name one: --account {' | '.join(sorted(of_kind))}{or_any}",
        )
    if session.account(kind) is not None:
        return kind
    raise _no_account_of(session, kind)


def _named(session: Session, account: str, provider: str | None) -> str:
    found = session.account(account)
    if found is None:
        raise session.unknown_account(account)
    if provider in (None, found.provider):
        return account
    raise InvalidRequest(
        f"Account {account} belongs to {found.provider}, not to {provider}.",
        field="--account",
        value=account,
        next="Leave --provider out, or name another --account.",
    )


def _one_is_needed(session: Session) -> InvalidRequest:
    names = " | ".join(
        name for name, one in sorted(session.settings.accounts.items()) if one.provider not in OWNED_PROVIDERS
    )
    return InvalidRequest(
        "This command works on one account, and --provider any means all of them.",
        field="--provider",
        value=ANY,
        next=f"Name one: --account {names}" if names else "Name a --provider.",
    )


def _no_account_of(session: Session, kind: str) -> InvalidRequest:
    """Return the error for an installed provider that has no account yet; raise that of one that is not installed."""
    from cloudgpu.providers.registry import load

    load(kind)  # says what is known, and what an extra would add
    add = f"Add these two lines, and what {kind} asks for, to {session.home.config_file}:\n"
    add += f'  [accounts.{kind}]\n  provider = "{kind}"'
    return InvalidRequest(
        f"The provider {kind!r} is installed, but config.toml has no account of it.",
        field="--provider",
        value=kind,
        next="Add a machine of yours: cloudgpu init --host NAME=USER@HOST" if kind == "ssh" else add,
    )


def provider_kinds() -> tuple[str, ...]:
    """Return every provider that is installed, plug-ins too, sorted: the list for whoever has to name one."""
    from cloudgpu.providers.registry import kinds

    return kinds()


def provider_with(session: Session, ability: Any, what: str, *, account: str | None, provider: str | None) -> Any:
    """Return the provider of the account that these words mean, which has to have `ability`.

    `ability` is a protocol of providers/abilities.py, `what` its word for people. Without any word, and where
    the settings' provider has no such thing, it is the only configured account that has.
    Raises InvalidRequest where there is none, or several.
    """
    if account is None and provider is None:
        found = _having(session, ability)
        if found:
            return found
    one = session.provider(account_of(session, account=account, provider=provider))
    if isinstance(one, ability):
        return one
    raise InvalidRequest(
        f"The {one.kind} provider has no {what}.",
        field="--provider",
        value=one.kind,
        next=f"Name another: --provider {' | '.join(_kinds_with(session, ability) or CLOUDS)}",
    )


def _kinds_with(session: Session, ability: Any) -> list[str]:
    """Return the providers of configured accounts that have the ability."""
    providers = map(session.provider, session.settings.accounts)
    return sorted({one.kind for one in providers if isinstance(one, ability)})


def _having(session: Session, ability: Any) -> Any:
    """Return the settings' own provider, else the only one, that has the ability; None for none or several."""
    usual = [name for name, one in session.settings.accounts.items() if one.provider == session.settings.provider]
    for names in (usual, list(session.settings.accounts)):
        found = [one for one in map(session.provider, names) if isinstance(one, ability)]
        if len(found) == 1:
            return found[0]
    return None


class AccountClosed(Unanswered):
    """An account as a whole that let nobody in: its credential is refused, or lacks a part."""


def unanswered_of(account: str, error: CloudgpuError) -> Unanswered:
    """Return the gap that this fault of a whole account leaves in an answer."""
    closed = isinstance(error, AuthFailed | InvalidRequest)
    return (AccountClosed if closed else Unanswered)(account, error.message)


def split_gaps(session: Session, gaps: Iterable[Unanswered]) -> tuple[list[Unanswered], list[Unanswered]]:
    """Return the gaps that make an answer incomplete, and the accounts that could not be asked and make none so.

    The latter are clouds that config.toml does not name and on which this user has never launched anything by this
    ledger: only a credential on this computer led there, or a colleague's launch, and it lets nobody in.
    """
    counted, closed = list[Unanswered](), list[Unanswered]()
    for gap in gaps:
        only_found = isinstance(gap, AccountClosed) and gap.scope in session.found and not _is_used(session, gap.scope)
        (closed if only_found else counted).append(gap)
    return counted, closed


def _is_used(session: Session, account: str) -> bool:
    own = session.settings.owner
    return any(machine.account == account and machine.owner == own for machine in session.ledger.billable_machines())


def queried_accounts(
    session: Session, accounts: Iterable[str], closed: Iterable[Unanswered]
) -> tuple[QueriedAccount, ...]:
    """Return those of these accounts that were asked: all but the closed ones."""
    out, known = {gap.scope for gap in closed}, session.settings.accounts
    return tuple(
        QueriedAccount(one, known[one].provider if one in known else "?") for one in accounts if one not in out
    )
