"""Lists the files that a machine gets, and what a cloud says of it to those who write its boot data.

Below HERE are the agent with its settings, and the programs beside it. A template's Jupyter command runs by the
environment that the first start makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.machine import source

HERE = "/usr/local/lib/cloudgpu"
DEFAULT_PORT = 22
USER = "cloudgpu"  # whom the boot data make on every machine, whatever its image


@dataclass(frozen=True, slots=True)
class BootOptions:
    """What the boot data of a machine depend on, except its launch attempt.

    `reports`: it may say when it was last in use (a role, an identity, guest attributes). `can_deallocate`: it may end
    its own billing, where a shutdown from inside does not (Azure). `volume` is how the data disk is known on the
    machine: AWS the volume's id, empty for a new one; Google the device's name; Azure its LUN.
    """

    cloud: Literal["aws", "gcp", "azure", "lambda"]
    ssh_port: int = DEFAULT_PORT
    reports: bool = False
    volume: str = ""
    can_deallocate: bool = False
    user: str = USER


def is_watched(attempt: Attempt) -> bool:
    """Say whether a spot notice is looked out for all the time: AWS gives two minutes, the others half a minute."""
    return attempt.offer.available.market is Market.SPOT


_PIP = "jupyterlab>=4.4,<5"
_MODULES = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}


def jupyter_command(command: tuple[str, ...]) -> list[str]:
    """Return a template's Jupyter command as it runs there; any other command as it is."""
    module, rest = _module(command)
    return [f"{HERE}/jupyter", module, *rest] if module else list(command)


def pip(command: tuple[str, ...]) -> str:
    """Return what pip installs for a Jupyter command: names without spaces, separated by one."""
    module, _ = _module(command)
    return "" if not module else f"{_PIP} notebook" if module == "notebook" else _PIP


def _module(command: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the module that a Jupyter command runs and its options; an empty one for any other command."""
    program, *rest = command or ("",)
    if program.startswith("jupyter-"):
        program, rest = "jupyter", [program.removeprefix("jupyter-"), *rest]
    if program != "jupyter":
        return "", ()
    if rest and rest[0] in _MODULES:
        return _MODULES[rest[0]], tuple(rest[1:])
    return "jupyter", tuple(rest)


AGENT_INTERVAL_S = 10  # what a driver tells of its GPU reaches back 14; after a spot notice a hook has to run yet
_AGENT = '#!/bin/sh\nexec /usr/bin/python3 "$HOME/.cloudgpu/agent.py" "$@"\n'
_INSIDE = 'install -m 755 "$here/inside" "$base/inside"\n'


class File(NamedTuple):
    """A file as it is to be there: its path, its text, and its mode in octal digits."""

    path: str
    text: str
    mode: str


def files(attempt: Attempt, options: BootOptions) -> Iterable[File]:
    """Yield what comes after the lease, whose own files are the boot hook's."""
    boot = attempt.boot
    yield _here("agent.py", boot.agent_source, "0644")
    yield _here("agent.json", json.dumps(_agent_settings(attempt, options)), "0644")
    yield _here("agent", _AGENT, "0755")
    yield _here("settle", _settle(attempt), "0755")
    yield _here("start", source("start.sh"), "0755")
    if boot.jupyter:
        yield _here("jupyter", source("jupyter.sh"), "0755")
    script = on_start(attempt)
    if script.strip():
        yield _here("on_start.sh", script, "0644")
    if options.reports and options.cloud == "aws":
        yield _here("report.py", source("report_aws.py"), "0644")
    if attempt.request.setup.volume is not None:
        yield _here("volume", source("volume.sh"), "0755")
    if container(attempt):
        yield _here("container", source("container_run.sh"), "0755")
        yield _here("inside", source("inside.sh"), "0755")


def _settle(attempt: Attempt) -> str:
    """Return what prepares the home; the way into a container is there before the agent, through which jobs begin."""
    before, agent, after = source("settle.sh").partition("install -m 600")
    return before + (_INSIDE if container(attempt) else "") + agent + after


def on_start(attempt: Attempt) -> str:
    """Return the template's script for each start of the machine; empty for none."""
    return "\n".join(part.text for part in attempt.boot.parts if part.kind == "on_start")


def container(attempt: Attempt) -> str:
    """Return the image of the template's container; empty for none."""
    return next((part.text for part in attempt.boot.parts if part.kind == "container"), "")


def packages(attempt: Attempt) -> list[str]:
    """Return the system's packages that the template wants, each once."""
    named = (part.text.split() for part in attempt.boot.parts if part.kind == "packages")
    return list(dict.fromkeys(name for names in named for name in names))


def _here(name: str, text: str, mode: str) -> File:
    return File(f"{HERE}/{name}", text, mode)


def _agent_settings(attempt: Attempt, options: BootOptions) -> dict[str, Any]:
    """Return what the agent is told. Its lease and notices are those that the lease timer reads from the metadata."""
    policy = {"policy": dict(attempt.boot.policy)} if attempt.boot.policy else {}
    return {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the metadata can be read
        "jupyter": jupyter_command(attempt.boot.jupyter),
        "root": f"/home/{options.user}",
        "metadata": {"kind": "file", "path": "/run/cloudgpu/tags.json"},
        "notice": {"kind": "file", "path": "/run/cloudgpu/notice.json"},
        "events": {"kind": "file", "path": "/run/cloudgpu/events.json"},
        "end": ["sudo", "-n", f"{HERE}/lease", "end"],
        "interval": AGENT_INTERVAL_S,
        "gpus": sum(gpu.count for gpu in attempt.offer.available.accelerators),
        "warn": True,
        **policy,
    }
