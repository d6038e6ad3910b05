"""What a launch tells a host: the files, the record and the settings of the agent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.ssh import translate
from cloudgpu.providers.ssh.options import Host

AGENT_INTERVAL_S = 5


def _picked(host: Host, attempt: Attempt) -> dict[str, Any] | None:
    """Return which GPUs of the host the machine asks for; None where it takes the host as it is."""
    gpus = attempt.offer.available.accelerators
    if attempt.request.want.gpu is None or not gpus:
        return None
    name = None if host.gpu else gpus[0].name  # the settings may call them otherwise than nvidia-smi does
    return {"name": name, "count": sum(gpu.count for gpu in gpus), "part": gpus[0].out_of is not None}


def launch_body(host: Host, attempt: Attempt) -> dict[str, Any]:
    """Return what host.py is given to make the machine and start its agent: files, tags, lease, keys."""
    from cloudgpu.access.jupyter import client as jupyter
    from cloudgpu.providers.ssh.client import program

    boot = attempt.boot
    files = {"agent.py": boot.agent_source, "own.py": boot.own_source}
    files |= {"lab.py": jupyter.program().decode(), "host.py": program()}
    script = "\n".join(part.text for part in boot.parts if part.kind == "on_start")
    if script.strip():
        files["on_start.sh"] = script
    return {
        "files": files,
        "gpus": _picked(host, attempt),
        "tags": dict(attempt.tags),
        "jupyter": list(boot.jupyter),
        "agent": {
            "id": attempt.machine,
            "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
            "lease": Lease(attempt.expires, attempt.renew_until).tags(),
            "interval": AGENT_INTERVAL_S,
            "gpus": sum(gpu.count for gpu in attempt.offer.available.accelerators),
            "warn": True,
            **({"policy": dict(boot.policy)} if boot.policy else {}),
        },
        "record": {
            "id": translate.instance_id(host.name, attempt.token),
            "token": attempt.token,
            "machine": attempt.machine,
            "name": attempt.request.name,
            "keys": list(boot.client_public_keys),
            "market": str(Market.ON_DEMAND),
            "gpus": [asdict(gpu) for gpu in attempt.offer.available.accelerators],
        },
    }
