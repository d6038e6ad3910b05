"""Bad input about Azure, on our model of it: exit code, field, value, the way out; nothing launched or recorded."""

from __future__ import annotations

import pytest

from tests.cli import bad_input
from tests.cli.azure_line import Line
from tests.cli.bad_input import BARE, COMMON, Case
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.soak.crash_azure import is_read

__all__ = ["azure_arm", "azure_process"]
UP = "up --yes --ssh-from 203.0.113.7 --gpu t4 --region eastus"


@pytest.fixture
def line(own_home, capsys, azure_arm):
    return Line(own_home, capsys, azure_arm)


HOME = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/theirs/providers/Microsoft.Network"
SUBNET, GUARD = f"{HOME}/virtualNetworks/net/subnets/none", f"{HOME}/networkSecurityGroups/none"
UNNAMED = UP.replace(" --ssh-from 203.0.113.7", "")
PLACES = [
    Case(f"{BARE} --gpu t4 --region eatsus", "--region", "did you mean 'eastus'?", "Use eastus."),
    Case(f"{BARE} --gpu t4 --region us-east-1", "--region", "has no region 'us-east-1'", "Use one of: eastus"),
    Case(f"{BARE} --gpu t4 --region westeurope", "--region", "does not use westeurope", "config.toml"),
    Case(f"{UP} --zone westus2-1", "--zone", "is in westus2, not in eastus", "Leave --region out"),
    Case(f"{BARE} --gpu t4 --zone moon!", "--zone", "'moon!' is not a zone", "eastus-1"),
    Case(f"{BARE} --gpu t4 --zone eastus-9", "--zone", "no zone 'eastus-9'", "Use one of: eastus-1, eastus-2"),
    Case(f"{BARE} --gpu t4 --zone eastus-1", "--zone", "it does in eastus and westus2", "--region eastus", 4),
]
TYPES = [
    Case(f"{BARE} --instance-type Standard_NC4as_T4_v4", "--instance-type", "no size 'Standard_NC4as_T4_v4'", "Use "),
    Case(f"{BARE} --instance-type Standard_D4s_v5 --gpu t4", "--gpu", "has no GPU", "--instance-type out"),
    Case(f"{BARE} --instance-type Standard_NC24ads_A100_v4 --gpu t4", "--gpu", "has 1x A100-80GB", "--gpu or"),
    Case(f"{BARE} --gpu t4:3", "--gpu", "with 1 or 4", "--gpu t4:4", 4),
    Case(f"{BARE} --gpu k80", "--gpu", "launches it in no region", "Nearest by memory and speed", 4),
    Case(f"{BARE} --gpu v100", "--gpu", "launches it in no region", "Nearest by memory and speed", 4),  # retired
    Case(f"{UP} --max-price 0.1", "--max-price", "the cheapest offer costs $0.5260", "--max-price 0.526", 4),
]
DISKS = [
    Case(f"{UP} --disk 40000", "--disk", "disk of 40,000 GB cannot be", "to 32767 GB"),
    Case(f"{UP} --volume data:40000", "--volume", "volume of 40,000 GB cannot be", "data:32767"),
]
IMAGES = [
    Case(f"{UP} --image trained", "--image", "no image 'trained'", "cloudgpu image ls"),
    Case(f"{UP} --image microsoft-dsvm:ubuntu-hpc:9999:latest", "--image", "no image", "publisher:offer:sku:version"),
    Case(f"{UP} --image nonsense:x", "--image", "nonsense:x", "image"),
]
NETWORK = [
    Case(f"{UP} --subnet subnet-0", "--subnet", "'subnet-0' is not an id", "az network vnet subnet list"),
    Case(f"{UP} --subnet {SUBNET}", "--subnet", "no subnet", "az network vnet list"),
    Case(f"{UNNAMED} --security-group sg-0", "--security-group", "'sg-0' is not an id", "az network nsg list"),
    Case(f"{UNNAMED} --security-group {GUARD}", "--security-group", "no network security group none", "az network nsg"),
    Case(f"{UP} --security-group {GUARD}", "--ssh-from", "contradicts --security-group", "Leave --ssh-from out"),
]
MARKETS = [
    Case(f"{UP} --persistent", "--persistent", "for spot machines", "Add --spot"),
    Case(UP.replace("--yes ", ""), "--yes", "no terminal to ask on", "Add --yes"),
]
CASES = [*(case.on(UP) for case in COMMON), *PLACES, *TYPES, *DISKS, *IMAGES, *NETWORK, *MARKETS]


@pytest.mark.parametrize("case", CASES, ids=bad_input.named)
def test_bad_input_is_named_and_nothing_is_launched(case, line):
    check(case, line)


def check(case, line):
    bad_input.check(case, line, set())
    changed = [call.action for call in line.azure.calls if not is_read(call.action) and "Token." not in call.action]
    assert changed == []


def test_a_disk_that_is_smaller_than_the_image_is_said_and_nothing_stays(line):
    """Azure does not tell how large an image is before a machine is made of it."""
    said = line(f"{UP} --no-wait --disk 20 -o json")
    error = said.json["error"]
    assert (said.code, "20 GB is smaller than the size of the image 64 GB" in error["message"]) == (2, True)
    assert line.azure.resources() == []
    assert line("ls -o json").json["machines"] == []


def test_a_size_that_is_withheld_from_the_subscription_is_no_offer(line):
    line.azure.restrict("Standard_NC4as_T4_v3", "eastus")
    line.azure.restrict("Standard_NC4as_T4_v3", "westus2")
    size = "Standard_NC4as_T4_v3"
    said = line(f"up --yes --no-wait --ssh-from 203.0.113.7 --instance-type {size} -o json")
    assert said.code == 4, said.out
    assert not line.azure.called("VirtualMachines.CreateOrUpdate")
    assert "subscription" in said.json["error"]["message"] + str(said.json["error"]["next"])


@pytest.mark.parametrize("name", ["Standard NCASv3_T4 Family", "cores"])
def test_a_quota_of_nothing_is_named_with_the_request_that_raises_it(line, name):
    line.azure.quota("eastus", name, 3)
    case = Case(f"{UP} --instance-type Standard_NC4as_T4_v3", "quota", "allows 3 vCPUs", "portal.azure.com", 5)
    check(case, line)


@pytest.mark.soak
def test_a_volume_in_another_region_is_said_to_be_there(line):
    assert line(f"{UP} --no-wait --name otter --volume data:20").code == 0
    assert line("down --yes").code == 0
    begun = len(line.azure.calls)
    said = line(f"{UP.replace('eastus', 'westus2')} --no-wait --volume data -o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (2, "--zone"), error
    assert "volume data is in eastus" in error["message"]
    assert all(is_read(call.action) for call in line.azure.calls[begun:] if "Token." not in call.action)
    said = line(f"{UP} --no-wait --volume data:30 -o json")
    assert "has 20 GB, not 30" in said.json["error"]["message"]
