"""Queries all accounts in parallel; one that does not answer is named and does not delay the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from cloudgpu.control.inventory.retention_sync import list_resources
from cloudgpu.control.pricing import price_history as pricing
from cloudgpu.control.session.accounts import unanswered_of
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.observations import Priced
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import Listing
from cloudgpu.core.model.resources import ResourceListing
from cloudgpu.errors import CloudgpuError, Silent
from cloudgpu.providers.patience import patience_s
from cloudgpu.providers.shared.calls import ACCOUNTS_GRACE_S, gather


@dataclass(frozen=True, slots=True)
class Answer:
    """What an account answered, and when it was asked: a listing says nothing about what came after that.

    `whose` says for which machines it speaks. `resources` are its disks and images, None where they were not asked for.
    `silent`: it took the question for its machines and said nothing.
    """

    account: str
    kind: str
    listing: Listing
    whose: AccountScope
    asked_at: datetime
    resources: ResourceListing | None = None
    priced: Priced = pricing.NO_PRICES
    silent: bool = False


def ask_accounts(
    session: Session,
    accounts: Sequence[str],
    requested_at: datetime,
    to_price: pricing.PricesDue,
    regions: Mapping[str, Collection[str]],
    *,
    retained_of: Collection[str] = (),
    again_after: float | None = None,
) -> list[Answer]:
    """Ask these accounts, each what it has and what it costs, and those of `retained_of` for disks and images.

    `to_price` are machines of which prices are asked, each of the account whose it is. Whose identity is asked are the
    `regions` of machines, by the kind of provider. An account that did not answer wholly is asked once more after
    `again_after` seconds (None: it is not), where that is within the time that a read has.
    """
    listings = [partial(list_account, session, one, again_after) for one in accounts]
    resources = [partial(list_resources, session, one) for one in accounts if one in retained_of]
    whose = {one: AccountScope(session, one) for one in accounts}
    prices = [
        partial(_read_identity_and_prices, session, whose[one], regions.get(_kind(session, one), ()), to_price)
        for one in accounts
    ]
    asks: list[Callable[[], Any]] = [*listings, *resources, *prices]
    answers = iter(gather(asks, lambda ask: ask(), len(asks), grace=ACCOUNTS_GRACE_S, what="answers"))
    found_listings: dict[str, Listing | Silent] = {one: next(answers) for one in accounts}
    found_resources = {one: _resources(one, next(answers)) for one in accounts if one in retained_of}
    found_prices = {one: _read_prices(session, whose[one], next(answers), to_price) for one in accounts}
    for one, found in found_listings.items():
        whose[one].take({} if isinstance(found, Silent) else found.identities)
    return [
        Answer(
            account=one,
            kind=_kind(session, one),
            listing=_listing(one, found_listings[one]),
            whose=whose[one],
            asked_at=requested_at,
            resources=found_resources.get(one),
            priced=found_prices[one],
            silent=isinstance(found_listings[one], Silent),
        )
        for one in accounts
    ]


def list_accounts(session: Session, accounts: Sequence[str]) -> list[Listing]:
    """Ask these accounts what they have, once each; return their listings in the same order."""
    found = gather(
        accounts, lambda one: list_account(session, one), len(accounts), grace=ACCOUNTS_GRACE_S, what="accounts"
    )
    return [_listing(one, listing) for one, listing in zip(accounts, found, strict=True)]


def list_account(session: Session, account: str, again_after: float | None = None) -> Listing | Silent:
    """Return the account's listing, with the regions that did not answer; Silent if none answered."""
    begun = time.monotonic()
    found = _list_once(session, account)
    spent = time.monotonic() - begun
    is_complete = isinstance(found, Listing) and not found.unanswered
    if again_after is None or is_complete or spent + again_after >= patience_s():
        return found
    session.pause(again_after)
    second = _list_once(session, account)
    return second if _gap_count(second) <= _gap_count(found) else found


def _gap_count(found: Listing | Silent) -> int:
    return 1 if isinstance(found, Silent) else len(found.unanswered)


def _list_once(session: Session, account: str) -> Listing | Silent:
    try:
        return session.provider(account).list()
    except Silent as error:
        return error
    except CloudgpuError as error:
        gap = unanswered_of(account, error)
    except Exception as bug:  # noqa: BLE001  (one provider's defect keeps no machine of another from its end)
        gap = Unanswered(account, f"it could not be read ({type(bug).__name__}: {bug})")
    return Listing((), (gap,))


def _kind(session: Session, account: str) -> str:
    try:
        return session.provider(account).kind
    except CloudgpuError:
        configured = session.settings.accounts.get(account)
        return configured.provider if configured else "?"


def _listing(account: str, found: Listing | Silent) -> Listing:
    return Listing((), (Unanswered(account, found.message),)) if isinstance(found, Silent) else found


def _resources(account: str, found: ResourceListing | Silent) -> ResourceListing:
    return ResourceListing((), (Unanswered(account, found.message),)) if isinstance(found, Silent) else found


def _read_identity_and_prices(
    session: Session, whose: AccountScope, regions: Collection[str], to_price: pricing.PricesDue
) -> Priced:
    """Query an account's identity, and then the prices of its own machines."""
    return pricing.ask(session, whose.account, *to_price.of(whose.ask(regions)))


def _read_prices(session: Session, whose: AccountScope, prices: Priced | Silent, to_price: pricing.PricesDue) -> Priced:
    """Return the prices read. Without an answer the account's identity is unknown, too."""
    if not isinstance(prices, Silent):
        return prices
    if not whose.is_told:
        whose.be_silent(prices)
    may_cost = to_price.may_be_of(_kind(session, whose.account))
    return Priced(gap=prices.message) if may_cost else pricing.NO_PRICES
