from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from cloudgpu.core.launch.plan import Lease, duration_cost, extend_lease, hold_tags, launch_plan, stop_effect
from cloudgpu.core.model.offers import Market, Offer, Requirements
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import from_epoch
from cloudgpu.testing import make_attempt, make_offer, new_host_key, pick
from cloudgpu.testing.fake.market import matching_offers

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
HOST_KEY = new_host_key()
moments = st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  (naive bounds)
spans = st.timedeltas(timedelta(seconds=1), timedelta(days=365))


def offer(market: Market = Market.ON_DEMAND, usd: str = "3.00") -> Offer:
    return make_offer(pick(matching_offers("lab", Requirements(market=market)), market), usd=usd, now=NOW)


def test_a_plan_says_what_it_costs_to_the_end_of_the_lease() -> None:
    request = make_attempt(offer().configuration, host_key=HOST_KEY, now=NOW).request
    request = replace(request, lease_s=2 * 3600, renew_s=10 * 3600)
    plan = launch_plan(
        request, [offer(), offer(usd="4.00")], left_out=("packages",), safeguard_texts=("agent",), now=NOW
    )
    assert (plan.to_lease_end.amount, plan.to_renew_until.amount) == (Money.usd("6.00"), Money.usd("30.00"))
    assert (plan.to_lease_end.low, plan.to_lease_end.machine) == (Money.usd("6.00"), Money.usd("6.00"))
    assert (plan.expires, plan.renew_until) == (NOW + timedelta(hours=2), NOW + timedelta(hours=10))
    assert (plan.offer, plan.further_offers) == (offer(), 1)
    assert (plan.left_out, plan.safeguard_texts) == (("packages",), ("agent",))


@given(st.integers(0, 10**14).map(Money), spans, spans)
def test_a_longer_run_never_costs_less(price: Money, span: timedelta, more: timedelta) -> None:
    assert ZERO <= duration_cost(price, span) <= duration_cost(price, span + more)


def test_a_run_of_negative_length_costs_nothing() -> None:
    assert duration_cost(Money.usd(1), timedelta(hours=-1)) == ZERO


def test_what_stop_means_is_always_said() -> None:
    request = make_attempt(offer().configuration, host_key=HOST_KEY, now=NOW).request
    told = {stop_effect(request, offer(market)) for market in Market}
    assert len(told) == 2
    for market in Market:
        silent = replace(offer(market).configuration, stop_effect="")
        assert stop_effect(request, Offer(silent, offer().price))


def test_a_machine_that_goes_whole_is_said_to_do_so_only_where_it_cannot_be_stopped() -> None:
    request = make_attempt(offer().configuration, host_key=HOST_KEY, now=NOW).request
    request = replace(request, policy="throwaway", setup=replace(request.setup, keep_disk=False))
    parks = Offer(replace(offer(Market.SPOT).configuration, stoppable=False), offer().price)
    assert "policy throwaway keeps nothing" in stop_effect(request, parks)
    assert stop_effect(request, offer()) == offer().configuration.stop_effect


@given(moments, st.timedeltas(timedelta(0), timedelta(days=9)), spans, moments)
def test_an_extension_only_ever_gives_time(expires: datetime, spare: timedelta, by: timedelta, now: datetime) -> None:
    lease = extend_lease(expires, expires + spare, by, now)
    assert lease.expires >= max(expires, now) + by
    assert lease.renew_until >= max(lease.expires, expires + spare)


@given(moments, spans)
def test_tags_carry_the_lease_to_the_second(expires: datetime, more: timedelta) -> None:
    tags = Lease(expires, expires + more).tags()
    ends = [from_epoch(tags[key]) for key in ("cloudgpu-expires", "cloudgpu-renew-until")]
    assert [expires - ends[0] < timedelta(seconds=1), expires + more - ends[1] < timedelta(seconds=1)] == [True, True]
    assert ends[0] <= ends[1]


def test_a_released_hold_is_written_as_such() -> None:
    assert hold_tags(None) == {"cloudgpu-hold-until": "0"}
    assert from_epoch(hold_tags(NOW)["cloudgpu-hold-until"]) == NOW
