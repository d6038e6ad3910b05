"""The start script of a rented container, which has no systemd and no cloud-init. Pure.

`container_start` makes the script; `pack_start` makes a short command that unpacks it from the container's environment,
because APIs limit the length of arguments. Neither contains a secret: the environment can be read through the API.
`host_keys_in` reads the public host key from the container's log.
Sources: notes on RunPod and vast.ai (both give root, a process namespace and /workspace); sshd_config(5).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.machine import source
from cloudgpu.providers.machine.boot_script import write_lines
from cloudgpu.providers.machine.files import (
    AGENT_INTERVAL_S,
    DEFAULT_PORT,
    File,
    container_image,
    on_start_script,
    packages,
)
from cloudgpu.providers.shared.python_environment import jupyter_command, jupyter_requirements

MACHINE_VARIABLE = "CLOUDGPU_MACHINE"  # in the environment of every process of the machine
TAGS_VARIABLE = "CLOUDGPU_TAGS"  # variable with a machine's tags as a JSON object, read at each start
HOST_KEY_PREFIX = "cloudgpu-host-key: "
CHUNK_LENGTH = 7000  # characters of one variable; unverified: no documented limit is lower
_CHUNK_VARIABLE = "CLOUDGPU_START_"  # prefix of the variables with the packed script; their number follows
_HOST_KEY = re.compile(rf"^{HOST_KEY_PREFIX}(ssh-ed25519 [A-Za-z0-9+/=]+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A provider's settings for its containers.

    `end_command` is a shell command that ends this container's billing: the agent runs it with the reason as `$1`, each
    minute until the container is gone. It uses a key from the provider that can end only this container, never the
    user's own; empty: nothing inside can end it.

    `tags_command` is a shell command that prints the machine's current tags as a JSON object. While it prints none, the
    agent does not know whether the lease was extended, and ends the machine only at renew-until. Empty: the tags are
    those of `TAGS_VARIABLE` at the start, until a newer `~/.cloudgpu/tags.json` is written over SSH.

    `persistent_dir` is a directory that survives a stop.
    """

    end_command: str = ""
    tags_command: str = ""
    persistent_dir: str = "/workspace"
    ssh_port: int = DEFAULT_PORT


_DEFAULT_SPEC = ContainerSpec()


class PackedStart(NamedTuple):
    """A packed start script: `command` is for `sh -c`, `env` for the container's environment."""

    command: str
    env: Mapping[str, str]


def container_start(attempt: Attempt, container: ContainerSpec = _DEFAULT_SPEC) -> str:
    """Return the script as text for sh; deterministic.

    It creates a host key once below `container.persistent_dir`, prints its public half to the container's log, starts
    SSH with the launch's keys, keeps the agent running, installs the template's `packages` and runs `on_start`. It
    never ends.
    """
    directory = machine_dir(attempt, container)
    lines = [
        "#!/bin/sh",
        *_assignments(attempt, container, directory),
        'mkdir -p "$base" && chmod 700 "$base"',
        *write_lines(_files(attempt, container, directory)),
        *source("container.sh").splitlines()[1:],
    ]
    return "".join(f"{line}\n" for line in lines)


def machine_dir(attempt: Attempt, container: ContainerSpec = _DEFAULT_SPEC) -> str:
    """Return the machine's own directory below `persistent_dir`, to which ~/.cloudgpu links: volumes may be shared."""
    return f"{container.persistent_dir.rstrip('/')}/.cloudgpu-{attempt.machine}"


def pack_start(attempt: Attempt, container: ContainerSpec = _DEFAULT_SPEC) -> PackedStart:
    """Return the script as a short command and the variables that it unpacks; the image needs sh, base64 and gzip."""
    packed = gzip.compress(container_start(attempt, container).encode(), compresslevel=9, mtime=0)
    encoded = base64.b64encode(packed).decode("ascii")
    chunks = [encoded[start : start + CHUNK_LENGTH] for start in range(0, len(encoded), CHUNK_LENGTH)]
    env = {f"{_CHUNK_VARIABLE}{number}": chunk for number, chunk in enumerate(chunks)}
    references = "".join(f"${{{name}}}" for name in env)
    unpack = f'file="$(mktemp)" && printf %s "{references}" | base64 -d | gzip -dc >"$file"'
    command = f'umask 077; {unpack} && unset {" ".join(env)} && exec sh "$file"'
    return PackedStart(command, {MACHINE_VARIABLE: attempt.machine, **env})


