"""From lines to uses: every transition of a machine, a disk, an address, an image, and that no second is paid twice."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.billing.charges import charge, money, spent_until_now
from cloudgpu.core.events.log import Event, EventSummary
from cloudgpu.core.events.projection import Projection, apply_event, packed, project, unpacked
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage, usage_of_record
from tests.core.lives import START, arrived, asked, at, gone, intent, line, price, priced, seen, settled

HOUR = 3600
DAY = 24 * HOUR
USD = 10**9

Body = dict[str, Any]


def entry(what: str, *, kept: bool, **more: Any) -> Body:
    """Return something that is paid beside the machine."""
    body = {"what": what, "resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month", "nanos": 80_000_000}
    body |= {"source": "x", "as_of": None, "basis": "listed", "running": True, "kept": kept, "named": False}
    return body | {"nanos_per_month": None, "at_most": False} | more


DISK = entry("system disk of 100 GB", kept=True)
ADDRESS = entry(
    "address", kept=False, resource="address", stored_as="public_ipv4", quantity=1, per="hour", nanos=5_000_000
)


def launch(second: float, provider: str = "aws", market: str = "on_demand", usd: str = "1", **more: Any) -> Event:
    facts = {"attached_costs": [DISK, ADDRESS], "on_demand": price(USD), "instance_type": "p2.xlarge"} | more
    return intent(second, int(Decimal(usd) * USD), provider=provider, market=market, **facts)


def up(second: float, since: float | None = None, **more: Any) -> Event:
    return seen(second, "running", billed=True, since=since, **more)


def down(second: float, state: str = "stopped", since: float | None = None, **more: Any) -> Event:
    return seen(second, state, billed=False, since=since, **more)


def thing(kind: str, number: str, made: float | None, size: int = 100, nanos: int | None = 50_000_000) -> Body:
    made_at = None if made is None else at(made)
    body = {"id": number, "kind": kind, "region": "r", "zone": "z", "size_gb": size, "stored_as": "ebs_snapshot"}
    body |= {"made_at": made_at, "ready": True, "per": "month", "nanos": nanos, "source": "x", "basis": "listed"}
    return body | {"nanos_per_month": None}


def kept(second: float, *things: Body) -> Event:
    return line(second, "resources_retained", {"retained": list(things)})


def all_uses(*lines: Event) -> list[Usage]:
    """Return every use, ended or not, by its begin."""
    found = project(lines)
    assert found is not None
    uses = [*found.ended_usages, *found.state["row"]["open_usage"]]
    return sorted((usage_of_record(use) for use in uses), key=lambda use: (use.begin, use.resource))


def spans(resource: str, *lines: Event) -> list[tuple[str, str | None]]:
    return [(use.begin, use.end) for use in all_uses(*lines) if use.resource == resource]


def usd(second: float, *lines: Event) -> Decimal:
    found = project(lines)
    assert found is not None
    return spent_until_now(Machine.of(found.state["row"]), START + timedelta(seconds=second)).dollars


def range_of(second: float, *lines: Event) -> tuple[Decimal, Decimal, Decimal]:
    charges = [charge(use, START + timedelta(seconds=second)) for use in all_uses(*lines)]
    low, amount, high = (sum(getattr(one, name) for one in charges) for name in ("low", "amount", "high"))
    return money(low).dollars, money(amount).dollars, money(high).dollars


# --- a machine, its disk and its address ----------------------------------------------------------------------------


def test_a_disk_is_billed_while_its_machine_is_stopped_and_an_automatic_address_is_not() -> None:
    life = [launch(0), up(10, since=0, launched_at=at(0)), down(HOUR + 20, since=HOUR), up(3 * HOUR, since=2 * HOUR)]
    assert spans("instance", *life) == [(at(0), at(HOUR)), (at(2 * HOUR), None)]
    assert spans("address", *life) == [(at(0), at(HOUR)), (at(2 * HOUR), None)]
    assert spans("disk", *life) == [(at(0), None)]


def test_stop_and_start_across_the_end_of_a_month() -> None:
    """START is 20 November 11:00; 10 d 13 h later it is December. 1 h up, 1 h stopped over midnight, 1 h up."""
    month = 10 * DAY + 13 * HOUR
    life = [
        launch(month - 1.5 * HOUR, attached_costs=[DISK]),
        up(month - 1.5 * HOUR, since=month - 1.5 * HOUR, launched_at=at(month - 1.5 * HOUR)),
        down(month, since=month - 0.5 * HOUR),
        up(month + 0.5 * HOUR, since=month + 0.5 * HOUR),
        down(month + 2 * HOUR, "terminated", since=month + 1.5 * HOUR),
    ]
    disk = Decimal(8) * Decimal("1.5") / 720 + Decimal(8) * Decimal("1.5") / 744
    assert abs(usd(month + 9 * HOUR, *life) - (2 + disk)) < Decimal("1e-8")


def test_an_azure_machine_that_was_shut_down_from_inside_is_billed_until_it_is_deallocated() -> None:
    life = [
        launch(0, "azure", usd="0.90", attached_costs=[]),
        up(60, since=0),
        seen(2 * HOUR, "stopped", billed=True, since=2 * HOUR, reason="shut down from inside"),
        down(13 * HOUR, "deallocated", since=12 * HOUR),
    ]
    assert usd(99 * HOUR, *life) == Decimal("10.80")
    assert spans("instance", *life) == [(at(0), at(12 * HOUR))]


def test_a_disk_that_outlives_its_machine_is_billed_on_without_a_gap() -> None:
    """The machine ended at 1 h by the cloud's word, was seen to at 2 h; its disk is removed after 30 days."""
    life = [
        launch(0, attached_costs=[DISK]),
        up(60, since=0, launched_at=at(0)),
        down(2 * HOUR, "terminated", since=HOUR),
        kept(2 * HOUR + 60, thing("disk", "vol-1", 0, nanos=80_000_000)),
        kept(30 * DAY),
    ]
    assert spans("disk", *life) == [(at(0), at(HOUR)), (at(HOUR), at(30 * DAY))]
    november = 10 * DAY + 13 * HOUR
    whole = Decimal(8) * november / (720 * HOUR) + Decimal(8) * (30 * DAY - november) / (744 * HOUR)
    assert abs(usd(90 * DAY, *life) - (1 + whole)) < Decimal("1e-8")


