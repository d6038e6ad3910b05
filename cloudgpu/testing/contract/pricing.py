"""What a provider promises about measured and shared prices, placement scores, and the history of spot prices."""

# ruff: noqa: S101  (a suite is asserts)

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price, Requirements
from cloudgpu.providers.abilities import (
    HasMeteredPrice,
    HasPlacementScores,
    HasPriceHistory,
    HasPrices,
    SharesComputer,
)
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.testing.contract.base import ContractBase


class HasMeteredPriceContract(ContractBase):
    """A machine's measured power makes its price, where the settings name no power."""

    def test_more_watts_cost_more_and_the_price_says_that_they_were_measured(self, provider: Provider) -> None:
        """None where the settings name the machine's power, or no tariff, whatever was measured."""
        item = provider.available(Requirements()).items[0]
        meter = cast("HasMeteredPrice", provider)
        less, more = (meter.metered_price(item, Decimal(watts), timedelta(hours=2)) for watts in (100, 300))
        assert (less is None) == (more is None)
        if less is not None and more is not None:
            assert less.per_hour < more.per_hour
            assert (less.basis, more.basis) == (Basis.MEASURED, Basis.MEASURED)
            assert "2h" in less.source


class SharesComputerContract(ContractBase):
    """What a computer costs is shared by the machines on it."""

    def test_the_parts_of_two_machines_cost_what_the_whole_computer_does(self, provider: Provider) -> None:
        """And a machine that is alone on it, and uses no extra power, costs no more than the provider's price."""
        item = provider.available(Requirements()).items[0]
        assert isinstance(provider, HasPrices), "what shares a computer has to know what that costs at most"
        shares = cast("SharesComputer", provider)
        alone = shares.shared_price(item, ComputerShare(3600, 3600, 0, 3600, 0, 1))
        half = shares.shared_price(item, ComputerShare(3600, 1800, 0, 3600, 0, 2))
        more = shares.shared_price(item, ComputerShare(3600, 1800, 3600 * 100, 3600, 0, 2))
        (most,) = provider.prices([item])
        if alone is not None and half is not None and more is not None and most is not None:
            assert abs(half.per_hour.nanos * 2 - alone.per_hour.nanos) <= 1
            assert half.per_hour < more.per_hour
            assert alone.per_hour <= most.per_hour
            assert alone.basis is Basis.MEASURED


class HasPlacementScoresContract(ContractBase):
    """Each place has a score of its own, or none."""

    def test_each_spot_item_of_a_type_has_a_score_from_1_to_10_or_none(self, provider: Provider) -> None:
        """Whatever the order of the items."""
        items = list(provider.available(Requirements(market=Market.SPOT)).items)
        items = [item for item in items if item.instance_type == items[0].instance_type]
        scores = list(cast("HasPlacementScores", provider).placement_scores(items))
        assert len(scores) == len(items)
        assert all(score is None or 1 <= score <= 10 for score in scores)  # noqa: PLR2004  (the range is the promise)
        assert list(cast("HasPlacementScores", provider).placement_scores(items[::-1])) == scores[::-1]

    def test_only_spot_machines_have_a_score(self, provider: Provider) -> None:
        """On-demand offers have none; and no offers have no scores."""
        items = list(provider.available(Requirements(market=Market.ON_DEMAND)).items)[:3]
        scores = cast("HasPlacementScores", provider)
        assert list(scores.placement_scores(items)) == [None for _ in items]
        assert list(scores.placement_scores([])) == []


class HasPriceHistoryContract(ContractBase):
    """Prices are in the order of time, and the last one is the present price."""

    @pytest.fixture
    def yesterday(self, settings: ProviderSettings) -> datetime:
        """Give a moment a day ago, by the provider's clock."""
        return settings.clock() - timedelta(days=1)

    def spot_offers(self, provider: Provider) -> list[MachineConfiguration]:
        """Return what is offered on spot."""
        return list(provider.available(Requirements(market=Market.SPOT)).items)

    def history(self, provider: Provider, items: Sequence[MachineConfiguration], since: datetime) -> list[list[Price]]:
        """Return the provider's answer as lists."""
        return [list(prices) for prices in cast("HasPriceHistory", provider).price_history(items, since)]

    def test_every_spot_item_has_its_prices_in_the_order_of_time(self, provider: Provider, yesterday: datetime) -> None:
        """The first may have begun before; from then on each begins later than the one before it."""
        items = self.spot_offers(provider)
        found = self.history(provider, items, yesterday)
        assert len(found) == len(items)
        assert self.history(provider, items[::-1], yesterday) == found[::-1]
        for prices in found:
            begins = [price.as_of for price in prices]
            assert begins == sorted(set(begins))
            assert all(at > yesterday for at in begins[1:])
            assert all(price.source and price.as_of.utcoffset() == timedelta(0) for price in prices)

    def test_the_last_price_is_that_of_now(self, provider: Provider, yesterday: datetime) -> None:
        """The provider's present price of a machine is the end of its history."""
        assert isinstance(provider, HasPrices), "what remembers prices has to know those of now"
        items = self.spot_offers(provider)
        for now, prices in zip(provider.prices(items), self.history(provider, items, yesterday), strict=True):
            assert (prices[-1].per_hour if prices else None) == (now.per_hour if now else None)

    def test_a_later_question_has_the_end_of_the_same_answer(self, provider: Provider, yesterday: datetime) -> None:
        """The price at a time does not depend on how far back the history begins."""
        items = self.spot_offers(provider)
        for late, early in zip(
            self.history(provider, items, yesterday + timedelta(hours=23)),
            self.history(provider, items, yesterday),
            strict=True,
        ):
            assert [price.per_hour for price in early][-len(late) :] == [price.per_hour for price in late]

    def test_only_spot_machines_have_a_history(self, provider: Provider, yesterday: datetime) -> None:
        """On-demand offers have none; and no offers have no histories."""
        items = list(provider.available(Requirements(market=Market.ON_DEMAND)).items)[:3]
        assert self.history(provider, items, yesterday) == [[] for _ in items]
        assert self.history(provider, [], yesterday) == []
