"""The files of a cluster, as they ran."""

from __future__ import annotations

import subprocess

from cloudgpu.core.clusters.conf import Node, files_digest, files_of, gres_conf, slurm_conf
from cloudgpu.core.clusters.layout import engine_paths, socket_directory_of
from cloudgpu.core.clusters.nodes import Ports
from tests.core.clusters.saying import node

EIGHT = [f"/dev/nvidia{number}" for number in range(8)]


def gang(*facts):
    return [Node(one, Ports(6818, None if number else 6817)) for number, one in enumerate(facts)]


def test_every_node_is_in_the_file_with_what_it_said():
    lines = slurm_conf("cg-1", gang(node(0, gpus=EIGHT), node(1, cores=16, memory_mb=64_000)), 1).splitlines()
    assert "SlurmctldHost=box0(10.0.0.5)" in lines
    assert [line for line in lines if line.startswith("NodeName")] == [
        "NodeName=train-0 NodeHostname=box0 NodeAddr=10.0.0.5 Port=6818 CPUs=32 RealMemory=121600 Gres=gpu:8 State=UNKNOWN",  # noqa: E501
        "NodeName=train-1 NodeHostname=box1 NodeAddr=10.0.0.6 Port=6818 CPUs=16 RealMemory=60800 State=UNKNOWN",
    ]
    assert f"AuthInfo=socket={engine_paths('cg-1', 1).munge_socket}" in lines
    assert "SlurmdParameters=config_overrides" not in lines  # a node that comes with less is drained, as it should be


def test_only_nodes_that_share_a_host_may_have_more_than_it_has():
    lines = slurm_conf("cg-1", gang(node(0, host="one"), node(1, host="one")), 0).splitlines()
    assert "SlurmdParameters=config_overrides" in lines


def test_device_files_are_ranges_where_they_follow_each_other():
    nodes = gang(node(0, gpus=EIGHT), node(1), node(2, gpus=["/dev/nvidia3"]), node(3, gpus=[EIGHT[0], EIGHT[2]]))
    assert gres_conf(nodes) == (
        "NodeName=train-0 Name=gpu File=/dev/nvidia[0-7]\n"
        "NodeName=train-2 Name=gpu File=/dev/nvidia3\n"
        "NodeName=train-3 Name=gpu File=/dev/nvidia[0,2]\n"
    )


def test_the_paths_of_sockets_are_short_whatever_the_cluster_is_called():
    assert len(f"{socket_directory_of('c' * 200, 63)}/spool/{'n' * 40}_4294967295.4294967295") <= 107


def test_slurm_listens_at_the_nodes_addresses_alone_where_each_name_means_them():
    own = [node(0, named="10.0.0.5"), node(1, named="10.0.0.6")]
    line = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"
    assert line in slurm_conf("cg-1", gang(*own), 1).splitlines()
    for other in ("127.0.1.1", "", "10.0.0.5"):  # as Debian writes it into /etc/hosts; not known; somebody else's
        mixed = [own[0], node(1, named=other)]
        assert "CommunicationParameters" not in slurm_conf("cg-1", gang(*mixed), 0)
        assert files_digest("cg-1", own) != files_digest("cg-1", mixed)


def test_another_address_is_another_plan_and_what_was_planned_before_is_no_part_of_it():
    one = files_digest("cg-1", [node(0), node(1)])
    assert one == files_digest("cg-1", [node(0, planned="x", alive=["slurmd"]), node(1)])
    assert (
        len({one, files_digest("cg-1", [node(0), node(1, address="10.0.0.9")]), files_digest("cg-2", [node(0)])}) == 3
    )


def test_a_tasks_environment_is_made_by_sh_alone(tmp_path):
    """`scontrol` is all that it needs besides: a stand-in for it prints the names."""
    there = tmp_path / "home"
    facts = [
        node(number, home=str(there), environ={"CLOUDGPU_MACHINE": f"m{number}", "PATH": path}, interfaces=2)
        for number, path in enumerate((f"/m0/bin:{tmp_path}:/usr/bin:/bin", "/m1/bin:/usr/bin:/bin"))
    ]
    files = files_of("cg-1", gang(*facts), 1)
    at = there / engine_paths("cg-1", 1).directory
    at.mkdir(parents=True)
    short = str(tmp_path / "short")
    for name, text in files.texts.items():
        (at / name).write_text(text.replace(engine_paths("cg-1", 1).socket_directory, short))
    (tmp_path / "short").mkdir()
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho train-0\necho train-1\n")
    (tmp_path / "scontrol").chmod(0o755)
    asked = {"SLURM_JOB_NODELIST": "train-[0-1]", "SLURM_JOB_ID": "10007", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0"}
    asked |= {
        "SLURM_JOB_NUM_NODES": "2",
        "CUDA_VISIBLE_DEVICES": "0,1,2",
        "PATH": f"/env/bin:/m0/bin:{tmp_path}:/usr/bin:/bin:/sbin",
    }
    done = subprocess.run(["sh", at / "task-prolog"], env=asked, capture_output=True, text=True, check=True)
    found = dict(line.removeprefix("export ").split("=", 1) for line in done.stdout.splitlines())
    assert found == {
        "CLOUDGPU_ENGINE": "cg-1/1",
        "HOME": str(there),
        "PATH": "/env/bin:/m1/bin:/usr/bin:/bin:/sbin",
        "CLOUDGPU_MACHINE": "m1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "CLOUDGPU_NODE_RANK": "1",
        "CLOUDGPU_NUM_NODES": "2",
        "CLOUDGPU_GPUS_PER_NODE": "3",
        "CLOUDGPU_NODE_IPS": "10.0.0.5 10.0.0.6",
        "CLOUDGPU_HOSTFILE": f"{short}/hosts-10007",
        "MASTER_ADDR": "10.0.0.5",
        "MASTER_PORT": "20007",
        "_CLOUDGPU_PORT_OF": "10007",
    }
    assert (tmp_path / "short" / "hosts-10007").read_text() == "train-0 slots=3\ntrain-1 slots=3\n"
