"""Worked bills: each computed by hand from a provider's own example, or from dated prices and its rule.

The table in docs/billing.md names the tests here that show its rules.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from cloudgpu.core.model.usage import Per, Resource
from tests.core.bills import charged, cost, monthly, spread, usd, use

SNAPSHOT, IMAGE, ADDRESS, TRAFFIC = Resource.SNAPSHOT, Resource.IMAGE, Resource.ADDRESS, Resource.TRAFFIC


def cents(amount: Decimal, places: int = 2) -> Decimal:
    return round(amount, places)


# --- EBS pricing, the page's own examples ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "price", "printed"),
    [
        ("gp3", "0.08", "2.667"),  # example 1: $0.08 * 2,000 GB * 43,200 s / (86,400 s/day * 30 days) = $2.667
        ("gp2", "0.10", "3.333"),  # example 2: $3.33
        ("io2", "0.125", "4.167"),  # example 3: $4.167
        ("st1", "0.045", "1.500"),  # example 5: $1.50
        ("sc1", "0.015", "0.500"),  # example 6: $0.50
    ],
)
def test_ebs_2000_gb_for_12_hours_in_a_month_of_30_days(kind, price, printed):
    """Each example begins: "you provision a 2,000 GB volume for 12 hours (43,200 seconds) in a 30-day month"."""
    volume = monthly("aws", "2026-11-10 00:00", "2026-11-10 12:00", 2000, price, kind=kind)
    assert cents(cost(volume), 3) == Decimal(printed)


@pytest.mark.parametrize(
    ("size", "hours_end"),
    [
        (31, "2026-10-02 00:00"),  # "a 31 GB volume that was only active for 24 hours"
        (1, "2026-11-01 00:00"),  # "a 1 GB volume active for 744 hours"
    ],
)
def test_ebs_a_gb_month_in_a_month_of_31_days(size, hours_end):
    """Knowledge Center, "How are EBS volumes charged", 2017-07-03: each of these is one GB-month."""
    assert cost(monthly("aws", "2026-10-01 00:00", hours_end, size, "0.10")) == Decimal("0.10")


def test_ebs_31_gb_for_one_hour_of_each_day_is_a_gb_month_too():
    """The same page's third case."""
    days = [monthly("aws", f"2026-10-{day:02} 05:00", f"2026-10-{day:02} 06:00", 31 * 24, "0.10") for day in (1, 2)]
    assert sum(cost(day) for day in days) == 2 * Decimal("0.10")  # 31 GB x 24 for 1 h is 31 GB for 24 h


def test_ebs_a_restored_snapshot_for_15_days():
    """EBS pricing, example 10: $0.05 * 200 GB * 15 days / 30 days = $5; billed by the hour since 2017."""
    restored = monthly("aws", "2026-11-01 00:00", "2026-11-16 00:00", 200, "0.05", resource=SNAPSHOT)
    assert cost(restored) == Decimal(5)


def test_ebs_a_snapshot_is_somewhere_between_nothing_and_the_volume():
    """EBS pricing, example 7: only changed blocks are saved."""
    image = monthly(
        "aws", "2026-11-01 00:00", "2026-12-01 00:00", 100, "0.05", resource=IMAGE, why_maybe_less="by blocks"
    )
    assert spread(image) == (0, Decimal(5), Decimal(5))


def test_a_volume_of_30_gb_that_lived_for_a_day():
    """The old question "$3.00 or $0.10?" about EBS at 0.10 $/GB-month: a thirtieth of the month's price."""
    assert cost(monthly("aws", "2026-11-03 00:00", "2026-11-04 00:00", 30, "0.10")) == Decimal("0.10")


def test_a_started_second_and_a_first_minute_of_a_disk():
    """EBS pricing: "billed in per-second increments, with a 60-second minimum". 72 $ a month, 60 s of 2,592,000."""
    short = monthly("aws", "2026-11-03 00:00", "2026-11-03 00:00:07", 1000, "0.072")
    assert cost(short) == Decimal("0.001666667")


# --- EC2: seconds, a minute at each start, hours for SUSE ------------------------------------------------------------


