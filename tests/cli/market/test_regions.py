"""`cloudgpu regions` on our model of AWS: prices of what is sold now, round trips of real connections on loopback."""

from __future__ import annotations

import socket
from decimal import Decimal
from itertools import count

import pytest

from cloudgpu.control.catalog.regions import measure_pings
from cloudgpu.core.model.account import Region
from tests.cli.aws_line import CONFIG, Line
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


@pytest.fixture
def listener():
    """A port at which somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Region("here", "127.0.0.1", server.getsockname()[1])


@pytest.fixture
def silent():
    """A port at which nobody answers: it was free a moment ago, and is held so."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield Region("nowhere", "127.0.0.1", held.getsockname()[1])


def test_each_region_has_the_price_of_its_cheapest_machine_with_that_gpu(line):
    found = line("regions --gpu v100 --spot -o json").json
    assert (found["provider"], found["account"], found["market"]) == ("aws", "lab", "spot")
    assert [row["region"] for row in found["regions"]] == ["us-east-1", "us-west-2"]
    assert {row["instance_type"] for row in found["regions"]} == {"p3.2xlarge"}
    price = found["regions"][0]["price"]
    assert (price["basis"], price["source"]) == ("quoted", "EC2 DescribeSpotPriceHistory")
    assert found["unanswered"] == []


def test_the_cheapest_region_stands_first_unless_another_order_is_asked_for(line):
    line.aws.model.spot_prices["p3.2xlarge", "us-west-2"] = Decimal("0.5")
    cheapest, _ = line("regions --gpu v100 --spot -o json").json["regions"]
    assert (cheapest["region"], cheapest["price"]["usd_per_hour"]) == ("us-west-2", "0.5")
    by_name = line("regions --gpu v100 --spot --sort name -o json").json["regions"]
    assert [row["region"] for row in by_name] == ["us-east-1", "us-west-2"]


def test_a_region_that_does_not_sell_it_is_said_to_be_so(line):
    line.config(CONFIG.replace('"us-west-2"', '"eu-west-1"'))
    said = line("regions --gpu v100")
    assert said.code == 0
    assert "us-east-1  $3.0600  p3.2xlarge  us-east-1b" in said.out
    assert "Not sold there now: eu-west-1." in said.out
    assert "on-demand prices of v100: " in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    (there, gone) = line("regions --gpu v100 -o json").json["regions"]
    assert (there["region"], gone["region"], gone["price"]) == ("us-east-1", "eu-west-1", None)


def test_the_round_trip_stands_beside_the_price(line):
    said = line("regions --gpu v100 --ping")
    assert said.out.splitlines()[0].split() == ["REGION", "PING", "$/H", "TYPE", "ZONE"]
    found = line("regions --ping -o json").json["regions"]
    assert all(0 <= row["ping_ms"] < 1000 for row in found)
    assert [row["price"] for row in found] == [None, None]


def test_a_region_that_does_not_answer_is_named_and_the_rest_is_shown(line):
    line.aws.faults.offline("us-west-2")
    said = line("regions --gpu v100 -o json")
    assert said.code == 8
    assert [row["region"] for row in said.json["regions"] if row["price"]] == ["us-east-1"]
    (gap,) = said.json["unanswered"]
    assert gap["scope"] == "us-west-2"
    assert "us-west-2" in said.err


def test_a_provider_without_regions_says_so(line):
    said = line("regions --provider local -o json")
    assert (said.code, said.json["error"]["field"]) == (2, "--provider")


def test_without_a_word_the_only_account_with_regions_is_meant(line):
    line.config(CONFIG.replace('provider = "aws"\nowner', "owner"))
    assert line("regions -o json").json["account"] == "lab"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--sort best", "--sort"),
        ("--sort price", "--sort"),
        ("--spot", "--spot"),
        ("--gpu v100:x", "--gpu"),
        ("--gpu v10", "--gpu"),
        ("--account labb", "account"),
    ],
)
def test_what_cannot_be_meant_is_refused(line, words, field):
    said = line(f"regions {words} -o json")
    assert (said.code, said.json["error"]["field"]) == (2, field)
    assert said.json["error"]["next"]


def test_a_round_trip_is_the_median_of_three_connections(listener):
    clock = iter([0.0, 0.5, 1.0, 1.1, 2.0, 2.3])
    assert measure_pings([listener], read_timer=lambda: next(clock)) == {"here": pytest.approx(0.3)}


def test_who_does_not_answer_says_why_and_keeps_nobody_else_from_answering(listener, silent):
    ticks = count()
    found = measure_pings([silent, listener], read_timer=lambda: float(next(ticks)))
    assert isinstance(found["here"], float)
    assert found["nowhere"] == f"127.0.0.1 port {silent.port}: Connection refused"
