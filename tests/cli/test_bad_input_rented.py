"""Bad input about Lambda, RunPod and vast.ai, on our models of them: one sentence, nothing made or recorded."""

from __future__ import annotations

import pytest

from tests.cli import bad_input
from tests.cli.bad_input import Case
from tests.cli.line import Line, on_time_of
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
UPS = {  # what would go well
    "lambda": "up --yes --no-guard --gpu a10 --region us-east-1",
    "runpod": "up --yes --no-guard --gpu h100",
    "vast": "up --yes --no-guard --gpu rtx4090",
}
MADE = {"launch", "pods.create", "rent"}
EVERYWHERE = [
    Case("UP --max-price -1", "--max-price", "'-1' is not a price", "1.50"),
    Case("UP --disk big", "--disk", "'big' is not a size of a disk", "--disk 100"),
    Case("UP --volume data:0", "--volume", "'0' is not a size", "--volume data:200"),
    Case("UP --volume My/Data:20", "--volume", "'My/Data' cannot be a volume's name", "--volume data"),
    Case("UP --template jupiter", "template", "did you mean 'jupyter'?", "Use one of"),
    Case("UP --lease 4h --renew-until 2h", "--renew-until", "lease", "at least as long"),
    Case("UP --account lap", "account", "did you mean 'lab'?", "Use one of"),
    Case("UP --or-on-demand", "--or-on-demand", "for spot machines", "Add --spot"),
    Case("UP --nodes 0", "--nodes", "from 1 to 64", "--nodes 4"),
    Case("UP --nodes 10000", "--nodes", "10000 nodes are more", "AWS ParallelCluster"),
    Case("UP --trust nobody", "--trust", "'nobody' is not a valid trust", "cloud, datacenter, community"),
    Case("UP --jump=-oProxyCommand=x", "--jump", "is not a jump host", "bastion.example.org"),
    Case("UP --max-price 0.01", "--max-price", "the cheapest offer costs", "Allow --max-price", 4),
    Case("up --yes --no-guard --gpu v1000", "--gpu", "has no GPU 'v1000'; did you mean", "100"),
]
OWN = {
    "lambda": [
        Case(
            "up --yes --no-guard --gpu a10 --region moon",
            "--region",
            "lambda does not launch 1x a10 in moon",
            "leave --region out",
            4,
        ),
        Case("UP --spot", "--spot", "only on demand", "Drop --spot"),
        Case("UP --subnet subnet-1", "--subnet", "has no subnets", "Leave --subnet out"),
        Case("UP --security-group sg-1", "--security-group", "has no security groups", "Leave --security-group out"),
        Case(
            "up --yes --no-guard --instance-type gpu_9x_a10",
            "--instance-type",
            "nothing with --instance-type gpu_9x_a10",
            "Drop --instance-type",
            4,
        ),
        Case("up --yes --gpu a10", "--no-guard", "Only scheduled runs", "cloudgpu cron install"),
    ],
    "runpod": [
        Case("UP --region us-east-1", "--region", "does not launch 1x h100 in us-east-1", "leave --region out", 4),
        Case("UP --image pytorch", "--image", "not a container image with its tag", "--image runpod/pytorch:"),
        Case("UP --disk 9", "--disk", "of 9 GB cannot be", "10 to 4000 GB"),
        Case("UP --disk 5000", "--disk", "of 5,000 GB cannot be", "10 to 4000 GB"),
        Case("UP --subnet subnet-1", "--subnet", "no networks of your own", "Leave --subnet out"),
        Case("UP --volume data:100", "--volume", "has no data disks", "Leave --volume out"),
    ],
    "vast": [
        Case("UP --region us-east-1", "--region", "a region is a country's code", "NO"),
        Case("UP --zone m1;2", "--zone", "'m1;2' is not a zone", "m40001"),
        Case("UP --image pytorch/pytorch", "--image", "is not a container image with its tag", "pytorch/pytorch:"),
        Case("UP --disk 7", "--disk", "7 GB", "8 to 4000"),
        Case("UP --disk 5000", "--disk", "5,000 GB", "8 to 4000"),
        Case("UP --subnet subnet-1", "--subnet", "has no networks of your own", "Leave --subnet out"),
        Case("UP --security-group sg-1", "--security-group", "has no security groups", "Leave --security-group out"),
        Case("UP --volume data:100", "--volume", "has no data disks", "Leave --volume out"),
        Case("UP --nodes 2 --engine slurm", "--engine", "cannot reach each other", "--engine none"),
        Case("UP --spot", "--spot", "only jobs run there", "cloudgpu run --spot"),
        Case("up --yes --gpu rtx4090", "--no-guard", "Only scheduled runs", "cloudgpu cron install"),
    ],
}
CASES = [(place, case) for place, own in OWN.items() for case in (*(one.on(UPS[place]) for one in EVERYWHERE), *own)]


@pytest.fixture
def line(request, place, own_home, capsys, monkeypatch):
    server = request.getfixturevalue("lambdalabs" if place == "lambda" else place)
    on_time_of(monkeypatch, server)
    config = f'provider = "{place}"\nowner = "ada"\naddress_services = []\n[accounts.lab]\nprovider = "{place}"\n'
    return Line(own_home, capsys, server, config)


@pytest.mark.parametrize(("place", "case"), CASES, ids=[f"{place} {bad_input.named(case)}" for place, case in CASES])
def test_bad_input_is_named_and_nothing_is_launched(line, place, case):
    bad_input.check(case.on(UPS[place]), line, MADE)


@pytest.mark.parametrize("place", UPS)
def test_what_would_go_well_does(line, place):
    assert line(UPS[place], "--no-wait").code == 0
    assert line("ls -o json").json["machines"]
