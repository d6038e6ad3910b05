"""What machines on Azure cost, by the command line on our model of it: what ends, what goes on being billed."""

from __future__ import annotations

from decimal import Decimal

import pytest
import requests

from cloudgpu.core.values.times import from_iso
from tests.cli.azure_line import CONFIG, Line
from tests.cli.line import on_time_of
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.model import SUBSCRIPTION, Thing, machine_id
from tests.clouds.azure.roles import definition_id

__all__ = ["azure_arm", "azure_process"]
UP = (
    "up --yes --no-wait --ssh-from 203.0.113.7 --name otter --instance-type Standard_NC4as_T4_v3 --region eastus "
    "--disk 100"
)
HOUR, DAY = 3600, 24 * 3600
MONTH_H = 730  # hours of a month, by which a disk's price is counted
ROLE = "7d0c1d0e-0c55-4c1c-9d6b-2f0f0a6c0001"
MAY = ("Microsoft.Compute/virtualMachines/deallocate/action", "Microsoft.Resources/tags/write")


@pytest.fixture
def line(own_home, capsys, azure_arm, monkeypatch):
    on_time_of(monkeypatch, azure_arm)
    return Line(own_home, capsys, azure_arm)


def launched(line, *more):
    said = line(UP, *more, "-o json")
    assert said.code == 0, said.out + said.err
    (made,) = line.azure.instances()
    return said.json["machine"], made.id


def shown(line):
    """Look at the one machine now, and return what is shown of it."""
    assert line("ls --refresh").code == 0
    (machine,) = line("ls --all -o json").json["machines"]
    return machine


def kept_usd(machine, seconds):
    """Return what its disk and its address cost in that time: both are kept while it is deallocated."""
    monthly = sum(Decimal(one["usd_per_month"]) for one in machine["attached_costs"])
    assert monthly > 20
    return monthly * Decimal(seconds) / MONTH_H / HOUR


def near(found, wanted):
    """Say whether sums are the same but for cents, and months of other lengths."""
    return abs(Decimal(found) - wanted) < Decimal("0.05") + wanted / 25


@pytest.mark.soak
def test_a_machine_that_shut_itself_down_costs_as_if_it_ran_until_a_pass_deallocates_it(line):
    made, id_ = launched(line)
    price = Decimal(made["price"]["usd_per_hour"])
    line.azure.advance(2 * HOUR)
    line("ls --refresh")
    line.azure.shut_down(id_)
    machine = shown(line)
    assert (machine["state"], machine["billed"], machine["reason"]) == ("stopped", True, "shut down, not deallocated")
    line.azure.advance(2 * HOUR)
    assert near(shown(line)["spent_usd"], 4 * price + kept_usd(machine, 4 * HOUR))
    for _ in range(2):  # the first pass warns
        assert line("reap").code == 0
        line.azure.advance(11 * 60)
    machine = shown(line)
    assert (machine["state"], machine["billed"]) == ("deallocated", False)
    assert line.azure.billable() == [one for one in line.azure.billable() if one[0] in {"address", "disk"}]
    before = Decimal(machine["spent_usd"])
    line.azure.advance(10 * DAY)
    assert near(Decimal(shown(line)["spent_usd"]) - before, kept_usd(machine, 10 * DAY))


@pytest.mark.soak
def test_an_eviction_ends_the_bill_of_the_machine_and_not_that_of_its_disk(line):
    made, id_ = launched(line, "--spot")
    line.azure.advance(3 * HOUR)
    line.azure.interrupt(id_)
    line.azure.advance(2 * DAY)
    machine = shown(line)
    assert (machine["state"], machine["reason"]) == ("deallocated", "interrupted")
    price = Decimal(made["price"]["usd_per_hour"])
    assert near(machine["spent_usd"], 3 * price + kept_usd(machine, 3 * HOUR + 2 * DAY))


def test_a_launch_that_failed_leaves_nothing_in_the_bill(line):
    line.azure.stockout()
    assert line(UP).code == 4
    assert line.azure.billable() == []
    line.azure.advance(DAY)
    assert Decimal(line("cost -o json").json["total"]["usd"]) < Decimal("0.05")


# What ends a machine if everything else fails.


@pytest.fixture
def guarded(line):
    """An account that init has prepared: a role of machines, and timers."""
    actions = ["Microsoft.Compute/virtualMachines/read", "Microsoft.Resources/tags/read", *MAY]
    facts = {
        "roleName": "cloudgpu machine",
        "type": "CustomRole",
        "assignableScopes": [f"/subscriptions/{SUBSCRIPTION}"],
    }
    facts["permissions"] = [{"actions": actions, "notActions": [], "dataActions": [], "notDataActions": []}]
    line.azure.model.definitions[ROLE] = Thing(definition_id(ROLE), {"id": definition_id(ROLE), "properties": facts})
    line.config(f'{CONFIG}machine_role = "{definition_id(ROLE)}"\ntimers = true\n')
    return line


