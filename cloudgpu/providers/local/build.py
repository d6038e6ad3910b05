"""Builds a machine's directory from an attempt, and starts its process."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudgpu.providers.local as local_package
from cloudgpu.access.computer import login_name
from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.local.layout import (
    Layout,
    hold_lifetime_lock,
    read_json,
    sync_directory,
    write_file,
    write_json,
)
from cloudgpu.providers.local.processes import MARKER_VARIABLE, marker, wait_for
from cloudgpu.providers.shared.python_environment import jupyter_command, kernel_spec, make_python

MODULE = "cloudgpu.providers.local.machine"
AGENT_INTERVAL_S = 5
PROFILES = (".profile", ".zprofile")
MAX_TMPDIR_LENGTH = 60  # characters; sockets are made below it, and their paths end at 104 (macOS) or 108
_INHERITED_VARIABLES = (
    "LANG LANGUAGE TZ SHELL LD_LIBRARY_PATH DYLD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy"
).split()
_INHERITED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_")


def build(building: Path, final: Path, attempt: Attempt, record: Mapping[str, Any]) -> None:
    """Write a machine's directory `building`, which will be renamed to `final`; everything is durable afterwards.

    Below, `built` has the paths in `building`, and `final` those that the files are to name.
    """
    built = Layout(building)
    for directory in (built.tags.parent, built.host_key.parent, built.logs, built.scratch, built.agent):
        directory.mkdir(mode=0o700, parents=True)
    write_file(built.host_key, attempt.boot.host_private_key)
    write_file(built.authorized_keys, "".join(f"{line.strip()}\n" for line in attempt.boot.client_public_keys))
    write_json(built.tags, attempt.tags)
    script = "\n".join(part.text for part in attempt.boot.parts if part.kind == "on_start")
    if script.strip():
        write_file(built.on_start, script)
        (built.agent / "on_start.log").symlink_to("../../log/on_start.log")  # where it is on other machines
    make_python(built.python)
    kernel_file = _kernel_file(built)
    kernel_file.parent.mkdir(mode=0o700, parents=True)
    write_file(kernel_file, kernel_spec(bin_dir(Layout(final)) / "python3"), 0o644)  # JupyterLab itself is cloudgpu's
    _write_profiles(built, Layout(final))
    if attempt.boot.agent_source:
        _write_agent(built, Layout(final), attempt)
    write_json(built.record, record)
    for directory in (built.tags.parent, built.host_key.parent, built.agent, built.home, building):
        sync_directory(directory)


def rewrite_paths(layout: Layout, old_root: str) -> None:
    """Replace the old path of the machine's directory by its current one in all files that contain it."""
    new_root = str(layout.root)
    profiles = (layout.home / name for name in PROFILES)
    for file in (layout.agent / "agent.json", *profiles, _kernel_file(layout)):
        with contextlib.suppress(FileNotFoundError):
            text = new_text = file.read_text(encoding="utf-8")
            for old, new in ((old_root, new_root), (json.dumps(old_root)[1:-1], json.dumps(new_root)[1:-1])):
                # One path may be a part of the other one. A second time changes nothing.
                roots = "|".join(map(re.escape, sorted((old, new), key=len, reverse=True)))
                new_text = re.sub(roots, lambda _match, new=new: new, new_text)  # type: ignore[misc]
            if new_text != text:
                write_file(file, new_text, file.stat().st_mode & 0o777)


def _write_profiles(built: Layout, final: Layout) -> None:
    """Keep the machine's Python first on PATH in login shells, whose system profiles set PATH anew."""
    path_lines = f'PATH={shlex.quote(_path_prefix(final))}:"$PATH"\nexport PATH\n'
    for name in PROFILES:
        write_file(built.home / name, path_lines, 0o644)


