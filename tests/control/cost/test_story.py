"""Every figure of the report after three months, traced back to what happened: `story.py` says what that was.

The amounts here were worked out by hand, from hours and prices; none of them comes from cloudgpu. V100 at AWS and at
Azure: $3.06 an hour; the spot A100: $1.08, from midnight on $1.44, on demand $3.60. A public address at AWS: $0.005 an
hour. Disks: at AWS 93 GB x $0.08 = $7.44 a month, so $0.01 an hour of a month of 31 days; at Google 372 GB x $0.10 =
$37.20 a month, $0.05 an hour; at Azure $19.71 a month, by the started hour, $0.027375 of September's 720 hours, and
$0.027 where a month has 730.
"""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.cost.report_files import default_report_path
from cloudgpu.views.report.html import to_html
from cloudgpu.views.report.markdown import to_markdown
from tests.control.story import Story, lived

# fox: 24 h + 10 h of machine and address; its disk 687 h in August, all of September, 732 h in October.
FOX = Decimal("104.04") + Decimal("0.17") + Decimal("6.87") + Decimal("7.44") + Decimal("7.32")  # 125.84
# owl: 12 h x 1.08 + 12 h x 1.44; its disk 264 h, and the second after which it was looked for again: 0.05 / 3600.
OWL = Decimal("30.24") + Decimal("13.2") + Decimal("0.000013889")
# elk: 45.8 h; its disk 46 started hours, at the least by months of 730 hours: 46 x 0.027 = 1.242.
ELK, ELK_LOW = Decimal("140.148") + Decimal("1.25925"), Decimal("140.148") + Decimal("1.242")
# yak: 108 h of machine, address and disk: 330.48 + 0.54 + 1.08.
YAK = Decimal("332.10")
TOTAL = Decimal("642.787263889")
HOUR = 3600


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    return lived(Story(tmp_path_factory.mktemp("story") / "home"))


@pytest.fixture(scope="module")
def document(story):
    return story.gpu.money.report()


def figures(found, *names):
    return {name: Decimal(found[name]) for name in names}


@pytest.mark.soak
def test_what_happened_stands_in_the_ledger(story):
    assert story.lines("start_requested") == [("fox", "2026-09-01T08:00")]
    assert story.lines("stop_requested") == [("fox", "2026-08-04T09:00"), ("fox", "2026-09-01T18:00")]
    ended = [("desk", "2026-08-20T19:00"), ("owl", "2026-08-23T12:00"), ("elk", "2026-09-12T03:48")]
    assert story.lines("terminate_requested") == ended
    assert story.session.ledger.verify().faults == ()


def test_the_sum_of_all_machines(document):
    assert FOX + OWL + ELK + YAK == TOTAL
    low = TOTAL - ELK + ELK_LOW  # 642.770013889
    wanted = {"usd": TOTAL, "low_usd": low, "high_usd": TOTAL}
    assert figures(document["total"], *wanted) == wanted
    assert document["total"]["hours"] == "221.8"  # 34 + 24 + 45.8 + 108 + 10 of the user's own
    assert document["unpriced"] == []


def test_each_machine_what_it_cost_and_how_long_it_worked(document):
    assert document["machines_left_out"] == 0
    found = {one["name"]: one for one in document["machines"]}
    assert {name: Decimal(one["usd"]) for name, one in found.items()} == {
        "fox": FOX, "owl": OWL, "elk": ELK, "yak": YAK, "desk": 0,
    }  # fmt: skip
    seconds = ("billed_s", "gpu_s", "used_s", "idle_s", "unknown_s")
    hours = {name: tuple(round(one[key] / HOUR, 9) for key in seconds) for name, one in found.items()}
    assert hours == {
        "fox": (34, 18.8, 0, 15.2, 0),  # 24 h with 18:48 of work, then 10 h without any
        "owl": (24, 22.9, 0.6, 0.5, 0),
        "elk": (45.8, 0, 0, 0, 45.8),  # its agent is dead
        "yak": (108, 27, 4, 77, 0),  # four days of 6 + 1 + 17 h, and 12 h with 3 of work
        "desk": (10, 8, 0, 2, 0),
    }
    assert {one["provider"] for one in found.values()} == {"aws", "azure", "gcp", "ssh"}
    assert [found[name]["market"] for name in ("fox", "owl")] == ["on_demand", "spot"]


