"""A local machine's own Python environment: what is installed on the machine stays there, and goes with it.

It is empty and finds the packages of the environment that cloudgpu runs in behind its own: pip, and what Jupyter's
kernels need, are there at once, without a download.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import sysconfig
from pathlib import Path

from cloudgpu.providers.local.layout import Layout, write_file

PIPS = ("pip", "pip3")
_KERNEL = Path("kernels", "python3", "kernel.json")


def programs(layout: Layout) -> Path:
    """Return the directory of the environment's programs, the first on the machine's PATH."""
    return layout.python / "bin"


def make_environment(here: Layout, final: Layout) -> None:
    """Make the environment in a machine that is being built `here` and will be renamed to `final`."""
    import venv  # only a launch needs it

    venv.create(here.python, symlinks=True)
    for script in programs(here).glob("[Aa]ctivate*"):
        script.unlink()  # it names the directory in which the machine is built
    (packages,) = here.python.glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({one!r})\n" for one in _packages()]  # with the .pth files there
    if importlib.util.find_spec("pip") is None:
        lines += [f"{wheel}\n" for wheel in _pip_of_python()]
    (packages / "of-cloudgpu.pth").write_text("".join(lines), encoding="utf-8")
    python = programs(final) / "python3"
    for name in PIPS:
        write_file(programs(here) / name, f'#!/bin/sh\nexec {shlex.quote(str(python))} -m pip "$@"\n', 0o755)
    _write_kernel(here, python)


def _packages() -> list[str]:
    """Return the directories of the packages that cloudgpu runs with."""
    import site

    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return list(dict.fromkeys(found))


def _pip_of_python() -> list[Path]:
    """Return the pip that comes with Python, for where cloudgpu's environment has none (uv makes such).

    It runs from its wheel, as `ensurepip` has it do; to install it would take seconds at each launch. Debian keeps the
    wheel elsewhere.
    """
    beside, elsewhere = importlib.util.find_spec("ensurepip"), sysconfig.get_config_var("WHEEL_PKG_DIR")
    directories = [Path(beside.origin).parent / "_bundled"] if beside and beside.origin else []
    directories += [Path(elsewhere)] if elsewhere else []
    return [wheel for directory in directories for wheel in sorted(directory.glob("pip-*.whl"))][:1]


def naming_it(layout: Layout) -> list[Path]:
    """Return the files of the environment in which the machine's directory stands."""
    return [*(programs(layout) / name for name in PIPS), _kernel(layout)]


def _kernel(layout: Layout) -> Path:
    return layout.home / ("Library/Jupyter" if sys.platform == "darwin" else ".local/share/jupyter") / _KERNEL


def _write_kernel(here: Layout, python: Path) -> None:
    """Let notebooks run in the environment: JupyterLab itself is cloudgpu's, and would start its own Python."""
    file = _kernel(here)
    file.parent.mkdir(mode=0o700, parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python", "metadata": {"debugger": True}}
    write_file(file, json.dumps(spec, indent=1) + "\n", 0o644)
