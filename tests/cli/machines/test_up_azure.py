"""`up` on our model of Azure by the command line, from the headline command to nothing left."""

from __future__ import annotations

import base64
from collections import Counter
from decimal import Decimal

import pytest

from tests.cli.azure_line import Line
from tests.cli.line import on_time_of, told_id
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import DISKS, MACHINES
from tests.clouds.azure.sdk import Sdk

__all__ = ["azure_arm", "azure_process"]
CALLER = "203.0.113.7"
FROM = f"--ssh-from {CALLER}"
UP = f"up --gpu t4 --yes --no-wait {FROM} --name otter"


@pytest.fixture
def line(own_home, capsys, azure_arm, monkeypatch):
    on_time_of(monkeypatch, azure_arm)
    return Line(own_home, capsys, azure_arm)


@pytest.fixture
def bare(line):
    """A home without a config.toml."""
    (line.home / "config.toml").unlink()
    return line


def group_of(line):
    (one,) = line.azure.instances(live=True)
    return one.group


def test_the_headline_command_needs_no_settings_and_down_leaves_nothing_at_all(bare):
    said = bare(f"up --provider azure --gpu t4 --spot --yes --no-wait {FROM} -o json")
    assert said.code == 0, said.out + said.err
    machine, plan = said.json["machine"], said.json["plan"]
    assert (machine["provider"], machine["account"], machine["market"]) == ("azure", "azure", "spot")
    assert (machine["instance_type"], machine["gpus"][0]["name"]) == ("Standard_NC4as_T4_v3", "T4")
    assert plan["price"]["usd_per_hour"]
    (made,) = bare.azure.instances(live=True)
    assert (made.state, made.spot, made.tags["cloudgpu-id"]) == ("running", True, machine["id"])
    assert bare("ls --refresh -o json").json["machines"][0]["state"] == "running"
    assert bare("down --yes").code == 0
    assert (bare.azure.resources(), bare.azure.billable()) == ([], [])


def test_a_machine_is_made_as_the_plan_says_and_closed_to_all_but_the_caller(line):
    said = line(UP, "--spot --disk 200 --max-price 0.4 -o json")
    assert said.code == 0, said.out + said.err
    azure, group = line.azure, group_of(line)
    facts = azure.resource(group).facts
    assert (facts["priority"], facts["evictionPolicy"]) == ("Spot", "Deallocate")
    assert facts["billingProfile"] == {"maxPrice": 0.4}
    assert facts["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"] is True
    disk = facts["storageProfile"]["osDisk"]
    assert (disk["diskSizeGB"], disk["deleteOption"]) == (200, "Delete")
    assert disk["name"].startswith(group), "its name tells whose it is: it has no tags"
    assert "identity" not in azure.resource(group).body
    asked = [CALLER, "203.0.113.8", "8.8.8.8"]
    assert [azure.allows(group, address, 22) for address in asked] == [True, False, False]
    assert not azure.allows(group, CALLER, 8888)
    for thing in azure.model.resources.values():
        assert thing.kind == DISKS or thing.kind.count("/") > 1 or thing.tags["cloudgpu-id"], thing.id


def test_the_host_key_goes_to_the_machine_and_is_never_shown_again(line):
    assert line(UP).code == 0
    (call,) = line.azure.called("VirtualMachines.CreateOrUpdate")
    given = base64.b64decode(call.body["properties"]["osProfile"]["customData"])
    assert b"PRIVATE KEY" in given
    assert any("ssh_keys" in part.text for part in line.azure.user_data(group_of(line)))
    assert "customData" not in str(line.azure.resource(group_of(line)).body)


def test_the_same_command_again_returns_the_same_machine(line):
    first, second = line(UP, "-o json").json, line(UP, "-o json").json
    assert (first["found"], second["found"]) == (False, True)
    assert first["machine"]["id"] == second["machine"]["id"]
    assert len(line.azure.called("VirtualMachines.CreateOrUpdate")) == 1


@pytest.mark.parametrize(
    ("words", "size", "gpus"),
    [
        ("--instance-type Standard_ND96asr_v4 --spot", "Standard_ND96asr_v4", 1),
        ("--instance-type Standard_NV6ads_A10_v5", "Standard_NV6ads_A10_v5", 0.1667),
    ],
)
def test_every_sort_of_machine_is_launched_as_azure_sells_it(line, words, size, gpus):
    said = line(f"up --yes --no-wait {FROM} {words} -o json")
    assert said.code == 0, said.out + said.err
    (made,) = line.azure.instances()
    assert made.size == size
    assert said.json["machine"]["gpus"][0]["share"] == pytest.approx(gpus, abs=0.01)