def test_a_disk_that_is_billed_by_the_started_hour_is_rounded_once_though_its_machine_ended_meanwhile() -> None:
    """Half an hour with the machine, 40 minutes without: that is 2 started hours, not 1 and 1 more after each."""
    disk = DISK | {"stored_as": "P10 128 GiB", "quantity": 1, "nanos": 19_710_000_000}
    left = thing("disk", "d", 0, size=1, nanos=19_710_000_000)
    machine = [launch(0, "azure", usd="0", attached_costs=[disk]), up(1, since=0, launched_at=at(0))]
    life = [*machine, down(1800, "terminated", since=1800), kept(1800, left), kept(4200)]
    assert usd(DAY, *life) == usd(DAY, *machine, down(4200, "terminated", since=4200))
    within = [*machine, down(600, "terminated", since=600), kept(600, left), kept(1200)]
    assert usd(DAY, *within) == usd(DAY, *machine, down(600, "terminated", since=600))


def test_a_snapshot_that_becomes_an_image_is_the_same_blocks_billed_on() -> None:
    """Parked on AWS: a snapshot for 20 minutes, then an image of it for 30: one started hour in all, and no gap."""
    snapshot, image = thing("snapshot", "snap-1", HOUR), thing("image", "ami-1", HOUR + 1199)
    parked = [
        launch(0, usd="0", attached_costs=[]),
        up(60, since=0, launched_at=at(0)),
        down(HOUR, "terminated", since=HOUR),
    ]
    life = [*parked, kept(HOUR, snapshot), kept(HOUR + 1200, image), kept(HOUR + 3000)]
    assert spans("snapshot", *life) == [(at(HOUR), at(HOUR + 1200))]
    assert spans("image", *life) == [(at(HOUR + 1200), at(HOUR + 3000))]
    whole = [*parked, kept(HOUR, snapshot), kept(HOUR + 3000)]
    assert usd(DAY, *life) == usd(DAY, *whole) == round(Decimal(5) / 720, 9)
    beside = [*parked, kept(HOUR, snapshot), kept(HOUR + 1200, snapshot, image), kept(HOUR + 3000)]
    assert usd(DAY, *beside) == round(Decimal(10) / 720, 9), "one that stays is another's blocks, at most"


