"""What a provider promises about measured and shared prices, placement scores, and the history of spot prices."""

# ruff: noqa: S101  (a suite is asserts)

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from cloudgpu.core.activity.agent_status import parse_agent_status
from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price, Requirements
from cloudgpu.providers.abilities import (
    HasMeteredPrice,
    HasPlacementScores,
    HasPriceHistory,
    HasPrices,
    Pausable,
    SharesComputer,
)
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt


class HasMeteredPriceContract(ContractBase):
    """A machine's measured power makes its price, where the settings name no power."""

    def test_more_watts_cost_more_and_the_price_says_that_they_were_measured(self, provider: Provider) -> None:
        """None where the settings name the machine's power, or no tariff, whatever was measured."""
        configuration = provider.available(Requirements()).items[0]
        meter = cast("HasMeteredPrice", provider)
        price_at_100_w, price_at_300_w = (
            meter.metered_price(configuration, Decimal(watts), timedelta(hours=2)) for watts in (100, 300)
        )
        assert (price_at_100_w is None) == (price_at_300_w is None)
        if price_at_100_w is not None and price_at_300_w is not None:
            assert price_at_100_w.per_hour < price_at_300_w.per_hour
            assert (price_at_100_w.basis, price_at_300_w.basis) == (Basis.MEASURED, Basis.MEASURED)
            assert "2h" in price_at_100_w.source


class SharesComputerContract(ContractBase):
    """What a computer costs is shared by the machines on it."""

    def test_the_parts_of_two_machines_cost_what_the_whole_computer_does(self, provider: Provider) -> None:
        """And a machine that is alone on it, and uses no extra power, costs no more than the provider's price."""
        configuration = provider.available(Requirements()).items[0]
        assert isinstance(provider, HasPrices), "what shares a computer has to know what that costs at most"
        shares = cast("SharesComputer", provider)
        price_alone = shares.shared_price(configuration, ComputerShare(3600, 3600, 0, 3600, 0, 1))
        price_of_half = shares.shared_price(configuration, ComputerShare(3600, 1800, 0, 3600, 0, 2))
        price_of_busy_half = shares.shared_price(configuration, ComputerShare(3600, 1800, 3600 * 100, 3600, 0, 2))
        (whole_price,) = provider.prices([configuration])
        if (
            price_alone is not None
            and price_of_half is not None
            and price_of_busy_half is not None
            and whole_price is not None
        ):
            assert abs(price_of_half.per_hour.nanos * 2 - price_alone.per_hour.nanos) <= 1
            assert price_of_half.per_hour < price_of_busy_half.per_hour
            assert price_alone.per_hour <= whole_price.per_hour
            assert price_alone.basis is Basis.MEASURED

    def test_an_agent_tells_its_samples_on_a_machine_that_exists(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Empty, or as JSON that can be parsed, whether it runs or is stopped; the id of no machine is an error."""
        shares, attempt = cast("SharesComputer", provider), make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        if isinstance(provider, Pausable):
            provider.stop(machine.id)
        text = shares.agent_status(machine.id, 0.0)
        assert not text or parse_agent_status(text).answer is not None
        self.check_not_found(provider, attempt, lambda id_: shares.agent_status(id_, 0.0))


class HasPlacementScoresContract(ContractBase):
    """Each place has a score of its own, or none."""

    def test_each_spot_item_of_a_type_has_a_score_from_1_to_10_or_none(self, provider: Provider) -> None:
        """Whatever the order of the items."""
        items = list(provider.available(Requirements(market=Market.SPOT)).items)
        items = [configuration for configuration in items if configuration.instance_type == items[0].instance_type]
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
        histories = self.history(provider, items, yesterday)
        assert len(histories) == len(items)
        assert self.history(provider, items[::-1], yesterday) == histories[::-1]
        for prices in histories:
            begin_times = [price.as_of for price in prices]
            assert begin_times == sorted(set(begin_times))
            assert all(at > yesterday for at in begin_times[1:])
            assert all(price.source and price.as_of.utcoffset() == timedelta(0) for price in prices)

    def test_the_last_price_is_that_of_now(self, provider: Provider, yesterday: datetime) -> None:
        """The provider's present price of a machine is the end of its history."""
        assert isinstance(provider, HasPrices), "what remembers prices has to know those of now"
        items = self.spot_offers(provider)
        for current_price, prices in zip(provider.prices(items), self.history(provider, items, yesterday), strict=True):
            assert (prices[-1].per_hour if prices else None) == (current_price.per_hour if current_price else None)

    def test_a_later_question_has_the_end_of_the_same_answer(self, provider: Provider, yesterday: datetime) -> None:
        """The price at a time does not depend on how far back the history begins."""
        items = self.spot_offers(provider)
        for later_prices, earlier_prices in zip(
            self.history(provider, items, yesterday + timedelta(hours=23)),
            self.history(provider, items, yesterday),
            strict=True,
        ):
            assert [price.per_hour for price in earlier_prices][-len(later_prices) :] == [
                price.per_hour for price in later_prices
            ]

    def test_only_spot_machines_have_a_history(self, provider: Provider, yesterday: datetime) -> None:
        """On-demand offers have none; and no offers have no histories."""
        items = list(provider.available(Requirements(market=Market.ON_DEMAND)).items)[:3]
        assert self.history(provider, items, yesterday) == [[] for _ in items]
        assert self.history(provider, [], yesterday) == []
