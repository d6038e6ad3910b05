"""Who may connect to a machine on Azure: one rule for each label, somebody's own rules left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure.network.security_rules import FIRST_PRIORITY, LAST_PRIORITY, free_priority
from tests.providers.azure.attempts import CALLER, attempt_at, calls, launched, provider_of

LAB = "198.51.100.0/24"


@pytest.fixture
def provider(azure_arm, tmp_path):
    return provider_of(azure_arm, tmp_path)


@pytest.fixture
def machine(provider):
    return launched(provider, attempt_at(provider)).id


def test_a_change_is_two_calls_and_none_is_one(azure_arm, provider, machine):
    with calls(azure_arm) as made:
        provider.allow(machine, "ada", LAB)
    assert made == ["NetworkSecurityGroups.Get", "SecurityRules.CreateOrUpdate"]
    assert azure_arm.allows(machine, "198.51.100.9", 22)
    with calls(azure_arm) as made:
        provider.allow(machine, "ada", LAB)
    assert made == ["NetworkSecurityGroups.Get"]


@pytest.mark.parametrize("label", ["x" * 100, "a.", "k3d9-", "cg-1f2e.k3d9"])
def test_any_label_is_told_again_as_it_was_given(provider, machine, label):
    provider.allow(machine, label, LAB)
    assert dict(provider.allowed(machine)) == {"caller": CALLER, label: LAB}
    provider.allow(machine, label, None)
    assert dict(provider.allowed(machine)) == {"caller": CALLER}


def test_what_is_no_label_is_refused(provider, machine):
    with pytest.raises(InvalidRequest) as caught:
        provider.allow(machine, "Ada Lovelace", LAB)
    assert caught.value.field == "label"


def test_a_rule_of_somebodys_own_stays_and_is_none_of_ours(azure_arm, provider, machine, sdk):
    group = machine.partition("/")[2]
    rule = {
        "protocol": "Tcp",
        "sourceAddressPrefix": LAB,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "8888",
        "access": "Allow",
        "direction": "Inbound",
        "priority": 101,
    }
    sdk.network.security_rules.begin_create_or_update(group, group, "mine", {"properties": rule}).result()
    assert dict(provider.allowed(machine)) == {"caller": CALLER}
    provider.allow(machine, "ada", LAB)
    assert azure_arm.allows(machine, "198.51.100.9", 8888)


def test_labels_that_are_let_in_at_once_do_not_take_each_others_place(provider, machine):
    names = [f"colleague-{number}" for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: provider.allow(machine, name, LAB), names))
    assert dict(provider.allowed(machine)) == {"caller": CALLER, **dict.fromkeys(names, LAB)}


def test_a_number_that_somebody_took_in_that_moment_is_chosen_anew(azure_arm, provider, machine):
    azure_arm.faults.add("SecurityRules.CreateOrUpdate", error="SecurityRuleConflict", times=2)
    provider.allow(machine, "ada", LAB)
    assert dict(provider.allowed(machine))["ada"] == LAB


def test_the_last_priority_is_given_and_after_it_one_clear_sentence():
    taken = [{"properties": {"priority": number}} for number in range(FIRST_PRIORITY, LAST_PRIORITY)]
    assert free_priority(taken) == LAST_PRIORITY
    with pytest.raises(InvalidRequest, match="All priorities of rules, 100 to 3999, are taken"):
        free_priority([*taken, {"properties": {"priority": LAST_PRIORITY}}])
