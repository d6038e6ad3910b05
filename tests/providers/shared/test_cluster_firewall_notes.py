"""Clusters under somebody else's rules: what the plan says of who has to let their machines reach each other."""

from __future__ import annotations

from dataclasses import replace

from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import MachineConfiguration, Market
from cloudgpu.providers.shared.rules import cluster_firewall_notes
from cloudgpu.testing import as_nodes, make_attempt

ITEM = MachineConfiguration("gcp", "lab", "us-central1", "us-central1-a", "n1-standard-4", Market.ON_DEMAND)
THEIRS = Setup(network=Network(security_group="theirs"))


def request(count):
    return as_nodes(make_attempt(ITEM), count, engine="slurm")[0].request


def test_somebody_elses_rules_have_to_open_the_ports_and_the_plan_says_so():
    (said,) = cluster_firewall_notes(replace(request(4), setup=THEIRS), "security group has")
    assert said == ("your security group has to let the 4 machines reach each other on every port: cloudgpu opens none")


def test_nothing_is_said_of_one_machine_and_where_cloudgpu_opens_the_ports_itself():
    assert cluster_firewall_notes(replace(request(1), setup=THEIRS), "security group has") == ()
    assert cluster_firewall_notes(request(4), "security group has") == ()
    assert cluster_firewall_notes(make_attempt(ITEM).request, "security group has") == ()
