"""Queries accounts in parallel; one that does not answer is named and does not delay the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from cloudgpu.control.inventory.retention_sync import list_resources
from cloudgpu.control.pricing import price_history as pricing
from cloudgpu.control.session.accounts import account_gap
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.observations import AccountPrices
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import Listing
from cloudgpu.core.model.resources import ResourceListing
from cloudgpu.errors import AnswerTimeout, CloudgpuError
from cloudgpu.providers.patience import patience_s
from cloudgpu.providers.shared.calls import ACCOUNTS_GRACE_S, gather


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an account. A listing says nothing about what happened after `asked_at`.

    `kind` is its provider, `prices` what it answered about prices. `scope` says which machines it covers. `resources`
    are its disks and images, None if they were not queried. `silent`: the account accepted the query of its machines
    and did not answer.
    """

    account: str
    kind: str
    listing: Listing
    scope: AccountScope
    asked_at: datetime
    resources: ResourceListing | None = None
    prices: AccountPrices = pricing.NO_PRICES
    silent: bool = False


def ask_accounts(
    session: Session,
    accounts: Sequence[str],
    requested_at: datetime,
    prices_due: pricing.PricesDue,
    regions: Mapping[str, Collection[str]],
    *,
    retained_accounts: Collection[str] = (),
    retry_after_s: float | None = None,
) -> list[Answer]:
    """Query the machines and prices of these accounts, and the disks and images of `retained_accounts`.

    `prices_due` are the machines whose prices are queried, each in its own account. `regions` are the regions in which
    the identity is queried, by provider. An account with an incomplete answer is queried once more after
    `retry_after_s` seconds (None: it is not), if there is time for it.
    """
    listings = [partial(list_account, session, account, retry_after_s) for account in accounts]
    resources = [partial(list_resources, session, account) for account in accounts if account in retained_accounts]
    scopes = {account: AccountScope(session, account) for account in accounts}
    prices = [
        partial(
            _read_identity_and_prices, session, scopes[account], regions.get(_kind(session, account), ()), prices_due
        )
        for account in accounts
    ]
    calls: list[Callable[[], Any]] = [*listings, *resources, *prices]
    answers = iter(gather(calls, lambda call: call(), len(calls), grace=ACCOUNTS_GRACE_S, what="answers"))
    listings_by_account: dict[str, Listing | AnswerTimeout] = {account: next(answers) for account in accounts}
    resources_by_account = {
        account: _to_resources(account, next(answers)) for account in accounts if account in retained_accounts
    }
    prices_by_account = {
        account: _read_prices(session, scopes[account], next(answers), prices_due) for account in accounts
    }
    for account, listing in listings_by_account.items():
        scopes[account].record({} if isinstance(listing, AnswerTimeout) else listing.identities)
    return [
        Answer(
            account=account,
            kind=_kind(session, account),
            listing=_to_listing(account, listings_by_account[account]),
            scope=scopes[account],
            asked_at=requested_at,
            resources=resources_by_account.get(account),
            prices=prices_by_account[account],
            silent=isinstance(listings_by_account[account], AnswerTimeout),
        )
        for account in accounts
    ]


def list_accounts(session: Session, accounts: Sequence[str]) -> list[Listing]:
    """Query the machines of these accounts, once each; return their listings in the same order."""
    listings = gather(
        accounts, lambda account: list_account(session, account), len(accounts), grace=ACCOUNTS_GRACE_S, what="accounts"
    )
    return [_to_listing(one, listing) for one, listing in zip(accounts, listings, strict=True)]


def list_account(session: Session, account: str, retry_after_s: float | None = None) -> Listing | AnswerTimeout:
    """Return the account's listing, with the regions that did not answer; AnswerTimeout if none answered."""
    started = time.monotonic()
    listing = _list_once(session, account)
    elapsed_s = time.monotonic() - started
    is_complete = isinstance(listing, Listing) and not listing.unanswered
    if retry_after_s is None or is_complete or elapsed_s + retry_after_s >= patience_s():
        return listing
    session.pause(retry_after_s)
    retried = _list_once(session, account)
    return retried if _gap_count(retried) <= _gap_count(listing) else listing


def _gap_count(listing: Listing | AnswerTimeout) -> int:
    """Return how many scopes of a listing did not answer."""
    return 1 if isinstance(listing, AnswerTimeout) else len(listing.unanswered)


def _list_once(session: Session, account: str) -> Listing | AnswerTimeout:
    try:
        return session.provider(account).list()
    except AnswerTimeout as error:
        return error
    except Exception as error:  # noqa: BLE001  (one provider's defect keeps no machine of another from its end)
        return Listing((), (account_gap(account, error),))


def _kind(session: Session, account: str) -> str:
    """Return the provider of an account, without asking it; `?` if no account is called so."""
    try:
        return session.provider(account).kind
    except CloudgpuError:
        configured = session.settings.accounts.get(account)
        return configured.provider if configured else "?"


def _to_listing(account: str, answer: Listing | AnswerTimeout) -> Listing:
    """Return the listing; for an account that timed out, an empty one with that as the gap."""
    return Listing((), (Unanswered(account, answer.message),)) if isinstance(answer, AnswerTimeout) else answer


def _to_resources(account: str, answer: ResourceListing | AnswerTimeout) -> ResourceListing:
    return ResourceListing((), (Unanswered(account, answer.message),)) if isinstance(answer, AnswerTimeout) else answer


def _read_identity_and_prices(
    session: Session, scope: AccountScope, regions: Collection[str], prices_due: pricing.PricesDue
) -> AccountPrices:
    """Query an account's identity, and then the prices of its own machines."""
    return pricing.query_prices(session, scope.account, *prices_due.due_in(scope.query(regions)))


def _read_prices(
    session: Session, scope: AccountScope, prices: AccountPrices | AnswerTimeout, prices_due: pricing.PricesDue
) -> AccountPrices:
    """Return the prices read. Without an answer the account's identity is unknown, too."""
    if not isinstance(prices, AnswerTimeout):
        return prices
    if not scope.is_queried:
        scope.mark_silent(prices)
    may_cost = prices_due.may_concern(_kind(session, scope.account))
    return AccountPrices(why_unanswered=prices.message) if may_cost else pricing.NO_PRICES