def test_a_stop_deallocates_and_a_start_brings_it_back_to_the_same_address(line):
    assert line(UP).code == 0
    (made,) = line.azure.instances()
    stopped = line("stop --yes -o json")
    assert stopped.code == 0, stopped.out
    (machine,) = line("ls -o json").json["machines"]
    assert (machine["state"], machine["billed"]) == ("deallocated", False)
    assert [kind for kind, _ in line.azure.billable()] == ["address", "disk"]
    assert f"${float(machine['stopped_usd_per_month']):.2f}/mo" in line("ls").out, "not what an hour of it would cost"
    assert line("start --yes --no-wait").code == 0
    (again,) = line.azure.instances()
    assert (again.state, again.addresses) == ("running", made.addresses)
    assert line("down --yes").code == 0
    assert line.azure.resources() == []


def test_a_machine_that_was_shut_down_from_inside_is_shown_as_billed_and_a_stop_ends_that(line):
    assert line(UP).code == 0
    line.azure.shut_down(group_of(line))
    (machine,) = line("ls --refresh -o json").json["machines"]
    assert (machine["state"], machine["billed"]) == ("stopped", True)
    assert "still billed until cloudgpu stop otter" in " ".join(line("ls").out.split())
    assert "stopped (billed)" in line("show otter").out
    assert line("stop --yes").code == 0
    assert line.azure.instance(group_of(line)).state == "deallocated"
    assert line("ls -o json").json["machines"][0]["billed"] is False


def test_an_eviction_is_seen_with_its_reason_and_a_start_goes_on(line):
    assert line(UP, "--spot").code == 0
    group = group_of(line)
    line.azure.advance(600)
    line.azure.interrupt(group)
    (machine,) = line("ls --refresh -o json").json["machines"]
    assert (machine["state"], machine["billed"], machine["reason"]) == ("deallocated", False, "interrupted")
    assert line("image save otter --name asleep --yes").code == 0
    assert line("start --yes --no-wait").code == 0
    assert line.azure.instance(group).state == "running"


def test_lease_and_hold_are_written_where_the_machine_reads_them_and_erase_nothing(line):
    assert line(UP).code == 0
    before = line.azure.instances()[0].tags
    assert line("hold otter 1h --yes").code == 0
    assert line("extend otter 2h --yes").code == 0
    after = line.azure.instances()[0].tags
    assert int(after["cloudgpu-expires"]) > int(before["cloudgpu-expires"])
    assert int(after["cloudgpu-hold-until"]) > 0
    assert set(before) <= set(after)


def test_a_listing_that_tells_no_address_takes_none_away(line):
    assert line(UP).code == 0
    known = line("show otter --refresh -o json").json["address"]
    assert known["host"] in line.azure.instances()[0].addresses
    assert line("ls --refresh").code == 0
    assert line("show otter -o json").json["address"] == known
    assert known["host"] in (line.home / "ssh_config").read_text()
    assert line("stop --yes").code == 0
    assert line("show otter -o json").json["address"] is None


def test_another_caller_is_let_in_for_one_machine_and_the_one_before_is_out(line):
    assert line(UP).code == 0
    said = line("allow otter --from 203.0.113.8")
    assert (said.code, "AWS" in said.out) == (0, False)
    azure, group = line.azure, group_of(line)
    assert [azure.allows(group, one, 22) for one in (CALLER, "203.0.113.8")] == [False, True]


def test_an_image_of_a_machine_is_saved_and_launched_and_taken_away(line):
    assert line(UP).code == 0
    saved = line("image save otter --name trained --yes")
    assert saved.code == 0, saved.err
    assert line.azure.instances(live=True)[0].state == "running"
    again = line(f"up --gpu t4 --yes --no-wait {FROM} --name fox --image trained -o json")
    assert again.code == 0, again.out + again.err
    assert line("down --all --yes").code == 0
    assert {kind for kind, _ in line.azure.billable()} <= {"image", "snapshot", "version"}
    assert line("image rm trained --yes").code == 0
    assert line.azure.billable() == []


