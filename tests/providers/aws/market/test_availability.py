"""What could be launched: what AWS offers decides, by one call per region, and a wish that cannot be is refused."""

from __future__ import annotations

import pytest

from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.aws.market.availability import PARK_EFFECT, PERSISTENT_SPOT_STOP_EFFECT, STOP_EFFECT
from tests.providers.aws.accounts import account, calls, impatient

FEW = ["us-east-1", "us-west-2", "eu-west-1"]
V100 = Requirements(gpu="v100", market=Market.SPOT)
ERASES = "erases its 125 GB of scratch disks (instance store) and "  # of a g4dn.xlarge


def places(stock):
    return sorted({(item.instance_type, item.zone) for item in stock.items})


def test_a_v100_is_found_where_it_is_still_offered_and_nowhere_else(aws, tmp_path):
    stock = account(tmp_path, regions=FEW).available(V100)
    assert places(stock) == [("p3.2xlarge", "us-east-1b"), ("p3.2xlarge", "us-west-2a")]
    assert all(fits(item, V100) for item in stock.items)
    (first, _) = stock.items
    assert (first.provider, first.account, first.region) == ("aws", "lab", "us-east-1")
    assert (first.vcpus, first.memory_gib, first.accelerators[0].name) == (8, 61.0, "V100-16GB")


def test_one_call_per_region_finds_all_of_it(aws, tmp_path):
    with calls(aws) as sent:
        account(tmp_path, regions=FEW).available(V100)
    assert sorted(sent) == [("DescribeInstanceTypeOfferings", region) for region in sorted(FEW)]


def test_regions_where_it_has_no_price_are_not_asked(aws, tmp_path):
    with calls(aws) as sent:
        account(tmp_path, regions=["us-east-1", "af-south-1"]).available(Requirements(gpu="v100"))
    assert [region for _, region in sent] == ["us-east-1"]


def test_a_region_that_the_catalogue_does_not_know_is_asked_for_spot_alone(aws, tmp_path):
    provider = account(tmp_path, regions=["us-east-1", "ca-west-1"])
    with calls(aws) as sent:
        provider.available(V100)
        provider.available(Requirements(gpu="v100"))
    assert sorted(region for _, region in sent) == ["ca-west-1", "us-east-1", "us-east-1"]


def test_a_gpu_that_is_only_listed_is_not_offered(aws, tmp_path):
    assert account(tmp_path).available(Requirements(gpu="k80")).items == ()
    assert account(tmp_path).available(Requirements(instance_type="p2.xlarge")).items == ()


def test_the_very_count_is_found(aws, tmp_path):
    stock = account(tmp_path).available(Requirements(gpu="t4", gpu_count=4, zone="us-east-1a"))
    assert places(stock) == [("g4dn.12xlarge", "us-east-1a")]


def test_a_share_of_a_gpu_is_meant_only_by_its_name(aws, tmp_path):
    provider = account(tmp_path)
    named = {item.instance_type for item in provider.available(Requirements(gpu="l4")).items}
    assert named
    assert not any(name.startswith(("g6f", "gr6f")) for name in named)
    shares = provider.available(Requirements(instance_type="g6f.xlarge")).items
    assert {item.accelerators[0].share for item in shares} == {0.125}


def test_without_a_wish_everything_that_is_sold_is_offered(aws, tmp_path):
    stock = account(tmp_path).available(Requirements())
    names = {item.instance_type for item in stock.items}
    assert {"g4dn.xlarge", "p4d.24xlarge"} <= names
    assert "p3.2xlarge" not in names  # an old one: it has to be asked for
    assert {item.market for item in stock.items} == {Market.ON_DEMAND}


def test_both_markets_are_offered_where_both_will_do(aws, tmp_path):
    want = Requirements(instance_type="g4dn.xlarge", zone="us-east-1a", market=Market.SPOT, or_on_demand=True)
    spot, on_demand = account(tmp_path).available(want).items
    assert (spot.market, spot.stoppable, spot.stop_effect) == (Market.SPOT, False, ERASES + PARK_EFFECT)
    assert (on_demand.market, on_demand.stoppable, on_demand.stop_effect) == (
        Market.ON_DEMAND,
        True,
        ERASES + STOP_EFFECT,
    )


def test_a_persistent_spot_machine_can_be_stopped(aws, tmp_path):
    want = Requirements(instance_type="g4dn.xlarge", zone="us-east-1a", market=Market.SPOT, persistent=True)
    (item,) = account(tmp_path).available(want).items
    assert (item.stoppable, item.stop_effect) == (True, ERASES + PERSISTENT_SPOT_STOP_EFFECT)