def test_a_machine_that_is_over_when_it_is_first_seen_was_billed_since_its_launch() -> None:
    """Its launch was cut off before anything was written, and somebody ended it before the next look."""
    life = [launch(0), down(2 * HOUR, "terminated", since=HOUR, launched_at=at(60))]
    assert spans("instance", *life) == [(at(60), at(HOUR))]
    assert spans("disk", *life) == [(at(60), at(HOUR))]
    assert spans("address", *life) == [(at(60), at(HOUR))]
    stopped = [launch(0), down(2 * HOUR, since=HOUR, launched_at=at(60))]
    assert spans("instance", *stopped) == [(at(60), at(HOUR))]
    assert spans("disk", *stopped) == [(at(60), None)]


def test_an_end_counts_by_the_clouds_word_though_a_clock_that_was_ahead_at_the_launch_dated_a_sync_later() -> None:
    """Whoever launched it is an hour ahead; a colleague whose clock is right stopped it after a minute."""
    ahead = [launch(HOUR, attached_costs=[]), up(HOUR + 50, launched_at=at(0))]
    end = down(HOUR + 70, since=60, billed_at=at(HOUR + 50), launched_at=at(0))
    assert range_of(DAY, *ahead, end)[1] == round(Decimal(60) / HOUR, 9)
    right = [launch(0, attached_costs=[]), up(HOUR + 50, launched_at=at(0))]
    assert range_of(DAY, *right, end)[1] == round(Decimal(HOUR + 50) / HOUR, 9), "the cloud's word is of before"


@pytest.mark.parametrize("launched", [None, 0])
@pytest.mark.parametrize("intended", [0, 0.5])
def test_a_machine_that_began_and_ended_within_a_second_is_billed_the_least_of_a_start(
    intended: float, launched: float | None
) -> None:
    """Nobody saw it run, and its cloud cuts times to seconds: it says that both were at second 0."""
    told = None if launched is None else at(launched)
    life = [launch(intended, attached_costs=[]), down(600, "terminated", since=0, launched_at=told)]
    assert range_of(DAY, *life)[1] == round(Decimal(60) / HOUR, 9)
    before = [launch(2, attached_costs=[]), down(600, "terminated", since=0)]
    assert range_of(DAY, *before)[1] == 0, "an end before the call is none of this launch"


@pytest.mark.parametrize(("seen", "begins"), [(3 * HOUR, 60), (300, 60), (110, 110)])
def test_a_machine_that_nobody_saw_since_its_launch_is_billed_since_then_where_the_cloud_does_not_say(
    seen: int, begins: int
) -> None:
    """Its launch was cut off, and it runs on; when it began to run nobody knows, but for a minute."""
    life = [launch(0, attached_costs=[]), up(seen, launched_at=at(60)), down(4 * HOUR, "terminated")]
    assert spans("instance", *life) == [(at(begins), at(4 * HOUR))]
    assert range_of(DAY, *life)[0] == round(Decimal(4 * HOUR - seen) / HOUR, 9)


def test_a_parked_spot_machine_pays_its_image_until_it_is_back_and_a_disk_of_its_second_life() -> None:
    life = [
        launch(0, market="spot", usd="0.40", attached_costs=[DISK]),
        up(60, since=0, launched_at=at(0)),
        asked(HOUR, "park"),
        down(HOUR + 60, "terminated", since=HOUR),
        kept(HOUR + 90, thing("disk", "vol-1", 0, nanos=80_000_000)),
        kept(2 * HOUR, thing("image", "ami-1", 1.5 * HOUR)),
        launch(5 * HOUR, market="spot", usd="0.50", attempt=2, attached_costs=[DISK]),
        settled(5 * HOUR + 5, "made", attempt=2),
        up(5 * HOUR + 60, since=5 * HOUR + 10, launched_at=at(5 * HOUR + 10)),
        kept(6 * HOUR),
        down(7 * HOUR, "terminated", since=6 * HOUR + 10),
    ]
    assert spans("instance", *life) == [(at(0), at(HOUR)), (at(5 * HOUR + 10), at(6 * HOUR + 10))]
    disk = [(at(0), at(HOUR)), (at(HOUR), at(2 * HOUR)), (at(5 * HOUR + 10), at(6 * HOUR + 10))]
    assert spans("disk", *life) == disk
    assert spans("image", *life) == [(at(1.5 * HOUR), at(6 * HOUR))]
    runs = [use for use in all_uses(*life) if use.resource == "instance"]
    assert [(run.segments[0].nanos, run.first) for run in runs] == [(400_000_000, True), (500_000_000, True)]