def test_a_volume_outlives_its_machine_and_binds_the_next(line):
    first = line(f"{UP} --volume data:50 -o json")
    assert first.code == 0, first.out + first.err
    assert line("down --yes").code == 0
    assert [kind for kind, _ in line.azure.billable()] == ["disk"]
    second = line(f"up --gpu t4 --yes --no-wait {FROM} --name fox --volume data -o json")
    assert second.code == 0, second.out + second.err
    assert second.json["machine"]["region"] == first.json["machine"]["region"]
    disks = line.azure.resource(group_of(line)).facts["storageProfile"]["dataDisks"]
    assert [one["diskSizeGB"] for one in disks] == [50]


CHANGES = {"ResourceGroups": 1, "NetworkSecurityGroups": 1, "VirtualNetworks": 1, "VirtualMachines": 1}


def test_up_asks_azure_no_more_than_it_needs(line):
    assert line(UP).code == 0
    said, called = line.calls(f"up --gpu t4 --yes --no-wait {FROM} --name fox --new --region eastus")
    assert said.code == 0, said.err
    made = Counter(one for one in called if not one.startswith("Token."))
    changes = {name.partition(".")[0]: many for name, many in made.items() if name.endswith(".CreateOrUpdate")}
    assert changes == CHANGES
    assert made["ResourceSkus.List"] == made["Usage.List"] == made["VirtualMachineImages.List"] == 1
    assert sum(made.values()) <= 13, made


def test_the_plan_fits_a_terminal_and_names_what_is_absent(line):
    said = line(f"up --gpu t4 --spot --dry-run {FROM} --volume data:50 -v")
    assert said.code == 0, said.err
    text = " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 80
    for words in (
        "system disk of",
        "volume data of 50 GB",
        f"from {CALLER}/32",
        "a shutdown from inside (idle time, lease) does not end what it costs",
        "no timer in the cloud",
        "30 seconds' notice",
    ):
        assert words in text
    assert not line.azure.resources(MACHINES)


def test_the_plan_prices_the_disk_and_the_address_beside_the_machine(line):
    plan = line(f"up --gpu t4 --disk 100 --dry-run {FROM} -o json").json["plan"]
    assert plan["unpriced"] == []
    by_name = {extra["what"].split(" of ")[0]: Decimal(extra["usd_per_month"]) for extra in plan["attached_costs"]}
    assert by_name["system disk"] == Decimal("19.71"), "the class that 100 GB fall into, not 100 GB"
    assert by_name["public IPv4 address"] == Decimal("3.65")


def test_every_answer_names_the_machine_as_the_console_does(line):
    told_id(line, lambda: group_of(line), UP)


def test_a_size_that_is_never_sold_as_spot_says_so_and_no_later_try_helps(line):
    line.azure.model.without_spot.add("Standard_NC4as_T4_v3")
    wish = f"up --instance-type Standard_NC4as_T4_v3 --spot --dry-run {FROM} -o json"
    said = line(wish)
    error = said.json["error"]
    assert (said.code, error["field"], error["value"]) == (2, "--spot", "spot")
    assert error["message"] == "azure sells Standard_NC4as_T4_v3 only on demand in the regions of account lab."
    assert line(f"{wish} --or-on-demand").json["plan"]["market"] == "on_demand"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "lets everybody (*) reach port 22"),
        ({"sourceAddressPrefix": "Internet", "destinationPortRange": "*"}, "(Internet) reach every port"),
        ({"sourceAddressPrefix": "0.0.0.0/0", "destinationPortRange": "8888"}, "reach port 8888"),
        ({"sourceAddressPrefix": "::/0"}, "(::/0)"),
        ({"sourceAddressPrefix": "10.0.0.0/8"}, ""),
        ({"priority": 4050}, ""),  # after the rule that shuts everybody out
        ({"access": "Deny"}, ""),
    ],
)
def test_a_rule_that_somebody_opened_in_a_machines_own_group_is_told_by_doctor(line, more, says):
    assert line(UP).code == 0
    group, usual = group_of(line), {"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 150}
    usual |= {"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*"}
    rule = {**usual, "destinationPortRange": "22", **more}
    Sdk(line.azure).network.security_rules.begin_create_or_update(group, group, "mine", {"properties": rule}).result()
    (check,) = [one for one in line("doctor -o json").json["checks"] if one["name"].startswith("rules made by hand")]
    assert (check["verdict"], says in check["message"]) == ("warn" if says else "ok", True)
    if says:
        assert f"az network nsg rule delete --resource-group {group} --nsg-name {group} --name mine" in check["next"]
    assert "RISK" not in line(f"{UP} --new --dry-run").out  # a further machine has a group of its own