def test_ec2_bills_a_minute_at_each_start_then_seconds():
    """What's New 2017-10-02: "one second increments, with a minimum of 60 seconds". 3.06 $/h is 0.051 $/min."""
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 11:00:07", "3.06")) == Decimal("0.051")
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 11:01:01", "3.60")) == Decimal("0.061")


def test_ec2_six_machines_for_ten_minutes_cost_one_hour():
    """The old question whether six machines for ten minutes are six hours or one: since 2017 it is one."""
    six = [use("aws", "2026-11-20 11:00", "2026-11-20 11:10", "0.90") for _ in range(6)]
    assert sum(cost(one) for one in six) == Decimal("0.90")


def test_ec2_suse_is_billed_by_started_hours():
    """EC2 user guide: SUSE, stopped by you: "charged for the full hour even if you used a partial hour"."""
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 12:00:01", "2.00", licence="suse")) == 4


def test_ec2_suse_taken_by_ec2_pays_its_full_hours_alone():
    """The same page: "full hours used, but no charge for the interrupted partial hour"; first hour: no charge."""
    facts = {"licence": "suse", "market": "spot", "reason": "interrupted"}
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 13:59", "2.00", **facts)) == 4
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 11:59", "2.00", **facts)) == 0


def test_ec2_rhel_is_a_range_since_two_versions_of_the_guide_disagree():
    rhel = use("aws", "2026-11-20 11:00", "2026-11-20 11:30", "2.00", licence="rhel")
    assert spread(rhel) == (1, 1, 2)


def test_ec2_stop_and_start_across_the_end_of_a_month():
    """p2.xlarge in us-east-1, 0.90 $/h; 100 GB gp3 at 0.08 stay through 30 November into December.

    Runs: 22:00 to 23:30 in November, 00:30 to 01:00 in December: 1.5 h and 0.5 h.
    Disk: 2 h of 720 and 1 h of 744: 8 * (2/720 + 1/744).
    """
    runs = [
        use("aws", "2026-11-30 22:00", "2026-11-30 23:30", "0.90"),
        use("aws", "2026-12-01 00:30", "2026-12-01 01:00", "0.90"),
    ]
    assert [cost(run) for run in runs] == [Decimal("1.35"), Decimal("0.45")]
    disk = monthly("aws", "2026-11-30 22:00", "2026-12-01 01:00", 100, "0.08")
    november, december = (
        charged(disk, until="2026-12-01 00:00").amount,
        charged(disk, since="2026-12-01 00:00").amount,
    )
    assert cents(usd(november), 6) == Decimal("0.022222")
    assert cents(usd(december), 6) == Decimal("0.010753")
    assert november + december == charged(disk).amount


def test_a_begin_that_is_known_but_for_a_part_of_a_second_names_that_second():
    ran = use("aws", "2026-11-20 11:00", "2026-11-20 12:00", "1.20")
    ran = ran._replace(begin="2026-11-20T11:00:00.900000Z", maybe_since="2026-11-20T11:00:00.100000Z")
    assert charged(ran).reasons == ("when it began to run, in the second of 2026-11-20T11:00:00, is not known",)


# --- EC2 spot --------------------------------------------------------------------------------------------------------


def test_ec2_spot_taken_in_its_first_hour_is_free():
    """EC2 user guide, Billing for interrupted Spot Instances: "in the first hour: No charge". The disk is not."""
    taken = use("aws", "2026-11-20 11:00", "2026-11-20 11:59:59", "1.20", market="spot", reason="interrupted")
    assert cost(taken) == 0
    assert charged(taken).reasons == ("free: the provider interrupted it soon after its start",)
    assert cost(monthly("aws", "2026-11-20 11:00", "2026-11-20 11:59:59", 100, "0.08", market="spot")) > 0


def test_ec2_spot_taken_after_its_first_hour_pays_every_second():
    """The same page: "Charged for the seconds used". 1 h 30 min 1 s at 1.20."""
    taken = use("aws", "2026-11-20 11:00", "2026-11-20 12:30:01", "1.20", market="spot", reason="interrupted")
    assert cents(cost(taken), 6) == Decimal("1.800333")


def test_ec2_spot_that_you_end_in_its_first_hour_is_paid():
    """The same page: "If you stop or terminate": charged for the seconds used, also in the first hour."""
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 11:30", "1.20", market="spot")) == Decimal("0.60")


