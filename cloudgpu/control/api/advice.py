"""What the library advises: what can be bought, at which price, and what would be cheaper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from cloudgpu.control.api.namespace import Namespace

if TYPE_CHECKING:
    from cloudgpu.control.advice.compare_request import CompareOptions
    from cloudgpu.control.advice.estimate_request import EstimateOptions
    from cloudgpu.control.advice.recommend_request import RecommendOptions
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.market.catalog import (
        CatalogDiffDocument,
        CatalogDocument,
        CatalogItemDocument,
        CatalogRefreshDocument,
        GpusDocument,
    )
    from cloudgpu.views.documents.market.estimate import EstimateDocument
    from cloudgpu.views.documents.market.market import QuotaDocument, QuotaRequestDocument, RegionsDocument
    from cloudgpu.views.documents.market.recommend import RecommendDocument
    from cloudgpu.views.documents.money.compare import CompareDocument
    from cloudgpu.views.documents.money.rent_or_buy import DesktopsDocument, RentOrBuyDocument


class Advice(Namespace):
    """`connect().advice`: what can be bought, at which price, and what would be cheaper."""

    def gpus(
        self,
        *,
        gpu: str | None = None,
        min_memory: str | None = None,
        max_price: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        spot: bool = False,
        sort: str = "price",
        all: bool = False,  # noqa: A002  (the option's name)
    ) -> GpusDocument:
        """Return what can be bought according to the catalogue: dated list prices, not offers. Asks no cloud.

        Values are as on the command line: `gpu="v100:4"`, `min_memory="40"`, `sort="speed-per-dollar"`.
        """
        from cloudgpu.control.catalog.market import gpus_document, parse_filters, parse_order

        filters = parse_filters(gpu, min_memory, max_price, provider, region, spot=spot, with_legacy=all)
        return gpus_document(filters, parse_order(sort), self._session.clock())

    def catalog(self, provider: str | None = None) -> CatalogDocument:
        """Return what the catalogue knows of each provider (or one), and how old that is. Asks no cloud."""
        from cloudgpu.control.catalog.prices import catalog_overview

        return catalog_overview(provider, self._with_refreshed_prices().clock())

    def prices(
        self, item: str, *, provider: str | None = None, region: str | None = None, history: bool = False
    ) -> CatalogItemDocument:
        """Return what a machine type, a kind of storage or a separately sold GPU costs, in every region or in one.

        Each price has its source and date; with `history` also earlier prices. Asks no cloud. Raises InvalidRequest
        for a name that the catalogue lacks, or that two providers have.
        """
        from cloudgpu.control.catalog.prices import show_prices

        return show_prices(item, provider, region, self._with_refreshed_prices().clock(), history=history)

    def price_changes(
        self, provider: str | None = None, *, last: bool = False, factor: float | None = None
    ) -> CatalogDiffDocument:
        """Return how refreshed prices differ from the embedded ones, or, with `last`, from the refresh before.

        A price that changed by more than `factor` (None: 2) is reported. Asks no cloud.
        """
        from cloudgpu.control.catalog.prices import price_difference_document
        from cloudgpu.control.catalog.refresh import parse_factor

        self._with_refreshed_prices()
        return price_difference_document(provider, parse_factor(None if factor is None else str(factor)), last=last)

    def refresh_prices(
        self, *providers: str, account: str | None = None, factor: float | None = None, accept: bool = False
    ) -> CatalogRefreshDocument:
        """Ask the providers' price lists (those named, or all) and return what changed.

        A part of a list that does not answer raises nothing: it is named, and keeps its prices and their date. A price
        that changed by more than `factor` is reported and withheld, unless `accept`. `account` is the one whose
        credentials are used.
        """
        from cloudgpu.control.catalog.refresh import parse_factor, refresh

        max_factor = parse_factor(None if factor is None else str(factor))
        return refresh(self._with_refreshed_prices(), providers, account, factor=max_factor, accept=accept)

    def _with_refreshed_prices(self) -> Session:
        """Make the catalogue read the prices that were refreshed in this home; return the session."""
        from cloudgpu.catalog.location import use_directory

        use_directory(self._session.home.price_lists)
        return self._session

    def regions(
        self,
        *,
        gpu: str | None = None,
        spot: bool = False,
        ping: bool = False,
        sort: str | None = None,
        account: str | None = None,
        provider: str | None = None,
    ) -> RegionsDocument:
        """Return the regions of an account, with what a GPU costs in each now and the round-trip time to each.

        A region that does not answer raises nothing: it is named under `unanswered`.
        """
        from cloudgpu.control.catalog.regions import parse_query, regions_document

        query = parse_query(gpu=gpu, spot=spot, ping=ping, sort=sort)
        return regions_document(self._session, query, account=account, provider=provider)

    def quota(
        self,
        *,
        region: str | None = None,
        gpu: str | None = None,
        account: str | None = None,
        provider: str | None = None,
    ) -> QuotaDocument:
        """Return the account's quotas for machines with GPUs, and their usage; with `gpu` those that apply to it.

        A region that does not answer raises nothing: it is named under `unanswered`.
        """
        from cloudgpu.control.catalog.quotas import quotas_document

        return quotas_document(self._session, region=region, gpu=gpu, account=account, provider=provider)

    def request_quota(
        self,
        request: str,
        *,
        gpu: str | None = None,
        region: str | None = None,
        count: int | None = None,
        spot: bool = False,
        account: str | None = None,
        provider: str | None = None,
    ) -> QuotaRequestDocument:
        """Request a higher quota from the provider, and return what was requested.

        `request` is CODE=VALUE with a code that `quota` shows, or `enough`: for `count` machines with this GPU.
        Raises InvalidRequest for a quota that is not higher, or that cannot be requested from here.
        """
        from cloudgpu.control.catalog.quotas import QuotaOptions, plan_quota_increase, request_quota
        from cloudgpu.core.model.offers import Market

        quota_options = QuotaOptions(request, region, gpu, count, Market.SPOT if spot else Market.ON_DEMAND)
        return request_quota(plan_quota_increase(self._session, quota_options, account=account, provider=provider))

    def compare(self, **options: Unpack[CompareOptions]) -> CompareDocument | RentOrBuyDocument:
        """Return what an owned desktop would have cost for the same work, by the ledger, or by a price and a use.

        With `price`, `utilization` or `hours_per_day` no ledger is read: `compare(gpu="v100", utilization="15%")`.
        `mode` tells the two documents apart: `ledger` or `calculator`. Values are as on the command line, or numbers.
        Raises InvalidRequest for an invalid value.
        """
        from cloudgpu.control.advice.compare_request import parse_compare

        request = parse_compare(self._session, **options)
        if request.rented is not None:
            from cloudgpu.control.advice.rent_or_buy import build_rent_or_buy_document

            return build_rent_or_buy_document(self._session, request, request.rented)
        from cloudgpu.control.advice.compare import compare_with_desktop

        return compare_with_desktop(self._session, request)

    def desktops(self) -> DesktopsDocument:
        """Return every desktop that `compare` can name, your own and the shipped ones, with source and date."""
        from cloudgpu.control.advice.desktop_choice import desktops_document

        return desktops_document(self._session)

    def estimate(self, **options: Unpack[EstimateOptions]) -> EstimateDocument:
        """Return what machines would cost on every provider, cheapest first: machine, disk and address. Asks no cloud.

        Values are as on the command line: `gpu="l4"`, `hours_per_day=8`, `flops="3.1e20"`, `like="quiet-owl"`.
        Raises InvalidRequest for an invalid value, InstanceNotFound if the ledger has no machine called `like`.
        """
        from cloudgpu.control.advice.estimate import estimate_document
        from cloudgpu.control.advice.estimate_request import parse_estimate
        from cloudgpu.core.model.offers import Market

        request = parse_estimate(self._session.settings, self._session.clock(), **options)
        if request.nodes is None or request.filters.market is not Market.SPOT:
            return estimate_document(self._session, request)
        return estimate_document(self._session, request, self._session.ledger.machines())

    def recommend(self, work: str | None = None, **options: Unpack[RecommendOptions]) -> RecommendDocument:
        """Return which GPU for this work, to rent or to buy for a desktop, step by step with sources. Asks no cloud.

        Values are as on the command line, or numbers: `recommend("fine-tuning", params="7b", method="qlora")`.
        Raises InvalidRequest for an invalid value.
        """
        from cloudgpu.control.advice.recommend import recommendation_document

        return recommendation_document(self._session, work, **options)