@pytest.mark.soak
def test_without_an_identity_the_agent_is_told_as_no_layer(line):
    launched(line)
    assert "the agent: none, as a shutdown from inside does not end billing" in line("ls -v").out
    assert shown(line)["guards"]["agent"] is None


@pytest.mark.soak
def test_a_machine_may_deallocate_and_tag_itself_and_nobody_else(guarded):
    _, id_ = launched(guarded)
    assert "the agent in " in guarded("ls -v").out
    assert guarded(UP.replace("otter", "fox"), "--new").code == 0
    azure = guarded.azure
    other = next(one.id for one in azure.instances() if one.id != id_)
    assert all(azure.may(id_, one, id_) for one in MAY)
    assert not any(azure.may(id_, one, other) for one in MAY)
    for one in ("virtualMachines/delete", "virtualMachines/write", "virtualMachines/start/action"):
        assert not azure.may(id_, f"Microsoft.Compute/{one}", id_)
    headers = {"Authorization": f"Bearer {azure.machine_token(id_)}"}
    for whose, status in ((other, 403), (id_, 202)):
        group = whose.partition("/")[2]
        url = f"{azure.url}{machine_id(group)}/deallocate?api-version=2024-03-01"
        assert requests.post(url, headers=headers, timeout=10).status_code == status
    machines = {one["name"]: one for one in guarded("ls --refresh -o json").json["machines"]}
    assert (machines["otter"]["state"], machines["otter"]["billed"]) == ("deallocated", False)
    assert machines["fox"]["state"] == "running"
    assert guarded("down --all --yes").code == 0
    assert (azure.resources(), azure.model.assignments) == ([], {})


@pytest.mark.soak
def test_a_role_that_could_not_be_given_loses_no_machine(guarded):
    guarded.azure.faults.deny("RoleAssignments.Create")
    _, id_ = launched(guarded)
    assert guarded.azure.instance(id_).state == "running"
    assert not any(guarded.azure.may(id_, one, id_) for one in MAY)
    assert guarded("down --all --yes").code == 0
    assert guarded.azure.resources() == []


@pytest.mark.soak
def test_with_agent_and_reaper_dead_a_machine_is_deallocated_at_its_renew_until(guarded):
    made, id_ = launched(guarded, "--lease 2h --renew-until 5h")
    until = from_iso(made["renew_until"])
    guarded.azure.advance((until - guarded.azure.clock.now()).total_seconds() - 30)
    assert guarded.azure.instance(id_).state == "running"
    guarded.azure.advance(HOUR)
    assert guarded.azure.instance(id_).state == "deallocated"
    assert shown(guarded)["billed"] is False


@pytest.mark.soak
def test_a_lease_that_is_extended_moves_the_timer(guarded):
    _, id_ = launched(guarded, "--lease 2h --renew-until 5h")
    assert guarded("extend otter 10h --yes").code == 0
    guarded.azure.advance(6 * HOUR)
    assert guarded.azure.instance(id_).state == "running"
    states = [one["state"] for one in guarded.azure.model.timers.values()]
    assert sorted(states) in (["Cancelled", "PendingScheduling"], ["Cancelled", "Scheduled"])


def test_the_plan_of_a_prepared_account_names_every_layer(guarded):
    plan = guarded(f"{UP.replace('--yes', '--dry-run')} -o json").json["plan"]
    text = " ".join(plan["guards"] if isinstance(plan["guards"], list) else [str(plan["guards"])])
    assert "timer" in text.lower()
    assert not any("does not end what it costs" in remark for remark in plan["notes"])


@pytest.mark.soak
def test_a_size_that_was_changed_while_it_ran_costs_either_price_since_the_last_look(line):
    """Azure restarts the machine and tells no time; a size without a price is unpriced, never at the old price."""
    made, id_ = launched(line)
    line.azure.advance(HOUR)
    shown(line)
    thing = line.azure.resource(id_)
    thing.facts["hardwareProfile"]["vmSize"] = "Standard_NC16as_T4_v3"
    line.azure.advance(HOUR)
    machine = shown(line)
    assert machine["instance_type"] == "Standard_NC16as_T4_v3"
    old, new = (Decimal(one["price"]["usd_per_hour"]) for one in (made, machine))
    assert new > 2 * old
    assert near(machine["spent_usd"], old + kept_usd(machine, 2 * HOUR)), "at least: the change was just seen"
    (group,) = line("cost -o json").json["groups"]
    assert near(Decimal(group["high_usd"]) - Decimal(group["usd"]), new)
    thing.facts["hardwareProfile"]["vmSize"] = "Standard_D4s_v5"
    line.azure.advance(60)
    machine = shown(line)
    assert (machine["instance_type"], machine["price"], machine["unpriced"]) == ("Standard_D4s_v5", None, ["instance"])
