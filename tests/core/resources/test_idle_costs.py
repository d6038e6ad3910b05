"""What goes on costing without a machine that works: each with its price a month and why it is there."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.resources.idle_costs import idle_costs_of
from cloudgpu.core.values.money import Money
from tests.core.costing import NOW, at, row, segment, use
from tests.core.machines import retained


def disk(**more):
    usual = {"resource": Resource.DISK, "per": Per.MONTH, "quantity": 100, "segments": (segment(80_000_000),)}
    return use(0, None, **(usual | more))


def left(*uses, **facts):
    made, _ = row(*uses, **({"since": at(60)} | facts))
    return [(one.kind, one.per_month, one.since, one.why) for one in idle_costs_of([made], NOW)]


def test_a_disk_of_a_running_machine_is_no_leftover_and_of_a_stopped_one_is():
    """100 GB at 8 cents a month."""
    assert left(disk()) == []
    expected = ("disk", Money.usd("8"), at(60), "name of cg-1 is stopped, and this is still billed")
    assert left(disk(), state="stopped", billed=False) == [expected]


def test_what_is_priced_by_the_hour_counts_730_of_them():
    address = use(0, None, resource=Resource.ADDRESS, per=Per.HOUR, segments=(segment(5_000_000),))
    assert left(address, state="stopped", billed=False)[0][1] == Money.usd("3.65")


def test_a_machine_that_is_shut_down_and_billed_says_how_to_end_that():
    (found,) = left(use(0, None), state="stopped", billed=True)
    assert found[0] == "instance"
    assert found[1] == Money.usd("730")
    assert "cloudgpu stop name of cg-1" in found[3]


def test_what_stays_of_an_ended_machine_says_whether_it_can_come_back():
    parked = left(disk(), state="terminated", billed=False, terminated_at=at(99), parked=True)
    assert parked == [
        ("disk", Money.usd("8"), at(99), "name of cg-1 is parked: cloudgpu start name of cg-1 brings it back")
    ]
    gone = left(disk(), state="terminated", billed=False, terminated_at=at(99), parked=False)
    assert gone[0][3] == "name of cg-1 has ended, and this stays of it"


def test_a_volume_counts_while_no_machine_has_it():
    facts = {"is_named_resource": True, "state": "volume", "billed": False, "terminated_at": None}
    assert left(disk(), **facts, retained=(retained(attached_to="i-1"),)) == []
    assert left(disk(), **facts, retained=(retained(attached_to=None),)) == [
        ("volume", Money.usd("8"), at(0), "it is a named resource, and no machine uses it")
    ]


def test_no_price_is_no_zero_and_the_dearest_stands_first():
    made, _ = row(
        disk(segments=()), disk(quantity=10), disk(), state="stopped", billed=False, since=None, seen_at=at(5)
    )
    found = idle_costs_of([made], NOW + timedelta(days=1))
    assert [one.per_month for one in found] == [Money.usd("8"), Money.usd("0.8"), None]
    assert found[0].since == at(5)
