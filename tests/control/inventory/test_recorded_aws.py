"""What the ledger is told on our model of AWS: prices of disks and addresses, and spot prices as they held."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]
UP = "up --gpu v100 --ssh-from 203.0.113.7 --no-wait --yes --name otter"


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


@pytest.fixture
def session(line):
    return open_session({"CLOUDGPU_HOME": str(line.home), "USER": "ada"})


def asked(aws, since, action):
    return [call.region for call in aws.calls[since:] if call.action == action]


def lines(session, kind):
    return [one for one in session.ledger.events() if one.kind == kind]


@pytest.mark.soak
def test_a_launch_line_has_the_price_of_the_disk_and_the_address_by_their_units(line, session):
    assert line(f"{UP} --spot --volume data:20").code == 0
    (intent,) = lines(session, "launch_intended")
    told = {entry["what"].split(" of ")[0]: entry for entry in intent.body["attached_costs"]}
    disk, address, volume = told["system disk"], told["public IPv4 address"], told["volume data"]
    assert (disk["resource"], disk["per"], disk["nanos"]) == ("disk", "month", Money.usd("0.08").nanos)
    assert (address["resource"], address["per"], address["nanos"]) == ("address", "hour", Money.usd("0.005").nanos)
    assert (address["quantity"], address["kept"], volume["named"]) == (1, False, True)
    assert intent.body["on_demand"]["nanos_per_hour"] == Money.usd("3.06").nanos
    (thing,) = lines(session, "resource_observed")
    assert (thing.body["name"], thing.body["size_gb"], thing.body["nanos"]) == ("data", 20, Money.usd("0.08").nanos)
    assert thing.body["owner"] == "ada"


@pytest.mark.soak
def test_spot_prices_are_pinned_by_one_call_per_region_with_spot_machines(line, session, aws):
    assert line(f"{UP} --spot").code == 0
    (row,) = session.ledger.machines()
    began = from_iso(row.intended_at)
    key = (row.instance_type, row.zone)
    first = began - timedelta(hours=5)
    aws.model.spot_history[key] = [(first, Decimal("0.7")), (began + timedelta(microseconds=1), Decimal("0.8"))]
    before = len(aws.calls)
    assert line("ls --refresh").code == 0
    assert asked(aws, before, "DescribeSpotPriceHistory") == [row.region]
    (pin,) = lines(session, "price_observed")
    assert pin.body["price"]["nanos_per_hour"] == Money.usd("0.8").nanos
    assert (pin.clock, pin.body["price"]["basis"]) == ("provider", "quoted")
    assert from_iso(pin.occurred_at) >= began
    assert line("down otter --yes").code == 0
    before = len(aws.calls)
    line("ls --refresh")
    assert asked(aws, before, "DescribeSpotPriceHistory") == [row.region]  # up to its end, once more
    before = len(aws.calls)
    line("ls --refresh")
    assert asked(aws, before, "DescribeSpotPriceHistory") == []


def test_a_machine_on_demand_costs_no_call_for_its_price(line, aws):
    assert line("up --gpu t4 --ssh-from 203.0.113.7 --no-wait --yes").code == 0
    before = len(aws.calls)
    assert line("ls --refresh").code == 0
    assert asked(aws, before, "DescribeSpotPriceHistory") == []
    assert asked(aws, before, "GetProducts") == []


@pytest.mark.soak
def test_a_stray_on_aws_has_its_disk_and_says_what_is_not_known(line, session, aws):
    assert line(f"{UP} --spot").code == 0
    (row,) = session.ledger.machines()
    (machine,) = aws.instances(live=True)
    ec2 = client(region=machine.region_name)
    disks = [one["VolumeId"] for one in ec2.describe_volumes()["Volumes"]]
    ec2.create_tags(Resources=[machine.id, *disks], Tags=[{"Key": "cloudgpu-id", "Value": "cg-stray"}])
    sync_all(session)
    stray = session.ledger.machine("cg-stray")
    assert [entry.resource for entry in stray.attached_costs] == ["disk"]
    assert stray.attached_costs[0].nanos == Money.usd("0.08").nanos
    assert stray.price.source == "EC2 DescribeSpotPriceHistory"
    assert stray.on_demand.nanos_per_hour == Money.usd("3.06").nanos
    assert stray.id != row.id


@pytest.mark.soak
def test_what_prices_were_before_the_end_is_told_by_the_history_of_ninety_days(line, session, aws):
    """A machine that was taken while nobody looked has its own prices, not those of the day when it is seen."""
    assert line(f"{UP} --spot").code == 0
    line("ls --refresh")
    (row,) = session.ledger.machines()
    (machine,) = aws.instances(live=True)
    aws.interrupt(machine.id)
    key, now = (row.instance_type, row.zone), datetime.now(UTC)
    later = now + timedelta(minutes=5)
    aws.model.spot_history[key] = [
        (from_iso(row.intended_at) - timedelta(days=1), Decimal("0.7")),
        (now - timedelta(milliseconds=1), Decimal("0.8")),
        (later, Decimal(9)),
    ]
    sync_all(session)
    row = session.ledger.machine(row.id)
    assert row.terminated_at is not None
    assert [pin.body["price"]["nanos_per_hour"] for pin in lines(session, "price_observed")] == [800_000_000]
    assert iso(later) > row.terminated_at
    assert Machine.of(json.loads(json.dumps(record_of(row)))) == row


@pytest.mark.soak
def test_a_machine_that_was_resized_in_the_console_is_billed_as_what_it_is(line, session, aws, capsys):
    """Stopped, made four times as large, started: by somebody else, between two of our looks."""
    assert line(f"{UP} --gpu t4").code == 0
    sync_all(session)
    (row,) = session.ledger.machines()
    ec2, own = client(region=row.region), row.provider_id.partition("/")[2]
    aws.advance(3600)
    sync_all(session)
    ec2.stop_instances(InstanceIds=[own])
    aws.advance(60)
    ec2.modify_instance_attribute(InstanceId=own, InstanceType={"Value": "g4dn.4xlarge"})
    ec2.start_instances(InstanceIds=[own])
    aws.advance(3600)
    found = sync_all(session)
    (after,) = session.ledger.machines()
    assert (row.instance_type, after.instance_type) == ("g4dn.xlarge", "g4dn.4xlarge")
    assert any("changed by others from g4dn.xlarge" in sentence for sentence in found.sentences)
    dearer = after.price.nanos_per_hour
    assert dearer > 2 * row.price.nanos_per_hour
    use = next(use for use in after.open_usage if use.resource == "instance")
    assert ([one.nanos for one in use.segments], use.kind) == ([dearer], "g4dn.4xlarge")
    assert use.begin == after.since
    assert sync_all(session).sentences == []
    assert "g4dn.4xlarge" in line("ls").out + line(f"show {row.name}").out
    assert [line.kind for line in session.ledger.events(row.id)][-1] == "instance_observed"