def test_each_project(document):
    found = {one["name"]: Decimal(one["usd"]) for one in document["projects"]}
    assert found == {"vision": FOX + ELK, "language": OWL, "default": YAK}


def days_by_hand():
    """What each day cost by project, from the hours of that day."""
    days = {date(2026, 8, 3) + timedelta(days=number): {"vision": "0.24"} for number in range(90)}  # fox's disk
    days |= {day: {"vision": "0.248"} for day in days if day.month == 9}  # 24 x 7.44 / 720
    august = {
        3: {"vision": "46.125"},  # 15 h x (3.06 + 0.005 + 0.01)
        4: {"vision": "27.825"},  # 9 h x 3.065, 24 h x 0.01
        12: {"vision": "0.24", "language": "13.56"},  # 12 h x (1.08 + 0.05)
        13: {"vision": "0.24", "language": "18.48"},  # 12 h x 1.44, 24 h x 0.05
        **{day: {"vision": "0.24", "language": "1.2"} for day in range(14, 23)},  # its disk alone
        23: {"vision": "0.24", "language": "0.600013889"},  # 12 h and a second
    }
    september = {
        1: {"vision": "30.898"},  # 10 h x 3.065, 24 h of the disk
        10: {"vision": "55.82075"},  # 18 h x (3.06 + 0.027375), fox's disk
        11: {"vision": "74.345"},  # 24 h x 3.087375, fox's disk
        12: {"vision": "11.9855"},  # 3.8 h x 3.06, four started hours x 0.027375, fox's disk
    }
    october = {
        **{day: {"vision": "0.24", "default": "73.8"} for day in range(27, 31)},  # 24 h x 3.075
        31: {"vision": "0.12", "default": "36.9"},  # until noon
    }
    for month, known in ((8, august), (9, september), (10, october)):
        days |= {date(2026, month, day): spent for day, spent in known.items()}
    return {f"{day}": {name: Decimal(usd) for name, usd in spent.items()} for day, spent in days.items()}


def test_each_day(document):
    assert document["step"] == "day"
    found = {one["day"]: {name: Decimal(usd) for name, usd in one["projects"].items()} for one in document["days"]}
    assert found == days_by_hand()
    assert all(Decimal(one["usd"]) == sum(map(Decimal, one["projects"].values())) for one in document["days"])
    assert sum(Decimal(one["usd"]) for one in document["days"]) == TOTAL


def test_money_that_went_into_idle_hours(document):
    # fox 15.2 h x 3.06 = 46.512; owl 0.5 h x 1.44 = 0.72; yak 77 h x 3.06 = 235.62; the user's own costs nothing.
    usd = {one["name"]: Decimal(one["idle_usd"]) for one in document["machines"]}
    assert usd == {
        "fox": Decimal("46.512"), "owl": Decimal("0.72"), "yak": Decimal("235.62"), "elk": 0, "desk": 0,
    }  # fmt: skip
    # Nobody knows of elk's 45.8 h: at the most they were idle, too, 140.148.
    wanted = {"low_usd": Decimal("282.852"), "usd": Decimal("282.852"), "high_usd": Decimal("423.000")}
    assert figures(document["idle"], *wanted) == wanted
    assert (document["idle"]["hours"], document["idle"]["unknown_hours"]) == ("92.7", "45.8")


def test_what_was_saved(document):
    stops = document["savings"]["stops"]
    # fox's lease ended it on 09-01 18:00; it would have run on until its renew-until, 09-02 08:00: 14 h x 3.06.
    assert (stops["number"], stops["hours"], Decimal(stops["usd"])) == (1, "14", Decimal("42.84"))
    # owl's 24 h: 86.40 on demand, 30.24 as they were.
    wanted = {"usd": Decimal("56.16"), "on_demand_usd": Decimal("86.40")}
    assert figures(document["savings"]["spot"], *wanted) == wanted


