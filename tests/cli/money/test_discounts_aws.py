"""An agreed price is what the plan shows and what the ledger charges, and it says by which setting."""

from __future__ import annotations

import pytest

from cloudgpu.catalog import listed_price
from cloudgpu.core.model.offers import Market
from tests.cli.aws_line import CONFIG, Line
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
UP = "up --gpu v100 --ssh-from 203.0.113.7"
AGREED = '[[discounts]]\nprovider = "aws"\naccount = "lab"\ntype = "p3.*"\npercent = 20\n'


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


@pytest.mark.soak
def test_the_plan_and_the_ledger_have_the_agreed_price(line):
    listed = listed_price("aws", "p3.2xlarge", "us-east-1", Market.ON_DEMAND)
    line.config(CONFIG + AGREED)
    planned = line(f"{UP} --dry-run -o json")
    price = planned.json["plan"]["price"]
    assert float(price["usd_per_hour"]) == pytest.approx(float(listed.per_hour.dollars) * 0.8)
    assert (price["basis"], price["negotiated"]) == ("setting", True)
    assert "config.toml discounts[1]: 20% off" in price["source"]
    assert listed.source in price["source"]
    told = line(f"{UP} --dry-run -v").out
    assert "discounts[1]" in told
    assert "as agreed" in told
    assert line(f"{UP} --name otter --no-wait --yes").code == 0
    (machine,) = line("ls -o json").json["machines"]
    assert (machine["price"]["usd_per_hour"], machine["price"]["basis"]) == (price["usd_per_hour"], "setting")
    assert line("ls --refresh").code == 0
    assert line("ls -o json").json["machines"][0]["price"]["usd_per_hour"] == price["usd_per_hour"]


def test_what_was_agreed_on_for_another_market_changes_nothing(line):
    before = line(f"{UP} --spot --dry-run -o json").json["plan"]["price"]
    line.config(CONFIG + AGREED)
    after = line(f"{UP} --spot --dry-run -o json").json["plan"]["price"]
    assert (after["usd_per_hour"], after["basis"]) == (before["usd_per_hour"], "quoted")
    assert not after["negotiated"]


def test_regions_ranks_by_what_is_paid(line):
    line.config(CONFIG + '[[discounts]]\nprovider = "aws"\nregion = "us-west-2"\nrate = "0.5"\n')
    first, *_ = line("regions --gpu v100 -o json").json["regions"]
    assert (first["region"], first["price"]["usd_per_hour"]) == ("us-west-2", "0.5")


def test_a_price_of_free_stops_the_command(line):
    line.config(CONFIG + '[[discounts]]\nprovider = "aws"\nrate = "free"\n')
    said = line(f"{UP} --dry-run -o json")
    assert said.code == 2
    assert said.json["error"]["field"] == "config.toml: discounts[1].rate"
    assert said.json["error"]["value"] == "free"


@pytest.mark.soak
def test_a_list_that_is_renewed_while_the_machine_runs_is_discounted_too(line, aws):
    line.config(CONFIG + AGREED)
    assert line(f"{UP} --name otter --no-wait --yes").code == 0
    (before,) = line("ls -o json").json["machines"]
    region = before["region"]
    aws.model.list_prices["p3.2xlarge", region] = "4.0000000000"
    assert line("catalog refresh --provider aws").code == 0
    assert line("ls --refresh").code == 0
    (after,) = line("ls -o json").json["machines"]
    assert after["price"]["usd_per_hour"] == "3.2"
    assert "AWS Price List" in after["price"]["source"]
    assert "discounts[1]: 20% off $4.0000" in after["price"]["source"]
