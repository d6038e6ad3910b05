"""`cloudgpu bench network` between two machines on this computer, and what it refuses."""

from __future__ import annotations

import shutil

import pytest

from cloudgpu.cli.access.bench import _bench_text
from tests.cli.conftest import processes_of
from tests.cli.documents import faults_under

needs_iperf3 = pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")


@pytest.mark.soak
@needs_iperf3
def test_two_machines_are_measured_and_nothing_stays_running(cloudgpu):
    for name in ("fox", "owl"):
        assert cloudgpu("up", "--yes", "--name", name, "--template", "bare").code == 0
    done = cloudgpu("bench", "network", "fox", "owl", "--seconds", "1", "-o", "json", timeout=60)
    assert done.code == 0, done.err
    value = done.json
    assert not faults_under("bench-network", value)
    assert (value["sender"], value["receiver"], value["address"]) == ("owl", "fox", "127.0.0.1")
    assert value["gbit_per_s"] > 0.01
    assert value["expected_gbit_per_s"] is None
    assert not [one for one in processes_of(str(cloudgpu.home)) if "iperf3" in one.name()]

    for words, says in (
        (("fox",), "fox is not a cluster of two machines, and a network has two ends."),
        (("fox", "fox"), "fox and fox are one machine."),
        (("fox", "owl", "--expected", "0"), "0 is not a network from above 0 to 10,000 Gbit/s."),
        (("fox", "owl", "--with", "ping"), "'ping' does not measure a network"),
        (("fox", "owl", "--with", "nccl-tests"), "nccl-tests cannot run from fox: they need a cluster with Slurm"),
        (("fox", "owl", "--seconds", "11"), "11 is not in the range 1<=x<=10"),
    ):
        refused = cloudgpu("bench", "network", *words)
        assert refused.code == 2, words
        assert says in refused.err
    assert cloudgpu("bench", "network", "fox", "nobody").code == 7


def test_what_was_expected_is_said_and_why_it_may_be_less():
    value = {
        "sender": "owl",
        "receiver": "fox",
        "program": "iperf 3.12",
        "gbit_per_s": 95.5,
        "network_gbit_per_s": 400.0,
        "network_up_to_gbit_per_s": None,
        "network_fabric": "EFA",
        "expected_gbit_per_s": 320.0,
        "poor": True,
    }
    assert _bench_text(value).splitlines() == [
        "owl to fox: 95.5 Gbit/s (iperf 3.12)",
        "Expected: 320.0 Gbit/s, 0.8 of 400 (EFA)",
        "Poor: iperf3 measures TCP alone, without EFA. nccl-tests measure that.",
    ]
    own = {**value, "network_fabric": None, "network_gbit_per_s": 10.0, "expected_gbit_per_s": 8.0, "gbit_per_s": 1.0}
    assert _bench_text(own).splitlines()[1:] == [
        "Expected: 8.00 Gbit/s, 0.8 of 10 (--expected)",
        "Poor: other traffic, or something of the network is not set up.",
    ]
    unknown = {**own, "network_gbit_per_s": None, "expected_gbit_per_s": None, "poor": None}
    assert _bench_text(unknown).splitlines()[1:] == ["Expected: not known; give the network's Gbit/s: --expected 10"]