def test_what_runs_on(document):
    # yak 3.06 + 0.005 + 0.01, fox's disk 0.01.
    assert document["burn"]["usd_per_hour"] == "3.085"
    month = document["projected"]["end_of_month"]
    assert (month["at"][:16], Decimal(month["more_usd"])) == ("2026-11-01T00:00", Decimal("37.02"))  # 12 h x 3.085
    assert Decimal(month["usd"]) == TOTAL + Decimal("37.02")
    (left,) = document["idle_resources"]
    assert (left["name"], left["kind"], left["usd_per_month"]) == ("fox", "disk", "7.44")
    assert left["since"][:16] == "2026-09-01T18:00"


def test_the_budget_of_the_month(document):
    (lab,) = document["budgets"]
    # October: yak, and 732 h of fox's disk: 332.10 + 7.32 = 339.42 of 400.
    assert (lab["name"], Decimal(lab["limit_usd"]), Decimal(lab["remaining_usd"])) == ("lab", 400, Decimal("60.58"))


def test_a_month_of_it_has_what_that_month_cost(story):
    found = story.gpu.money.report(month="2026-09")
    # September: fox 10 h x 3.065 and its disk 7.44; elk.
    assert Decimal(found["total"]["usd"]) == Decimal("30.65") + Decimal("7.44") + ELK
    assert Decimal(found["savings"]["stops"]["usd"]) == Decimal("42.84")
    assert {one["name"] for one in found["machines"]} == {"fox", "elk"}
    said = "2 machines ran for 55.8 hours in Sep 2026, and all of it cost $179.50 (between $179.48 and $179.50)."
    assert found["summary"][0] == said


def test_a_month_is_compared_with_all_up_to_its_end_as_nobody_buys_a_desktop_for_a_month(story):
    found = story.gpu.money.report(month="2026-09")["comparison"]
    # All but October: fox 125.84 - 7.32, owl, elk.
    assert Decimal(found["cloud"]["usd"]) == FOX - Decimal("7.32") + OWL + ELK
    assert found["sentence"].startswith("Until 2026-10-01 the cloud has cost $303.37; ")
    assert Decimal(story.gpu.money.report(since="2026-09-01")["comparison"]["cloud"]["usd"]) < TOTAL


def test_what_is_kept_costs_while_no_machine_runs(story):
    # fox's disk: 16 days at 24 x 7.44 / 720.
    found = story.gpu.money.report(since="2026-09-15", until="2026-10-01")
    said = "No machine ran from 15 Sep 2026 until 1 Oct 2026, 00:00, and retained disks and images cost $3.97."
    assert found["summary"][0] == said


def test_a_page_is_called_by_its_month_or_by_the_day_on_which_it_was_made(story, document):
    assert default_report_path(document).name == "cloudgpu-report-2026-10-31.html"
    assert default_report_path(story.gpu.money.report(month="last")).name == "cloudgpu-report-2026-09.html"


def test_a_machine_that_was_parked_is_of_its_first_launch(tmp_path):
    story = Story(tmp_path / "home")
    story.at("2026-09-01T08:00")
    story.up("owl", "a100", "gcp", spot=True)
    story.at("2026-09-01T18:00")
    story.gpu.machines.stop("owl")
    story.at("2026-09-05T08:00")
    story.gpu.machines.start("owl", wait=False)
    story.at("2026-09-05T10:00")
    assert story.gpu.money.report()["about"]["since"][:16] == "2026-09-01T08:00"
    # Nobody knows of its 12 hours, so that both count them as work; the desktop waits for the others of 98.
    by_cost, by_compare = story.gpu.money.cost()["desktop"], story.gpu.advice.compare()["owned"]["expected"]
    assert by_cost["total_usd"] == by_compare["total_usd"] == "402.7826"


def test_every_way_to_ask_says_the_same(story, document):
    for by in ("instance", "project", "month", "provider"):
        assert Decimal(story.gpu.money.cost(by=by)["total_usd"]) == TOTAL
    assert json.loads(json.dumps(document)) == document


