"""What nodes say of themselves, made up."""

from __future__ import annotations

from cloudgpu.core.clusters.nodes import node_facts

SAID = {
    "cores": 32,
    "memory_mb": 128_000,
    "gpus": [],
    "version": "slurm-wlm 22.05.8",
    "munge": True,
    "user": "ada",
    "uid": 1000,
    "people": {},
    "root": False,
    "hostname": "box",
    "host": "one",
    "address": "10.0.0.5",
    "interface": "eth0",
    "interfaces": 1,
    "named": "127.0.1.1",
    "home": "/home/ada",
    "environ": {},
    "planned": "",
    "ports": None,
    "alive": [],
    "preparing": False,
}


def node(number, *, ahead_s=0.0, **said):
    """A node of its own host, which says what is given."""
    own = {"hostname": f"box{number}", "host": f"host {number}", "address": f"10.0.0.{number + 5}"}
    return node_facts(f"train-{number}", {**SAID, **own, **said}, ahead_s)
