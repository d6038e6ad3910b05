"""The verbs about prices, costs and budgets, as methods of the library's face."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.control.api.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Unpack

    from cloudgpu.control.inputs.periods import CostOptions, Moment
    from cloudgpu.views.documents.market.catalog import (
        CatalogDiffDocument,
        CatalogDocument,
        CatalogItemDocument,
        CatalogRefreshDocument,
        GpusDocument,
    )
    from cloudgpu.views.documents.market.market import QuotaDocument, QuotaRequestDocument, RegionsDocument
    from cloudgpu.views.documents.money.budgets import (
        BudgetCheckDocument,
        BudgetRemovedDocument,
        BudgetsDocument,
        BudgetSetDocument,
    )
    from cloudgpu.views.documents.money.cost import CostDocument
    from cloudgpu.views.documents.money.reconcile import ExportDocument, ReconcileDocument


class Money(Advice):
    """What `cloudgpu.connect()` returns can do about money: what can be bought, what was spent, what may be."""

    _clock: Callable[[], datetime]

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
        """Return what can be bought by the embedded catalogue: dated list prices, no offers. Asks no cloud.

        Each word is as on the command line: `gpu="v100:4"`, `min_memory="40"`, `sort="speed-per-dollar"`.
        """
        from cloudgpu.control.catalog.market import market_value, order_of, parse_filters

        filters = parse_filters(gpu, min_memory, max_price, provider, region, spot=spot, legacy=all)
        return market_value(filters, order_of(sort), self._clock())

    def catalog(
        self,
        action: str = "show",
        item: str | None = None,
        *,
        provider: str | None = None,
        region: str | None = None,
        history: bool = False,
        last: bool = False,
        factor: float | None = None,
        accept: bool = False,
    ) -> CatalogDocument | CatalogItemDocument | CatalogDiffDocument | CatalogRefreshDocument:
        """Return what the catalogue says of `item` (of all, for None), what a refresh changed, or what one brings now.

        `action` is `show`, `diff` or `refresh`. What does not answer a refresh raises nothing: it is named.
        """
        from cloudgpu.control.catalog.prices import catalog_value

        return catalog_value(
            self._session,
            action,
            item,
            provider,
            region=region,
            history=history,
            last=last,
            factor=factor,
            accept=accept,
        )

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
        """Return the regions of an account, with what a GPU costs in each now and how far each is.

        A region that does not answer raises nothing: it is named under `unanswered`.
        """
        from cloudgpu.control.catalog.regions import question_of, regions_value

        question = question_of(gpu=gpu, spot=spot, ping=ping, sort=sort)
        return regions_value(self._session, question, account=account, provider=provider)

    def quota(
        self,
        *,
        region: str | None = None,
        gpu: str | None = None,
        request: str | None = None,
        count: int | None = None,
        spot: bool = False,
        account: str | None = None,
        provider: str | None = None,
    ) -> QuotaDocument | QuotaRequestDocument:
        """Return the account's limits on machines with GPUs; with `request`, ask for a higher one and return that."""
        from cloudgpu.control.catalog.quotas import Asking, carry_out, plan_raise, quotas_value
        from cloudgpu.core.model.offers import Market

        if request is None:
            return quotas_value(self._session, region=region, gpu=gpu, account=account, provider=provider)
        asking = Asking(request, region, gpu, count, Market.SPOT if spot else Market.ON_DEMAND)
        return carry_out(plan_raise(self._session, asking, account=account, provider=provider))

    def cost(self, **asked: Unpack[CostOptions]) -> CostDocument:
        """Return what everything has cost so far, in groups, and what goes on costing. Asks no cloud.

        Raises InvalidRequest for a group, period, time zone or currency that cannot be.
        """
        from cloudgpu.control.cost.cost import costs
        from cloudgpu.control.inputs.periods import parse_cost

        return costs(self._session, parse_cost(self._session.settings, self._session.clock(), **asked))

    def set_budget(self, name: str, amount: Decimal | float | str, period: str, **words: Any) -> BudgetSetDocument:
        """Set a budget, with the options of `budget set` as words (`scope="project=vision"`), and return how it stands.

        `replace=True` sets it anew. Raises InvalidRequest for a word that cannot be, and for a name that is taken.
        """
        from cloudgpu.control.budgets.commands import BudgetOptions, set_value

        anew = words.pop("replace", False)
        return set_value(self._session, BudgetOptions(name, str(amount), period, **words), anew=anew)

    def budgets(self) -> BudgetsDocument:
        """Return every budget, of the ledger and of files, and how it stands. Asks no cloud."""
        from cloudgpu.control.budgets.commands import listed

        return listed(self._session)

    def remove_budget(self, name: str) -> BudgetRemovedDocument:
        """Take a budget of the ledger away; raise InvalidRequest for one that is not there."""
        from cloudgpu.control.budgets.commands import removed

        return removed(self._session, name)

    def check_budgets(self, name: str | None = None) -> BudgetCheckDocument:
        """Judge the budgets (or one), after a look where the last one is old, and send alerts; return what was found.

        A budget that is passed raises nothing: it is named under `passed`, and `stops` is what it would do.
        """
        from cloudgpu.control.budgets.commands import checked

        return checked(self._session, name)

    def export(
        self,
        out: Path | str,
        form: str = "focus",
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        tz: str | None = None,
    ) -> ExportDocument:
        """Write the bill to a file as `focus`, `csv` or `json`, and return what was written. Asks no cloud.

        Raises InvalidRequest for a form or a period that cannot be, and for a file that cannot be written.
        """
        from cloudgpu.control.cost.exports import export, form_of, parse_period

        span = parse_period(self._session, since, until, tz)
        return export(self._session, form_of(form), span, Path(out))

    def reconcile(self, file: Path | str, provider: str | None = None) -> ReconcileDocument:
        """Return the ledger beside a cloud's own bill, a FOCUS export: the gap of each resource and its reasons.

        Raises InvalidRequest for a file that is no such export, or in a currency without a rate. Changes nothing.
        """
        from cloudgpu.control.cost.reconcile import reconcile

        return reconcile(self._session, Path(file), provider)
