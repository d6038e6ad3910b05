"""What a cloud tells of a machine's begin and end, measured by the looks: the truth is always within the range.

A life is made up: its start is taken, it runs, it ends; it is looked at now and then; somebody ends it, often we. Its
cloud tells its end rightly (cut to the second), earlier than something proves, or not at all. The lines are those that
looks write: what is news, and beside an end what was known before it (`ledger.last_seen`). The truth is what
the machine's own rule makes of the time in which it ran. An end that was watched and of which no time is told is left
out: it counts to the look that saw it, seconds later.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.charges import charge
from cloudgpu.core.events.log import Event
from cloudgpu.core.events.projection import project
from cloudgpu.core.model.usage import usage_of_record
from tests.core.events.test_metering import DAY, HOUR, down, launch, range_of, up
from tests.core.lives import START, asked, at, line, seen
from tests.examples import some


@dataclass(frozen=True)
class Life:
    """Seconds since the launch: `ran` and `ended` are the truth, the rest is what a ledger comes to know."""

    ran: float
    ended: float
    looks: list[float]  # after the launch's own answer
    call: float | None  # when we asked for the end; the machine ended by it, or was over by then
    ours: bool  # our call ended it
    watched: bool  # it was seen to run just before the call
    told: float | None  # its end, by its cloud
    cause: str | None
    provider: str
    starting: bool  # its cloud billed its start, too: Azure, which does so once a machine has its hardware
    later: float  # the look that saw the end came so much later


@st.composite
def lives(draw: st.DrawFn) -> Life:
    moments = st.integers(0, 20 * HOUR * 10).map(lambda tenth: tenth / 10)
    ran = draw(st.one_of(st.integers(0, 3000), st.integers(0, 2 * HOUR * 10))) / 10
    ended = ran + draw(moments)
    looks = draw(st.lists(moments, max_size=6))
    looks += range(899, int(ran), 899)  # where nobody looks for 15 minutes, a start is over by then: our belief
    looks = sorted(look for look in looks if look < ended)
    saw = [look for look in looks if ran <= look < ended]
    ours, watched = draw(st.booleans()), False
    if ours:
        watched = draw(st.booleans())
        call = max(ran, ended - draw(st.integers(0, 50)) / 10) if watched else ended  # it stops to be billed at once
    else:
        call = draw(st.one_of(st.none(), moments.map(lambda later: ended + later)))
    cause = None if ours else draw(st.sampled_from([None, "interrupted", "shut down from inside"]))
    ends: list[int | None] = [int(ended), *([] if watched else [None])]
    proof = call if watched else max(saw, default=ended if call is not None and cause is None else None)
    if proof is not None and proof > 1:
        ends.append(draw(st.integers(0, int(proof) - 1)))  # a lie that something proves to be one
    told = draw(st.sampled_from(ends))
    provider = draw(st.sampled_from(["aws", "gcp", "azure"]))
    starting = provider == "azure" and draw(st.booleans())
    return Life(ran, ended, looks, call, ours, watched, told, cause, provider, starting, draw(st.integers(1, 9000)))


def lines(life: Life) -> list[Event]:
    """Return what the ledger is told of a life, the last line by a look after the end."""
    found = [launch(0, life.provider, attached_costs=[]), seen(0, "pending", billed=True, since=0)]
    for look in life.looks:
        if life.ran <= look < life.ended and len(found) == 2:
            found.append(up(look, since=0, **waited(life)))
    if life.call is not None:
        found.append(asked(life.call, "terminate"))
    last = max(life.ended, life.call or 0, 1) + life.later
    more = known(life) | (waited(life) if len(found) == 2 or found[-1].kind == "terminate_requested" else {})
    return [*found, down(last, "terminated", life.told, reason=life.cause, **more)]


def waited(life: Life) -> dict[str, Any]:
    """Return when a look last saw it only start, as the line has it that saw what came then."""
    return {"pending_at": at(max([0, *[look for look in life.looks if look < life.ran]]))}


def known(life: Life) -> dict[str, Any]:
    """Return what a look knows of the time before an end, as `ledger.last_seen.times_before_end` does."""
    saw = [look for look in life.looks if life.ran <= look < life.ended]
    billed = life.call if life.watched else max(saw, default=None)
    if life.told is None:
        return {} if life.watched else {"alive_at": at(max([0, *[look for look in life.looks if look < life.ended]]))}
    found = {} if billed is None else {"billed_at": at(billed)}
    ours = life.call is not None and not life.watched and life.cause is None
    return found | ({"asked_at": at(life.call or 0)} if ours else {})


@settings(max_examples=some(100), deadline=None)
@given(lives())
def test_the_truth_is_within_the_range_and_no_start_is_under_counted_by_more_than_a_minute(life: Life) -> None:
    told = project(lines(life))
    assert told is not None
    (data,) = told.ended_usages
    found = charge(usage_of_record(data), START)
    began = 0 if life.starting else life.ran
    truth = charge(usage_of_record(data)._replace(**TRUE, begin=at(began), end=at(life.ended)), START)
    second = charge(usage_of_record(data)._replace(**TRUE, begin=at(0), end=at(61)), START).amount // 61
    assert found.low <= found.amount <= found.high
    assert found.low - second <= truth.low, "a look's time and a cloud's are cut to the second"
    assert truth.amount <= found.high + second
    if life.told == int(life.ended):
        assert truth.amount <= found.amount + 61 * second
    if life.provider != "azure":
        assert data["begin"] >= waited(life)["pending_at"], "what a look proved to be free is in no amount"
        assert (data["maybe_since"] or data["begin"]) >= waited(life)["pending_at"]


TRUE: dict[str, Any] = {"sure_from": None, "maybe_since": None, "maybe_until": None, "why_maybe_less": ""}


def test_ec2_bills_no_machine_that_is_pending() -> None:
    waited = [launch(0, attached_costs=[]), seen(0, "pending", billed=True, since=0), up(40, since=0)]
    assert range_of(HOUR + 40, *waited) == (1, 1, round(Decimal(HOUR + 40) / HOUR, 9))
    assert range_of(40, *waited[:2])[0] == 0
    late = [*waited[:2], up(5 * HOUR, since=0)]
    assert range_of(5 * HOUR, *late) == (Decimal("4.75"), 5, 5), "nobody looked for longer than a start takes"


@pytest.mark.parametrize(("look", "least", "amount"), [(60, 59, 59), (300, 55, 60), (840, 46, 60), (960, 45, 60)])
def test_a_start_that_nobody_watched_is_in_the_amount_and_not_in_the_least(look: int, least: int, amount: int) -> None:
    life = [launch(0, attached_costs=[]), seen(0, "pending", billed=True, since=0), up(look, since=0)]
    whole = down(HOUR, "terminated", HOUR, billed_at=at(look))
    assert [round(60 * usd, 6) for usd in range_of(DAY, *life, whole)] == [least, amount, 60]


def test_a_machine_that_looks_saw_only_start_is_not_billed_until_the_last_of_them() -> None:
    begun = [launch(0, attached_costs=[]), seen(0, "pending", billed=True, since=0)]
    ended = down(HOUR, "terminated", HOUR, pending_at=at(HOUR - 900))
    assert range_of(DAY, *begun, ended) == (0, Decimal("0.25"), Decimal("0.25"))
    missed = line(HOUR, "instance_vanished", {"provider_id": "i-1", "proof": "", "alive_at": at(HOUR - 900)})
    assert range_of(DAY, *begun, missed)[2] == Decimal("0.25")
    ran = up(HOUR, since=0, pending_at=at(HOUR - 900))
    assert range_of(2 * HOUR, *begun, ran) == (1, Decimal("1.25"), Decimal("1.25"))


def test_a_clock_that_is_ahead_takes_nothing_from_a_bill_that_the_cloud_dates() -> None:
    """The cloud dates the launch four minutes before it was asked for, as the clock here has it."""
    begun = [launch(240, attached_costs=[]), seen(240, "pending", billed=True, since=0, launched_at=at(0))]
    ran = up(1440, since=0, launched_at=at(0), pending_at=at(240))
    assert range_of(HOUR, *begun, ran)[2] == 1
    ended = down(HOUR + 240, "terminated", HOUR, launched_at=None, billed_at=at(1440))
    assert range_of(DAY, *begun, ran, ended)[2] == 1
    apart = [launch(0.9, attached_costs=[]), seen(60, "pending", billed=True, since=0, launched_at=at(0))]
    assert range_of(HOUR, *apart, up(1440, since=0, pending_at=at(60)))[2] == round(Decimal(HOUR - 60) / HOUR, 9)


def test_azure_may_bill_a_start_so_the_amount_has_it_though_looks_saw_the_machine_only_start() -> None:
    begun = [launch(0, "azure", attached_costs=[]), seen(0, "pending", billed=True, since=0)]
    ran = up(HOUR, since=0, pending_at=at(HOUR - 30))
    assert range_of(2 * HOUR, *begun, ran) == (1, 2, 2)


def test_an_end_before_a_look_that_saw_it_billed_is_not_believed() -> None:
    """Told: 90 seconds. It was seen to run after half an hour, and was gone at the look after an hour."""
    life = [launch(0, attached_costs=[]), up(60, since=0), down(HOUR, "terminated", 90, billed_at=at(HOUR / 2))]
    assert range_of(DAY, *life) == (Decimal("0.5"), Decimal("0.5"), 1)
    exact = [*life[:2], down(HOUR, "terminated", 2000, billed_at=at(HOUR / 2))]
    assert range_of(DAY, *exact) == (round(Decimal(2000) / HOUR, 9),) * 3


def test_an_end_before_our_own_call_may_have_been_at_that() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), asked(HOUR, "terminate")]
    unseen = [*life, down(2 * HOUR, "terminated", 90, asked_at=at(HOUR))]
    assert range_of(DAY, *unseen) == (Decimal("0.025"), Decimal("0.025"), 1)
    watched = [*life, down(HOUR + 36, "terminated", 90, billed_at=at(HOUR))]
    assert range_of(DAY, *watched) == (1, 1, Decimal("1.01"))