def test_a_disk_of_the_first_life_that_is_seen_in_the_second_is_billed_from_the_end_of_the_first() -> None:
    life = [
        launch(0, attached_costs=[DISK]),
        up(60, since=0, launched_at=at(0)),
        down(HOUR + 60, "terminated", since=HOUR),
        launch(2 * HOUR, attempt=2, attached_costs=[DISK]),
        up(2 * HOUR + 60, since=2 * HOUR, launched_at=at(2 * HOUR)),
        kept(3 * HOUR, thing("disk", "vol-1", 0)),
    ]
    assert spans("disk", *life) == [(at(0), at(HOUR)), (at(HOUR), None), (at(2 * HOUR), None)]


def test_an_interruption_in_the_first_hour_is_free_and_one_after_it_is_paid() -> None:
    begun = [launch(0, market="spot", usd="0.60", attached_costs=[]), up(60, since=0)]
    taken = down(HOUR - 1, "terminated", since=HOUR - 30, reason="interrupted")
    assert usd(9 * HOUR, *begun, taken) == 0
    late = down(2 * HOUR, "terminated", since=1.5 * HOUR, reason="interrupted")
    assert usd(9 * HOUR, *begun, late) == Decimal("0.90")
    ended = down(HOUR - 1, "terminated", since=HOUR - 1800)
    assert usd(9 * HOUR, *begun, ended) == Decimal("0.30")


def test_a_persistent_machine_taken_soon_after_a_later_start_may_be_free() -> None:
    life = [
        launch(0, market="spot", usd="0.60", attached_costs=[]),
        up(60, since=0),
        down(3 * HOUR, since=2 * HOUR, reason="interrupted"),
        up(4 * HOUR, since=4 * HOUR),
        down(5 * HOUR, since=4.5 * HOUR, reason="interrupted"),
    ]
    assert range_of(9 * HOUR, *life) == (Decimal("1.20"), Decimal("1.50"), Decimal("1.50"))


def test_a_price_that_is_told_late_is_that_of_its_time() -> None:
    """The price rose at 1 h; that came to be known after the machine had ended at 2 h."""
    life = [launch(0, usd="1", attached_costs=[]), up(60, since=0), down(2 * HOUR, "terminated", since=2 * HOUR)]
    state = project(life)
    assert state is not None
    rose = line(HOUR, "price_observed", {"price": price(3 * USD), "maybe_from": at(HOUR / 2)}, seq=9)
    assert apply_event(state.state, rose) is None  # it comes before what is folded: everything is folded anew
    assert usd(9 * HOUR, *life, rose) == 4
    assert range_of(9 * HOUR, *life, rose) == (4, 4, 5)


def test_a_list_price_that_is_told_later_is_compared_with() -> None:
    life = [launch(0, market="spot", usd="0.40", attached_costs=[], on_demand=None), up(60, since=0)]
    told = line(HOUR, "price_observed", {"price": None, "on_demand": price(USD)})
    assert [use.on_demand for use in all_uses(*life)] == [None]
    assert [use.on_demand for use in all_uses(*life, told)] == [USD]


def test_a_launch_that_was_refused_costs_nothing_more() -> None:
    life = [launch(0), settled(10, "refused"), launch(20, attempt=2, usd="2"), up(60, since=30, launched_at=at(30))]
    assert spans("instance", *life) == [(at(30), None)]
    assert [use.segments[0].nanos for use in all_uses(*life) if use.resource == "instance"] == [2 * USD]


def test_a_late_word_about_an_earlier_attempt_does_not_change_the_price() -> None:
    late = launch(25, attempt=1, usd="9")
    life = [launch(0), settled(10, "refused"), launch(20, attempt=2, usd="2"), late, up(60, since=30)]
    assert [use.segments[0].nanos for use in all_uses(*life) if use.resource == "instance"] == [2 * USD]


# --- found late, gone unseen ----------------------------------------------------------------------------------------


def test_a_machine_that_is_adopted_is_billed_from_its_launch_and_what_was_before_is_uncertain() -> None:
    found = line(3 * HOUR, "machine_adopted", dict(launch(0, attached_costs=[DISK]).body) | {"why": "a stray"})
    life = [found, up(3 * HOUR, launched_at=at(0)), down(4 * HOUR, "terminated", since=4 * HOUR)]
    (run,) = (use for use in all_uses(*life) if use.resource == "instance")
    assert (run.begin, run.sure_from, run.first) == (at(0), at(3 * HOUR), False)
    assert charge(run, START).reasons == ("whether it ran before 2026-11-20T14:00 is not known",)
    low, amount, high = range_of(9 * HOUR, *life)
    assert low < 2
    assert 4 < amount == high  # with the disk
    assert spans("disk", *life) == [(at(0), at(4 * HOUR))]


