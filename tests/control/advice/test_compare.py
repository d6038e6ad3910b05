"""compare from a ledger: small ones by hand, and what is said where little or nothing is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.cli.money.compare_text import compare_text
from cloudgpu.control.advice.compare import PeriodCosts, compare_with_desktop
from cloudgpu.control.advice.compare_request import parse_compare
from cloudgpu.control.cost.cost import desktop_line
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.advice.compare import rented_machines
from cloudgpu.core.billing.charges import money
from cloudgpu.core.billing.cost_groups import CostQuery as CostAsked, Grouping, costs as grouped
from cloudgpu.core.model.facts import MachineGpus
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.testing import ManualClock
from tests.core.costing import NOW, START, ledgers, row, segment, use
from tests.examples import some
from tests.ledger.lines import note

# 1 kW at work, nothing while it waits, at ten cents a kilowatt-hour: ten cents for an hour of work.
PLAIN = """gpu: V100-16GB
purchase_usd: 1000
gpu_watts: 900
system_watts: 100
idle_watts: 0
usd_per_kwh: 0.1
life_years: 4
source: a test
as_of: "2026-10-01"
"""
V100 = (MachineGpus("v100", 1, 16, 1.0, None),)
A100 = (MachineGpus("A100-80GB", 8, 80, 1.0, None),)
HOUR = 3600


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def session(tmp_path, clock):
    home = tmp_path / "home"
    (home / "desktops").mkdir(parents=True)
    (home / "desktops" / "plain.yaml").write_text(PLAIN)
    (home / "config.toml").write_text('desktop = "plain"\n')
    return open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=clock)


def hours(*each, begin=START):
    """One hour after the other: what each was, `gpu`, `used`, `idle` or `unknown`; with the joules of a GPU."""
    found = []
    for number, what in enumerate(each):
        kind, joules = what if isinstance(what, tuple) else (what, None)
        parts = {**dict.fromkeys(("gpu_s", "used_s", "idle_s", "unknown_s"), 0.0), f"{kind}_s": float(HOUR)}
        drawing = float(HOUR) if joules else 0.0
        found.append(Hour(begin + number * timedelta(hours=1), **parts, joules=joules, drawing_s=drawing))
    return tuple(found)


def machine(*uses, worked=(), id="cg-1", gpus=V100, **facts):  # noqa: A002
    """Rows, ended uses and hours of one machine, as `read` finds them."""
    made, ended = row(*uses, id=id, accelerators=gpus, instance_type="small", **facts)
    return [made], ended, {id: worked} if worked else {}


def together(*machines):
    return PeriodCosts(
        [one for rows, _, _ in machines for one in rows],
        [one for _, ended, _ in machines for one in ended],
        dict(one for _, _, worked in machines for one in worked.items()),
    )


def asked(session, found, **options):
    wish = parse_compare(session, **options)
    document = compare_with_desktop(session, wish, found)
    text = compare_text(document, wish.currency, wish.zone)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert document["sentence"] == " ".join(text.split("\n\n")[0].splitlines())
    return document


def usds(cases):
    return {case: one["total_usd"] for case, one in cases.items()}


def test_a_small_ledger_by_hand(session, clock):
    # 30 h at $1: 20 with a busy GPU, 4 in other use, 2 idle and 4 of which nothing is known. 20 of 26 known hours were
    # work, so that 20 + 4 x 20/26 = 23.0769... h are expected, 24 for the cloud and 20 for the desktop.
    clock.advance(10 * 24 * HOUR)
    worked = hours(*["gpu"] * 20, *["used"] * 4, *["idle"] * 2, *["unknown"] * 4)
    found = asked(session, together(machine(use(0, 30 * HOUR), worked=worked)))
    assert found["cloud"] == {
        "low_usd": "30", "usd": "30", "high_usd": "30", "billed_hours": "30", "gpu_hours": "20", "used_hours": "4",
        "idle_hours": "2", "unknown_hours": "4", "unpriced": [],
    }  # fmt: skip
    # 83,076.9 s of work, whole seconds of them: 83,076 s x 1 kW = 23.0766... kWh at $0.10.
    assert usds(found["owned"]) == {"low": "1002.4", "expected": "1002.307666667", "high": "1002"}
    assert found["owned"]["low"] == {
        "desktops": 1, "hours": "24", "kwh": "24.0000", "purchase_usd": "1000", "electricity_usd": "2.4",
        "maintenance_usd": "0", "worth_usd": "0", "total_usd": "1002.4", "utilization_percent": 10.0,
    }  # fmt: skip
    # Ten days: $3 a day, of which electricity takes $0.2307667: 972.307666667 / 2.7692333 = 351.1107... days to come.
    met = datetime.fromisoformat(found["break_even"]["projected"]["expected"])
    assert abs((met - clock()) / timedelta(days=1) - 972.307666667 / 2.7692333333) < 1e-6
    # The dearest week, days 1 to 7, had all $30 and 20 h: 972 / ((30 - 2) / 7) = 243 days, less what
    # rounding a day's pace to a nano-dollar leaves. Another week had nothing.
    soonest = datetime.fromisoformat(found["break_even"]["projected"]["high"])
    assert abs((soonest - clock()) / timedelta(days=1) - 243) < 1e-6
    assert found["break_even"]["projected"]["low"] is None
    assert found["sentence"] == (
        "So far the cloud has cost $30.00; a desktop with one V100-16GB doing the same work would have cost $1,002.31 "
        "($1,000.00 on the first day). At the pace of the last 10 days they meet on 2027-10-16 (between 2027-06-29 and "
        "never)."
    )
    # $30 for 23.0766... h is $1.3000...; less $0.10 of electricity, $1000 are paid after 833.3 h: 2.378% of 4 years.
    assert found["break_even"]["utilization_percent"]["expected"] == 2.38
    assert found["curve"][0] == {"day": "2026-10-20", "cloud_usd": "24", "desktop_usd": "1002"}
    assert found["curve"][-1] == {"day": "2026-10-29", "cloud_usd": "30", "desktop_usd": "1002.307666667"}
    assert len(found["curve"]) == 10


def test_disks_idle_machines_and_what_is_in_doubt_are_in_the_clouds_sum(session, clock):
    clock.advance(40 * 24 * HOUR)
    disk = use(
        0, 30 * 24 * HOUR, resource=Resource.DISK, id="vol-1", kind="gp3", quantity=100, per=Per.HOUR,
        segments=(segment(10_000_000),), on_demand=None,
    )  # fmt: skip
    # The machine ran 10 h for sure, and may have run for 2 more.
    run = use(0, 10 * HOUR, maybe_until=(START + timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%S.000000Z"))
    found = asked(session, together(machine(run, disk, worked=hours(*["idle"] * 10))))
    # 100 GB x $0.01 x 720 h = $720, and $10 to $12.
    assert [found["cloud"][name] for name in ("low_usd", "usd", "high_usd")] == ["730", "730", "732"]
    assert found["sentence"].startswith(
        "So far the cloud has cost $730.00, for 10.0 hours in which no GPU is known to have worked; a "
        "desktop with one V100-16GB would have cost $1,000.00, all of it on the first day. At the pace of the last 30 "
        "days they meet on"
    )
    assert found["break_even"]["utilization_percent"] == dict.fromkeys(("low", "expected", "high"))


def test_the_cloud_is_the_dearer_one_and_since_when(session, clock):
    # $10 an hour and day and night: $240 a day beside $1000 and $2.40 of electricity: on the fifth day.
    clock.advance(8 * 24 * HOUR)
    run = use(0, None, segments=(segment(10_000_000_000),))
    found = asked(session, together(machine(run, worked=hours(*["gpu"] * 192))))
    assert found["break_even"]["past"] == dict.fromkeys(
        ("low", "expected", "high"), "2026-10-25T00:00:00.000000Z"
    )  # the end of the fifth day, 24 October: 1200 of 1012
    assert found["sentence"].endswith("The cloud has cost more than the desktop since 2026-10-24.")
    assert found["break_even"]["projected"] == dict.fromkeys(("low", "expected", "high"))
    days = {one["day"]: one for one in found["curve"]}
    assert (days["2026-10-24"]["cloud_usd"], days["2026-10-24"]["desktop_usd"]) == ("1200", "1012")
    assert Decimal(days["2026-10-23"]["cloud_usd"]) < Decimal(days["2026-10-23"]["desktop_usd"])


def test_more_work_than_time_takes_desktops_and_what_does_not_fit_is_said(session, clock):
    # 8 A100-80GB for 24 h; the V100 is measured as 0.3438 of one: 24 x 8 / 0.34... h within 24.
    clock.advance(24 * HOUR)
    run = use(0, 24 * HOUR, segments=(segment(40_000_000_000),))
    found = asked(session, together(machine(run, worked=hours(*["gpu"] * 24), gpus=A100)))
    (speed,) = found["speeds"]
    assert (speed["gpu"], speed["hours"], speed["fits"]) == ("A100-80GB", "192", False)
    needed = -(-192 / speed["ratio"] // 24)
    assert found["owned"]["expected"]["desktops"] == needed
    said = " ".join(found["assumptions"])
    assert "What needs more than 16 GiB does not fit the desktop's GPU: 24.0 hours of work were on A100-80GB" in said
    assert "A machine with several GPUs counts with all of them while one works." in said
    assert "desktops with one V100-16GB each doing the same work" in found["sentence"]


def test_gpus_of_unknown_speed_count_as_the_desktops_and_those_of_unknown_kind_as_none(session, clock):
    clock.advance(24 * HOUR)
    odd = (MachineGpus("Wonder 9000", 1, 16, 1.0, None),)
    found = asked(session, together(
        machine(use(0, 5 * HOUR), worked=hours(*["gpu"] * 5), gpus=odd),
        machine(use(0, 5 * HOUR), worked=hours(*["used"] * 5), gpus=None, id="cg-2"),
        machine(use(0, 5 * HOUR), worked=hours(*["used"] * 5), gpus=(), id="cg-3"),
    ))  # fmt: skip
    assert found["owned"]["expected"]["hours"] == "5"
    said = " ".join(found["assumptions"])
    assert "is not known, and counts as the same: Wonder 9000." in said
    assert "Which GPUs these have is not known, and they are counted as none: name of cg-2." in said
    assert found["cloud"]["usd"] == "15"


def test_without_a_price_nothing_is_said_to_be_free(session, clock):
    clock.advance(24 * HOUR)
    free = machine(use(0, 5 * HOUR, segments=(), on_demand=None), worked=hours(*["gpu"] * 5))
    found = asked(session, together(free))
    assert found["sentence"] == (
        "So far, what the cloud has cost is not known: none of it has a price. A desktop with one V100-16GB doing the "
        "same work would have cost $1,000.50 ($1,000.00 on the first day)."
    )
    assert (found["cloud"]["usd"], found["curve"][-1]["cloud_usd"], found["paid_usd"]) == (None, None, None)
    assert found["cloud"]["unpriced"] == ["name of cg-1 (instance)"]
    part = asked(session, together(free, machine(use(0, 5 * HOUR), worked=hours(*["gpu"] * 5), id="cg-2")))
    assert part["sentence"].startswith("So far the cloud has cost at least $5.00; ")


def test_an_hour_of_history_does_not_say_how_it_goes_on(session, clock):
    clock.advance(HOUR)
    found = asked(session, together(machine(use(0, None), worked=hours("gpu"))))
    assert found["sentence"] == (
        "So far the cloud has cost $1.00; a desktop with one V100-16GB doing the same work would have cost $1,000.10 "
        "($1,000.00 on the first day). A trend needs a day of history, so compare again after 2026-10-21 00:00 UTC; so "
        "far an hour came to $1.00, and for the desktop's $1,000.00 you would get about 1,000 such hours."
    )
    assert found["pace"] == dict.fromkeys(("low", "expected", "high"))
    odd = asked(session, together(machine(use(0, None, segments=(segment(nanos=12_345_678),)), worked=hours("gpu"))))
    assert odd["sentence"].endswith("you would get about 81,000 such hours.")  # 81,000.1
    free = machine(use(0, None, segments=(segment(nanos=0),)), worked=hours("gpu"))
    told = asked(session, together(free))["sentence"]
    assert told.endswith("A trend needs a day of history, so compare again after 2026-10-21 00:00 UTC.")
    away = asked(session, together(machine(use(0, None), worked=hours("gpu"))), tz="Asia/Seoul")["sentence"]
    assert "compare again after 2026-10-21 09:00 KST;" in away


def test_a_period_that_is_over_is_compared_without_a_projection(session, clock):
    clock.advance(40 * 24 * HOUR)
    days = machine(use(0, 10 * 24 * HOUR), worked=hours(*["gpu"] * 240))
    wish = {"since": "2026-10-21", "until": "2026-10-23"}
    rows, ended, worked = days
    inside = {"cg-1": worked["cg-1"][24:72]}
    found = asked(session, PeriodCosts(rows, ended, inside), **wish)
    # Two days at $1 an hour, and 48 h of work.
    assert found["sentence"] == (
        "From 2026-10-21 until 2026-10-23 the cloud has cost $48.00; a desktop with one V100-16GB doing the same work "
        "would have cost $1,004.80 ($1,000.00 on the first day). In that time the desktop was more expensive, by "
        "$956.80."
    )
    nothing = asked(session, PeriodCosts(rows, ended, {}), since="2026-11-10")
    assert nothing["sentence"] == "Nothing has run on a cloud since 2026-11-10, so there is nothing to compare."
    before = asked(session, PeriodCosts(rows, ended, {}), until="2026-01-10")
    assert before["sentence"] == "Nothing has run on a cloud before 2026-01-10, so there is nothing to compare."


def test_what_the_desktop_is_worth_is_said_and_counted_when_asked(session, clock):
    # 146 days are 0.4 years: a used one brings 1000 x 0.73 x 0.91 ** 0.4.
    # By a straight line it is a tenth of its life: $900.
    clock.advance(146 * 24 * HOUR)
    days = together(machine(use(0, 50 * HOUR), worked=hours(*["gpu"] * 50)))
    found = asked(session, days)
    assert found["resale_value"] == {"usd": "702.974249964", "by": "market"}
    assert "It could still be sold for about $702.97 now (as used ones sell over 4 years)." in found["assumptions"][-1]
    counted = asked(session, days, depreciation="straight-line")
    assert counted["resale_value"] == {"usd": "900", "by": "straight-line"}
    assert counted["owned"]["expected"]["worth_usd"] == "900"
    assert counted["owned"]["expected"]["total_usd"] == "105"  # 1000 + 5 - 900
    assert "would have cost $105.00 ($1,000.00 on the first day)" in counted["sentence"]


def test_ones_own_machines_stand_apart_with_what_was_measured(session, clock):
    clock.advance(24 * HOUR)
    # 10 h at 300 W of its GPU, measured: 3 kWh. The other is not measured. Either ran for a day at $1 an hour.
    measured = hours(*[("gpu", 300.0 * HOUR)] * 10)
    mine = (MachineGpus("V100-16GB", 1, 16, 1.0, None),)
    tower = (MachineGpus("RTX3090", 2, 24, 1.0, None),)
    found = asked(session, together(
        machine(use(0, 24 * HOUR, provider="ssh"), worked=measured, provider="ssh", gpus=mine, id="cg-own"),
        machine(use(0, 24 * HOUR, provider="ssh"), worked=hours(*["gpu"] * 4), provider="ssh", gpus=tower, id="cg-two"),
    ))  # fmt: skip
    own, two = found["own_machines"]
    assert (own["kwh"], own["electricity_usd"], own["hours"]) == ("3.0000", "24", "10")
    assert (two["kwh"], two["electricity_usd"], two["assumed"]) == (None, "24", False)
    assert any("how many worked is not measured" in one for one in found["assumptions"])
    assert Decimal(own["cloud_usd"]) == 10 * Decimal(own["offer"]["usd_per_gpu_hour"])
    assert own["offer"]["gpu"] == "V100-16GB"
    assert own["offer"]["price"]["as_of"]
    assert two["offer"]["ratio"] != 1  # no cloud lists a 3090: the same work on what is cheapest for it
    assert found["cloud"]["usd"] == "0"
    assert found["paid_usd"] == "48"
    assert found["sentence"].startswith(
        "Nothing has run on a cloud. Your own machines worked for 14.0 hours, with $48.00"
    )


def test_what_the_ledger_dates_later_than_now_is_not_in_the_cost_of_ones_own_machines(session, clock):
    clock.advance(24 * HOUR)
    session.ledger.append([note(1)])
    clock.advance(-14 * HOUR)
    mine = machine(use(0, 24 * HOUR, provider="ssh"), worked=hours(*["gpu"] * 10), provider="ssh", id="cg-own")
    (own,) = asked(session, together(mine))["own_machines"]
    assert (own["hours"], own["electricity_usd"]) == ("10", "10")


def test_of_the_gpus_of_ones_own_machine_those_that_worked_are_priced(session, clock):
    clock.advance(24 * HOUR)
    eight = (MachineGpus("V100-16GB", 8, 16, 1.0, None),)
    one_of_eight = [replace(one, gpu_seconds=one.gpu_s, counted_s=one.gpu_s) for one in hours(*["gpu"] * 10)]
    mine = {"provider": "ssh", "gpus": eight}
    found = asked(session, together(
        machine(use(0, 24 * HOUR, provider="ssh"), worked=one_of_eight, id="cg-one", **mine),
        machine(use(0, 24 * HOUR, provider="ssh"), worked=hours(*["gpu"] * 10), id="cg-old", **mine),
        machine(use(0, 24 * HOUR, provider="ssh"), worked=[*one_of_eight[:5], *hours(*["gpu"] * 10)[5:]], id="cg-both",
                **mine),
    ))  # fmt: skip
    assert [(own["hours"], own["gpu_hours"]) for own in found["own_machines"]] == [
        ("10", "10"),
        ("10", "80"),
        ("10", "45"),
    ]
    (one, *_) = found["own_machines"]
    assert Decimal(one["cloud_usd"]) == 10 * Decimal(one["offer"]["usd_per_gpu_hour"])
    (said,) = [text for text in found["assumptions"] if "how many worked is not measured" in text]
    assert "cg-old" in said
    assert "cg-both" in said
    assert "cg-one" not in said


def test_what_nobody_knows_of_ones_own_machine_is_said_and_not_counted(session, clock):
    clock.advance(24 * HOUR)
    tower = (MachineGpus("RTX3090", 1, 24, 1.0, None),)
    mine = machine(
        use(0, 24 * HOUR, provider="ssh"), worked=hours("gpu", *["unknown"] * 23), provider="ssh", gpus=tower
    )
    cloud = machine(use(0, 3 * HOUR), worked=hours(*["gpu"] * 3), id="cg-2")
    found = asked(session, together(mine, cloud))
    (own,) = found["own_machines"]
    assert (own["hours"], own["unknown_hours"], own["kwh"]) == ("1", "23", None)
    said = " ".join(found["assumptions"])
    assert "Of 23.0 hours of them nobody knows whether they were work, and they are counted as none." in said
    # $3 of the cloud, and a day at a dollar an hour: what `cost` says of it.
    assert (found["cloud"]["usd"], found["paid_usd"]) == ("3", "27")


def test_local_machines_stand_for_a_cloud_only_where_there_is_no_other(session, clock):
    clock.advance(24 * HOUR)
    here = machine(use(0, 5 * HOUR, provider="local"), worked=hours(*["gpu"] * 5), provider="local", id="cg-here")
    alone = asked(session, together(here))
    assert alone["cloud"]["usd"] == "5"
    assert "Only local machines have run: they are counted as if they were a cloud's." in alone["assumptions"]
    cloud = machine(use(0, 3 * HOUR, provider="aws"), worked=hours(*["gpu"] * 3), provider="aws")
    both = asked(session, together(here, cloud))
    assert both["cloud"]["usd"] == "3"
    assert "Local machines are on this computer, and left out: name of cg-here." in both["assumptions"]


def test_another_currency_is_shown_with_its_rate_everywhere(session, clock):
    clock.advance(24 * HOUR)
    won = {"currency": "KRW", "rate": "1400", "rate_date": "2026-10-19"}
    found = asked(session, together(machine(use(0, 5 * HOUR), worked=hours(*["gpu"] * 5))), **won)
    assert found["sentence"].startswith("So far the cloud has cost 7,000 KRW; ")
    assert "$" not in " ".join([found["sentence"], *found["assumptions"]])
    assert found["cloud"]["usd"] == "5"
    assert found["currency"]["per_usd"] == "1400"


@pytest.mark.soak
def test_a_ledger_of_a_later_time_is_said_first(lab):
    lab.up()
    lab.later(hours=10)
    (one,) = lab.rows()
    terminate_one(lab.session, one, why="a test")
    lab.later(days=-3)
    found = asked(lab.session, None)
    assert found["sentence"].startswith("By this computer's clock nothing has run on a cloud yet")
    assert found["assumptions"][0].startswith("This computer's clock says 2026-11-17 21:00 UTC, and the ledger's last")


def test_from_launch_to_comparison_with_the_samples_of_the_machines_agent(lab):
    # $3.00 an hour. 10 h of GPU work, an hour at its notebook, 5 idle.
    lab.up(name="fox")
    (one,) = lab.rows()
    begin, shown = lab.clock(), [{"gpu": 97.0}] * 600 + [{"gpu": 0.0, "busy": ["kernel 1"]}] * 60 + [{"gpu": 0.0}] * 300
    lab.later(hours=16)
    samples = [
        {"t": begin.timestamp() + 60 * n, "s": 60, "cpu": 0.02, "net": 400, "disk": 0} | what
        for n, what in enumerate(shown, 1)
    ]
    SampleStore(lab.session.home.samples, one.id).keep(samples, lab.clock().timestamp() + 60, lab.clock())
    terminate_one(lab.session, one, why="a test")
    found = asked(lab.session, None, desktop="rtx3090")
    cloud = found["cloud"]
    assert [cloud[name] for name in ("usd", "gpu_hours", "used_hours", "idle_hours")] == ["48", "10", "1", "5"]
    # An hour of an RTX 3090 does 1.2246 of a V100-16GB, measured: 10 h take 8.1659, of 450 W at $0.12.
    assert round(Decimal(found["owned"]["expected"]["hours"]), 2) == Decimal("8.17")
    assert round(Decimal(found["owned"]["expected"]["electricity_usd"]), 3) == Decimal("0.441")
    assert found["sentence"].startswith("So far the cloud has cost at least $48.00; a desktop with one RTX 3090 doing")


def test_where_no_gpu_is_read_all_use_counts_as_work(lab):
    lab.up(name="fox")
    (one,) = lab.rows()
    begin = lab.clock().timestamp()
    lab.later(hours=2)
    samples = [{"t": begin + 60 * n, "s": 60, "cpu": 0.9, "net": 0, "disk": 0} for n in range(1, 121)]
    SampleStore(lab.session.home.samples, one.id).keep(samples, lab.clock().timestamp() + 60, lab.clock())
    found = asked(lab.session, None)
    assert Decimal(found["owned"]["high"]["hours"]) > Decimal("1.6")
    assert "No GPU was read on fox: all use of it counts as work." in found["assumptions"]


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """A session that no example changes."""
    clock = ManualClock(NOW)
    return open_session({"CLOUDGPU_HOME": str(tmp_path_factory.mktemp("still")), "USER": "ada"}, clock=clock)


@settings(max_examples=some(30))
@given(
    ledgers(),
    st.sampled_from([None, "20d", "2026-11-01"]),
    st.sampled_from([None, "1d", "2026-11-20"]),
    st.sampled_from(["UTC", "Asia/Seoul", "America/New_York"]),
    st.sampled_from([None, *V100, *A100]),
    st.data(),
)
def test_any_ledger_is_compared_and_its_sums_are_those_of_cost(still, ledger, since, until, tz, gpu, data):
    rows, ended = ledger
    rows = [one._replace(accelerators=gpu and (gpu,), instance_type="small") for one in rows]
    wish = parse_compare(still, since=since, until=until, tz=tz)
    kinds = st.lists(st.sampled_from(["gpu", "used", "idle", "unknown"]), max_size=30)
    worked = {one.id: hours(*data.draw(kinds)) for one in rows if data.draw(st.booleans())}
    found = compare_with_desktop(
        still, wish, PeriodCosts(rows, ended, {id_: each for id_, each in worked.items() if each})
    )
    assert compare_text(found, None, wish.zone).startswith(found["sentence"][:30])
    cloud = found["cloud"]
    if cloud["usd"] is None:
        assert cloud["unpriced"]
        return
    low, usual, high = (Decimal(cloud[name]) for name in ("low_usd", "usd", "high_usd"))
    assert low <= usual <= high
    clouds, _ = rented_machines(rows)
    whole = grouped(
        clouds, [one for one in ended if one[0] in {row.id for row in clouds}], NOW,
        CostAsked(Grouping.RESOURCE, wish.zone, wish.since, wish.until),
    ).total  # fmt: skip
    assert usual == money(whole.amount).dollars
    if found["curve"]:
        assert found["curve"][-1]["cloud_usd"] == cloud["usd"]
        assert found["curve"][-1]["desktop_usd"] == found["owned"]["expected"]["total_usd"]


def test_the_line_of_cost_counts_every_billed_hour_of_a_gpu_once(session, clock):
    clock.advance(10 * 24 * HOUR)
    # 30 h of one V100, 10 h of 4 of them that still run, and machines that take none of the desktop's: 70 h.
    four = (V100[0]._replace(number=4),)
    rows, ended, _ = machine(use(0, 30 * HOUR))
    more = [
        machine(use(230 * HOUR, None), gpus=four, id="cg-2"),
        machine(use(0, 99 * HOUR), gpus=(), id="cg-3"),
        machine(use(0, 99 * HOUR, provider="ssh"), provider="ssh", id="cg-4"),
    ]
    read = together((rows, ended, {}), *more)
    by_sums = CostAsked(Grouping.INSTANCE, clock().tzinfo)
    by_uses = CostAsked(Grouping.INSTANCE, clock().tzinfo, since=START)
    lines = [
        desktop_line(session, read.machines, () if asked_.totals_suffice else read.ended_usages, asked_, clock())
        for asked_ in (by_sums, by_uses)
    ]
    assert lines[0] == lines[1]
    assert (lines[0]["hours"], lines[0]["total_usd"], lines[0]["desktops"]) == ("70.0000", "1007", 1)
    # Of the first two hours alone: 2 h.
    two = CostAsked(Grouping.DAY, clock().tzinfo, since=START, until=START + timedelta(hours=2))
    line = desktop_line(session, read.machines, read.ended_usages, two, clock())
    assert (line["hours"], line["total_usd"]) == ("2.0000", "1000.2")
    assert line["sentence"] == (
        "If every billed hour was work, a desktop with one V100-16GB doing the same would have cost $1,000.20 by then, "
        "$1,000.00 of it on the first day; cloudgpu compare says more."
    )
