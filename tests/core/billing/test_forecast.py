"""What is to come: nothing is counted twice, leases end where they say, and what is stopped or kept goes on."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.charges import charge
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping, costs
from cloudgpu.core.billing.forecast import BurnPart, Horizon, burn_rate, open_usages, remaining_cost
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.times import iso
from tests.core.costing import NOW, ledgers, row, segment, use
from tests.examples import some

DOLLAR = 10**9 * PARTS_PER_NANO
HOUR = timedelta(hours=1)


@settings(max_examples=some(80), deadline=None)
@given(ledgers(), st.integers(0, 90 * 86_400))
def test_what_is_spent_and_what_is_to_come_are_the_bill_of_that_time(ledger, seconds):
    rows, ended = ledger
    end = NOW + timedelta(seconds=seconds)
    ahead = remaining_cost(open_usages(rows, NOW), NOW, Horizon.MONTH, end)
    asked = CostQuery(Grouping.PROJECT, UTC)
    now, then = costs(rows, ended, NOW, asked).total, costs(rows, ended, end, asked).total
    assert now.amount + ahead.amount == then.amount
    assert ahead.low <= ahead.amount <= ahead.high


def ahead(made, goal, end=None):
    return remaining_cost(open_usages([made], NOW), NOW, goal, end).amount / DOLLAR


def lease(**ends):
    return {name: iso(NOW + span) for name, span in ends.items()}


def test_a_machine_goes_on_to_its_renew_until_and_not_further():
    made, _ = row(use(end=None), **lease(expires=2 * HOUR, renew_until=5 * HOUR))
    assert ahead(made, Horizon.DAY, NOW + 24 * HOUR) == 5
    assert ahead(made, Horizon.DAY, NOW + 3 * HOUR) == 3
    assert ahead(made, Horizon.LEASES) == 2
    assert ahead(made, Horizon.RENEWALS) == 5


def test_a_hold_keeps_a_machine_beyond_its_lease_but_not_beyond_renew_until():
    made, _ = row(use(end=None), **lease(expires=HOUR, renew_until=5 * HOUR, hold_until=3 * HOUR))
    assert ahead(made, Horizon.LEASES) == 3
    made = made._replace(hold_until=iso(NOW + 9 * HOUR))
    assert ahead(made, Horizon.LEASES) == 5


def test_a_machine_that_is_over_its_renew_until_is_not_taken_for_ended():
    made, _ = row(use(end=None), **lease(expires=-2 * HOUR, renew_until=-HOUR))
    assert ahead(made, Horizon.DAY, NOW + 24 * HOUR) == 24
    assert ahead(made, Horizon.RENEWALS) == 0


def test_a_machine_without_a_lease_is_counted_apart():
    made, _ = row(use(end=None))
    found = remaining_cost(open_usages([made], NOW), NOW, Horizon.LEASES)
    assert (found.amount, found.without_end) == (0, 1)
    assert ahead(made, Horizon.MONTH, NOW + 24 * HOUR) == 24


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({}, BurnPart.MACHINES),
        ({"billed": False}, BurnPart.STOPPED),
        ({"terminated_at": iso(NOW)}, BurnPart.UNATTACHED),
        ({"is_named_resource": True}, BurnPart.UNATTACHED),
    ],
)
def test_the_burn_rate_has_parts(facts, part):
    disk = use(end=None, resource=Resource.DISK, per=Per.MONTH, segments=(segment(73_000_000_000),))
    made, _ = row(disk, **facts)
    found = burn_rate(open_usages([made], NOW), NOW)
    hour = charge(made.open_usage[0], NOW + HOUR, since=NOW).amount
    assert found.by_part == {**dict.fromkeys(BurnPart, 0), part: hour}
    assert found.total == hour > 0


def test_what_is_kept_or_stopped_goes_on_whatever_its_lease_said():
    disk = use(end=None, resource=Resource.DISK)
    for facts in ({"billed": False}, {"terminated_at": iso(NOW)}, {"is_named_resource": True}):
        made, _ = row(disk, **facts, **lease(expires=HOUR, renew_until=2 * HOUR))
        assert ahead(made, Horizon.MONTH, NOW + 24 * HOUR) == 24
        assert ahead(made, Horizon.LEASES) == 0


def test_what_burns_without_a_price_is_counted():
    made, _ = row(use(end=None, segments=()))
    assert burn_rate(open_usages([made], NOW), NOW).without_price == 1
