"""A machine whose type others change is billed at the price of what it is, from when it is that."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from cloudgpu.core.events.log import Event
from cloudgpu.core.events.metering import is_unpriced
from cloudgpu.core.events.projection import project
from tests.core.events.test_metering import HOUR, USD, all_uses, down, launch, range_of, up
from tests.core.lives import at, price


def resized(after: float, *usd: str, kind: str = "p2.8xlarge", **more: Any) -> dict[str, Any]:
    prices = [price(int(Decimal(one) * USD)) for one in usd]
    facts = {"instance_type": kind, "market": "on_demand", "accelerators": []}
    return {"resized": facts | {"prices": prices, "on_demand": (prices or [None])[-1], "after": at(after)} | more}


def row_of(*life: Event) -> dict[str, Any]:
    found = project(life)
    assert found is not None
    return found.state["row"]


def test_a_run_after_a_resize_costs_the_new_price_from_its_start() -> None:
    """One hour at $1, stopped for one, resized meanwhile, then two hours at $8: seen when it runs again."""
    life = [launch(0, attached_costs=[]), up(60, since=0), down(HOUR, since=HOUR)]
    again = up(3 * HOUR, since=2 * HOUR, **resized(HOUR, "8"))
    assert range_of(4 * HOUR, *life, again) == (17, 17, 17)
    assert row_of(*life, again)["instance_type"] == "p2.8xlarge"
    assert all_uses(*life, again)[-1].kind == "p2.8xlarge"


def test_a_resize_of_a_stopped_machine_is_the_price_of_its_next_run() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), down(HOUR, since=HOUR)]
    changed = down(2 * HOUR, since=HOUR, **resized(HOUR, "8"))
    assert range_of(9 * HOUR, *life, changed) == (1, 1, 1)
    assert row_of(*life, changed)["price"]["nanos_per_hour"] == 8 * USD
    assert range_of(4 * HOUR, *life, changed, up(3 * HOUR, since=3 * HOUR)) == (9, 9, 9)


def test_a_stop_a_resize_and_a_start_that_nobody_saw_are_a_range() -> None:
    """It was last seen as before after an hour; it runs since three hours as another type."""
    life = [launch(0, attached_costs=[]), up(60, since=0)]
    again = up(4 * HOUR, since=3 * HOUR, alive_at=at(HOUR), **resized(HOUR, "8"))
    assert range_of(5 * HOUR, *life, again) == (17, 17, 19)


def test_a_change_whose_time_no_cloud_tells_costs_either_price_since_the_last_look() -> None:
    life = [launch(0, "azure", attached_costs=[]), up(60)]
    again = up(3 * HOUR, **resized(HOUR, "8"))
    low, amount, high = range_of(4 * HOUR, *life, again)
    begin = Decimal(60) / HOUR
    assert [round(one, 6) for one in (low, amount, high)] == [round(n - begin, 6) for n in (9, 9, 25)]


def test_a_new_type_without_a_price_is_unpriced_and_never_the_old_price() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), down(HOUR, since=HOUR)]
    again = up(3 * HOUR, since=2 * HOUR, **resized(HOUR))
    assert range_of(9 * HOUR, *life, again) == (1, 1, 1)
    assert is_unpriced(row_of(*life, again))
    assert row_of(*life, again)["price"] is None
    assert all_uses(*life, again)[-1].segments == ()