def _write_agent(built: Layout, final: Layout, attempt: Attempt) -> None:
    from cloudgpu.core.launch.plan import Lease  # a machine's own process imports this module, and makes no machine

    write_file(built.agent / "agent.py", attempt.boot.agent_source)
    write_file(built.agent / "own.py", attempt.boot.own_meter_source)
    wrapper = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$HOME/.cloudgpu/agent.py" "$@"\n'
    write_file(built.agent / "agent", wrapper, 0o700)
    settings = {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the metadata can be read
        "jupyter": jupyter_command(attempt.boot.jupyter, sys.executable, "-m"),
        "root": str(final.home),
        "metadata": {"kind": "file", "path": str(final.tags)},
        "notice": {"kind": "file", "path": str(final.spot)},
        "end": [sys.executable, "-P", "-m", MODULE, "--power-off", str(final.root)],
        "interval": AGENT_INTERVAL_S,
        "own": [f"{MARKER_VARIABLE}={marker(final.root)}"],  # nobody else's work on this computer is this machine's
        "gpus": sum(gpu.count for gpu in attempt.offer.configuration.accelerators),
        "warn": True,
        **({"policy": dict(attempt.boot.policy)} if attempt.boot.policy else {}),
    }
    write_file(built.agent / "agent.json", json.dumps(settings, indent=1) + "\n")


def spawn(layout: Layout) -> bool:
    """Start the machine process, which outlives this one; return False when one lives already.

    The lock on `alive` is taken here and inherited, so that the machine counts as alive from now on. A shell
    stands between, so that the process is no child of ours and leaves no zombie when it ends.
    """
    lock_descriptors: list[int] = []
    if not wait_for(
        lambda: _take_lifetime_lock(layout, lock_descriptors), 1.0
    ):  # a look at the lock holds it for an instant
        return False
    log = layout.logs / "machine.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    command = [sys.executable, "-P", "-m", MODULE, str(layout.root), "--alive", str(lock_descriptors[0])]
    try:
        with log.open("ab") as log_file:
            subprocess.run(  # noqa: S603  (our own words)
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                cwd=layout.home,
                env=_environ(layout),
                start_new_session=True,
                pass_fds=lock_descriptors,
                check=True,
            )
    finally:
        os.close(lock_descriptors[0])
    return True


def _take_lifetime_lock(layout: Layout, lock_descriptors: list[int]) -> bool:
    descriptor = hold_lifetime_lock(layout)
    if descriptor is not None:
        lock_descriptors.append(descriptor)
    return descriptor is not None


def _environ(layout: Layout) -> dict[str, str]:
    """Return the machine's environment: nothing of the caller's that may be secret, all that a shell needs."""
    inherited_names = [key for key in os.environ if key in _INHERITED_VARIABLES or key.startswith(_INHERITED_PREFIXES)]
    inherited = {key: os.environ[key] for key in inherited_names}
    user = login_name()
    machine_variables = {
        "HOME": str(layout.home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": inherited.get("SHELL") or _login_shell(),
        "PATH": f"{_path_prefix(layout)}:{os.environ.get('PATH', os.defpath)}",
        "JUPYTER_PREFER_ENV_PATH": "0",  # the kernels of the machine's home before those of cloudgpu's environment
        "PYTHONPATH": str(Path(local_package.__file__).parents[3]),
        MARKER_VARIABLE: (read_json(layout.record) or {}).get("mark", marker(layout.root)),
    }
    if len(str(layout.scratch)) <= MAX_TMPDIR_LENGTH:
        machine_variables["TMPDIR"] = str(layout.scratch)
    return {**inherited, **machine_variables}


def _login_shell() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _path_prefix(layout: Layout) -> str:
    """Return the first two directories of PATH: the machine's Python, and cloudgpu's own (with `jupyter`)."""
    return f"{bin_dir(layout)}:{Path(sys.executable).parent}"


_KERNEL = Path("kernels", "python3", "kernel.json")


def bin_dir(layout: Layout) -> Path:
    """Return the directory of the environment's programs, the first on the machine's PATH."""
    return layout.python / "bin"


def _kernel_file(layout: Layout) -> Path:
    return layout.home / ("Library/Jupyter" if sys.platform == "darwin" else ".local/share/jupyter") / _KERNEL