def test_a_machine_of_a_cloud_that_tells_no_launch_time_may_have_run_since_the_call_when_it_was_first_seen_late() -> (
    None
):
    late = [launch(0, attached_costs=[]), up(3 * HOUR), down(4 * HOUR, since=4 * HOUR)]
    assert spans("instance", *late) == [(at(0), at(4 * HOUR))]
    assert range_of(9 * HOUR, *late) == (1, 4, 4)
    at_once = [launch(0, attached_costs=[]), up(20), down(HOUR + 20, since=HOUR + 20)]
    assert range_of(9 * HOUR, *at_once) == (1, 1, 1)
    waiting = [
        launch(0, attached_costs=[]),
        seen(2 * HOUR, "pending", billed=False),
        up(3 * HOUR),
        down(4 * HOUR, since=4 * HOUR),
    ]
    assert range_of(9 * HOUR, *waiting) == (1, 2, 2)


def test_a_machine_whose_launch_time_nobody_told_and_that_was_over_when_first_seen_may_have_run_since_the_call() -> (
    None
):
    assert range_of(9 * HOUR, launch(0, attached_costs=[]), down(3 * HOUR)) == (0, 3, 3)
    assert range_of(9 * HOUR, launch(0, attached_costs=[]), down(3 * HOUR, "terminated", since=2 * HOUR)) == (0, 2, 2)
    assert range_of(9 * HOUR, launch(0, attached_costs=[]), seen(HOUR, "pending", billed=False)) == (0, 0, 0)


def test_a_machine_that_vanished_ends_at_the_last_proof_of_life_and_may_have_been_billed_until_it_was_missed() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), up(HOUR, since=0)]
    missed = line(3 * HOUR, "instance_vanished", {"provider_id": "i-1", "proof": "", "alive_at": at(2 * HOUR)})
    assert range_of(9 * HOUR, *life, missed) == (2, 2, 3)
    assert range_of(9 * HOUR, *life, gone(3 * HOUR)) == (1, 1, 3)
    said = line(3 * HOUR, "instance_vanished", {"provider_id": "i-1", "proof": "", "ended_at": at(1.5 * HOUR)})
    assert range_of(9 * HOUR, *life, said) == (Decimal("1.5"),) * 3


def test_a_machine_that_was_missed_and_is_found_again_is_billed_once_and_no_doubt_is_left() -> None:
    life = [launch(0), up(60, since=0, launched_at=at(0)), up(HOUR, since=0, launched_at=at(0))]
    missed = gone(3 * HOUR)
    again, over = up(4 * HOUR, since=0, launched_at=at(0)), down(5 * HOUR, since=5 * HOUR)
    whole = range_of(9 * HOUR, *life, over)
    assert range_of(9 * HOUR, *life, missed, again, over) == whole
    twice = [gone(4.2 * HOUR), up(4.5 * HOUR, since=0, launched_at=at(0))]
    assert range_of(9 * HOUR, *life, missed, again, *twice, over) == whole
    ended = range_of(9 * HOUR, *life, down(5 * HOUR, "terminated", since=5 * HOUR))
    assert range_of(9 * HOUR, *life, missed, again, gone(5 * HOUR))[2] == ended[2], "the last doubt is left"
    restarted = up(4 * HOUR, since=2 * HOUR, launched_at=at(0))
    assert range_of(9 * HOUR, *life, missed, restarted, over)[0] < whole[0]
    assert range_of(9 * HOUR, *life, missed, restarted, over)[2] == whole[2]
    stopped = range_of(9 * HOUR, *life, missed, down(4 * HOUR))
    assert stopped[2] > range_of(9 * HOUR, *life, missed)[2], "it may have run until it was missed; its disk goes on"


def test_a_state_is_the_same_where_lines_are_read_without_their_dedupe() -> None:
    lines = arrived([launch(0), up(60, since=0), gone(3 * HOUR)], [*range(3)])
    found, state = project(lines), project(lines[:1])
    assert found is not None
    assert state is not None
    for one in lines[1:]:  # as `cost --verify` reads them
        apply_event(state.state, EventSummary(one.seq, one.occurred_at, one.kind, one.subject, "", one.body))
    assert packed(state.state) == packed(found.state)