@pytest.mark.parametrize(("name", "erases"), [("p3.2xlarge", ""), ("t3.small", ""), ("m5d.large", "75 GB of scratch")])
def test_what_a_stop_erases_is_said_of_those_alone_that_have_it(aws, tmp_path, name, erases):
    item = account(tmp_path).available(Requirements(instance_type=name)).items[0]
    assert item.stop_effect.startswith(f"erases its {erases}" if erases else STOP_EFFECT)


def test_a_type_that_the_catalogue_lacks_is_asked_of_aws(aws, tmp_path):
    with calls(aws) as sent:
        stock = account(tmp_path).available(Requirements(instance_type="t3.small", zone="us-east-1a"))
    (item,) = stock.items
    assert (item.vcpus, item.memory_gib, item.accelerators) == (2, 2.0, ())
    assert [action for action, _ in sent] == ["DescribeInstanceTypes", "DescribeInstanceTypeOfferings"]


def test_a_type_without_a_gpu_does_not_fit_a_wish_for_one(aws, tmp_path):
    want = Requirements(instance_type="t3.small", gpu="t4", zone="us-east-1a")
    assert not any(fits(item, want) for item in account(tmp_path).available(want).items)


@pytest.mark.parametrize(
    ("want", "field", "says", "way"),
    [
        ({"instance_type": "g4dn.xlrage"}, "--instance-type", "did you mean 'g4dn.xlarge'?", "Use g4dn.xlarge"),
        ({"instance_type": "nonsense"}, "--instance-type", "no instance type 'nonsense'", "cloudgpu gpus --all"),
        ({"region": "us-easst-1"}, "--region", "did you mean 'us-east-1'?", "Use us-east-1."),
        ({"region": "evil.example/#"}, "--region", "no region 'evil.example/#'", "Use one of: "),
        ({"zone": "us-east-1z"}, "--zone", "no zone 'us-east-1z'", "us-east-1a, us-east-1b"),
        ({"zone": "us-east-1-bos-1a"}, "--zone", "local zones", "us-east-1a"),
        ({"zone": "nowhere"}, "--zone", "not an availability zone", "us-east-1a"),
        ({"zone": "us-east-1a", "region": "us-west-2"}, "--zone", "is in us-east-1, not in us-west-2", "us-east-1"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_the_way_out(aws, tmp_path, want, field, says, way):
    with pytest.raises(InvalidRequest) as refused:
        account(tmp_path, regions=[]).available(Requirements(**want))
    assert refused.value.field == field
    assert refused.value.value == want[field.removeprefix("--").replace("-", "_")]
    assert says in refused.value.message
    assert way in refused.value.next


@pytest.mark.parametrize("options", [{"regions": ["us-east-1"]}, {"regions": [], "exclude_regions": ["us-west-2"]}])
def test_nothing_is_offered_where_a_listing_would_not_look(aws, tmp_path, options):
    with pytest.raises(InvalidRequest, match="ls would miss the machine") as refused:
        account(tmp_path, **options).available(Requirements(region="us-west-2"))
    assert "accounts.lab" in refused.value.next
    assert aws.calls == []


def test_a_region_by_name_costs_one_call(aws, tmp_path):
    with calls(aws) as sent:
        account(tmp_path, regions=[]).available(Requirements(gpu="t4", region="eu-west-1"))
    assert sent == [("DescribeInstanceTypeOfferings", "eu-west-1")]


def test_a_silent_region_is_named_and_the_others_offer(aws, tmp_path, monkeypatch):
    impatient(monkeypatch)
    aws.faults.offline("us-west-2")
    stock = account(tmp_path, regions=FEW).available(V100)
    assert places(stock) == [("p3.2xlarge", "us-east-1b")]
    assert [gap.scope for gap in stock.unanswered] == ["us-west-2"]


def test_where_no_region_answers_nothing_is_known(aws, tmp_path, monkeypatch):
    impatient(monkeypatch)
    aws.faults.offline("us-east-1", status=503)
    with pytest.raises(ProviderUnavailable):
        account(tmp_path).available(V100)


def test_the_endpoints_of_the_regions_are_named(aws, tmp_path, monkeypatch):
    there = account(tmp_path, regions=FEW).regions()
    assert {(one.host, str(one.port)) for one in there} == {tuple(aws.url.removeprefix("http://").split(":"))}
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (home,) = account(tmp_path).regions()
    assert (home.name, home.host, home.port) == ("us-east-1", "ec2.us-east-1.amazonaws.com", 443)