def test_ec2_spot_taken_at_exactly_one_hour_is_paid():
    """The whitepaper: free "before a full hour of running time"."""
    taken = use("aws", "2026-11-20 11:00", "2026-11-20 12:00", "1.20", market="spot", reason="interrupted")
    assert cost(taken) == Decimal("1.20")


def test_ec2_spot_taken_soon_after_a_later_start_is_a_range():
    """No page says whether "the first hour" of a persistent machine is that of each start."""
    again = use("aws", "2026-11-20 11:00", "2026-11-20 11:30", "1.20", market="spot", reason="interrupted", first=False)
    assert spread(again) == (0, Decimal("0.60"), Decimal("0.60"))


def test_ec2_spot_pays_the_price_in_effect_at_each_moment():
    """Whitepaper: "You pay the Spot price that's in effect, billed to the nearest second"."""
    prices = [("2026-11-20 10:00", "0.30"), ("2026-11-20 12:00", "0.60"), ("2026-11-20 12:30", "0.20")]
    spot = use("aws", "2026-11-20 11:00", "2026-11-20 14:00", *prices, market="spot", on_demand=900_000_000)
    assert cost(spot) == Decimal("0.30") + Decimal("0.30") + Decimal("0.30")
    assert usd(charged(spot).list_cost or 0) == Decimal("2.70")


def test_a_spot_price_that_changed_between_two_looks_is_a_range():
    """0.30 until some time between 12:00 and 13:00, then 0.60: between 2 h x 0.30 + 2 x 0.60 and 1 h x 0.30 + 3."""
    prices = [("2026-11-20 10:00", "0.30"), ("2026-11-20 13:00", "0.60", "2026-11-20 12:00")]
    spot = use("aws", "2026-11-20 11:00", "2026-11-20 15:00", *prices, market="spot")
    assert spread(spot) == (Decimal("1.80"), Decimal("1.80"), Decimal("2.10"))


def test_a_spot_machine_found_late_costs_between_nothing_and_the_list_price_before_its_first_known_price():
    late = use(
        "aws", "2026-11-20 10:00", "2026-11-20 12:00", ("2026-11-20 11:00", "0.30"), market="spot", on_demand=10**9
    )
    assert spread(late) == (Decimal("0.30"), Decimal("0.60"), Decimal("1.30"))


# --- prices change, and prices of 2017 -------------------------------------------------------------------------------


def test_a_price_changes_in_mid_run():
    """p4d.24xlarge, 32.77 to 21.96 $/h in the middle of 2025 (facts): what ran before is not priced anew."""
    prices = [("2025-05-01 00:00", "32.77"), ("2025-06-01 00:00", "21.96")]
    run = use("aws", "2025-05-31 22:00", "2025-06-01 03:00", *prices)
    assert cost(run) == 2 * Decimal("32.77") + 3 * Decimal("21.96")


@pytest.mark.parametrize(
    ("provider", "kind", "price", "day"),
    [
        ("aws", "p2.xlarge", "1.465", "35.16"),  # Seoul, quoted in 2017
        ("azure", "Standard_NC6", "0.90", "21.60"),  # quoted in 2017
        ("azure", "Standard_NV6", "1.093", "26.232"),  # quoted in 2017; the facts of about 2024 say 1.14
        ("azure", "Standard_NV6", "1.14", "27.36"),
        ("gcp", "accelerator:nvidia-tesla-k80", "0.70", "16.80"),  # quoted in 2017, United States
        ("gcp", "accelerator:nvidia-tesla-k80", "0.77", "18.48"),  # quoted in 2017, Asia
        ("gcp", "accelerator:nvidia-tesla-k80", "0.45", "10.80"),  # the facts of 2026-06-23
    ],
)
def test_a_day_at_the_prices_of_2017_and_since(provider, kind, price, day):
    assert cost(use(provider, "2017-07-03 09:00", "2017-07-04 09:00", price, kind=kind)) == Decimal(day)


# --- Google Cloud ----------------------------------------------------------------------------------------------------


def test_gce_bills_a_minute_then_seconds():
    """VM instance pricing: "if you run your virtual machine for 30 seconds, you will be billed for 1 minute"."""
    assert cost(use("gcp", "2026-11-20 11:00", "2026-11-20 11:00:30", "3.60")) == Decimal("0.06")
    assert cost(use("gcp", "2026-11-20 11:00", "2026-11-20 11:01:01", "3.60")) == Decimal("0.061")


