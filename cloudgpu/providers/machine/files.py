"""The files that user data writes on a machine, and the options that depend on its cloud.

INSTALL_DIR holds the agent, its settings, and the other programs. A template's Jupyter command runs in an environment
that the first start creates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.machine import source
from cloudgpu.providers.shared.python_environment import jupyter_command

INSTALL_DIR = "/usr/local/lib/cloudgpu"  # of the agent, its settings, and the other programs
DEFAULT_PORT = 22
USER = "cloudgpu"  # created by the user data on every machine


@dataclass(frozen=True, slots=True)
class BootOptions:
    """What the user data of a machine depend on, except its launch attempt.

    `reports`: it may write its last activity to its cloud (by a role, an identity, guest attributes), where it is read
    without SSH. `can_deallocate`: it can
    deallocate itself, where a shutdown does not end billing (Azure). `volume` identifies the data disk on the machine:
    AWS's volume id, empty for a new one; Google's device name; Azure's LUN.
    """

    cloud: Literal["aws", "gcp", "azure", "lambda"]
    ssh_port: int = DEFAULT_PORT
    reports: bool = False
    volume: str = ""
    can_deallocate: bool = False
    user: str = USER


AGENT_INTERVAL_S = 10  # the driver's GPU samples reach back 14 s, and a hook has to run after a spot notice
# Scripts: one runs the agent, one installs the program that runs a command in the machine's container (`inside`).
_AGENT_WRAPPER = '#!/bin/sh\nexec /usr/bin/python3 "$HOME/.cloudgpu/agent.py" "$@"\n'
_INSTALL_INSIDE = 'install -m 755 "$here/inside" "$base/inside"\n'


class File(NamedTuple):
    """A file on the machine: its path, its text, and its mode in octal digits."""

    path: str
    text: str
    mode: str


def files(attempt: Attempt, options: BootOptions) -> Iterable[File]:
    """Yield the files that cloud-init writes; the lease's own files are written by the boot hook."""
    boot = attempt.boot
    yield _installed_file("agent.py", boot.agent_source, "0644")
    yield _installed_file("agent.json", json.dumps(_agent_settings(attempt, options)), "0644")
    yield _installed_file("agent", _AGENT_WRAPPER, "0755")
    yield _installed_file("settle", _settle(attempt), "0755")
    yield _installed_file("start", source("start.sh"), "0755")
    if boot.jupyter:
        yield _installed_file("jupyter", source("jupyter.sh"), "0755")
    script = on_start_script(attempt)
    if script.strip():
        yield _installed_file("on_start.sh", script, "0644")
    if options.reports and options.cloud == "aws":
        yield _installed_file("report.py", source("report_aws.py"), "0644")
    if attempt.request.setup.volume is not None:
        yield _installed_file("volume", source("volume.sh"), "0755")
    if container_image(attempt):
        yield _installed_file("container", source("container_run.sh"), "0755")
        yield _installed_file("inside", source("inside.sh"), "0755")


def _settle(attempt: Attempt) -> str:
    """Return the script that installs the agent in the user's home; `inside` before it, since the agent starts jobs."""
    head, install_agent, tail = source("settle.sh").partition("install -m 600")
    return head + (_INSTALL_INSIDE if container_image(attempt) else "") + install_agent + tail


def on_start_script(attempt: Attempt) -> str:
    """Return the template's script for each start of the machine; empty for none."""
    return "\n".join(part.text for part in attempt.boot.parts if part.kind == "on_start")


def container_image(attempt: Attempt) -> str:
    """Return the image of the template's container; empty for none."""
    return next((part.text for part in attempt.boot.parts if part.kind == "container"), "")


def packages(attempt: Attempt) -> list[str]:
    """Return the names of the apt packages of the template, each once."""
    package_lists = (part.text.split() for part in attempt.boot.parts if part.kind == "packages")
    return list(dict.fromkeys(name for names in package_lists for name in names))


def _installed_file(name: str, text: str, mode: str) -> File:
    return File(f"{INSTALL_DIR}/{name}", text, mode)


def _agent_settings(attempt: Attempt, options: BootOptions) -> dict[str, Any]:
    """Return agent.json. The agent reads the lease and notices from files that the lease's timer writes."""
    return {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # an earlier clock is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the metadata can be read
        "jupyter": jupyter_command(attempt.boot.jupyter, f"{INSTALL_DIR}/jupyter"),
        "root": f"/home/{options.user}",
        "metadata": {"kind": "file", "path": "/run/cloudgpu/tags.json"},
        "notice": {"kind": "file", "path": "/run/cloudgpu/notice.json"},
        "events": {"kind": "file", "path": "/run/cloudgpu/events.json"},
        "end": ["sudo", "-n", f"{INSTALL_DIR}/lease", "end"],
        "interval": AGENT_INTERVAL_S,
        "gpus": sum(gpu.count for gpu in attempt.offer.configuration.accelerators),
        "warn": True,
        **({"policy": dict(attempt.boot.policy)} if attempt.boot.policy else {}),
    }