def test_what_a_desktop_would_have_cost_for_the_same_work(story):
    found = story.gpu.advice.compare()
    assert (found["since"][:16], found["desktop"]["name"]) == ("2026-08-03T09:00", "lab")
    # Measured training throughput: an RTX 3090 0.229, a V100 0.187, an A100 0.43 of an H100 (facts/gpus.csv). GPUs that
    # worked: V100 18.8 h + 27 h = 45.8 h, so 45.8 x 187 / 229 = 37.4 h of the desktop; A100 22.9 h x 430 / 229 = 43 h.
    # Of elk's 45.8 h nobody knows: another 37.4 h if they were work, which is expected, as nothing is known of it.
    hours = {"low": Decimal("117.8"), "expected": Decimal("117.8"), "high": Decimal("80.4")}
    assert {case: Decimal(one["hours"]) for case, one in found["owned"].items()} == hours
    # 2139 h from the first launch on; 450 W at work, 50 W while it waits: 0.45 x 117.8 + 0.05 x 2021.2 = 154.07 kWh,
    # and 0.45 x 80.4 + 0.05 x 2058.6 = 139.11 kWh, at $0.20.
    kwh = {"low": Decimal("154.07"), "expected": Decimal("154.07"), "high": Decimal("139.11")}
    assert {case: Decimal(one["kwh"]) for case, one in found["owned"].items()} == kwh
    total = {"low": Decimal("430.814"), "expected": Decimal("430.814"), "high": Decimal("427.822")}
    assert {case: Decimal(one["total_usd"]) for case, one in found["owned"].items()} == total
    assert {one["desktops"] for one in found["owned"].values()} == {1}
    wanted = {"low_usd": TOTAL - ELK + ELK_LOW, "usd": TOTAL, "high_usd": TOTAL}
    assert figures(found["cloud"], *wanted) == wanted
    hours = {"billed_hours": "211.8", "gpu_hours": "68.7", "used_hours": "4.6", "idle_hours": "92.7"}
    assert {name: found["cloud"][name] for name in hours} == hours  # without the user's own 10 h


def test_when_the_cloud_became_dearer(story):
    found = story.gpu.advice.compare()
    # By the end of 10-27 the cloud had cost 383.65, by that of 10-28 457.69: 309.607 before, 74.04 a day. The desktop
    # by then: 400 and 2079 h, of which it worked 18.8 + 12 h x 187 / 229 for V100s, 43 h, and 37.4 h or none for elk:
    # 379,983 whole seconds (105.55 h) in all: 0.05 x 2079 + 0.4 x 379983 / 3600 = 146.170333 kWh, $29.234067.
    assert {at[:10] for at in found["break_even"]["past"].values()} == {"2026-10-29"}
    curve = {one["day"]: one for one in found["curve"]}
    assert [Decimal(curve[day]["cloud_usd"]) for day in ("2026-10-27", "2026-10-28")] == [
        Decimal("383.647263889"),
        Decimal("457.687263889"),
    ]
    assert Decimal(curve["2026-10-28"]["desktop_usd"]) == Decimal("429.234066667")
    assert Decimal(curve["2026-10-31"]["desktop_usd"]) == Decimal("430.814")
    assert "since 2026-10-28" in found["sentence"]
    assert all(amount in found["sentence"] for amount in ("$642.79", "$430.81", "$400"))


def test_the_users_own_machine_stands_apart(story):
    found = story.gpu.advice.compare()
    (desk,) = found["own_machines"]
    # 8 h at 300 W are 2.4 kWh, and an hour of it costs nothing.
    assert (desk["name"], desk["hours"], Decimal(desk["kwh"]), desk["assumed"]) == ("desk", "8", Decimal("2.4"), False)
    assert Decimal(desk["electricity_usd"]) == 0
    assert Decimal(found["paid_usd"]) == TOTAL


def test_the_report_has_the_very_comparison(story, document):
    assert document["comparison"] == story.gpu.advice.compare()


@pytest.mark.parametrize("form", [to_html, to_markdown])
def test_the_page_shows_these_figures(document, form):
    shown = form(document)
    sums = ("642.79", "332.10", "141.41", "125.84", "43.44")  # of all, and of yak, elk, fox and owl
    others = ("282.85", "423.00", "42.84", "56.16", "430.81", "7.44")  # idle, saved by stops and spot, desktop, disk
    assert [amount for amount in (*sums, *others) if amount not in shown] == []