def test_gce_preempted_within_the_first_minute_is_free_at_every_start():
    """ "Compute Engine doesn't charge you for instances if they are preempted in the first minute after they start"."""
    facts = {"market": "spot", "reason": "interrupted", "first": False}
    assert cost(use("gcp", "2026-11-20 11:00", "2026-11-20 11:00:59", "3.60", **facts)) == 0
    assert cost(use("gcp", "2026-11-20 11:00", "2026-11-20 11:01", "3.60", **facts)) == Decimal("0.06")


@pytest.mark.parametrize(
    ("price", "end", "printed"),
    [
        ("0.04", "2026-12-01 00:00", "8.00"),  # "200 GB standard ... would cost $8.00 for the whole month"
        ("0.04", "2026-11-16 00:00", "4.00"),  # "for only half a month, it would cost $4.00"
        ("0.17", "2026-12-01 00:00", "34.00"),  # "200 GB SSD ... $34.00 for the whole month"
        ("0.17", "2026-11-16 00:00", "17.00"),  # "for only half a month, it would cost $17.00"
    ],
)
def test_gce_200_gb_for_a_month_and_for_half_of_it(price, end, printed):
    """Disk and image pricing, its own example."""
    assert cost(monthly("gcp", "2026-11-01 00:00", end, 200, price)) == Decimal(printed)


def test_gce_a_month_has_the_seconds_of_the_calendar():
    """The Billing Catalog's factors: 2,505,600 s in 2020-02, 2,678,400 s in 2020-10."""
    assert cost(monthly("gcp", "2020-02-01 00:00", "2020-03-01 00:00", 100, "0.10")) == 10
    assert cost(monthly("gcp", "2020-10-01 00:00", "2020-10-02 00:00", 31, "0.10")) == Decimal("0.10")


def test_gce_bytes_are_counted_in_gib():
    """VM instance pricing: network usage is in GiB. 10 GiB at 0.12."""
    sent = use("gcp", "2026-11-01 00:00", "2026-11-02 00:00", "0.12", resource=TRAFFIC, quantity=10 * 2**30, per=Per.GB)
    assert cost(sent) == Decimal("1.20")


# --- Azure -----------------------------------------------------------------------------------------------------------


def test_azure_a_disk_that_was_deleted_after_20_hours():
    """Learn: "you provision an E10 disk and delete it after 20 hours ... billed for the E10 prorated to 20 hours".

    9.60 $ a month; whether a month has 720 hours in November, or 730, is not said: 192 / 720 and 192 / 730.
    """
    low, amount, high = spread(monthly("azure", "2026-11-20 00:00", "2026-11-20 20:00", 1, "9.60"))
    assert [cents(each, 6) for each in (low, amount, high)] == [
        Decimal("0.263014"),
        Decimal("0.266667"),
        Decimal("0.266667"),
    ]


def test_runpod_a_pod_is_billed_by_the_second_until_it_stops():
    """Docs, Pods, Pricing: "billed by the second". An H100 at 3.99: 10 h 00 min 01 s are 39.90 and 3.99 / 3600."""
    assert cost(use("runpod", "2026-11-20 08:00", "2026-11-20 18:00:01", "3.99")) == Decimal("39.901108333")


def test_runpod_a_workspace_costs_twice_as_much_while_its_pod_is_stopped():
    """Docs, Storage types: 0.10 a GB-month while the pod runs, 0.20 while it is stopped; a month of 720 or 730 hours.

    50 GB: 10 h of running are 5 x 10/720, 20 h of a stop are 10 x 20/720; with 730 hours a little less.
    """
    ran = monthly("runpod", "2026-11-20 08:00", "2026-11-20 18:00", 50, "0.10", kind="volume_running")
    stopped = monthly("runpod", "2026-11-20 18:00", "2026-11-21 14:00", 50, "0.20", kind="volume_stopped")
    low, amount, high = (sum(each) for each in zip(spread(ran), spread(stopped), strict=True))
    assert [cents(each, 5) for each in (low, amount, high)] == [
        Decimal("0.34247"),
        Decimal("0.34722"),
        Decimal("0.34722"),
    ]


