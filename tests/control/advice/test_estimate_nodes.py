"""`estimate --nodes`: what several machines are worth, which network counts, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.catalog.location import use_directory
from cloudgpu.cli.market.estimate_text import estimate_text
from cloudgpu.config.settings import settings_from_text
from cloudgpu.control.advice.estimate import estimate
from cloudgpu.control.advice.estimate_request import parse_estimate
from cloudgpu.control.clusters.remarks import cluster_remarks
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from tests.core.machines import machine

NOW = datetime(2026, 11, 20, tzinfo=UTC)
P4D = {"nodes": 4, "params": "7B", "instance_type": "p4d.24xlarge"}


@pytest.fixture(autouse=True)
def _prices(tmp_path):
    """No prices are refreshed, whatever another test has done."""
    use_directory(tmp_path / "lists")


def answered(seen=(), **asked):
    settings = settings_from_text("", login="ada")
    return estimate(settings, NOW, parse_estimate(settings, NOW, **asked), None, seen)


def shown(seen=(), verbose=False, **asked):
    return " ".join(estimate_text(answered(seen, **asked), None, verbose=verbose).split())


def worth(**asked):
    (found,) = answered(**asked)["nodes"]["worth"]
    return found


def spot(hours, *, taken=False, name="p4d.24xlarge"):
    """A spot machine that is gone after so many hours."""
    end = iso(NOW + timedelta(hours=hours))
    times = {"launched_at": iso(NOW), "terminated_at": end, "interrupted_at": end if taken else None}
    return machine(market="spot", instance_type=name, **times)


def test_the_network_is_that_of_the_type_with_its_source():
    found = worth(**P4D)
    assert (found["network_gbit_per_s"], found["network_fabric"]) == (400, "EFA")
    assert "DescribeInstanceTypes" in found["network_source"]
    assert round(found["compute_s"], 2) == 2.76
    assert round(found["traffic_s"], 3) == 0.525
    assert (found["verdict"], round(found["speed_up"], 2), round(found["cost_factor"], 2)) == ("good", 4, 1)


def test_the_amounts_are_those_of_all_machines():
    document = answered(**P4D)
    one = answered(instance_type="p4d.24xlarge")
    assert document["request"]["number"] == 4
    both = [float(each["estimates"][0]["month"]["usd"]) for each in (document, one)]
    assert both[0] == pytest.approx(4 * both[1])
    assert one["nodes"] is None


def test_a_typed_network_counts_before_the_list():
    found = worth(**P4D, network=100)
    assert (found["network_gbit_per_s"], found["network_source"], found["network_fabric"]) == (100, None, None)
    assert round(found["traffic_s"], 2) == 2.1


def test_what_a_machine_sends_for_a_while_does_not_count():
    found = worth(nodes=2, params="1b", instance_type="g5.xlarge")
    assert (found["network_gbit_per_s"], found["network_up_to_gbit_per_s"]) == (2.5, 10)
    assert "for a while they are up to: g5.xlarge 10" in shown(nodes=2, params="1b", instance_type="g5.xlarge")


def test_own_machines_are_answered_without_a_price():
    (found,) = answered(nodes=2, params="1.3B", gpu="4090", network="10")["nodes"]["worth"]
    assert (found["provider"], found["instance_type"], found["gpu"]) == (None, None, "RTX4090")
    assert found["verdict"] == "slower"
    text = shown(nodes=2, params="1.3B", gpu="4090", network="10")
    assert text.startswith("RTX4090: Slower than one machine: 2 machines with RTX4090 and 10 Gbit/s are 0.66 times")
    assert "No price: nobody in the catalogue rents it out." in text
    assert "Give it: --network 10 (Gbit/s)." in shown(nodes=2, params="1.3B", gpu="4090")


@pytest.mark.parametrize("filters", [{"region": "ap-south-1"}, {"gpu": "v100:3"}])
def test_a_filter_that_leaves_nothing_is_named_and_not_answered_about_own_machines(filters):
    asked = {"nodes": 2, "params": "1.3B", "gpu": "v100", "network": "10", **filters}
    assert answered(**asked)["nodes"]["worth"] == []
    text = shown(**asked)
    assert "nobody in the catalogue rents it out" not in text
    assert "17 types" in text


def test_slower_than_one_machine_is_said_before_any_price():
    text = shown(nodes=2, params="7B", instance_type="g5.xlarge")
    assert text.startswith("Slower than one machine: 2 machines with g5.xlarge and 2.5 Gbit/s are ")
    assert text.index("Slower") < text.index("Cost: 2 machines")


def test_an_unknown_network_is_said_and_asked_for():
    found = worth(nodes=2, params="7B", instance_type="Standard_NC6s_v3")
    assert (found["network_gbit_per_s"], found["verdict"], found["speed_up"]) == (None, None, None)
    assert found["says"].startswith("Not known: the network of machines with NC6s_v3 is in no list.")
    assert worth(nodes=2, params="7B", instance_type="Standard_NC6s_v3", network=24)["verdict"] is not None


def test_efficiency_and_tokens_are_the_users():
    usual, better = worth(**P4D), worth(**P4D, efficiency=0.8, tokens="16384")
    assert better["compute_s"] == pytest.approx(usual["compute_s"])
    assert worth(**P4D, efficiency="20%")["compute_s"] == pytest.approx(2 * usual["compute_s"])


def test_lora_says_how_many_are_trained():
    document = answered(**P4D, trainable="40M")["nodes"]
    assert (document["parameters"], document["trainable"]) == (7e9, 4e7)
    assert "of which 40,000,000 are trained" in document["assumptions"][0]


def test_a_typed_chance_is_that_of_an_hour():
    loss = worth(**P4D, spot=True, spot_loss="5%")["spot_loss"]
    assert (loss["per"], loss["source"]) == ("hour", "--spot-loss")
    assert (round(loss["any_loss_low"], 4), loss["any_loss_low"]) == (0.1855, loss["any_loss_high"])
    text = shown(**P4D, spot=True, spot_loss="5%")
    assert "the chance is 18.5% in each hour, with 5.0% for one machine (--spot-loss)" in text


def test_what_the_ledger_saw_counts_before_a_list():
    seen = [spot(10, taken=True), spot(30), spot(1, taken=True, name="g5.xlarge"), machine(market="spot")]
    (found,) = answered(seen, **P4D, spot=True)["nodes"]["worth"]
    loss = found["spot_loss"]
    assert loss["source"] == "your ledger: 1 taken in 40 hours"
    assert loss["one_loss_low"] == pytest.approx(0.0247, abs=1e-4)


def test_the_advisors_month_stays_a_month_and_a_range():
    asked = {"nodes": 4, "params": "7B", "instance_type": "g5.xlarge", "region": "us-east-1", "spot": True}
    (found,) = answered([spot(30, name="g5.xlarge")], **asked)["nodes"]["worth"]
    loss = found["spot_loss"]
    assert (loss["per"], loss["one_loss_low"] < loss["one_loss_high"]) == ("month", True)
    assert "Spot Advisor" in loss["source"]


def test_where_no_chance_is_known_none_is_made_up():
    asked = {"nodes": 4, "params": "7B", "gpu": "l4:1", "provider": "gcp", "spot": True}
    assert worth(**asked)["spot_loss"] is None
    assert "how often they are taken is in no list, nor in your ledger" in shown(**asked)
    assert worth(**P4D)["spot_loss"] is None


REFUSED = [
    ({"nodes": 0, "params": "7B"}, "--nodes", "'0' is not a whole number from 2 to 64."),
    ({"nodes": 10_000, "params": "7B"}, "--nodes", "'10000' is not a whole number from 2 to 64."),
    ({"nodes": "four", "params": "7B"}, "--nodes", "'four' is not a whole number"),
    ({"nodes": 2}, "--nodes", "the size of the model is missing"),
    ({"nodes": 2, "params": "seven"}, "--params", "'seven' is not a number from 1,000,000 to"),
    ({"nodes": 2, "params": "7Q"}, "--params", "'7Q' is not a number"),
    ({"nodes": 2, "params": "B"}, "--params", "'B' is not a number"),
    ({"nodes": 2, "params": "-7B"}, "--params", "'-7B' is not a number"),
    ({"nodes": 2, "params": "7B", "network": 0}, "--network", "'0' is not a number from 0.01 to 100000."),
    ({"nodes": 2, "params": "7B", "network": "nan"}, "--network", "'nan' is not a number"),
    (
        {"nodes": 2, "params": "7B", "trainable": "8B"},
        "--trainable",
        "'8B' is not a number from 1,000 to 7,000,000,000",
    ),
    ({"nodes": 2, "params": "7B", "tokens": 0}, "--tokens", "'0' is not a number from 1 to"),
    ({"nodes": 2, "params": "7B", "spot": True, "spot_loss": "100%"}, "--spot-loss", "'100%' is not a number"),
    ({"nodes": 2, "params": "7B", "spot_loss": "5%"}, "--spot-loss", "--spot-loss needs --spot."),
    ({"nodes": 2, "params": "7B", "number": 3}, "--number", "both say how many machines"),
    ({"nodes": 2, "params": "7B", "flops": "1e21"}, "--flops", "--nodes estimates how fast"),
    ({"nodes": 2, "params": "7B", "like": "fox"}, "--like", "--nodes estimates how fast"),
    ({"params": "7B"}, "--params", "needs --nodes"),
    ({"network": 10}, "--network", "needs --nodes"),
    ({"tokens": 10}, "--tokens", "needs --nodes"),
]


@pytest.mark.parametrize(("asked", "field", "says"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_asked_names_its_option(asked, field, says):
    with pytest.raises(InvalidRequest) as refused:
        answered(**asked)
    assert (refused.value.field, refused.value.exit_code) == (field, 2)
    assert says in refused.value.message
    assert refused.value.next


@pytest.mark.parametrize(
    "text", ["7B", "7b", "7000M", "7e9", "7,000,000,000", "7_000_000_000", 7_000_000_000, "0.007T"]
)
def test_a_model_may_be_written_in_many_ways(text):
    assert answered(nodes=2, params=text, instance_type="p4d.24xlarge")["nodes"]["parameters"] == 7e9


WIDE = [
    {"nodes": 64, "params": "1T", "all": True},
    {"nodes": 2, "params": "1M", "spot": True, "all": True},
    {"nodes": 2, "params": "7B", "gpu": "4090", "network": 99999},
]


@pytest.mark.parametrize("asked", WIDE, ids=str)
def test_no_line_is_wider_than_the_terminal(asked):
    text = estimate_text(answered(**asked), None, sources=True)
    assert not [line for line in text.splitlines() if len(line) > 80]


def available(provider="aws", market=Market.ON_DEMAND):
    return MachineConfiguration(
        provider, "lab", "us-east-1", "us-east-1a", "g5.xlarge", market, (Accelerator("A10G", 1, 24),)
    )


def test_a_plan_says_of_a_cluster_what_an_estimate_says():
    _, remark = cluster_remarks(4, available(), [])
    assert remark.startswith("Slower than one machine: 4 machines are ")
    assert remark.endswith("cloudgpu estimate --nodes 4 --instance-type g5.xlarge --params 7B")
    assert list(cluster_remarks(1, available(), [])) == []
    assert list(cluster_remarks(2, available("ssh"), [])) == []


def test_a_plan_on_spot_says_the_chance_of_a_gang():
    *_, chance = cluster_remarks(4, available(market=Market.SPOT), [spot(20, taken=True, name="g5.xlarge")])
    assert chance == (
        "Any loss restarts all 4: the chance is 18.1% in each hour, with 4.9% for one machine (your ledger: 1 taken in "
        "20 hours)."
    )
    *_, listed = cluster_remarks(4, available(market=Market.SPOT), [])
    assert "in each month" in listed
    *_, unknown = cluster_remarks(4, available("fake", Market.SPOT), [])
    assert "in no list, nor in your ledger" in unknown
