from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from cloudgpu.core.alerts.findings import (
    last_price_change,
    machine_findings,
    price_finding,
    price_leaps,
    unguarded_finding,
    unproved_since,
)
from cloudgpu.core.events.log import Event
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.machines import hourly, machine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ago(**span):
    return iso(NOW - timedelta(**span))


def row(**more):
    usual = {
        "id": "m-1", "name": "fox", "provider": "aws", "account": "lab", "owner": "ada", "region": "us-east-1",
        "zone": "us-east-1b", "instance_type": "p3.2xlarge", "market": "spot", "state": "running", "billed": True,
        "expires": ago(hours=-4), "renew_until": ago(hours=-9), "price": hourly(918_000_000),
        "seen_at": ago(minutes=2), "intended_at": ago(hours=2),
    }  # fmt: skip
    return machine(**usual | more)


def found(one, asked=None):
    return list(machine_findings([one], {} if asked is None else {"m-1": asked}, NOW))


def line(seq, kind, **body):
    at = iso(NOW + timedelta(minutes=seq))
    return Event(seq, at, "own", at, "ada", kind, "m-1", f"{kind}:{seq}", "", body)


def test_a_machine_as_it_should_be_is_no_news():
    assert found(row()) == []


def test_a_machine_without_a_lease_is_told_with_its_price_and_the_way_out():
    (one,) = found(row(expires=None))
    assert (one.key, one.urgent) == ("lease:m-1", True)
    assert "cloudgpu down fox" in one.text
    assert one.facts["price"] == "$0.9180/h"
    assert one.facts["offer"] == "aws/us-east-1b/p3.2xlarge/spot"


@pytest.mark.parametrize("more", [{"billed": False, "state": "stopped"}, {"terminated_at": ago(minutes=1)}])
def test_what_is_not_billed_needs_no_lease(more):
    assert found(row(expires=None, **more)) == []


def test_a_stop_is_told_when_it_was_not_proved_for_a_quarter_of_an_hour():
    asked = row(pending_action="stop", state="stopping")
    assert found(asked, NOW - timedelta(minutes=15)) == []
    (one,) = found(asked, NOW - timedelta(minutes=23))
    assert one.key == "stop:m-1"
    assert "23m ago" in one.text
    assert "cloudgpu stop fox" in one.text
    (end,) = found(row(pending_action="terminate"), NOW - timedelta(hours=2))
    assert "cloudgpu down fox" in end.text
    assert end.title == "The end of fox is not proved"
    node = ClusterNode("train", "cg-1", 1, 2, "none", "wait")
    (part,) = found(row(pending_action="stop", cluster=node), NOW - timedelta(hours=2))
    assert part.text.endswith("Run: cloudgpu stop train")


def test_a_start_that_is_not_done_is_no_stop():
    assert found(row(pending_action="start"), NOW - timedelta(hours=2)) == []


def test_a_machine_seen_billed_after_its_last_moment_is_told():
    (one,) = found(row(renew_until=ago(hours=1)))
    assert one.key == "overdue:m-1"
    assert "58m after its renew-until" in one.title
    assert found(row(renew_until=ago(hours=1), seen_at=ago(minutes=50))) == []  # not looked at since: it may have ended


def test_a_missing_price_is_told_and_is_not_called_zero():
    (one,) = found(row(unpriced=True, price=None))
    assert one.key == "unpriced:m-1"
    assert "price" not in one.facts
    assert "not zero" in one.text


def test_a_launch_that_nobody_settled_is_told():
    assert found(row(launch_status="open", intended_at=ago(minutes=10))) == []
    (one,) = found(row(launch_status="open", intended_at=ago(hours=1)))
    assert one.key == "launch:m-1"
    assert "cloudgpu ls --refresh" in one.text


def test_since_when_a_stop_is_asked_for_is_the_first_of_its_askings():
    asked = [line(1, "stop_requested"), line(5, "instance_observed", state="stopping"), line(9, "stop_requested")]
    assert unproved_since(asked) == NOW + timedelta(minutes=1)
    assert unproved_since(reversed(asked)) == NOW + timedelta(minutes=1)
    assert unproved_since([*asked, line(12, "terminate_requested")]) == NOW + timedelta(minutes=12)


@pytest.mark.parametrize(
    "after",
    [
        line(10, "instance_observed", state="stopped"),
        line(10, "instance_vanished"),
        line(10, "start_requested"),
        line(10, "launch_intended", price=None),
    ],
)
def test_what_proves_or_takes_back_a_stop_ends_the_wait(after):
    assert unproved_since([line(1, "stop_requested"), after]) is None


def test_a_stopped_machine_whose_end_is_asked_is_not_at_its_end():
    assert unproved_since([line(1, "terminate_requested"), line(2, "instance_observed", state="stopped")]) is not None


def priced(*nanos, end=None, basis="quoted", bases=()):
    each = zip(nanos, bases or [basis] * len(nanos), strict=True)
    segments = tuple(PriceInterval(ago(hours=9 - hour), one, "a list", None, by) for hour, (one, by) in enumerate(each))
    run = Usage(
        Resource.INSTANCE, "i-1", "it", "aws", "spot", "p3.2xlarge", quantity=1, per=Per.HOUR, begin=ago(hours=9),
        end=end, segments=segments,
    )  # fmt: skip
    return row(open_usage=(run,))


def test_a_leap_is_between_the_last_two_prices_since_the_last_start():
    assert last_price_change(row(open_usage=())) is None
    assert last_price_change(priced()) is None
    assert last_price_change(priced(100, 100)) is None
    assert last_price_change(priced(100, 120, 300, 300)) == (Money(120), Money(300))
    assert last_price_change(priced(100, 900, end=ago(hours=1))) is None
    assert last_price_change(priced(100, 900, basis="measured")) is None


def test_a_price_is_told_to_have_changed_though_one_before_those_two_was_assumed():
    settings = ("assumed", "setting", "setting")
    assert last_price_change(priced(100, 200, 900, bases=settings)) == (Money(200), Money(900))
    assert last_price_change(priced(100, 100, 900, bases=settings)) == (Money(100), Money(900))
    assert last_price_change(priced(100, 900, 900, bases=settings)) is None


@pytest.mark.parametrize(("before", "after", "told"), [(100, 150, 0), (100, 151, 1), (151, 100, 1), (150, 100, 0)])
def test_a_price_is_news_when_it_moved_by_more_than_the_factor(before, after, told):
    assert len(list(price_leaps([priced(before, after)], lambda _: Fraction("1.5")))) == told


def test_the_command_of_an_alert_ends_a_node_by_its_cluster_and_what_cannot_be_stopped_by_down():
    node = ClusterNode("train", "m", 1, 2)
    (moved,) = price_leaps([priced(100, 900)._replace(cluster=node, stoppable=False)], lambda _: Fraction(2))
    assert moved.text.endswith("fox runs at it: cloudgpu cost says what it has cost, cloudgpu down train ends it.")
    assert unguarded_finding(row(cluster=node), "none run").text.endswith("To end it: cloudgpu down train")


def test_news_of_a_price_names_both_and_how_far_it_moved():
    one = price_finding("aws/us-east-1b/p3.2xlarge/spot", Money(500_000_000), Money(1_500_000_000))
    assert one.key == "price:aws/us-east-1b/p3.2xlarge/spot"
    assert one.title == "The price of aws/us-east-1b/p3.2xlarge/spot rose to $1.5000/h"
    assert "3 times what it was" in one.text
    assert one.urgent
    assert not price_finding("x", Money(2), Money(1)).urgent
    assert price_finding("x", Money(0), Money(1)).title.startswith("The price of x rose")