def test_azure_a_machine_that_was_shut_down_from_inside_is_billed_on():
    """Learn, States and billing: Stopped is billed, Deallocated is not. NC6 at 0.90: up 2 h, stopped 10 h: 10.80."""
    assert cost(use("azure", "2026-11-20 08:00", "2026-11-20 20:00", "0.90")) == Decimal("10.80")


def test_azure_seconds_and_a_first_minute_on_which_sources_disagree():
    assert cost(use("azure", "2026-11-20 08:00", "2026-11-20 08:01:01", "3.60")) == Decimal("0.061")
    assert spread(use("azure", "2026-11-20 08:00", "2026-11-20 08:00:30", "3.60")) == (
        Decimal("0.03"),
        Decimal("0.03"),
        Decimal("0.06"),
    )


def test_azure_a_whole_month_of_a_disk_costs_its_price_or_a_little_more():
    """P10 at 19.71: October has 744 hours, at 730 for a month that is 20.09."""
    low, amount, high = spread(monthly("azure", "2026-10-01 00:00", "2026-11-01 00:00", 1, "19.71"))
    assert (low, amount, cents(high)) == (Decimal("19.71"), Decimal("19.71"), Decimal("20.09"))


def test_lambda_bills_started_minutes_without_a_minimum():
    """Lambda, On-Demand Cloud billing: by the minute. An A10 at 1.29: 1 minute is 0.0215, and 61 s are 2 of them."""
    assert cost(use("lambda", "2026-11-20 11:00", "2026-11-20 11:00:01", "1.29")) == Decimal("0.0215")
    assert cost(use("lambda", "2026-11-20 11:00", "2026-11-20 11:01", "1.29")) == Decimal("0.0215")
    assert cost(use("lambda", "2026-11-20 11:00", "2026-11-20 11:01:01", "1.29")) == Decimal("0.043")
    assert cost(use("lambda", "2026-11-20 11:00", "2026-11-20 12:00:30", "1.29")) == Decimal("1.3115")


def test_lambda_a_day_of_eight_gpus():
    """8 A100 at 2.79 each for 24 h and 30 minutes: 22.32 x 24.5."""
    assert cost(use("lambda", "2026-11-20 00:00", "2026-11-21 00:30", "22.32")) == Decimal("546.84")


# --- what stays, addresses, bytes ------------------------------------------------------------------------------------


def test_a_disk_that_outlives_its_machine_by_a_month():
    """100 GB gp3 at 0.08, with its machine on 15 October, alone until 15 November: 17/31 and 14/30 of 8 $."""
    with_it = monthly("aws", "2026-10-15 00:00", "2026-10-16 00:00", 100, "0.08")
    alone = monthly("aws", "2026-10-16 00:00", "2026-11-15 00:00", 100, "0.08")
    whole = monthly("aws", "2026-10-15 00:00", "2026-11-15 00:00", 100, "0.08")
    assert cents(cost(whole), 6) == cents(Decimal(8) * 17 / 31 + Decimal(8) * 14 / 30, 6)
    assert charged(with_it).amount + charged(alone).amount == charged(whole).amount


def test_a_parked_spot_machine_costs_its_image_at_most():
    """Two hours at 0.40, then its image of 100 GB at 0.05 until 15 November."""
    run = use("aws", "2026-10-20 00:00", "2026-10-20 02:00", "0.40", market="spot")
    image = monthly(
        "aws", "2026-10-20 02:00", "2026-11-15 02:00", 100, "0.05", resource=IMAGE, why_maybe_less="by blocks"
    )
    hours = Decimal(5) * 286 / 744 + Decimal(5) * 338 / 720  # to the end of October; from 1 to 15 November, 02:00
    assert cost(run) == Decimal("0.80")
    assert (spread(image)[0], cents(spread(image)[2], 6)) == (0, cents(hours, 6))


def test_an_address_while_the_machine_runs():
    """0.005 $/h since 2024-02-01, pro rata: 36 h 30 min."""
    found = use("aws", "2026-11-20 00:00", "2026-11-21 12:30", "0.005", resource=ADDRESS)
    assert cost(found) == Decimal("0.1825")


