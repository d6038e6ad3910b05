"""`cloudgpu quota` on our model of Google Cloud, and what launches make of limits: GPUs are counted, not processors."""

from __future__ import annotations

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
T4, SPOT_T4, ALL = "NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS", "GPUS_ALL_REGIONS"
FIRST, SECOND = "us-central1", "us-west1"
UP = "up --gpu t4 --dry-run --ssh-from 203.0.113.7 -o json"


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


def test_a_gpu_names_the_limits_that_count_it_in_gpus(line, gcp):
    gcp.limit(T4, 4, FIRST)
    found = line("quota --gpu t4 --region us-central1 -o json").json
    assert {one["code"]: one["limit"] for one in found["quotas"]} == {T4: 4, SPOT_T4: 8, ALL: 8}
    needs = {(one["code"], one["market"]): (one["amount"], one["unit"]) for one in found["needs"]}
    assert needs[T4, "on_demand"] == needs[SPOT_T4, "spot"] == needs[ALL, "spot"] == (1, "GPU")
    said = line("quota --gpu t4:4 --region us-central1").out
    assert "In GPU, at once" in said
    assert f"n1-highmem-8+t4:4 on-demand counts 4 of {T4}." in said


@pytest.mark.parametrize("words", [f"{T4}=16", "enough --gpu t4"])
def test_a_higher_limit_is_asked_for_by_a_person_at_the_page_that_is_named(line, gcp, words):
    gcp.limit(T4, 0, FIRST)
    said = line(f"quota --region us-central1 --request {words} --yes -o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (2, "--request")
    assert "https://console.cloud.google.com/iam-admin/quotas?project=cloudgpu-test" in error["next"]
    assert f"metric={T4}" in error["next"]


def test_enough_means_the_limit_that_falls_short(line, gcp):
    gcp.limit(ALL, 0)
    error = line("quota --region us-central1 --request enough --gpu t4 --yes -o json").json["error"]
    assert (error["value"], f"metric={ALL}" in error["next"]) == (ALL, True)


def test_two_limits_that_fall_short_are_both_named(line, gcp):
    gcp.limit(T4, 1, FIRST)
    gcp.limit(ALL, 0)
    error = line("quota --region us-central1 --request enough --gpu t4 --count 2 --yes -o json").json["error"]
    assert error["next"].startswith("Ask there for 2: ")
    assert f"metric={T4}" in error["next"]
    assert f"{ALL} is too small, too: ask for 2: " in error["next"]
    assert error["next"].count("https://") == 2


def test_a_limit_of_one_region_sends_a_launch_to_the_next(line, gcp):
    gcp.limit(T4, 0, FIRST)
    said, made = line.calls(UP)
    assert said.json["plan"]["region"] == SECOND
    assert made.count("compute.regions.get") == 2  # the other zones and larger machines of the first are passed over


def test_a_limit_on_all_regions_is_not_tried_region_by_region(line, gcp):
    gcp.limit(ALL, 0)
    said, made = line.calls(UP)
    assert (said.code, said.json["error"]["value"]) == (5, ALL)
    assert f"metric={ALL}" in said.json["error"]["next"]
    assert made.count("compute.regions.get") == 1


def test_a_limit_that_one_gpu_meets_stops_machines_with_more_of_them(line, gcp):
    gcp.limit(T4, 1, FIRST)
    gcp.limit(T4, 1, SECOND)
    assert line(UP).json["plan"]["instance_type"] == "n1-standard-4+t4:1"
    said = line(UP.replace("t4", "t4:2"))
    assert (said.code, said.json["error"]["value"]) == (5, T4)