def test_a_line_that_finds_a_missed_machine_lets_all_lines_be_folded_anew() -> None:
    life = [launch(0), up(60, since=0), up(HOUR, since=0), gone(3 * HOUR), up(4 * HOUR, since=0)]
    lines = arrived(life, [*range(5)])
    found = project(lines[:-1])
    assert found is not None
    packed_state = json.loads(json.dumps(packed(found.state)))
    state = unpacked(json.loads(json.dumps(found.state["row"])), packed_state)
    assert apply_event(state, lines[-1]) is None
    whole = project(lines)
    assert whole is not None
    assert "cuts" not in whole.state["meter"]
    assert [use["maybe_until"] for use in whole.ended_usages] == [None, None, None]


def test_a_spot_machine_that_vanished_around_its_first_hour_may_have_been_free() -> None:
    life = [launch(0, market="spot", usd="1", attached_costs=[]), up(0.5 * HOUR, since=0, reason="interrupted")]
    missed = line(2 * HOUR, "instance_vanished", {"provider_id": "i-1", "proof": ""})
    low, amount, high = range_of(9 * HOUR, *life, missed)
    assert (low, amount, high) == (0, Decimal("0.5"), 2)


def test_what_is_seen_again_after_its_end_is_billed_once() -> None:
    """A listing that lags behind says `running since the launch` of what has been seen to have ended."""
    life = [launch(0), up(60, since=0, launched_at=at(0)), down(HOUR, "terminated", since=HOUR)]
    again = up(HOUR + 30, since=0, launched_at=at(0))
    assert spans("instance", *life, again) == [(at(0), at(HOUR)), (at(HOUR), None)]
    assert spans("disk", *life, again) == [(at(0), at(HOUR)), (at(HOUR), None)]


def test_an_end_that_is_seen_twice_ends_it_once() -> None:
    life = [launch(0), up(60, since=0), down(HOUR, "terminated", since=HOUR), down(2 * HOUR, "terminated")]
    assert spans("instance", *life) == [(at(0), at(HOUR))]


def test_silence_about_the_state_is_no_end() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), seen(HOUR, "unknown", billed=True)]
    assert spans("instance", *life) == [(at(0), None)]
    assert range_of(2 * HOUR, *life) == (2, 2, 2)


def offline(second: float, alive: float | None = None) -> Event:
    """Return a look at a machine whose host is offline: not billed, and back at any time."""
    return seen(second, "unknown", billed=False, **({} if alive is None else {"alive_at": at(alive)}))


def test_a_machine_in_no_known_state_that_is_not_billed_costs_no_more_for_sure_and_is_counted_on() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), offline(2 * HOUR, alive=HOUR), offline(3 * HOUR)]
    assert range_of(7 * HOUR, *life) == (1, 7, 7)
    assert range_of(9 * HOUR, *life, seen(4 * HOUR, "unknown", billed=True)) == (1, 9, 9)
    assert range_of(9 * HOUR, *life, gone(5 * HOUR)) == (1, 3, 5)
    assert range_of(9 * HOUR, *life, down(5 * HOUR)) == (1, 5, 5)
    assert range_of(9 * HOUR, *life, down(5 * HOUR, "terminated", since=4 * HOUR)) == (1, 4, 4)
    stopped = [launch(0, attached_costs=[]), up(60, since=0), down(HOUR)]
    assert range_of(9 * HOUR, *stopped, offline(3 * HOUR)) == (1, 1, 1)


@pytest.mark.parametrize(("since", "low"), [(None, 2), (0, 2), (3 * HOUR, 3)])
def test_a_machine_that_is_back_is_billed_for_sure_again(since: int | None, low: int) -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), offline(2 * HOUR, alive=HOUR), up(4 * HOUR, since=since)]
    assert range_of(5 * HOUR, *life) == (low, 5, 5)
    assert range_of(9 * HOUR, *life, down(6 * HOUR, since=6 * HOUR)) == (low + 1, 6, 6)


def test_a_price_that_changes_while_nobody_knows_the_state_counts_from_then() -> None:
    life = [launch(0, attached_costs=[]), up(60, since=0), offline(HOUR), priced(2 * HOUR, 3 * USD), up(3 * HOUR)]
    assert range_of(4 * HOUR, *life) == (4, 8, 8)


def test_what_was_only_seen_to_start_before_its_host_went_offline_costs_nothing_for_sure() -> None:
    started = [launch(0, "vast", attached_costs=[]), seen(60, "pending", billed=True)]
    life = [*started, offline(2 * HOUR, alive=HOUR)]
    assert range_of(3 * HOUR, *life)[0] == 0
    assert range_of(5 * HOUR, *life, up(4 * HOUR)) == (1, 4, 4)