def host_keys_in(log: str) -> tuple[str, ...]:
    """Return the last public host key (type and key) in a container's log; empty for none."""
    return tuple(_HOST_KEY.findall(log)[-1:])


def _assignments(attempt: Attempt, container: ContainerSpec, directory: str) -> list[str]:
    """Return the launch's values for the script, as shell assignments."""
    tags = Lease(attempt.expires, attempt.renew_until).tags()
    assignments = {
        "machine": attempt.machine,
        "token": attempt.token,  # the launch token: files that each launch writes once are marked with it
        "made": str(int(attempt.made_at.timestamp())),
        "expires": tags[TAG_EXPIRES],
        "renew_until": tags[TAG_RENEW_UNTIL],
        "keep": container.persistent_dir,
        "base": directory,
        "port": str(container.ssh_port),
        "packages": shlex.join(packages(attempt)),
        "jupyter": jupyter_requirements(attempt.boot.jupyter),
        "end": container.end_command,
        "ask": container.tags_command,
    }
    return [f"{name}={shlex.quote(value)}" for name, value in assignments.items()]


def _files(attempt: Attempt, container: ContainerSpec, directory: str) -> list[File]:
    """Return the files of the machine's directory, which each start writes."""
    boot = attempt.boot
    keys = "".join(f"{line.strip()}\n" for line in boot.client_public_keys)
    text_by_name = {
        "agent.py": boot.agent_source,
        "own.py": boot.own_meter_source,  # with it, the agent measures this machine's own processes alone
        "agent.json": json.dumps(_agent_settings(attempt, container, directory)),
        "client_keys": keys,
        "on_start.sh": on_start_script(attempt),
        "end": f"#!/bin/sh\n{container.end_command}" if container.end_command else "",
        "jupyter-run": _jupyter_run(directory) if jupyter_requirements(boot.jupyter) else "",
    }
    modes = {"end": "700", "jupyter-run": "700"}
    return [
        File(shlex.quote(f"{directory}/{name}"), text, modes.get(name, "600"))
        for name, text in text_by_name.items()
        if text.strip()
    ]


def _jupyter_run(directory: str) -> str:
    """Return the script that runs a module of Jupyter, after the start has found or installed it."""
    ready, failed = shlex.quote(f"{directory}/jupyter.python"), shlex.quote(f"{directory}/jupyter.failed")
    return (
        f"#!/bin/sh\nuntil [ -e {ready} ]; do\n"
        f"  if [ -e {failed} ]; then\n"
        '    echo "Jupyter could not be installed; ~/.cloudgpu/jupyter.log has the reason" >&2\n    exit 1\n  fi\n'
        f'  sleep 1\ndone\nexec "$(cat {ready})" -m "$@"\n'
    )


def _agent_settings(attempt: Attempt, container: ContainerSpec, directory: str) -> dict[str, Any]:
    """Return agent.json. The agent counts the machine's own processes, because /proc/stat is that of the host."""
    return {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # an earlier clock is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the tags can be read
        "jupyter": jupyter_command(attempt.boot.jupyter, f"{directory}/jupyter-run"),
        "root": container.persistent_dir,  # where JupyterLab begins, with its notebooks
        "metadata": {"kind": "file", "path": f"{directory}/tags.json"},
        "interval": AGENT_INTERVAL_S,
        "own": [f"{MACHINE_VARIABLE}={attempt.machine}"],  # in the environment of this machine's processes: see own.py
        "gpus": sum(gpu.count for gpu in attempt.offer.configuration.accelerators),
        "warn": True,  # the terminals are this machine's alone: its users are warned there before an end
        **({"end": [f"{directory}/end"]} if container.end_command else {}),
        **({"policy": dict(attempt.boot.policy)} if attempt.boot.policy else {}),
    }


def image_to_run(attempt: Attempt, chosen: str) -> str:
    """Return the image of a rented container: a template's `container`, unless `--image` names one.

    `chosen` is the image of the launch call: the one of `--image`, or the default.
    """
    if attempt.request.setup.image is not None:
        return chosen
    return container_image(attempt).strip() or chosen
