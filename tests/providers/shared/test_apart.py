"""Clusters on clouds where cloudgpu opens no ports between machines: an engine is refused, and the rest is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Available, Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.shared.rules import apart
from cloudgpu.testing import as_nodes, make_attempt

ITEM = Available("gcp", "lab", "us-central1", "us-central1-a", "n1-standard-4", Market.ON_DEMAND)


def request(count, engine):
    return as_nodes(make_attempt(ITEM), count, engine=engine)[0].request


def test_an_engine_on_several_machines_is_refused_before_anything_is_launched():
    with pytest.raises(InvalidRequest) as refused:
        apart(request(4, "slurm"), "Azure")
    assert (refused.value.field, refused.value.value) == ("--engine", "slurm")
    assert "--engine none" in refused.value.next


def test_without_an_engine_the_plan_says_that_they_cannot_reach_each_other():
    (said,) = apart(request(4, "none"), "Azure")
    assert said.startswith("the 4 machines cannot reach each other")


def test_one_machine_and_somebody_elses_security_group_are_taken():
    theirs = Setup(network=Network(security_group="theirs"))
    assert apart(request(1, "slurm"), "Azure") == ()
    assert apart(replace(request(4, "slurm"), setup=theirs), "Azure") == ()
    assert apart(make_attempt(ITEM).request, "Azure") == ()
