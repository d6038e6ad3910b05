"""Builds a machine's directory from an attempt, and starts its process.

Its own Python environment is empty and finds the packages of the environment that cloudgpu runs in behind its own: pip,
and what Jupyter's kernels need, are there at once, without a download. What is installed there goes with the machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import shlex
import subprocess
import sys
import sysconfig
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

MODULE = "cloudgpu.providers.local.machine"
AGENT_INTERVAL_S = 5
PROFILES = (".profile", ".zprofile")
MAX_TMPDIR_LENGTH = 60  # characters; sockets are made below it, and their paths end at 104 (macOS) or 108
_INHERITED_VARIABLES = (
    "LANG LANGUAGE TZ SHELL LD_LIBRARY_PATH DYLD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy"
).split()
_INHERITED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_")
_JUPYTER_MODULES = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}


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
    make_environment(built, Layout(final))
    _write_profiles(built, Layout(final))
    if attempt.boot.agent_source:
        _write_agent(built, Layout(final), attempt)
    write_json(built.record, record)
    for directory in (built.tags.parent, built.host_key.parent, built.agent, built.home, building):
        sync_directory(directory)


def rewrite_paths(layout: Layout, old_root: str) -> None:
    """Replace the old path of the machine's directory by its current one in all files that contain it."""
    new_root = str(layout.root)
    profiles, pip_scripts = (layout.home / name for name in PROFILES), (bin_dir(layout) / name for name in PIP_PROGRAMS)
    for file in (layout.agent / "agent.json", *profiles, *pip_scripts, _kernel_file(layout)):
        with contextlib.suppress(FileNotFoundError):
            text = file.read_text(encoding="utf-8")
            new_text = text.replace(new_root, old_root).replace(old_root, new_root)  # a second time changes nothing
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
    write_file(built.agent / "own.py", attempt.boot.own_source)
    wrapper = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$HOME/.cloudgpu/agent.py" "$@"\n'
    write_file(built.agent / "agent", wrapper, 0o700)
    settings = {
        "id": attempt.machine,
        "made": attempt.made_at.timestamp(),  # a clock that shows less is wrong
        "lease": Lease(attempt.expires, attempt.renew_until).tags(),  # until the metadata can be read
        "jupyter": jupyter_command(attempt.boot.jupyter),
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


def jupyter_command(command: tuple[str, ...]) -> list[str]:
    """Return a template's Jupyter command as it runs here: by the Python that runs cloudgpu, whatever PATH says."""
    program, *options = command or ("",)
    if program.startswith("jupyter-"):
        program, options = "jupyter", [program.removeprefix("jupyter-"), *options]
    if program != "jupyter":
        return list(command)
    module = _JUPYTER_MODULES.get(options[0]) if options else None
    return [sys.executable, "-m", module, *options[1:]] if module else [sys.executable, "-m", "jupyter", *options]


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


PIP_PROGRAMS = ("pip", "pip3")
_KERNEL = Path("kernels", "python3", "kernel.json")


def bin_dir(layout: Layout) -> Path:
    """Return the directory of the environment's programs, the first on the machine's PATH."""
    return layout.python / "bin"


def make_environment(built: Layout, final: Layout) -> None:
    """Make the environment in a machine that is being built `built` and will be renamed to `final`."""
    import venv  # only a launch needs it

    venv.create(built.python, symlinks=True)
    for script in bin_dir(built).glob("[Aa]ctivate*"):
        script.unlink()  # it names the directory in which the machine is built
    (packages,) = built.python.glob("lib/python*/site-packages")
    lines = [
        f"import site; site.addsitedir({directory!r})\n" for directory in _package_dirs()
    ]  # with the .pth files there
    if importlib.util.find_spec("pip") is None:
        lines += [f"{wheel}\n" for wheel in _pip_of_python()]
    (packages / "of-cloudgpu.pth").write_text("".join(lines), encoding="utf-8")
    python = bin_dir(final) / "python3"
    for name in PIP_PROGRAMS:
        write_file(bin_dir(built) / name, f'#!/bin/sh\nexec {shlex.quote(str(python))} -m pip "$@"\n', 0o755)
    _write_kernel(built, python)


def _package_dirs() -> list[str]:
    """Return the directories of the packages that cloudgpu runs with."""
    import site

    directories = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        directories.append(site.getusersitepackages())
    return list(dict.fromkeys(directories))


def _pip_of_python() -> list[Path]:
    """Return the pip that comes with Python, for where cloudgpu's environment has none (uv makes such).

    It runs from its wheel, as `ensurepip` has it do; to install it would take seconds at each launch. Debian keeps the
    wheel elsewhere.
    """
    ensurepip_spec, wheel_dir = importlib.util.find_spec("ensurepip"), sysconfig.get_config_var("WHEEL_PKG_DIR")
    directories = [Path(ensurepip_spec.origin).parent / "_bundled"] if ensurepip_spec and ensurepip_spec.origin else []
    directories += [Path(wheel_dir)] if wheel_dir else []
    return [wheel for directory in directories for wheel in sorted(directory.glob("pip-*.whl"))][:1]


def _kernel_file(layout: Layout) -> Path:
    return layout.home / ("Library/Jupyter" if sys.platform == "darwin" else ".local/share/jupyter") / _KERNEL


def _write_kernel(built: Layout, python: Path) -> None:
    """Let notebooks run in the environment: JupyterLab itself is cloudgpu's, and would start its own Python."""
    file = _kernel_file(built)
    file.parent.mkdir(mode=0o700, parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python", "metadata": {"debugger": True}}
    write_file(file, json.dumps(spec, indent=1) + "\n", 0o644)
