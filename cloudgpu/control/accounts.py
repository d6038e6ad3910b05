"""Which account is meant: the one that was named, the only one of a provider, the one that has what is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudgpu.control.session import Session
from cloudgpu.core.names import near
from cloudgpu.errors import InvalidRequest


def account_of(session: Session, *, account: str | None, provider: str | None) -> str:
    """Return the name of the account that these words mean; without any, the settings' provider's.

    Raises InvalidRequest where they mean none, or several.
    """
    if account is not None:
        return _named(session, account, provider)
    kind = session.settings.provider if provider is None else provider
    accounts = session.settings.accounts
    of_kind = [name for name, one in accounts.items() if one.provider == kind]
    if len(of_kind) == 1:
        return of_kind[0]
    if session.settings.account in of_kind:
        return str(session.settings.account)
    if of_kind:
        raise InvalidRequest(
            f"There are {len(of_kind)} accounts of {kind}.",
            field="--account",
            value=None,
            next=f"Name one: --account {' | '.join(sorted(of_kind))}",
        )
    if session.account(kind) is not None:
        return kind
    raise _unknown_provider(kind)


def with_machines(session: Session, accounts: Sequence[str]) -> list[str]:
    """Return those of these accounts that can have machines of this ledger.

    An account of a provider that is still to come is in config.toml for its prices; it has none, unless a newer
    cloudgpu on another computer wrote one down.
    """
    from cloudgpu.providers.registry import is_to_come

    found = {account: session.account(account) for account in accounts}
    to_come = {account for account, one in found.items() if one and is_to_come(one.provider)}
    if to_come:
        to_come -= {row["account"] for row in session.ledger.machines()}
    return [account for account in accounts if account not in to_come]


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


def _unknown_provider(kind: str) -> InvalidRequest:
    from cloudgpu.providers.registry import kinds, load

    load(kind)  # says what is known, and what an extra would add
    meant = near(kind, kinds())
    return InvalidRequest(
        f"No account of {kind!r} is configured" + (f"; did you mean {meant!r}?" if meant else "."),
        field="--provider",
        value=kind,
        next=f'Add an [accounts.NAME] table with provider = "{kind}" to config.toml.',
    )


def provider_with(session: Session, ability: Any, what: str, *, account: str | None, provider: str | None) -> Any:
    """Return the provider of the account that these words mean, which has to have `ability`.

    `ability` is a protocol of providers/base.py, `what` its word for people. Without any word, and where
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
        next="Name another: --provider aws",
    )


def _having(session: Session, ability: Any) -> Any:
    """Return the settings' own provider, else the only one, that has the ability; None for none or several."""
    usual = [name for name, one in session.settings.accounts.items() if one.provider == session.settings.provider]
    for names in (usual, list(session.settings.accounts)):
        found = [one for one in map(session.provider, names) if isinstance(one, ability)]
        if len(found) == 1:
            return found[0]
    return None
