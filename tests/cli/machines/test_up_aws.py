"""`up` on our model of AWS by the command line, from the headline command to nothing left."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from cloudgpu.cli.common import open_session
from cloudgpu.providers.registry import kinds
from tests.cli.aws_line import Line
from tests.cli.line import told_id
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.images import PUBLIC
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]
FROM = "--ssh-from 203.0.113.7"


@pytest.fixture
def line(own_home, capsys, aws):
    return Line(own_home, capsys, aws)


@pytest.fixture
def bare(line):
    """A home without a config.toml."""
    (line.home / "config.toml").unlink()
    return line


def test_the_headline_command_needs_no_settings(bare):
    said = bare(f"up --provider aws --gpu v100 --spot --yes --no-wait {FROM} -o json")
    assert said.code == 0, said.out + said.err
    machine, plan = said.json["machine"], said.json["plan"]
    assert (machine["provider"], machine["account"], machine["market"]) == ("aws", "aws", "spot")
    assert (machine["instance_type"], machine["gpus"][0]["name"]) == ("p3.2xlarge", "V100-16GB")
    assert plan["price"]["basis"] == "quoted"
    (instance,) = bare.aws.instances(live=True)
    assert bare("ls --refresh -o json").json["machines"][0]["state"] == "running"
    assert bare("down --yes").code == 0
    assert bare.aws.instances(live=True) == []
    assert client(region=machine["region"]).describe_volumes()["Volumes"] == []
    assert instance.state == "terminated"


def test_the_same_command_again_returns_the_same_machine(bare):
    words = f"up --provider aws --gpu v100 --spot --yes --no-wait {FROM} -o json"
    first, second = bare(words).json, bare(words).json
    assert (first["found"], second["found"]) == (False, True)
    assert first["machine"]["id"] == second["machine"]["id"]
    assert len(bare.aws.called("RunInstances")) == 1


def test_the_plan_of_the_headline_command_fits_a_terminal_and_says_what_matters(line):
    said = line(f"up --gpu v100 --spot --dry-run {FROM} --volume data:50 -v")
    text = " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 80
    for words in (
        "system disk of 64 GB: $5.12 a month",
        "public IPv4 address: $3.65 a month",
        "volume data of 50 GB: $4.00 a month",
        "parks it: AWS cannot stop a one-time spot machine",
        "launches a new machine from that: at most $7.20 a month",  # the image, and the volume
        "from 203.0.113.7/32",
        "is bound to us-",
        "a timer on the machine",
    ):
        assert words in text


def test_without_a_gpu_it_is_the_cheapest_machine_with_one(line):
    plan = line(f"up --dry-run {FROM} -o json").json["plan"]
    assert plan["gpus"]
    assert plan["gpus"][0]["share"] == 1
    cheaper = line(f"up --dry-run --max-price {float(plan['price']['usd_per_hour']) - 0.0001:.4f} {FROM} -o json")
    assert (cheaper.code, cheaper.json["error"]["field"]) == (4, "--max-price")


def test_spot_that_is_not_there_becomes_on_demand_only_where_that_was_allowed(line):
    line.aws.faults.add(action="RunInstances", market="spot", times=9, error="InsufficientInstanceCapacity", status=400)
    words = f"up --gpu v100 --spot --yes --no-wait {FROM}"
    said = line(f"{words} -o json")
    assert (said.code, said.json["error"]["kind"]) == (4, "no_capacity")
    assert line.aws.instances(live=True) == []
    said = line(f"{words} --or-on-demand --name other -o json")
    assert said.code == 0, said.out
    assert said.json["machine"]["market"] == "on_demand"
    assert len(line.aws.instances(live=True)) == 1


def test_a_persistent_request_can_be_stopped_and_the_plan_says_so(line):
    plan = line(f"up --gpu v100 --spot --persistent --dry-run {FROM} -o json").json["plan"]
    assert plan["stop_effect"].startswith("keeps its disk and its spot request")
    assert [extra["what"] for extra in plan["attached_costs"] if extra["while_stopped"]] == ["system disk of 64 GB"]


LOOKS = ["DescribeInstanceTypeOfferings", "GetParameters", "DescribeSubnets", "GetServiceQuota", "DescribeImages"]
NETWORK = ["DescribeKeyPairs", "DescribeSecurityGroups"]
MADE_ONCE = ["ImportKeyPair", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress"]


def test_up_asks_aws_no_more_than_it_needs(line):
    def calls(words=""):
        begun = len(line.aws.calls)
        said = line(f"up --gpu v100 --region us-east-1 --yes --no-wait --new {FROM}{words}")
        assert said.code == 0, said.err
        return [call.action for call in line.aws.calls[begun:]]

    first, second, spot = calls(), calls(), calls(" --spot")
    whose = "GetCallerIdentity"  # the account's number stands in the launch's line
    in_all_regions = ["DescribeInstances"] * 2  # the look at the account, a quarter of an hour old at most
    assert sorted(first) == sorted([*LOOKS, *in_all_regions, *NETWORK, *MADE_ONCE, whose, "RunInstances"])
    group = "DescribeSecurityGroups"  # the plan says what was made by hand in it; before the first launch there is none
    assert sorted(second) == sorted([*LOOKS, group, *NETWORK, whose, "RunInstances"])
    assert sorted(spot) == sorted([*LOOKS, group, "DescribeSpotPriceHistory", *NETWORK, whose, "RunInstances"])
    assert [one[-1] for one in (first, second, spot)] == ["RunInstances"] * 3


def test_the_help_names_every_provider_that_can_be_launched_on(line):
    said = line("up --help")
    named = re.search(r"Where to launch: ([a-z, ]+)\.", " ".join(said.out.split()))
    assert named
    assert set(re.split(r", | or ", named[1])) == set(kinds())


def test_the_plan_says_what_all_of_it_costs_as_the_budget_beside_it_counts(line):
    line("budget set lab --amount 9999 --period total")
    plan = line(f"up --gpu v100 --region us-east-1 --lease 8h --dry-run {FROM} --volume data:50 -o json").json["plan"]
    whole, machine = (Decimal(plan[f"{what}_to_renew_until_usd"]) for what in ("cost", "machine"))
    assert machine == Decimal(plan["price"]["usd_per_hour"]) * (plan["renew_until_s"] // 3600)
    monthly = sum(Decimal(extra["usd_per_month"]) for extra in plan["attached_costs"] if extra["while_running"])
    assert whole - machine == pytest.approx(monthly * plan["renew_until_s"] / 3600 / 730, rel=Decimal("0.03"))
    assert plan["unpriced"] == []
    seconds = Decimal(plan["price"]["usd_per_hour"]) / 3600 * 5  # budgets count from now, and the last second whole
    assert abs(Decimal(plan["budgets"][0]["requested_usd"]) - whole) <= seconds


def test_a_volume_that_is_there_is_not_paid_again_by_a_plan(line):
    words = f"up --gpu v100 --region us-east-1 --zone us-east-1b {FROM} --volume data:50"
    line("budget set lab --amount 9999 --period total")
    new = line(f"{words} --dry-run -o json").json["plan"]
    assert line(f"{words} --yes --no-wait --name first").code == 0
    assert line("down first --yes").code == 0
    old = line(f"{words} --dry-run -o json").json["plan"]
    assert Decimal(old["cost_to_renew_until_usd"]) < Decimal(new["cost_to_renew_until_usd"]) - Decimal("0.3")
    assert float(old["budgets"][0]["requested_usd"]) == pytest.approx(float(old["cost_to_renew_until_usd"]), abs=0.01)


def test_an_image_that_is_billed_by_the_started_hour_is_counted_so_and_so_is_an_image_of_its_machine(line):
    suse = next(one for one in PUBLIC if one.platform == "SUSE Linux").id_in("us-east-1")
    words = f"up --gpu v100 --region us-east-1 --image {suse} --lease 61m --renew-until 61m {FROM}"
    plan = line(f"{words} --dry-run -o json").json["plan"]
    assert Decimal(plan["machine_to_lease_end_usd"]) == 2 * Decimal(plan["price"]["usd_per_hour"])
    assert any("billed by the started hour" in remark for remark in plan["notes"])
    assert line(f"{words} --yes --no-wait --name green").code == 0
    (row,) = open_session().ledger.machines()
    assert row.licence == "suse"
    assert {use.licence for use in row.open_usage if use.resource == "instance"} == {"suse"}
    assert line("image save green --name mine --yes").code == 0
    own = line(f"{words.replace(suse, 'mine')} --new --dry-run -o json").json["plan"]
    assert own["machine_to_lease_end_usd"] == plan["machine_to_lease_end_usd"]


def test_every_answer_names_the_machine_as_the_console_does(line):
    told_id(line, lambda: line.aws.instances(live=True)[0].id, f"up --gpu t4 --yes --no-wait {FROM}")


def interactive(group, cidr="", port=22, **more):
    """A rule that somebody makes in the console."""
    source = {"IpRanges": [{"CidrIp": cidr}]} if cidr else more
    ports = {"IpProtocol": "-1"} if port is None else {"IpProtocol": "tcp", "FromPort": port, "ToPort": port}
    return {"GroupId": group, "IpPermissions": [{**ports, **source}]}


OPENED = [
    ({"cidr": "0.0.0.0/0"}, "lets everybody (0.0.0.0/0) reach tcp port 22", "IpRanges=[{CidrIp=0.0.0.0/0}]'"),
    ({"cidr": "0.0.0.0/1", "port": 8888}, "reach tcp port 8888", "FromPort=8888,ToPort=8888"),
    ({"cidr": "0.0.0.0/0", "port": None}, "reach every port", "'IpProtocol=-1,IpRanges="),
    ({"Ipv6Ranges": [{"CidrIpv6": "::/0"}]}, "everybody (::/0)", "Ipv6Ranges=[{CidrIpv6=::/0}]'"),
    ({"PrefixListIds": [{"PrefixListId": "pl-1a2b3c4d"}]}, "prefix list pl-1a2b3c4d", "PrefixListId=pl-1a2b3c4d"),
]


def test_a_rule_that_somebody_opened_in_our_own_group_is_told_with_what_closes_it(line):
    up = f"up --gpu t4 --region us-east-1 --yes --no-wait --new {FROM}"
    assert line(up).code == 0
    plan = f"{up} --dry-run -o json"
    assert not [one for one in line(plan).json["plan"]["notes"] if "RISK" in one]
    (group,) = (one.id for one in line.aws.instances(live=True)[0].security_groups)
    for rule, says, command in OPENED:
        opened = interactive(group, **rule)
        client(region="us-east-1").authorize_security_group_ingress(**opened)
        (risk,) = [one for one in line(plan).json["plan"]["notes"] if one.startswith("RISK: ")]
        assert says in risk
        assert f"aws ec2 revoke-security-group-ingress --region us-east-1 --group-id {group} --ip-permissions" in risk
        assert command in risk
        found = line("doctor -o json").json["checks"]
        (check,) = [one for one in found if one["name"].startswith("rules made by hand")]
        assert (check["verdict"], says in check["message"], command in check["next"]) == ("warn", True, True)
        assert "RISK" in line(f"{up} --dry-run").out
        client(region="us-east-1").revoke_security_group_ingress(**opened)
    assert "RISK" not in line(f"{up} --dry-run").out


def test_a_rule_of_ours_and_a_small_network_made_by_hand_are_no_risk(line):
    up = "up --gpu t4 --region us-east-1 --yes --no-wait --new --ssh-from-anywhere"
    assert line(up).code == 0
    (group,) = (one.id for one in line.aws.instances(live=True)[0].security_groups)
    client(region="us-east-1").authorize_security_group_ingress(**interactive(group, "198.51.100.0/24", 443))
    assert "RISK" not in line(f"{up} --dry-run").out


@pytest.mark.parametrize("words", ["ls", "ls --refresh"])
def test_an_unknown_key_of_an_account_is_told_once_by_a_list_too(line, words):
    line.config('owner = "ada"\n[accounts.lab]\nprovider = "aws"\nregoins = ["us-east-1"]\n')
    said = line(words)
    assert said.err.count("accounts.lab.regoins is not an option of an aws account; did you mean 'regions'?") == 1
    assert said.code == (8 if "--refresh" in words else 0)
