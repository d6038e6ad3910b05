"""What one machine of a type can send, and how many of its spot machines are taken: the facts, with their sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudgpu import catalog
from cloudgpu.catalog import make
from cloudgpu.catalog.checks import catalogue_errors
from cloudgpu.catalog.read import monthly_interruption, network_of

LISTED = {  # as DescribeInstanceTypes has them: for long, for a while
    "g5.xlarge": (2.5, 10),
    "g5.12xlarge": (40, None),
    "g6.12xlarge": (40, None),
    "g5.48xlarge": (100, None),
    "g6e.48xlarge": (400, None),
    "p4d.24xlarge": (400, None),
    "p4de.24xlarge": (400, None),
    "p5.4xlarge": (100, None),
    "p5.48xlarge": (3200, None),
    "p5en.48xlarge": (3200, None),
    "p6-b200.48xlarge": (3200, None),
}


@pytest.mark.parametrize(("name", "gbit"), LISTED.items(), ids=LISTED)
def test_aws_types_have_the_network_that_ec2_names(name, gbit):
    found = network_of("aws", name)
    assert (found.gbit, found.burst_gbit) == gbit
    assert found.source
    assert found.as_of == "2026-10-27"


def test_infiniband_counts_before_ethernet_and_says_so():
    found = network_of("azure", "Standard_ND96isr_H100_v5")
    assert (found.gbit, found.fabric) == (3200, "InfiniBand")
    assert "Ethernet has 80" in found.note
    assert network_of("azure", "Standard_ND96asr_v4").is_unverified


def test_a_type_in_no_list_has_no_network():
    assert network_of("aws", "p3.2xlarge") is None
    assert network_of("local", "box") is None


def test_every_figure_has_a_source_and_those_from_memory_say_it_twice():
    for provider in ("aws", "gcp", "azure"):
        for shape in catalog.instance_types(provider):
            found = network_of(provider, shape.name)
            if found is not None:
                assert found.source
                assert 0 < found.gbit <= 10_000
                assert "recalled" not in found.source or "recalled" in found.note, shape.name


def test_the_spot_advisors_part_of_a_month_is_a_range():
    part, source = monthly_interruption("aws", "g5.xlarge", "us-east-1")
    assert 0 <= part[0] < part[1] <= 1
    assert "Spot Advisor" in source
    assert monthly_interruption("gcp", "g2-standard-4", "us-central1") is None
    assert monthly_interruption("aws", "g5.xlarge", "mars-1") is None


def test_a_network_without_a_type_is_a_fault():
    made = json.loads((Path(make.__file__).parent / "catalog.json").read_text())
    made["networks"]["aws"]["h9.large"] = [1.0, None, "Ethernet", "", 0, "2026-10-27"]
    assert list(catalogue_errors(made)) == ["aws h9.large has a network or spot interruptions and no type"]