def test_bytes_out_are_at_most_what_left_the_region():
    """2,000 GB at 0.09 are 180 $, if all of them left; nothing, if none."""
    sent = use(
        "aws", "2026-11-01 00:00", "2026-11-02 00:00", "0.09",
        resource=TRAFFIC, quantity=2 * 10**12, per=Per.GB, why_maybe_less="some stay inside",
    )  # fmt: skip
    assert spread(sent) == (0, 180, 180)


def test_a_machine_adopted_late_may_not_have_run_before():
    """Launched at 08:00 by the cloud's word, first seen at 10:00, ended at 11:00, 1 $/h."""
    found = use("aws", "2026-11-20 08:00", "2026-11-20 11:00", "1", sure_from="2026-11-20 10:00")
    assert spread(found) == (1, 3, 3)


def test_a_machine_that_vanished_was_billed_at_least_to_its_last_proof_of_life():
    found = use("aws", "2026-11-20 08:00", "2026-11-20 11:00", "1", maybe_until="2026-11-20 13:00")
    assert spread(found) == (3, 3, 5)


def test_a_missing_price_is_named_and_in_no_amount():
    found = charged(use("aws", "2026-11-20 08:00", "2026-11-20 11:00"))
    assert (found.amount, found.high, found.unpriced_us) == (0, 0, 3 * 3_600_000_000)
    assert found.reasons == ("no price is known for it",)


def test_a_free_run_needs_no_price():
    facts = {"market": "spot", "reason": "interrupted"}
    assert cost(use("aws", "2026-11-20 11:00", "2026-11-20 11:10", **facts)) == 0


def test_your_own_computer_is_billed_by_its_setting_alone():
    """0.12 $/h of electricity for 90 s."""
    assert cost(use("local", "2026-11-20 11:00", "2026-11-20 11:01:30", "0.12")) == Decimal("0.003")


def test_a_plug_in_is_billed_to_the_microsecond_and_by_months_of_730_hours():
    assert cost(monthly("plugin", "2026-11-20 00:00", "2026-11-20 10:00", 73, "0.10")) == Decimal("0.10")


def test_a_run_that_goes_on_counts_its_minimum_at_once():
    begun = use("aws", "2026-11-20 11:00", None, "3.60")
    assert cost(begun, "2026-11-20 11:00") == Decimal("0.06")
    assert cost(begun, "2026-11-20 11:02") == Decimal("0.12")


# --- vast.ai -------------------------------------------------------------------------------------------------------


def test_vast_gpus_are_billed_by_the_second_without_a_minimum():
    """$0.36 an hour are $0.0001 a second: 1 s, and 90 min."""
    assert cost(use("vast", "2026-11-20 11:00", "2026-11-20 11:00:01", "0.36")) == Decimal("0.0001")
    assert cost(use("vast", "2026-11-20 11:00", "2026-11-20 12:30", "0.36")) == Decimal("0.54")


def test_vast_storage_is_billed_by_the_second_whether_it_runs_or_not():
    """40 GB at $0.219 a GB and month: 8.76 / 730 = $0.012 an hour, or 8.76 / 720 in a month of 30 days."""
    low, amount, high = spread(monthly("vast", "2026-11-20 00:00", "2026-11-20 10:00", 40, "0.219"))
    assert low == Decimal("0.12")
    assert amount == high == round(Decimal("8.76") / 72, 9)


def test_vast_traffic_is_billed_by_the_byte():
    """2.5 GB at $0.004 a GB."""
    begin, end = "2026-11-20 00:00", "2026-11-21 00:00"
    sent = use("vast", begin, end, "0.004", resource=TRAFFIC, quantity=2_500_000_000, per=Per.GB)
    assert cost(sent) == Decimal("0.01")


def test_vast_a_day_of_which_eight_hours_run():
    """8 h of GPUs at $0.34, and 24 h of 64 GB at $0.2 in a month of 30 days: 2.72 + 12.8 / 30."""
    gpus = cost(use("vast", "2026-11-20 09:00", "2026-11-20 17:00", "0.34"))
    _, disk, _ = spread(monthly("vast", "2026-11-20 00:00", "2026-11-21 00:00", 64, "0.2"))
    assert gpus == Decimal("2.72")
    assert disk == round(Decimal("12.8") / 30, 9)