def test_an_address_that_is_billed_while_the_machine_runs_is_in_the_same_doubt() -> None:
    life = [launch(0, usd="0", attached_costs=[ADDRESS]), up(60, since=0), offline(2 * HOUR, alive=HOUR)]
    assert range_of(4 * HOUR, *life) == (Decimal("0.005"), Decimal("0.02"), Decimal("0.02"))


# --- volumes and images that are kept by name, bytes ----------------------------------------------------------------


def volume(second: float, size: int = 100, nanos: int | None = 80_000_000, **more: Any) -> Event:
    names = dict.fromkeys(("name", "account", "owner", "project", "attached_to"), "x")
    body = thing("volume", "vol-9", 0, size, nanos) | {"stored_as": "gp3", "provider": "aws"} | names | more
    return line(second, "resource_observed", body, subject="resource:x/vol-9")


def lost(second: float, **more: Any) -> Event:
    return line(second, "resource_vanished", {"id": "vol-9", "proof": "not found"} | more, subject="resource:x/vol-9")


def test_a_volume_is_billed_from_its_making_to_its_last_proof_of_life() -> None:
    life = [volume(HOUR), lost(9 * HOUR, alive_at=at(5 * HOUR))]
    (found,) = all_uses(*life)
    assert (found.begin, found.end, found.maybe_until) == (at(0), at(5 * HOUR), at(9 * HOUR))
    assert spans("disk", volume(HOUR), lost(9 * HOUR, ended_at=at(8 * HOUR))) == [(at(0), at(8 * HOUR))]


def test_a_volume_that_was_made_larger_since_the_last_look_is_a_range() -> None:
    """100 GB at 1 h, 200 GB at 3 h: the other 100 GB have been there for nothing to two hours."""
    life = [volume(HOUR), volume(3 * HOUR, 200), lost(5 * HOUR, ended_at=at(5 * HOUR))]
    hour = Decimal("0.08") / 720
    low, amount, high = range_of(9 * HOUR, *life)
    assert abs(low - hour * (100 * 3 + 200 * 2)) < Decimal("1e-8")
    assert amount == high
    assert abs(high - hour * (100 * 5 + 100 * 4)) < Decimal("1e-8")


def test_a_volume_whose_price_changed_since_the_last_look_is_a_range() -> None:
    life = [volume(HOUR), volume(3 * HOUR, nanos=160_000_000), lost(5 * HOUR, ended_at=at(5 * HOUR))]
    hour = Decimal("0.08") / 720 * 100
    low, amount, high = range_of(9 * HOUR, *life)
    assert abs(low - hour * (3 + 2 * 2)) < Decimal("1e-8")
    assert low == amount
    assert abs(high - hour * (1 + 2 * 4)) < Decimal("1e-8")


def test_a_volume_that_is_seen_again_is_billed_on_from_where_it_ended() -> None:
    life = [volume(HOUR), lost(4 * HOUR, alive_at=at(3 * HOUR)), volume(6 * HOUR)]
    assert spans("disk", *life) == [(at(0), at(3 * HOUR)), (at(3 * HOUR), None)]


def test_bytes_out_are_billed_in_the_period_in_which_they_were_counted() -> None:
    body = {"bytes_out": 10**9, "since": at(0), "until": at(2 * HOUR), "stored_as": "egress", "nanos": 90_000_000}
    counted = line(3 * HOUR, "traffic_observed", body)
    life = [launch(0, attached_costs=[]), up(1, since=0), down(HOUR, "terminated", since=HOUR), counted]
    (sent,) = (use for use in all_uses(*life) if use.resource == "traffic")
    edge = START + timedelta(hours=1)
    assert money(charge(sent, START).high).dollars == Decimal("0.09")
    assert (charge(sent, START, until=edge).high, charge(sent, START, since=edge).low) == (0, 0)
    assert charge(sent, START, since=edge).high == charge(sent, START).high


# --- any history ----------------------------------------------------------------------------------------------------

