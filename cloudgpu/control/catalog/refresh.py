"""Refreshes the catalogue's prices from the providers' price lists, and stores them in the home."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloudgpu.catalog.refreshed import readable_prices, write_price_list
from cloudgpu.catalog.takeover import MergedPrices, merge_prices
from cloudgpu.control.session.accounts import account_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.pricelist import PriceList, large_changes
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.registry import load_price_list, price_list_kinds
from cloudgpu.views.catalog import price_change_document

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import CatalogRefreshDocument, RefreshedProvider

DEFAULT_FACTOR = 2.0  # a price that changed by more is reported and withheld
MAX_FACTOR = 1000.0


def parse_factor(text: str | None) -> float:
    """Return the factor by which a price may change in one refresh. Raises InvalidRequest unless it is above 1."""
    try:
        factor = DEFAULT_FACTOR if text is None else float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor <= MAX_FACTOR:
        raise InvalidRequest(
            f"{text!r} is not a factor above 1 and up to {MAX_FACTOR:g}.",
            field="--factor",
            value=text,
            next="Write how many times the last price the new one may be, for example: --factor 2",
        )
    return factor


def refresh(
    session: Session, providers: Sequence[str] = (), account: str | None = None, *, factor: float, accept: bool
) -> CatalogRefreshDocument:
    """Query the price lists of these providers in parallel, and store what answered.

    Without `providers`: that of the account, else all. Returns the document of `catalog refresh`. What did not answer
    keeps its prices and their date. Prices that changed by more than `factor` are withheld, unless `accept`.
    Raises InvalidRequest for an unknown provider or account.
    """
    kinds = list(dict.fromkeys(providers)) or _kinds(session, account)
    settings = {kind: _settings(session, kind, account) for kind in kinds}
    with Pool(len(kinds), "price lists") as pool:
        lists = dict(zip(kinds, pool.map(lambda kind: _query(kind, settings[kind]), kinds), strict=True))
    documents = [_merge_and_store(session, lists[kind], factor, accept=accept) for kind in kinds]
    return {"refreshed_at": iso(session.clock()), "factor": factor, "accepted": accept, "providers": documents}


def _kinds(session: Session, account: str | None) -> list[str]:
    """Return the provider of this account, or all that have a price list."""
    if account is None:
        return list(price_list_kinds())
    configured = session.account(account)
    if configured is None:
        raise session.unknown_account(account)
    return [configured.provider]


def is_complete(document: CatalogRefreshDocument) -> bool:
    """Return whether every part of the lists answered and no row of it was refused."""
    return not any(provider["unanswered"] or provider["refused"] for provider in document["providers"])


def _settings(session: Session, kind: str, account: str | None) -> ProviderSettings:
    """Return the settings with which a provider's price list is queried."""
    load_price_list(kind)
    name = account_of(session, account=_any_account(session, kind, account), provider=kind)
    options, home = dict(session.settings.accounts[name].options), session.home.provider_dir(kind, name)
    return ProviderSettings(name, options, home, session.clock, session.pause, session.ledger.id)


def _any_account(session: Session, kind: str, account: str | None) -> str | None:
    """Return the named account, else the default one, else the first: a price list is the same for all accounts."""
    account_names = sorted(
        name for name, configured in session.settings.accounts.items() if configured.provider == kind
    )
    default = session.settings.account if session.settings.account in account_names else None
    return account or default or (account_names[0] if account_names else None)


def _query(kind: str, settings: ProviderSettings) -> PriceList:
    try:
        return load_price_list(kind)(settings)
    except CloudgpuError as error:
        remedy = f" {error.next}" if error.next else ""
        return PriceList(kind, (), (Unanswered(kind, f"{error.message}{remedy}"),))


def _merge_and_store(session: Session, prices: PriceList, factor: float, *, accept: bool) -> RefreshedProvider:
    """Merge a price list into the stored one, and write that if it changed; return what changed."""
    with _locked(session, prices.provider):
        stored, problem = readable_prices(prices.provider)
        if problem is not None:
            session.report(problem)
        merged = merge_prices(stored, prices, factor, accept=accept)
        if merged.stored.parts != stored.parts or merged.stored.rejected_changes != stored.rejected_changes:
            write_price_list(merged.stored)
    return _refreshed_document(merged, factor)


@contextmanager
def _locked(session: Session, provider: str) -> Iterator[None]:
    """Let only one process at a time read and write a provider's stored list; the lock ends with the process."""
    session.home.price_lists.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (session.home.price_lists / f".{provider}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refreshed_document(merged: MergedPrices, factor: float) -> RefreshedProvider:
    return {
        "provider": merged.stored.provider,
        "prices": merged.renewed_count,
        "parts": [{"scope": scope, "refreshed_at": iso(part.asked_at)} for scope, part in merged.stored.parts.items()],
        "changed": sum(change.is_accepted for change in merged.changes),
        "jumps": [
            price_change_document(merged.stored.provider, change) for change in large_changes(merged.changes, factor)
        ],
        "refused": [{"row": refused.name, "why": refused.why} for refused in merged.refused_rows],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in merged.unanswered],
        "unknown": list(merged.unknown_types),
        "unnamed": list(merged.not_renewed),
    }
