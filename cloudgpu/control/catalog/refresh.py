"""Refreshes the catalogue from the providers' price lists: asks, takes over, keeps, and says what did not answer."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloudgpu.catalog.refreshed import StoredPrices, stored, write
from cloudgpu.catalog.takeover import MergedPrices, merge_prices
from cloudgpu.control.session.accounts import account_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.pricelist import PriceList, large_moves
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.registry import load_price_list, price_list_kinds
from cloudgpu.views.catalog import price_change_value

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.catalog import CatalogRefreshDocument, RefreshedProvider

FACTOR = 2.0  # a price that moved further is reported and held back
MAX_FACTOR = 1000.0


def factor_of(text: str | None) -> float:
    """Return how far a price may move in one refresh; raise InvalidRequest for what is no factor above 1."""
    try:
        factor = FACTOR if text is None else float(text)
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
    """Ask the price lists of these providers (none: the account's, else all), side by side, and keep what answered.

    Returns the document of `catalog refresh`. What did not answer stays as it was, with its date. Raises InvalidRequest
    for a provider or an account that is none.
    """
    kinds = list(dict.fromkeys(providers)) or _kinds(session, account)
    settings = {kind: _settings(session, kind, account) for kind in kinds}
    with Pool(len(kinds), "price lists") as pool:
        answers = dict(zip(kinds, pool.map(lambda kind: _answer(kind, settings[kind]), kinds), strict=True))
    values = [_kept(session, answers[kind], factor, accept=accept) for kind in kinds]
    return {"refreshed_at": iso(session.clock()), "factor": factor, "accepted": accept, "providers": values}


def _kinds(session: Session, account: str | None) -> list[str]:
    if account is None:
        return list(price_list_kinds())
    found = session.account(account)
    if found is None:
        raise session.unknown_account(account)
    return [found.provider]


def is_whole(document: CatalogRefreshDocument) -> bool:
    """Say whether every part answered and no row of it was refused."""
    return not any(one["unanswered"] or one["refused"] for one in document["providers"])


def _settings(session: Session, kind: str, account: str | None) -> ProviderSettings:
    load_price_list(kind)
    name = account_of(session, account=_any_account(session, kind, account), provider=kind)
    options = session.settings.accounts[name].options
    home = session.home.provider(kind, name)
    return ProviderSettings(name, dict(options), home, session.clock, session.pause, session.ledger.id)


def _any_account(session: Session, kind: str, account: str | None) -> str | None:
    """Return the account that was named, else the usual one, else the first: a price list is the same for all."""
    of_kind = sorted(name for name, one in session.settings.accounts.items() if one.provider == kind)
    usual = session.settings.account if session.settings.account in of_kind else None
    return account or usual or (of_kind[0] if of_kind else None)


def _answer(kind: str, settings: ProviderSettings) -> PriceList:
    try:
        return load_price_list(kind)(settings)
    except CloudgpuError as error:
        way = f" {error.next}" if error.next else ""
        return PriceList(kind, (), (Unanswered(kind, f"{error.message}{way}"),))


def _kept(session: Session, answer: PriceList, factor: float, *, accept: bool) -> RefreshedProvider:
    """Take an answer over and write it, unless nothing answered: then the file, too, is as it was."""
    with _alone(session, answer.provider):
        before = _before(session, answer.provider)
        found = merge_prices(before, answer, factor, accept=accept)
        if found.kept.parts != before.parts or found.kept.held_back != before.held_back:
            write(found.kept)
    return _value(found, factor)


@contextmanager
def _alone(session: Session, provider: str) -> Iterator[None]:
    """Let one process at a time read and write a provider's list; the lock ends with the process."""
    session.home.price_lists.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (session.home.price_lists / f".{provider}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _before(session: Session, provider: str) -> StoredPrices:
    try:
        return stored(provider)
    except InvalidRequest as error:
        session.report(error.message)
        return StoredPrices(provider)


def _value(merged_prices: MergedPrices, factor: float) -> RefreshedProvider:
    far = large_moves(merged_prices.moves, factor)
    return {
        "provider": merged_prices.kept.provider,
        "prices": merged_prices.prices,
        "parts": [
            {"scope": scope, "refreshed_at": iso(part.asked_at)} for scope, part in merged_prices.kept.parts.items()
        ],
        "changed": sum(one.taken for one in merged_prices.moves),
        "jumps": [price_change_value(merged_prices.kept.provider, one) for one in far],
        "refused": [{"row": one.row, "why": one.why} for one in merged_prices.refused],
        "unanswered": [{"scope": gap.scope, "why": gap.why} for gap in merged_prices.unanswered],
        "unknown": list(merged_prices.unknown),
        "unnamed": list(merged_prices.not_renewed),
    }