moments = st.lists(st.integers(1, 40_000), unique=True, max_size=10).map(sorted)
ago = st.none() | st.integers(0, 4000)
doings = st.tuples(
    st.sampled_from(
        ["up", "up", "down", "gone", "end", "price", "kept", "launch", "made", "unknown", "bytes", "again"]
    ),
    ago,
    st.integers(0, 3),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Return the lines of a machine of any provider and market: lives, parks, prices, looks that lag, kept things."""
    provider = draw(st.sampled_from(["aws", "gcp", "azure", "local", "plug-in", "vast", "runpod", "lambda"]))
    market = draw(st.sampled_from(["spot", "on_demand"]))
    first = launch(0, provider, market, attached_costs=draw(st.sampled_from([[], [DISK], [DISK, ADDRESS]])))
    lines = [line(0, "machine_adopted", dict(first.body) | {"why": "x"}) if draw(st.booleans()) else first]
    for second in draw(moments):
        what, since, number = draw(doings)
        lines.append(_doing(what, second, None if since is None else max(0, second - since), number, first))
    return lines


def _doing(what: str, second: int, since: int | None, number: int, first: Event) -> Event:
    reason = "interrupted" if number == 1 else None
    launched = None if number == 0 else at(0 if since is None else since)
    more = dict(first.body) | {"attempt": number + 1, "token": f"t{number + 1}", "price": price(10**8 * (number + 1))}
    made = {
        "up": lambda: up(second, since, launched_at=launched),
        "again": lambda: up(second, 0, launched_at=at(0)),
        "down": lambda: down(second, ["stopped", "deallocated", "terminated"][number % 3], since, reason=reason),
        "gone": lambda: gone(second),
        "end": lambda: asked(second, ["terminate", "park", "stop", "start"][number]),
        "price": lambda: priced(second, None if number == 0 else 10**8 * number),
        "kept": lambda: kept(second, *[thing("disk" if one else "image", f"t-{one}", since) for one in range(number)]),
        "launch": lambda: line(second, "launch_intended", more),
        "made": lambda: settled(second, ["made", "refused", "void", "made"][number], attempt=number % 2 + 1),
        "unknown": lambda: seen(second, "unknown", billed=number == 0),
        "bytes": lambda: line(
            second,
            "traffic_observed",
            {"bytes_out": 10**6, "since": at(since or 0), "until": at(second), "stored_as": "egress", "nanos": 10**8},
        ),
    }
    return made[what]()


def whole(found: Projection | None) -> tuple[Any, list[str]]:
    assert found is not None
    return found.state, sorted(json.dumps(use, sort_keys=True) for use in found.ended_usages)


@given(histories())
def test_a_line_at_a_time_is_the_same_as_all_at_once(lines: list[Event]) -> None:
    lines = arrived(lines, list(range(1, len(lines) + 1)))
    begun = project(lines[:1])
    assert begun is not None
    state, closed = begun.state, [*begun.ended_usages]
    for number, one in enumerate(lines[1:], 2):
        row, rest = (json.dumps(part, sort_keys=True) for part in (state["row"], packed(state)))
        state = unpacked(json.loads(row), json.loads(rest))  # as a ledger keeps it between two lines
        ended = apply_event(state, one)
        if ended is None:  # it finds a machine that was missed: the ledger folds anew what there is by now
            anew = project(lines[:number])
            assert anew is not None
            state, closed, ended = anew.state, [], [*anew.ended_usages]
        closed += ended
    assert whole(Projection(state, tuple(closed))) == whole(project(lines))


@given(histories(), st.randoms(use_true_random=False))
def test_neither_the_order_of_arrival_nor_a_replay_matters(lines: list[Event], chance: random.Random) -> None:
    lines = arrived(lines, list(range(1, len(lines) + 1)))
    late = [*lines, *chance.choices(lines, k=3)]
    chance.shuffle(late)
    assert whole(project(late)) == whole(project(lines))


@given(histories())
def test_no_second_of_a_thing_is_paid_twice(lines: list[Event]) -> None:
    spans_of: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for use in all_uses(*lines):
        if use.resource != "traffic":
            end = use.end or at(10**6)
            key = (use.resource, "" if use.resource == "instance" else f"{use.id} {use.what}")
            spans_of[key].append((use.begin, end))
    for found in spans_of.values():
        ordered = sorted(found)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered)), ordered


@given(histories(), st.integers(0, 100_000))
def test_a_bill_is_never_negative_and_adds_up(lines: list[Event], now: int) -> None:
    found = project(lines)
    assert found is not None
    moment = START + timedelta(seconds=40_000 + now)
    charges = [charge(use, moment) for use in all_uses(*lines)]
    assert all(0 <= one.low <= one.amount <= one.high for one in charges)
    assert spent_until_now(Machine.of(found.state["row"]), moment) == money(sum(one.amount for one in charges))
