from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.catalog.matching import fits, matching_offers, price_offers, satisfies
from cloudgpu.core.model.offers import (
    Accelerator,
    Basis,
    MachineConfiguration,
    Market,
    Offer,
    Price,
    Requirements,
    same_gpu,
)
from cloudgpu.core.values.money import Money

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)


def price(nanos: int) -> Price:
    return Price(Money(nanos), "this test", AS_OF, Basis.SETTING)


def machine(gpu: str | None = "v100", count: int = 1, **changes: str) -> MachineConfiguration:
    facts = {"account": "lab", "region": "north", "zone": "north-a", "instance_type": "big"} | changes
    gpus = () if gpu is None else (Accelerator(gpu, count),)
    return MachineConfiguration("fake", market=Market.ON_DEMAND, accelerators=gpus, **facts)


machines = st.builds(machine, st.sampled_from(["v100", "a100", None]), st.integers(1, 8), zone=st.sampled_from("abc"))
offers = st.lists(st.builds(Offer, machines, st.integers(0, 100).map(price)))
wants = st.builds(
    Requirements,
    gpu=st.sampled_from([None, "v100", "a100"]),
    gpu_count=st.integers(1, 8),
    zone=st.sampled_from([None, "a", "b"]),
    max_price=st.one_of(st.none(), st.integers(0, 100).map(Money)),
)


@given(offers, wants)
def test_the_cheapest_that_fits_comes_first(found: list[Offer], want: Requirements) -> None:
    order = matching_offers(found, want)
    costs = [offer.price.per_hour for offer in order]
    assert costs == sorted(costs)
    assert all(satisfies(offer, want) for offer in order)
    assert len(order) == sum(satisfies(offer, want) for offer in found)


@given(offers, wants, st.randoms(use_true_random=False))
def test_the_order_does_not_hang_on_who_answered_first(found: list[Offer], want: Requirements, chance) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)

    def shown(order: list[Offer]) -> list[tuple[int, str]]:
        return [(offer.price.per_hour.nanos, offer.configuration.zone) for offer in order]

    assert shown(matching_offers(shuffled, want)) == shown(matching_offers(found, want))


@given(st.lists(st.tuples(machines, st.one_of(st.none(), st.integers(0, 100).map(price)))))
def test_what_has_no_price_is_set_apart_and_never_free(pairs: list[tuple[MachineConfiguration, Price | None]]) -> None:
    priced, unpriced = price_offers([item for item, _ in pairs], [cost for _, cost in pairs])
    assert priced == [Offer(item, cost) for item, cost in pairs if cost is not None]
    assert unpriced == [item for item, cost in pairs if cost is None]


def test_prices_that_do_not_match_their_offers_are_a_fault() -> None:
    with pytest.raises(ValueError, match="zip"):
        price_offers([machine()], [])


@pytest.mark.parametrize(
    ("listed", "asked", "same"),
    [
        ("NVIDIA Tesla V100-SXM2-16GB", "v100", True),
        ("NVIDIA GeForce RTX 3090", "rtx-3090", True),
        ("a100-80gb", "a100", True),
        ("a100-40gb", "a100-80gb", False),
        ("a100", "a10", False),
        ("a10", "a100", False),
        ("NVIDIA A10G", "a10", False),
        ("NVIDIA H100 80GB HBM3", "H100 80GB", True),
        ("nvidia_tesla_t4", "T4", True),
        ("NVIDIA A10G", "nvidia", False),
        ("Tesla T4", "NVIDIA GeForce", False),
        ("Tesla T4", "", True),
    ],
)
def test_a_gpu_goes_by_many_names(listed: str, asked: str, *, same: bool) -> None:
    assert same_gpu(listed, asked) is same


@pytest.mark.parametrize(
    ("want", "fit"),
    [
        (Requirements(), True),
        (Requirements(gpu="v100", gpu_count=4), True),
        (Requirements(gpu="v100", gpu_count=5), False),
        (Requirements(gpu="a100"), False),
        (Requirements(region="south"), False),
        (Requirements(zone="north-a", instance_type="big"), True),
        (Requirements(instance_type="small"), False),
        (Requirements(market=Market.SPOT), False),
    ],
)
def test_a_wish_is_met_in_every_part(want: Requirements, *, fit: bool) -> None:
    assert fits(machine("v100", 4), want) is fit


def test_a_price_limit_is_kept_to_the_nano() -> None:
    offer = Offer(machine(), price(100))
    assert satisfies(offer, Requirements(max_price=Money(100)))
    assert not satisfies(offer, Requirements(max_price=Money(99)))
